"""Shifted spans: repairs are proposed, written with `--apply`, and gone when audited again."""

import json
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from auditor import Audit
from auditor.audit_folder.embeddings import read_embeddings
from auditor.audit_folder.folder import Folder
from auditor.cli import run_command_line
from auditor.corpus.raw_samples import KeptShard
from auditor.faults.corpus_window import read_window
from auditor.faults.repair import Repair
from auditor.faults.shifted_spans import PATTERN, apply_spans, compute_confidences, propose_span_repairs
from auditor.run.audit_config import AuditConfig
from auditor.run.run_audit import run_audit
from auditor.sweep.sweep_config import SweepConfig
from tests.support.timed import SCENE_SECONDS, SCENES, write_timed_corpus

SHIFTS = (6.0, 0.0)


def run_audit_of(corpus: Path, out: Path, model: str) -> Path:
    run_audit(AuditConfig(str(corpus), str(out), model, quiet=True, sweep=SweepConfig(frames=4, batch_size=8)))
    return out


def test_shifted_spans_are_proposed_and_written(
    tmp_path: Path, random_model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = write_timed_corpus(tmp_path / "corpus", monkeypatch, SHIFTS)
    out = run_audit_of(corpus, tmp_path / "audit", random_model)
    with Audit(out) as audit:
        found, shifts = audit.repairs(), audit.summary().time_shifts
    assert shifts is not None and (shifts.videos, shifts.shifted, sum(shifts.counts)) == (2, 1, 1)
    assert {repair.key for repair in found} == {"v0"} and {repair.pattern for repair in found} == {"time_shift"}
    for repair in found:
        scene = repair.caption_index * SCENE_SECONDS
        assert (repair.new_start, repair.new_end) == pytest.approx((scene, scene + SCENE_SECONDS), abs=0.6)
    assert len(found) == SCENES  # including those outside the video
    of_spans, passage = read_embeddings(Folder(out), "s").media.visual, read_window(Folder(out), "s")
    middle = of_spans[-SCENES:].astype(np.float32).mean(axis=0)  # a video's vector is the mean of its spans
    np.testing.assert_allclose(passage.samples.visual[1], middle / np.linalg.norm(middle), atol=1e-5)
    assert (
        run_command_line(["worst", str(out), "-n", "3", "--by", "similarity"]) == 0
        and "start" in capsys.readouterr().out
    )
    assert run_command_line(["explain", str(out), "v1", "--caption", "2"]) == 0
    assert "v1 caption 2, 6 to 9 s (video, ok)" in capsys.readouterr().out
    assert run_command_line(["search", str(out), "--like", "v1", "--json"]) == 0
    assert {"start", "end"} <= json.loads(capsys.readouterr().out)[0].keys()
    assert run_command_line(["repair", str(out), "--out", str(tmp_path / "repaired"), "--apply"]) == 0
    assert f"{SCENES} spans shifted" in capsys.readouterr().out
    with tarfile.open(tmp_path / "repaired" / "s.tar") as tar:
        records = {name: json.load(tar.extractfile(name)) for name in tar.getnames() if name.endswith("json")}  # type: ignore[arg-type]
    assert len(records["v0.json"]["segments"]) == SCENES
    assert records["v1.json"]["segments"][3]["start"] == 3 * SCENE_SECONDS
    again = run_audit_of(tmp_path / "repaired" / "s.tar", tmp_path / "again", random_model)
    with Audit(again) as audit:
        assert propose_span_repairs(audit.database) == []
        settled = audit.summary().time_shifts
    assert settled is not None and settled.shifted == 0
    assert "none of 2 videos" in settled.words()


def test_a_caption_that_has_no_place_any_more_is_left_out() -> None:
    texts = {"captions": ["all", "one", "two"], "changes": [None] * 3, "sources": [None] * 3}
    timed = {**texts, "numbers": [0, 1, 2], "uids": ["a", "b", "c"]}
    rows = [{"key": key, **timed, "starts": [None, 1.0, 8.0], "ends": [None, 2.0, 9.0]} for key in ("v", "w")]
    moved = Repair("b", "s", "v", 1, "s", "v", "b", PATTERN, 0.99, 1.0, 2.0, 3.0, 4.0)
    other = replace(moved, shard="elsewhere", key="w", caption_index=2)
    first, second = apply_spans(KeptShard("s", pa.Table.from_pylist(rows)), [moved, other]).table.to_pylist()
    assert (first["captions"], first["starts"], first["ends"]) == (["all", "one"], [None, 3.0], [None, 4.0])
    assert second == rows[1]


def test_confidence_is_one_less_the_share_of_chance() -> None:
    """Among 900 sound and 100 shifted videos, at most a tenth of those selected at 0.9 are chance."""
    generator = np.random.default_rng(0)
    p = np.concatenate([generator.uniform(size=900), np.full(100, 0.001)])
    kept = compute_confidences(p) >= 0.9
    assert kept[900:].all() and kept[:900].sum() <= 0.15 * kept.sum()
    assert not (compute_confidences(generator.uniform(size=500)) >= 0.9).any()
    assert len(compute_confidences(np.array([]))) == 0
