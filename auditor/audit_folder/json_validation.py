"""Check the shape of an audit's JSON files, so that a damaged file is reported in one line when it is read.

A shape looks like its value: a dict of fields, `{"": X}` for any field names, `[X]` for a list, one type or several.
"""

from typing import Any

from auditor.audit_folder.folder import Folder
from auditor.errors import AuditError

NUMBER = (int, float)
NUMBERS = [NUMBER]
SCORE_AGAIN = "`auditor score` writes it again"


class CompleteShape(dict[str, Any]):
    """A shape whose fields are all required."""


def find_shape_error(stored: Any, shape: Any, where: str = "") -> str:
    """Describe the first value that does not have its shape, or return "". Absent fields are allowed."""
    if isinstance(shape, dict):
        if not isinstance(stored, dict):
            return f"{where} is not an object"
        if isinstance(shape, CompleteShape) and (absent := next((name for name in shape if name not in stored), None)):
            return f"{where}.{absent} is missing"
        for name, value in stored.items():
            inner = shape.get(name, shape.get(""))
            if inner is not None and (error := find_shape_error(value, inner, f"{where}.{name}".lstrip("."))):
                return error
        return ""
    if isinstance(shape, list):
        if not isinstance(stored, list) or (shape is NUMBERS and not stored):
            return f"{where} is not a list" if shape is not NUMBERS else f"{where} is not a list of numbers"
        return next(filter(None, (find_shape_error(item, shape[0], where) for item in stored)), "")
    return "" if isinstance(stored, shape) else f"{where} is {stored!r}"


def read_valid_json(folder: Folder, name: str, shape: Any, remedy: str) -> Any:
    """Read a JSON file of an audit. Raises FileNotFoundError, or AuditError with the remedy if it is damaged."""
    try:
        content = folder.read_json(name)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        wrong = "not JSON" if isinstance(error, ValueError) else " ".join(str(error).split())
    else:
        wrong = find_shape_error(content, shape)
        if not wrong:
            return content
    raise AuditError(f"{folder.path(name)} is damaged: {wrong}; {remedy}")
