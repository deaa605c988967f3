"""Audits of image-text and video-text corpora: sweep, score, query, filter.

Reading an audit needs neither torch nor Ray::

    from auditor import Audit

    audit = Audit("audit/")
    print(audit.summary())
    for sample in audit.keep(max_p_mismatch=0.1).webdataset():
        ...
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from auditor.python_api import Audit

__version__ = "0.1.0"
__all__ = ["Audit", "__version__"]


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])


def __getattr__(name: str) -> Any:
    if name == "Audit":  # DuckDB is imported only by those who query
        from auditor.python_api import Audit

        return Audit
    raise AttributeError(f"module 'auditor' has no attribute {name!r}")
