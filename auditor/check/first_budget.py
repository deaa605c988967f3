"""The first budget of an audit: limits a little above its shares, with a comment on each."""

import math

from auditor.check.budget import MISMATCHED, BudgetLimit
from auditor.check.share_estimates import estimate_shares
from auditor.errors import AuditError
from auditor.query.database import AuditDatabase
from auditor.report.finding_rules import list_rules

MARGIN = 1.1
HEAD = """\
# Limits for `auditor check`, a little above the shares of {path}: lower them to what you need.
# They are shares of all rows; mismatched, of the pairs that have an estimate. docs/check.md shows other limits.

[limits]
"""


def round_up(share: float) -> str:
    """A tenth more than a share, in percent, with two digits."""
    percent = max(100 * share * MARGIN, 0.1)
    step = 10 ** (math.floor(math.log10(percent)) - 1)
    return f"{min(100.0, math.ceil(percent / step - 1e-9) * step):.6g}%"


def write_first_budget(database: AuditDatabase) -> str:
    """The general shares, and the findings that the audit has."""
    titles = {MISMATCHED: "mismatched pairs (estimated)", "unusable": "rows that could not be audited"}
    titles |= {rule.name: rule.title for rule in list_rules(database) if rule.name != "mismatch"}
    text = HEAD.format(path=database.path)
    for name, title in titles.items():
        try:
            estimates = estimate_shares(database, BudgetLimit(name, name))
        except AuditError:
            continue
        if estimates and (estimates[0].high or name == MISMATCHED):
            text += f'{name} = "{round_up(estimates[0].high)}"  # {title}\n'
    return text
