"""Queues hold the right rows in order; label samples stay as drawn."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor import Audit
from auditor.errors import AuditorError
from auditor.query.database import AuditDatabase
from auditor.review.review_queues import fetch_queue, fetch_reviewer_marks, list_queues
from tests.support.planted import make_embeddings, write_planted
from tests.support.synthetic import write_audit, write_corpus_audit


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audit]:
    with Audit(write_audit(tmp_path_factory.mktemp("queues") / "audit", rows=600, per_shard=200)) as opened:
        yield opened


def fetch_queue_values(audit: Audit, name: str, column: str, **given: object) -> list[float]:
    found = fetch_queue(audit.database, name, **given)  # type: ignore[arg-type]
    rows = {(row["uid"], row["caption_index"], row["shard"]): row for row in audit.page(limit=600).to_pylist()}
    return [rows[place.uid, place.caption_index, place.shard][column] for place in found]


@pytest.mark.parametrize("in_memory", [False, True])
def test_orders(audit: Audit, in_memory: bool) -> None:
    if in_memory:
        audit.load_into_memory()
    worst = audit.worst(n=20)["p_mismatch"].to_pylist()
    assert fetch_queue_values(audit, "most suspicious", "p_mismatch", limit=20) == worst
    near = [abs(p - 0.5) for p in fetch_queue_values(audit, "nearest the decision", "p_mismatch", limit=20)]
    assert near == sorted(near) and near[-1] < 0.5
    drawn = fetch_queue(audit.database, "random", limit=100)
    assert drawn == fetch_queue(audit.database, "random", limit=100)
    assert drawn != sorted(drawn, key=lambda place: place.uid)
    assert set(fetch_queue_values(audit, "random", "kind", where="kind = 'video'", limit=30)) == {"video"}


def test_disagreement_is_largest_first(tmp_path: Path) -> None:
    write_planted(tmp_path / "audit", *make_embeddings(200), shards=2)
    audit = Audit(tmp_path / "audit")
    rows = audit.sql("SELECT uid, similarity, mismatch_score FROM samples WHERE p_mismatch IS NOT NULL").to_pandas()
    similarity, score = rows["similarity"].to_numpy(float), rows["mismatch_score"].to_numpy(float)
    apart = abs((similarity - similarity.mean()) / similarity.std() - (score - score.mean()) / score.std())
    expected = rows["uid"][apart.argsort()[::-1][:10]].tolist()
    assert apart.max() > 0.5
    assert [
        place.uid for place in fetch_queue(audit.database, "p_mismatch and similarity disagree", limit=10)
    ] == expected


def test_a_certification_sample_is_a_queue(audit: Audit) -> None:
    sample = audit.certification_sample(30)
    assert f"certification {sample.name}" in list_queues(audit.database)
    found = fetch_queue(audit.database, f"certification {sample.name}", where="FALSE")
    assert [(place.uid, place.caption_index) for place in found] == [(r.uid, r.caption_index) for r in sample.rows]
    with pytest.raises(AuditorError, match="there is no queue 'x'"):
        fetch_queue(audit.database, "x")
    audit.mark(found[0].uid, "bad", caption_index=found[0].caption_index, reviewer="o'neil")
    assert fetch_reviewer_marks(audit.database, "o'neil") == {(found[0].uid, found[0].caption_index): "bad"}


def test_rows_that_the_encoder_cannot_judge_come_in_random_order(tmp_path: Path) -> None:
    audit, _ = write_corpus_audit(tmp_path)
    for file in (audit / "samples").iterdir():
        table = pq.read_table(file)
        place = table.schema.get_field_index("p_mismatch")
        empty = pa.nulls(len(table), table.schema.field(place).type)
        pq.write_table(table.set_column(place, table.schema.field(place), empty), file)
    with AuditDatabase(audit) as database:
        rows = fetch_queue(database, "most suspicious", limit=10)
        assert len(rows) == 10 and rows == fetch_queue(database, "random", limit=10)
