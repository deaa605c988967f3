"""Topics at a chosen number: a column of the audit, balanced like any other, computed once."""

from pathlib import Path

import numpy as np
import pytest

from auditor.choose.topic_cells import TopicAssignment, ensure_topics
from auditor.cli import run_command_line
from auditor.errors import AuditError
from auditor.keep.subset_drift import count_effectively
from auditor.python_api import Audit
from auditor.query.rules import Rules
from auditor.run.audit_config import AuditConfig
from auditor.run.run_audit import run_audit
from auditor.vectors import Floats
from tests.support.stored import make_pairs, write_datacomp


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    run_audit(AuditConfig(f"datacomp:{write_datacomp(tmp_path / 'corpus')}", str(tmp_path / "audit"), quiet=True))
    return tmp_path / "audit"


def test_media_go_to_the_nearest_topic() -> None:
    vectors, _ = make_pairs(200, 8)
    centroids: Floats = vectors[:9]
    np.testing.assert_array_equal(TopicAssignment(centroids)(vectors), (vectors @ centroids.T).argmax(axis=1))


def test_topics_are_stored_once_and_balanced(audit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Audit(audit) as opened:
        kept = opened.keep(balance="topic:40", count=100)
        sizes = opened.sql("SELECT topic_40, count(*) AS n FROM samples GROUP BY 1")["n"].to_pylist()
        chosen = kept.to_arrow(["topic_40"])["topic_40"].value_counts().to_pylist()
        assert len(sizes) == 40 and len(kept) == 100
        assert max(entry["counts"] for entry in chosen) <= 4 < max(sizes)
        assert not ensure_topics(opened.database, 40)
        best = opened.keep(count=100, by="similarity_normalised").to_arrow(["topic_40"])["topic_40"].value_counts()
        alone = count_effectively([entry["counts"] for entry in best.to_pylist()])
        assert alone < kept.drift().effective_numbers[1] <= 40
    assert run_command_line(["filter", str(audit), "--balance", "topic:40", "--keep-count", "100", "--dry-run"]) == 0
    output = capsys.readouterr().out
    assert "100 of 600 pairs" in output and "effective number" in output


def test_topics_of_a_damaged_column_are_computed_again(audit: Path) -> None:
    with Audit(audit) as opened:
        opened.keep(balance="topic:5", count=100)
    next((audit / "columns/topic_5").glob("*.parquet")).unlink()
    with Audit(audit) as opened:
        assert ensure_topics(opened.database, 5)
    with Audit(audit) as opened:
        assert opened.count("topic_5 IS NOT NULL") == 600


def test_more_topics_than_media_are_refused(audit: Path) -> None:
    with Audit(audit) as opened, pytest.raises(AuditError, match=r"601 topics need at least as many media, .* 600"):
        opened.keep(balance="topic:601", count=10)
    assert Rules.of(balance="topic", count=1).topic_count is None
