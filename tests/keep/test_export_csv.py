"""A CSV for spreadsheets: every kept row and column, and no formula."""

import csv
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from auditor.cli import run_command_line
from auditor.python_api import Audit
from tests.support.synthetic import write_corpus_audit


def test_every_kept_row_with_all_columns_and_no_formula(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    audit, _ = write_corpus_audit(tmp_path)
    file = audit / "samples" / "00000.parquet"
    table = pq.read_table(file)
    captions = ["=1+1", 'a "quoted",\ncaption of Zoë', *table["caption"].to_pylist()[2:]]
    place = table.schema.get_field_index("caption")
    pq.write_table(table.set_column(place, table.schema.field(place), [captions]), file)
    target = tmp_path / "rows.csv"
    assert run_command_line(["export", str(audit), "--csv", str(target), "--max-p-mismatch", "0.5"]) == 0
    assert target.read_bytes().startswith(b"\xef\xbb\xbf")  # Excel needs the mark to detect UTF-8
    with target.open(encoding="utf-8-sig", newline="") as opened:
        found = list(csv.DictReader(opened))
    with Audit(audit) as opened_audit:
        rows = opened_audit.sql("SELECT * FROM samples WHERE status = 'ok' AND p_mismatch <= 0.5").to_pylist()
        assert list(found[0]) == opened_audit.columns
    assert f"{len(rows)} rows" in capsys.readouterr().out
    expected = {(r["uid"], "'=1+1" if r["caption"] == "=1+1" else r["caption"], str(r["p_mismatch"])) for r in rows}
    assert {(r["uid"], r["caption"], r["p_mismatch"]) for r in found} == expected and len(found) == len(rows)
    assert any(caption in {r["caption"] for r in found} for caption in ("'=1+1", captions[1]))
    assert run_command_line(["export", str(audit), "--csv", str(target)]) == 1
    assert run_command_line(["export", str(audit), "--csv", str(tmp_path / "rows.xlsx")]) == 1
    assert "rows.xlsx is not a .csv file" in capsys.readouterr().err
    assert run_command_line(["export", str(audit)]) == 2
