"""The first budget of an audit: limits that it meets, a little above its shares, with a comment on each."""

import math

from auditor.check.budget import MISMATCHED, BudgetLimit
from auditor.check.named_shares import GENERAL, UnmeasuredError
from auditor.check.share_estimates import estimate_shares
from auditor.query.database import AuditDatabase
from auditor.report.finding_rules import list_rules

MARGIN = 1.1
HEAD = """\
# Limits of `auditor check`, written from {path}, which meets them. Lower them to what you need.
# A limit is a share of all rows ("3%" or 0.03); "mismatched" is a share of the scored pairs.
# docs/check.md explains every key.

[limits]
"""
EXAMPLES = """\

# In every shard, or in the groups of any other column:
# mismatched_shards = {{ share = "mismatched", per = "shard", at_most = "{share}" }}
# Any SQL condition, among the rows of another:
# small = {{ where = "width < 200 OR height < 200", among = "kind = 'image'", at_most = "1%" }}
# No medium that is also in a test set (after `auditor overlap AUDIT coco-test/`):
# overlap = {{ other = "coco-test/", at_most = 0 }}
# Not worse than an earlier audit (--baseline AUDIT):
# corrupt_change = {{ share = "corrupt", worse_by_at_most = "0.5%" }}
"""


def round_up(share: float) -> str:
    """A little more than a share, in percent with two digits; at least 0.1%."""
    percent = max(100 * share * MARGIN, 0.1)
    step = 10 ** (math.floor(math.log10(percent)) - 1)
    return f"{min(100.0, math.ceil(percent / step - 1e-9) * step):.6g}%"


def write_first_budget(database: AuditDatabase) -> str:
    """The text of a budget: the general shares, and those findings that the audit has."""
    meanings = {
        MISMATCHED: "captions that do not describe their medium (estimated)",
        "unusable": "rows that could not be audited",
        "ambiguous": "captions or media that show nothing in particular",
        "duplicates": "copies of other rows",
    }
    titles = {rule.name: rule.title for rule in list_rules(database) if rule.name != "mismatch"}
    lines = {}
    for name in (*meanings, *titles):
        try:
            [estimate] = estimate_shares(database, BudgetLimit(name, name))
        except (UnmeasuredError, ValueError):  # no estimate, no row
            continue
        if estimate.high or name in (MISMATCHED, *GENERAL):
            lines[name] = f'{name} = "{round_up(estimate.high)}"  # {meanings.get(name) or titles[name]}\n'
    largest = lines.get(MISMATCHED, '"3%"').split('"')[1]
    return HEAD.format(path=database.path) + "".join(lines.values()) + EXAMPLES.format(share=largest)
