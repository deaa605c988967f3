"""Groups of a corpus: counts equal plain SQL, conditions select the counted rows, small groups are shrunk."""

from pathlib import Path

import pytest

from auditor import Audit
from auditor.audit_folder.fault_records import Fault, write_faults
from auditor.query.corpus_groups import BINS, format_topic_name, group_rows, list_grouping_columns
from tests.support.synthetic import write_audit


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_audit(tmp_path_factory.mktemp("groups") / "audit", rows=3000, per_shard=500)


@pytest.mark.parametrize("by", ["shard", "topic", "kind", "width", "similarity", "mismatch", "error_message"])
@pytest.mark.parametrize("in_memory", [False, True])
def test_a_condition_finds_the_rows_of_its_part(audit: Path, by: str, in_memory: bool) -> None:
    opened = Audit(audit)
    if in_memory:
        opened.load_into_memory()
    found = group_rows(opened.database, by)
    assert sum(group.rows for group in found.groups) == opened.count() and not found.left_out
    for group in found.groups[:6]:
        assert opened.count(group.where) == group.rows
        where = f"({group.where}) AND status = 'ok'"
        mean = opened.sql(f"SELECT avg(similarity) AS s FROM samples WHERE {where}")["s"][0].as_py()
        assert group.similarity == pytest.approx(mean, abs=1e-6)
        if group.mismatched:
            assert group.mismatched.low < group.mismatched.share < group.mismatched.high
    if by == "similarity":
        assert len(found.groups) <= BINS + 1


def test_a_bad_shard_stands_out_with_its_fault(audit: Path) -> None:
    opened = Audit(audit)
    fault = Fault("shift", "shift", "00002", "a", "b", 1, 500, 1e-9, "captions are one place late")
    write_faults(opened.database.files.folder, [fault])
    found = {group.name: group for group in group_rows(opened.database, "shard").groups}
    assert found["00002"].faults == ("captions are one place late",) and not found["00001"].faults
    rates = opened.sql("SELECT shard, avg(p_mismatch) AS p FROM samples GROUP BY shard").to_pylist()
    assert all(found[row["shard"]].mismatched.share == pytest.approx(row["p"], abs=0.03) for row in rates)  # type: ignore[union-attr]


def test_columns_without_repetition_part_nothing(audit: Path) -> None:
    columns = list_grouping_columns(Audit(audit).database)
    assert columns[:2] == ["shard", "topic"] and not {"uid", "key", "caption", "media_path"} & set(columns)
    assert format_topic_name([["a dog", "dogs"]], 0) == "0: a dog" and format_topic_name([], 3) == "3"
