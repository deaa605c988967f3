"""A column is declared once: declarations are complete, all lists derive from them, old audits open with new ones."""

import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pyarrow.parquet as pq

from auditor import schema
from auditor.audit import Audit
from auditor.audit_folder import arrow_schema
from tests.support.synthetic import write_audit

ROOT = Path(__file__).resolve().parents[2]


def test_every_column_says_what_it_is() -> None:
    for column in schema.COLUMNS.values():
        assert column.type in get_args(schema.Type) and column.label and column.meaning, column.name
        measured = column.use in {"headline", "measurement"}
        assert not measured or (column.suspicious and column.in_memory and column.type == "float32"), column.name
        assert column.use != "headline" or (column.short and column.sentence and column.rule), column.name
        assert not column.rule or column.suspicious, column.name
        column.sentence.format(value="1", percent="1%", kind="image")


def test_every_value_of_status_and_review_is_described() -> None:
    assert tuple(schema.STATUSES) == get_args(schema.Status)
    assert tuple(schema.MARKS) == get_args(schema.Mark)
    assert all(word.label and word.meaning for word in (*schema.STATUSES.values(), *schema.MARKS.values()))
    assert {flag.measure for flag in schema.FLAGS.values()} <= set(schema.SCORES)


def test_files_hold_the_declared_columns_in_their_order(tmp_path: Path) -> None:
    assert arrow_schema.SAMPLES.names == [*schema.FACTS, *schema.SCORES]
    with Audit(write_audit(tmp_path, 20, 10)) as audit:
        assert audit.columns == list(schema.COLUMNS)


def test_an_audit_from_before_a_column_opens_with_the_column_empty(tmp_path: Path) -> None:
    folder = write_audit(tmp_path, 40, 20)
    for file in (folder / "samples").iterdir():
        pq.write_table(pq.read_table(file).drop_columns(["matches_text", "topic", "frame_spread"]), file)
    with Audit(folder) as audit:
        described = {row["column_name"]: row["column_type"] for row in audit.sql("DESCRIBE samples").to_pylist()}
        assert [described[name] for name in ("matches_text", "topic", "frame_spread")] == ["FLOAT", "SMALLINT", "FLOAT"]
        row = audit.sql("SELECT * FROM samples LIMIT 1").to_pylist()[0]
        assert row["matches_text"] is None and row["topic"] is None and row["ambiguous_text"] is False
        assert "matches_text" not in audit.summary().typical and "p_mismatch" in audit.summary().typical
        assert audit.page(order_by="topic", limit=5).num_rows == 5


NEW_COLUMN = """
import sys, importlib, json
from auditor import schema

schema.ambiguity.AMBIGUITY = (
    schema.Column(
        "novelty", "float32", "Novelty", "how new the pair is", "score", suspicious="low", use="headline",
        in_memory=True, short="new", sentence="{value} new", rule="Keep pairs at least this new.",
    ),
    *schema.ambiguity.AMBIGUITY,
)
importlib.reload(schema.lists)
importlib.reload(schema)

from auditor.audit import Audit
from docs.generate import columns_page
from auditor.commands.filter import command
from auditor.commands.worst import command as worst
from auditor.query.in_memory import NUMBERS
from auditor.report.report import ReportOptions, render
from auditor.audit_folder import arrow_schema
from dashboard import words
from dashboard.url_state import view_of

audit = Audit(sys.argv[1])
options = {option for parameter in command.params for option in parameter.opts}
print(json.dumps({
    "files": arrow_schema.SAMPLES.field("novelty").type == "float",
    "dictionary": "novelty" not in arrow_schema.STORAGE["use_dictionary"],
    "memory": "novelty" in NUMBERS,
    "view": audit.sql("SELECT typeof(any_value(novelty)) AS t, count(novelty) AS n FROM samples").to_pylist()
            == [{"t": "FLOAT", "n": 0}],
    "option": "--min-novelty" in options,
    "help": "novelty" in worst.get_help(worst.make_context("worst", ["a"])),
    "rule": audit.keep(min_novelty=0.1, unscored="drop").count == 0,
    "direction": audit.worst("novelty").num_rows == 0,
    "summary": "novelty" not in audit.summary().typical,
    "compare": "novelty" in audit.compare(audit).correlation,
    "report": "Novelty" not in render(audit.database, ReportOptions(0, media=False)),
    "label": words.label("novelty") == "Novelty",
    "sentence": words.score_words({"novelty": 0.5}, {})[0].words == "0.5 new",
    "range": view_of({"novelty": ["0.1", "0.2"]}).selection.ranges == {"novelty": (0.1, 0.2)},
    "docs": "`novelty`" in columns_page(),
}))
"""


def test_a_new_column_is_one_entry(tmp_path: Path) -> None:
    """Declared in the file of its topic, it appears wherever columns are listed; the audit here is older than it."""
    folder = write_audit(tmp_path, 60, 20)
    done = subprocess.run(
        [sys.executable, "-c", NEW_COLUMN, str(folder)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert {name for name, holds in found.items() if not holds} == set()
