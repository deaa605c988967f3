"""Declares a column and prints as JSON which lists of columns have it; test_schema.py runs it as a process."""

import importlib
import json
import sys

from auditor import schema
from auditor.schema import score_columns


def declare_column() -> None:
    novelty = schema.Column(
        "novelty",
        "float32",
        "Novelty",
        "how new the pair is",
        "score",
        suspicious="low",
        use="headline",
        short="new",
        sentence="{value} new",
        rule="Keep pairs at least this new.",
    )
    score_columns.SCORE_COLUMNS = (novelty, *score_columns.SCORE_COLUMNS)
    importlib.reload(schema)


def check_lists(folder: str) -> dict[str, bool]:
    """Imports what lists columns only now, after the declaration."""
    from auditor.audit_folder import arrow_schema
    from auditor.commands.everyday.filter import command
    from auditor.commands.look_closer.worst import command as worst
    from auditor.python_api import Audit
    from auditor.query.sample_tables import NUMBERS
    from auditor.report.report import render_report
    from dashboard import display_text
    from dashboard.url_state import parse_view
    from docs.generate import columns_page

    audit = Audit(folder)
    options = {option for parameter in command.params for option in parameter.opts}
    types = audit.sql("SELECT typeof(any_value(novelty)) AS t, count(novelty) AS n FROM samples").to_pylist()
    return {
        "files": arrow_schema.SAMPLES.field("novelty").type == "float",
        "dictionary": "novelty" not in arrow_schema.STORAGE["use_dictionary"],
        "memory": "novelty" in NUMBERS,
        "view": types == [{"t": "FLOAT", "n": 0}],
        "option": "--min-novelty" in options,
        "help": "novelty" in worst.get_help(worst.make_context("worst", ["a"])),
        "rule": audit.keep(min_novelty=0.1, unscored="drop").count == 0,
        "direction": audit.worst("novelty").num_rows == 0,
        "summary": "novelty" not in audit.summary().typical,
        "compare": "novelty" in audit.compare(audit).correlation,
        "report": "Novelty" not in render_report(audit.database, media=False),
        "label": display_text.column_label("novelty") == "Novelty",
        "sentence": display_text.describe_scores({"novelty": 0.5}, {})[0].sentence == "0.5 new",
        "range": parse_view("novelty=0.1&novelty=0.2").selection.ranges == {"novelty": (0.1, 0.2)},
        "docs": "`novelty`" in columns_page(),
    }


if __name__ == "__main__":
    declare_column()
    print(json.dumps(check_lists(sys.argv[1])))
