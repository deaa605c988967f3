"""If stored embeddings change while they are swept, the rows belong to one version, or the shard fails."""

from collections.abc import Callable
from pathlib import Path

import pytest

from auditor.audit_folder.embeddings import name_embeddings_file
from auditor.audit_folder.folder import Folder
from auditor.corpus.open_corpus import open_corpus
from auditor.corpus.stored.vector_shard import VectorShard
from auditor.sweep.embeddings_writer import find_finished_report
from auditor.sweep.sweep_events import ShardReport
from auditor.sweep.vector_sweep import VectorSweeper, find_stored_model
from tests.support.stored import write_datacomp


def sweep(
    corpus: Path, folder: Folder, monkeypatch: pytest.MonkeyPatch, changes: list[Callable[[], object]]
) -> ShardReport:
    """Return the report of a corpus's only shard, which a function changes each time after it is read."""
    fill = VectorSweeper._fill

    def filled(*given: object) -> None:
        fill(*given)  # type: ignore[arg-type]
        if changes:
            changes.pop(0)()

    monkeypatch.setattr(VectorSweeper, "_fill", filled)
    opened = open_corpus(f"datacomp:{corpus}")
    model = find_stored_model(opened, 100.0)
    assert model is not None
    (report,) = VectorSweeper(model, folder).sweep(opened.shards)
    (shard,) = open_corpus(f"datacomp:{corpus}").shards
    assert isinstance(shard, VectorShard)
    settings = VectorSweeper(model, folder).settings
    assert (find_finished_report(folder, shard, settings) is None) == (report.failure is not None)
    return report


def test_files_that_change_while_they_are_read_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, folder = write_datacomp(tmp_path / "corpus", files=1, count=20), Folder(tmp_path / "audit")
    changes = [lambda: write_datacomp(corpus, files=1, count=30)]
    report = sweep(corpus, folder, monkeypatch, changes)
    assert not changes and report.keys == 30
    assert folder.read_table(name_embeddings_file("part-0"), ["key"]).num_rows == 30


def test_files_that_never_rest_are_a_failed_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, folder = write_datacomp(tmp_path / "corpus", files=1, count=20), Folder(tmp_path / "audit")
    changes = [lambda size=size: write_datacomp(corpus, files=1, count=size) for size in (21, 22, 23, 24)]
    report = sweep(corpus, folder, monkeypatch, changes)
    assert "changed each time while it was read" in (report.failure or "")
    assert len(changes) == 1 and not folder.names("embeddings", "")  # three readings, and nothing is left of them
