"""Options that select rows of an audit, shared by `filter`, `weigh`, `export` and `certify`."""

from functools import partial
from typing import TYPE_CHECKING, Any

from auditor.commands.options import SHARE, SMALL_SHARE, add_options, advanced_option, option, options_from
from auditor.query.rules import RuleError, Rules, parse_limit
from auditor.schema import HEADLINES, RULES
from auditor.terminal import print_line

if TYPE_CHECKING:
    from auditor.keep.subset import Subset
    from auditor.python_api import Audit

selection_options = add_options([
    *((option if column.name in HEADLINES else advanced_option)(
        f"--{rule}".replace("_", "-"), rule, help=column.rule,
        metavar="X or X%" if column.value_range == (0, 1) else "X") for rule, column in RULES.items()),
    advanced_option("--max", "at_most", multiple=True, metavar="COLUMN=X",
                    help="Keep rows with at most X in this column."),
    advanced_option("--min", "at_least", multiple=True, metavar="COLUMN=X",
                    help="Keep rows with at least X in this column."),
    *options_from(Rules),
    option("--recommended", "is_recommended", is_flag=True,
           help="Also leave out pairs that are probably mismatched, and vague captions."),
    option("--lose-at-most", type=SMALL_SHARE,
           help="Choose the cut-off of p_mismatch that loses at most this share (such as 2%) of good pairs."),
    advanced_option("--expect-precision", type=SHARE,
                    help="Choose the cut-off at which this share of the removed pairs is mismatched."),
])  # fmt: skip


def select_rows(audit: "Audit", rules: dict[str, Any]) -> "Subset":
    return audit.keep(**build_rules(audit, rules))


def build_rules(audit: "Audit", values: dict[str, Any]) -> dict[str, Any]:
    """The values of these options as arguments of `Audit.keep`."""
    rules = dict(values)
    if towards := rules["towards"]:
        rules["towards"] = find_target_column(audit, towards, rules)
    if rules.pop("is_recommended"):
        add_recommended_limits(audit, rules)
    lose_at_most, expect_precision = rules.pop("lose_at_most"), rules.pop("expect_precision")
    if lose_at_most is not None or expect_precision is not None:
        column = (None if is_ranked(rules) else rules.pop("by", None)) or "p_mismatch"
        limits = {"lose_at_most": lose_at_most, "expect_precision": expect_precision, "where": rules.get("where")}
        rules[f"max_{column}"] = apply_promise(audit, column, limits, rules.get(f"max_{column}"))
    maxima, minima = parse_column_limits("max", rules.pop("at_most")), parse_column_limits("min", rules.pop("at_least"))
    return {**rules, "max": maxima, "min": minima}


def is_ranked(rules: dict[str, Any]) -> bool:
    """Whether `by` ranks rows, of which a number or share is kept."""
    return any(rules.get(rule) for rule in ("keep_top", "count", "share"))


def find_target_column(audit: "Audit", other: str, rules: dict[str, Any]) -> str:
    """The column with the similarity to OTHER; computed if the audit does not have it."""
    Rules.of({rule: rules[rule] for rule in ("towards", "count", "share", "diverse")})  # refused before the work
    if other in audit.columns:
        return other
    from auditor.audit_folder.audit_files import get_shard_name

    other = other.rstrip("/")
    options: dict[str, Any] = {}
    for source in audit.database.files.sources:
        if "norm" in source.about and str(source.about.get("from")).rstrip("/") == other:
            if set(source.files) >= {*map(get_shard_name, audit.database.files.all)}:
                return source.name
            options = {"name": source.name.removeprefix("towards_"), "norm": source.about["norm"], "force": True}
    result = audit.towards(other, quiet=False, **options)
    print_line(result.describe(), err=True)
    return result.name


def add_recommended_limits(audit: "Audit", rules: dict[str, Any]) -> None:
    """Add the recommended limits to the rules; a stricter limit of the user stays."""
    limits = audit.recommend_rules()
    bounds = ", ".join(f"{rule.removeprefix('max_')} <= {limit:.5g}" for rule, limit in limits.items())
    print_line(f"recommended: {bounds}", err=True)
    for rule, limit in limits.items():
        rules[rule] = choose_stricter(rule, limit, rules[rule])


def parse_column_limits(end: str, texts: tuple[str, ...]) -> dict[str, float]:
    limits = {}
    for text in texts:
        column, _, value = text.partition("=")
        try:
            limits[column.strip()] = parse_limit(f"{end}_{column.strip()}", value)
        except RuleError as error:
            raise RuleError(f"--{end} {text!r}: {error}; write it like --{end} aesthetics_score=5") from None
    return limits


def apply_promise(audit: "Audit", column: str, limits: dict[str, Any], limit: str | None) -> float:
    """The cut-off of a column for the promised loss or precision of the rows that `where` selects."""
    choose = audit.choose_cut if column == "p_mismatch" else partial(audit.choose_uncertainty_cut, column)
    cut = float(choose(**limits))
    print_line(f"cut: {column} <= {cut:.5g}", err=True)
    return choose_stricter(f"max_{column}", cut, limit)


def choose_stricter(rule: str, cut: float, limit: str | float | None) -> float:
    return cut if limit is None else min(cut, parse_limit(rule, limit))
