"""A first budget: limits a little above the shares of an audit, with a comment on each."""

import math

from auditor.check.budget import MISMATCHED, BudgetLimit
from auditor.check.share_estimates import estimate_shares
from auditor.errors import AuditError
from auditor.query.database import AuditDatabase
from auditor.report.finding_rules import list_rules

HEAD = """\
# Limits of `auditor check`, a little above the shares of {path}; docs/check.md shows more kinds of limits.

[limits]
"""


def write_first_budget(database: AuditDatabase) -> str:
    titles = {MISMATCHED: "mismatched pairs (estimated)", "unusable": "rows that could not be audited"}
    titles |= {rule.name: rule.title for rule in list_rules(database) if rule.name != "mismatch"}
    text = HEAD.format(path=database.path)
    for name, title in titles.items():
        try:
            estimates = estimate_shares(database, BudgetLimit(name, name))
        except AuditError:
            continue
        if estimates and (estimates[0].high or name == MISMATCHED):
            percent = min(100, math.ceil(1100 * estimates[0].high) / 10)  # a tenth more
            text += f'{name} = "{percent:g}%"  # {title}\n'
    return text
