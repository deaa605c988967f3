"""Every column is declared once: declarations are complete and all lists derive from them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pyarrow.parquet as pq

from auditor import schema
from auditor.audit_folder import arrow_schema
from auditor.python_api import Audit
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
    assert all(text.label and text.meaning for text in (*schema.STATUSES.values(), *schema.MARKS.values()))
    assert {flag.measure for flag in schema.FLAGS.values()} <= set(schema.SCORES)


def test_files_hold_the_declared_columns_in_their_order(tmp_path: Path) -> None:
    assert arrow_schema.SAMPLES.names == [*schema.FACTS, *schema.SCORES]
    with Audit(write_audit(tmp_path, 20, 10)) as audit:
        assert audit.columns == list(schema.COLUMNS)


def test_an_audit_from_before_a_column_opens_with_the_column_empty(tmp_path: Path) -> None:
    folder = write_audit(tmp_path, 40, 20)
    for file in (folder / "samples").iterdir():
        pq.write_table(pq.read_table(file).drop_columns(["ambiguity_text", "topic", "frame_spread"]), file)
    with Audit(folder) as audit:
        described = {row["column_name"]: row["column_type"] for row in audit.sql("DESCRIBE samples").to_pylist()}
        names = ("ambiguity_text", "topic", "frame_spread")
        assert [described[name] for name in names] == ["FLOAT", "SMALLINT", "FLOAT"]
        row = audit.sql("SELECT * FROM samples LIMIT 1").to_pylist()[0]
        assert row["ambiguity_text"] is None and row["topic"] is None and row["ambiguous_text"] is False
        assert "ambiguity_text" not in audit.summary().typical and "p_mismatch" in audit.summary().typical
        assert audit.page(order_by="topic", limit=5).num_rows == 5


def test_a_new_column_is_one_entry(tmp_path: Path) -> None:
    """One declaration makes the column appear in every list; the audit was written before the column existed."""
    folder = write_audit(tmp_path, 60, 20)
    process = subprocess.run(
        [sys.executable, "-m", "tests.schema.new_column", str(folder)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    checks = json.loads(process.stdout.splitlines()[-1])
    assert {name for name, holds in checks.items() if not holds} == set()
