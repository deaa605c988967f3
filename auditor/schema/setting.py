"""A setting of a command: a dataclass field that declares its help text, and how the command line spells it.

`auditor.commands.options` derives click options from these declarations, so that a default stands in one place.
"""

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any


def setting(default: Any, help: str, *, advanced: bool = True, flag: str | None = None, **details: Any) -> Any:
    """A dataclass field with an option of its own.

    `flag` is the option's name if it differs from the field's; `details` are a `metavar`, or the bounds `minimum`,
    `above`, and `below` of a number. Advanced settings are listed after the everyday ones.
    """
    return field(default=default, metadata={"help": help, "advanced": advanced, "flag": flag, **details})


def settings_in(config: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are settings of a dataclass, as its arguments."""
    return {item.name: values[item.name] for item in fields(config) if "help" in item.metadata and item.name in values}
