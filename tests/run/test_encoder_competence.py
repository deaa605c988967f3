"""The early warning of an audit: printed for a blind model, once, and not for a good one or a small corpus."""

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from auditor.audit_folder.folder import Folder
from auditor.corpus.open_corpus import CorpusOptions, open_corpus
from auditor.run.audit_config import AuditConfig
from auditor.run.encoder_competence import BLIND, measure_shards, warn_if_blind
from auditor.run.run_audit import run_audit
from auditor.sweep.sweep_events import ShardReport
from auditor.sweep.vector_sweep import VectorSweeper, find_stored_model
from tests.support.stored import make_vector_table, plant_related_pairs

OPTIONS = CorpusOptions(visual_column="image_embedding", text_column="text_embedding")


def write_corpus(folder: Path, files: int, count: int, *, blind: bool) -> str:
    folder.mkdir()
    visual, text = plant_related_pairs(files * count, blind=blind)
    for number in range(files):
        rows = slice(number * count, (number + 1) * count)
        captions: list[str | None] = [f"caption {row} of part {number}" for row in range(count)]
        pq.write_table(make_vector_table(visual[rows], text[rows], captions), folder / f"{number:02d}.parquet")
    return str(folder)


def sweep(corpus: str, folder: Folder) -> list[ShardReport]:
    opened = open_corpus(corpus, OPTIONS)
    model = find_stored_model(opened, 100.0)
    assert model is not None
    return list(VectorSweeper(model, folder).sweep(opened.shards))


@pytest.mark.parametrize(
    ("files", "count", "blind", "warnings"), [(4, 260, True, 1), (4, 260, False, 0), (2, 260, True, 0)]
)
def test_an_audit_warns_once_of_a_blind_model(
    files: int, count: int, blind: bool, warnings: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = write_corpus(tmp_path / "corpus", files, count, blind=blind)
    manifest = run_audit(AuditConfig(corpus, str(tmp_path / "audit"), options=OPTIONS, quiet=True))
    assert manifest.state == "complete" and manifest.counts["rows"] == files * count
    captured = capsys.readouterr()
    assert captured.err.count(BLIND) == warnings and not captured.out
    if warnings:
        assert "(first 1,000 pairs): use embeddings of another one" in captured.err


def test_the_check_waits_for_a_thousand_pairs_and_passes_every_report_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Folder(tmp_path / "audit")
    reports = sweep(write_corpus(tmp_path / "corpus", 5, 300, blind=True), folder)
    failed = ShardReport("broken", failure="it cannot be read")
    seen: list[tuple[str, str]] = []

    def finish() -> Iterator[ShardReport]:
        for report in [failed, *reports]:
            yield report
            seen.append((report.shard, capsys.readouterr().err))

    assert list(warn_if_blind(finish(), folder, "my photos/")) == [failed, *reports]
    errors = [err for _, err in seen] + [capsys.readouterr().err]
    warned = [number for number, err in enumerate(errors) if err]
    assert len(warned) == 1 and warned[0] >= 4  # after the fourth shard with 300 pairs
    assert "try another with `auditor encoders 'my photos/' --try MODEL`" in errors[warned[0]]


def test_a_damaged_file_does_not_stop_the_audit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Folder(tmp_path / "audit")
    reports = sweep(write_corpus(tmp_path / "corpus", 1, 1200, blind=True), folder)
    (tmp_path / "audit/embeddings" / f"{reports[0].shard}.parquet").write_bytes(b"PAR1")
    assert list(warn_if_blind(iter(reports), folder, None)) == reports
    (tmp_path / "audit/embeddings" / f"{reports[0].shard}.parquet").unlink()
    assert list(warn_if_blind(iter(reports), folder, None)) == reports
    assert not capsys.readouterr().err


def test_a_large_shard_is_read_in_part(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "audit")
    [report] = sweep(write_corpus(tmp_path / "corpus", 1, 60_000, blind=False), folder)
    started = time.process_time()
    competence = measure_shards(folder, {report.shard: report.rows}, 1000)
    seconds = time.process_time() - started
    assert competence is not None and competence.pairs == 1000 and not competence.blind
    assert seconds < 3  # processor seconds; it takes a tenth of them
