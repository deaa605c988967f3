"""Options of the command line: derived from the settings of a dataclass, grouped into everyday and advanced ones.

A setting is a dataclass field that declares a help text (`auditor.schema.setting`); its name, type and default give
the option.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from functools import partial, reduce
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import click

from auditor.errors import AuditorError

Decorator = Callable[[Any], Any]
CORPUS_HELP = "Where the corpus is now, if it has moved since the audit."
POSITIVE, SEED = click.IntRange(min=1), click.IntRange(min=0)


class AdvancedOption(click.Option):
    """An option that `--help` lists after the everyday ones."""


option = partial(click.option, show_default=True)
advanced_option = partial(option, cls=AdvancedOption)
where_option = option("--where", help="Only rows that satisfy this SQL condition.")


def json_option(help: str = "Print JSON.") -> Decorator:
    return click.option("--json", "as_json", is_flag=True, help=help)


def count_option(default: int, help: str = "Number of rows.", *, least: int = 1) -> Decorator:
    return option("-n", "count", type=click.IntRange(min=least), default=default, help=help)


class GroupedCommand(click.Command):
    """A command whose `--help` lists everyday options first, the others under "Advanced options"."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [parameter for parameter in self.get_params(ctx) if isinstance(parameter, click.Option)]
        for title, advanced in (("Options", False), ("Advanced options", True)):
            group = [item for item in options if isinstance(item, AdvancedOption) == advanced]
            if records := [record for item in group if (record := item.get_help_record(ctx))]:
                with formatter.section(title):
                    formatter.write_dl(records)


def audit_command(function: Callable[..., None]) -> click.Command:
    """A command whose first argument is AUDIT."""
    return click.command(cls=GroupedCommand)(click.argument("audit")(function))


class ShareType(click.ParamType[float]):
    """A share such as '2%' or '0.02'. With `small`, a bare 1 is refused, because it may be meant as a percentage."""

    name = "share"

    def __init__(self, *, small: bool = False) -> None:
        self.small = small

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip()
        percent = text.endswith("%")
        try:
            share = float(text.removesuffix("%")) / (100 if percent else 1)
        except ValueError:
            share = -1.0
        if not 0 <= share <= 1 or (share == 1 and self.small and not percent and text == "1"):
            option = f"{param.opts[0]} " if param else ""
            raise AuditorError(f"{option}{text!r} is not a share: write it like 2% or 0.02")
        return share


SHARE, SMALL_SHARE = ShareType(), ShareType(small=True)


def add_options(options: Sequence[Decorator]) -> Decorator:
    """A decorator that adds options to a command; `--help` shows them in their order."""
    return lambda command: reduce(lambda decorated, decorate: decorate(decorated), reversed(options), command)


def options_from(config: type, *, optional: bool = False, skip: Container[str] = ()) -> list[Decorator]:
    """One option for each setting of a dataclass. Optional ones are None unless the user gives them."""
    hints = get_type_hints(config)
    settings = [item for item in fields(config) if "help" in item.metadata and item.name not in skip]
    return [option_from(item, hints[item.name], optional) for item in settings]


def option_from(item: "Field[Any]", hint: Any, optional: bool) -> Decorator:
    details = item.metadata
    flag = details.get("flag") or "--" + item.name.replace("_", "-")
    settings: dict[str, Any] = {"help": details["help"], "metavar": details.get("metavar")}
    if get_origin(hint) is tuple:
        settings |= {"callback": split_names, "default": "", "show_default": False, "metavar": "NAMES"}
    elif bool in (hint, *get_args(hint)):
        if optional or hint is not bool:
            flag, settings["default"] = f"{flag}/--no-{flag[2:]}", None
        else:
            settings["is_flag"] = True
    else:
        settings["type"] = click_type(hint, details)
        if not optional and item.default not in (MISSING, None):
            settings["default"] = item.default
    return (advanced_option if details.get("advanced") else option)(flag, item.name, **settings)


def click_type(hint: Any, details: Mapping[str, Any]) -> Any:
    """The click type of a setting; `X | None` counts as X."""
    is_union = get_origin(hint) in (Union, UnionType)
    plain = next(kind for kind in get_args(hint) if kind is not NoneType) if is_union else hint
    if get_origin(plain) is Literal:
        return click.Choice(get_args(plain))
    if details.get("share"):
        return SHARE
    low, high = details.get("minimum", details.get("above")), details.get("below")
    if low is None and high is None:
        return plain
    number_range = click.IntRange if plain is int else click.FloatRange
    return number_range(low, high, min_open="above" in details, max_open=high is not None)


def split_names(_: click.Context, __: click.Parameter, value: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    if value.strip() and not names:
        raise click.BadParameter(f"{value!r} has no name")
    return names
