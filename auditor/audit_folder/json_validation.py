"""What a JSON file of an audit must look like, so that a damaged one is told in a line and not found out half-way.

A shape is written like the value: a dict of the fields, `{"": X}` for any names, `[X]` for a list, a type or several.
"""

from typing import Any

from auditor.audit_folder.folder import Folder
from auditor.errors import AuditError

NUMBER = (int, float)
NUMBERS = [NUMBER]


class Whole(dict[str, Any]):
    """A shape whose fields must all be there."""


def first_wrong(stored: Any, shape: Any, where: str = "") -> str:
    """Where JSON is not as `shape` says; empty where it is. Fields that are absent are not wrong."""
    if isinstance(shape, dict):
        if not isinstance(stored, dict):
            return f"{where} is not an object"
        if isinstance(shape, Whole) and (absent := next((name for name in shape if name not in stored), None)):
            return f"{where}.{absent} is missing"
        parts = [(name, inner) for name, inner in shape.items() if name] + [
            (name, shape[""]) for name in stored if "" in shape
        ]
        found = (
            first_wrong(stored[name], inner, f"{where}.{name}".lstrip(".")) for name, inner in parts if name in stored
        )
        return next(filter(None, found), "")
    if isinstance(shape, list):
        if not isinstance(stored, list) or (shape is NUMBERS and not stored):
            return f"{where} is not a list" if shape is not NUMBERS else f"{where} is not a list of numbers"
        return next(filter(None, (first_wrong(item, shape[0], where) for item in stored)), "")
    return "" if isinstance(stored, shape) else f"{where} is {stored!r}"


def read_shaped(folder: Folder, name: str, shape: Any, remedy: str) -> Any:
    """A JSON file of an audit as it must be; FileNotFoundError where there is none, else a line with the remedy."""
    try:
        found = folder.read_json(name)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        wrong = "not JSON" if isinstance(error, ValueError) else " ".join(str(error).split())
    else:
        wrong = first_wrong(found, shape)
        if not wrong:
            return found
    raise AuditError(f"{folder.path(name)} is damaged: {wrong}; {remedy}")
