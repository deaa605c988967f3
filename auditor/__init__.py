"""Audits of image-text and video-text corpora: sweep, score, query, filter.

Reading an audit needs neither torch nor Ray::

    import auditor

    audit = auditor.Audit("audit/")  # a finished one; auditor.audit("photos/", model=...) makes one
    print(audit.summary())
    for sample in audit.keep(max_p_mismatch=0.1).webdataset():
        ...
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from auditor.python_api import Audit, audit

__version__ = "0.1.0"
__all__ = ["Audit", "__version__", "audit"]


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])


def __getattr__(name: str) -> Any:
    if name in ("Audit", "audit"):  # DuckDB is imported only by those who query
        from auditor import python_api

        return getattr(python_api, name)
    raise AttributeError(f"module 'auditor' has no attribute {name!r}")
