"""Groups of a corpus: counts equal plain SQL, conditions select the counted rows, small groups are shrunk."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor import Audit
from auditor.audit_folder.fault_records import Fault, write_faults
from auditor.query.corpus_groups import (
    BINS,
    FACETS,
    build_facet_condition,
    count_facets,
    format_topic_name,
    group_rows,
    list_facets,
    list_grouping_columns,
)
from auditor.query.join_columns import join_columns
from auditor.schema import FLAGS
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


@pytest.mark.parametrize("in_memory", [False, True])
def test_the_values_of_facets_are_counted_under_the_other_filters(tmp_path: Path, in_memory: bool) -> None:
    """Every count equals that of its value's condition: names, ranges of fractions, missing values, odd columns."""
    folder = write_audit(tmp_path / "audit", rows=1200, per_shard=400)
    with Audit(folder) as opened:
        uids = sorted(set(opened.sql("SELECT uid FROM samples")["uid"].to_pylist()))
    odd = 'a "source" & more'
    columns = {
        odd: [("web", "<b>", "it's", None)[i % 4] for i in range(len(uids))],
        "flag": [i % 3 for i in range(len(uids))],
    }
    pq.write_table(
        pa.table({"uid": uids, "score": [i / 7 for i in range(len(uids))], **columns}), tmp_path / "more.parquet"
    )
    with Audit(folder) as opened:
        join_columns(opened.database, str(tmp_path / "more.parquet"), "uid")
    with Audit(folder) as opened:
        if in_memory:
            opened.load_into_memory()
        facets = list_facets(opened.database)
        assert facets == [*FACETS, "col-score", f"col-{odd}", "col-flag"]
        where = "width > 300"
        counts = count_facets(opened.database, {**dict.fromkeys(facets, where), "kind": None})
        assert {value.value for value in counts["flag"]} == set(FLAGS)
        assert {value.value for value in counts[f"col-{odd}"]} == {"web", "<b>", "it's", "(none)"}
        for facet in facets:
            for value in counts[facet]:
                condition = build_facet_condition(opened.database, facet, [value.value])
                other = "TRUE" if facet == "kind" else where
                assert opened.count(f"({condition}) AND {other}") == value.rows, (facet, value)
        assert 1 < len(counts["col-score"]) <= BINS and " to " in counts["col-score"][0].label
        alone = count_facets(opened.database, {"flag": where})
        assert alone["flag"] == counts["flag"]
        assert opened.count(build_facet_condition(opened.database, "col-score", ["99", "x"])) == 0
