"""Timed captions from corpus to columns: a row and frames for each span, bad spans are reported, shifts are found."""

import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from auditor import Audit
from auditor.audit_folder.embeddings import find_medium_starts, read_embeddings
from auditor.audit_folder.folder import Folder
from auditor.run.audit_config import AuditConfig
from auditor.run.run_audit import run_audit
from auditor.run.verify import verify_audit
from auditor.sweep.sweep_config import SweepConfig
from tests.support.clips import make_numbered_clip
from tests.support.corpora import make_caption, write_tar
from tests.support.timed import SCENE_SECONDS, SHIFT_SECONDS, write_timed_corpus

SPANS = [(0.0, 1.0), (0.0, 1.0), (1.0, 3.0), (2.0, 4.0), (3.0, 3.0), (9.0, 12.0), (2.5, 1.0)]


def audited(corpus: Path, out: Path, model: str, context: float = 30.0) -> pa.Table:
    settings = SweepConfig(frames=4, batch_size=8, decoders=1, context=context)
    run_audit(AuditConfig(str(corpus), str(out), model, quiet=True, sweep=settings))
    return read_rows(out)


def read_rows(out: Path) -> pa.Table:
    with Audit(out) as audit:
        return audit.sql("SELECT * FROM samples ORDER BY key, caption_index")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Video a has seven timed captions, four of them valid; b has an untimed and a timed caption; c has none timed."""
    made = tmp_path_factory.mktemp("timed") / "s.tar"
    timed = [{"start": a, "end": b, "caption": make_caption(i)} for i, (a, b) in enumerate(SPANS)]
    vtt = f"WEBVTT\n\n00:01.000 --> 00:02.000\n{make_caption(21)}\n"
    members = {
        "a": {"mp4": make_numbered_clip("h264", "mp4", 100), "json": json.dumps({"segments": timed}).encode()},
        "b": {"mp4": make_numbered_clip("h264", "mp4", 90), "txt": make_caption(20).encode(), "vtt": vtt.encode()},
        "c": {"mp4": make_numbered_clip("h264", "mp4", 80), "txt": make_caption(30).encode()},
        "d": {"mp4": b"not a video", "vtt": vtt.encode()},
    }
    return write_tar(made, members.items())


@pytest.fixture(scope="module")
def out(corpus: Path, random_model: str) -> Path:
    """An audit of the corpus, only to be read."""
    audited(corpus, corpus.parent / "out", random_model)
    return corpus.parent / "out"


def test_a_row_for_each_caption_with_the_frames_of_its_span(out: Path) -> None:
    found = read_rows(out).to_pylist()
    assert [row["key"] for row in found] == ["a"] * 7 + ["b"] * 2 + ["c", "d"]
    assert [row["status"] for row in found] == ["ok"] * 4 + ["bad_span"] * 3 + ["ok"] * 3 + ["corrupt"]
    assert "empty" in found[4]["error_message"] and "outside" in found[5]["error_message"]
    assert [(row["start"], row["end"]) for row in found[:4]] == SPANS[:4]
    assert [(row["start"], row["end"]) for row in found[7:10]] == [(None, None), (1.0, 2.0), (None, None)]
    assert all(row["frames"] is None for row in found if row["status"] == "bad_span")
    assert all(row["frames"] == 4 and row["similarity"] is not None for row in found if row["status"] == "ok")
    stored = read_embeddings(Folder(out), "s")
    assert stored.media_index.tolist() == [0, 0, 1, 2, 3, 4, 5]  # consecutive equal spans share a medium
    assert find_medium_starts(stored.facts).sum() == len(stored.media)
    for when, (start, end) in zip(stored.times, SPANS[1:4], strict=False):
        assert all(start - 0.04 <= time <= end for time in when)
    with Audit(out) as audit:
        assert audit.summary().rows == 11
    assert {check.differs for check in verify_audit(str(out), 20)} == {""}


def test_a_span_is_encoded_as_a_clip_cut_from_it(tmp_path: Path, random_model: str) -> None:
    alone = {"key": {"mp4": make_numbered_clip("h264", "mp4", 80), "txt": make_caption(30).encode()}}
    segments = [{"start": 0, "end": 3.2, "caption": "all of it again"}]
    whole = {"key": {**alone["key"], "json": json.dumps({"segments": segments}).encode()}}
    for name, members in (("alone", alone), ("whole", whole)):
        write_tar(tmp_path / "shards" / f"{name}.tar", members.items())
    audited(tmp_path / "shards", tmp_path / "out", random_model, context=0.0)
    first, both = (read_embeddings(Folder(tmp_path / "out"), name).media.visual for name in ("alone", "whole"))
    np.testing.assert_array_equal(both, np.repeat(first, 2, axis=0))


def test_a_shift_is_found_end_to_end(tmp_path: Path, random_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = write_timed_corpus(tmp_path, monkeypatch, shifts=[SHIFT_SECONDS])
    found = audited(corpus, tmp_path / "out", random_model).to_pylist()
    length, late = SCENE_SECONDS, SHIFT_SECONDS
    usable = [row for row in found if row["status"] == "ok"]
    assert len(usable) == 10 and [row["status"] for row in found[:2]] == ["bad_span"] * 2  # they begin before the video
    assert [row["time_shift"] for row in usable] == [pytest.approx(late, abs=0.5)] * 10
    with Audit(tmp_path / "out") as audit:
        assert audit.summary().kinds == {"video": 1}  # although its first caption has a bad span
    assert usable[0]["p_time_shift"] <= 0.01 and usable[0]["time_shift_gain"] > 0
    overlap = []
    for number, row in enumerate(usable, start=2):
        a, b = number * length, (number + 1) * length
        both = max(0.0, min(row["best_end"], b) - max(row["best_start"], a))
        overlap.append(both / (row["best_end"] - row["best_start"] + length - both))
    assert np.mean(np.array(overlap) >= 0.5) >= 0.8, overlap


def test_kept_segments_are_exported_with_their_spans(out: Path, tmp_path: Path, random_model: str) -> None:
    """An audit of the exported shards has exactly the kept rows, with the same frames."""
    table = read_rows(out)
    with Audit(out) as audit:
        kept = audit.keep(where="caption_index <> 1 OR key <> 'a'")
        kept.write(tmp_path / "kept")
    again = audited(tmp_path / "kept" / "00000.tar", tmp_path / "again", random_model).to_pylist()
    wanted = [r for r in table.to_pylist() if r["status"] == "ok" and (r["key"], r["caption_index"]) != ("a", 1)]
    columns = ("key", "caption", "start", "end", "frames", "status", "similarity")
    uids = {row["uid"]: row["caption"] for row in again if row["start"] is not None}  # rows can be compared by them
    assert uids == {row["uid"]: row["caption"] for row in wanted if row["start"] is not None}
    assert [[row[name] for name in columns] for row in again] == [[row[name] for name in columns] for row in wanted]


def test_a_dataset_of_kept_rows_has_their_spans(out: Path, tmp_path: Path, random_model: str) -> None:
    """An audit of the output of `to_datasets` has the kept rows: captions of spans and of whole videos."""
    table = read_rows(out)
    with Audit(out) as audit:
        audit.keep(where="caption_index <> 1 OR key <> 'a'").to_datasets(tmp_path / "data")
    again = audited(tmp_path / "data", tmp_path / "again", random_model).to_pylist()
    wanted = [r for r in table.to_pylist() if r["status"] == "ok" and (r["key"], r["caption_index"]) != ("a", 1)]
    columns = ("key", "caption", "start", "end", "status", "similarity")
    assert [[row[name] for name in columns] for row in again] == [[row[name] for name in columns] for row in wanted]


def test_a_pipeline_of_ones_own_gets_the_kept_spans(corpus: Path, out: Path) -> None:
    """`captions`, from .json files and subtitles, decoded or not, gives the captions of an export."""
    with Audit(out) as audit:
        kept = audit.keep(where="caption_index IN (0, 2) AND key = 'a' OR key = 'b' AND caption_index = 1")
        keep, exported = kept.captions(), {one["__key__"]: one for one in kept.samples()}
        (whole,) = audit.keep(where="key = 'b' AND caption_index = 0").samples()
    assert json.loads(whole["json"]) == {"captions": [make_caption(20)], "segments": []} and "vtt" not in whole
    raw: dict[str, dict[str, Any]] = {}
    with tarfile.open(corpus) as tar:
        for member in tar.getmembers():
            key, _, name = member.name.partition(".")
            one = raw.setdefault(key, {"__key__": key, "__url__": str(corpus)})
            one[name] = tar.extractfile(member).read()  # type: ignore[union-attr]
    found = {key: made for key, one in raw.items() if (made := keep(one)) is not None}
    assert found.keys() == exported.keys() == {"a", "b"}
    for key, one in exported.items():
        segments = [{k: v for k, v in part.items() if k != "uid"} for part in json.loads(one["json"])["segments"]]
        assert json.loads(found[key]["json"])["segments"] == segments and len(segments) == {"a": 2, "b": 1}[key]
        assert {"mp4", "json"} == {name for name in found[key] if not name.startswith("__")}
    decoded = keep({**raw["a"], "mp4": [1], "json": json.loads(raw["a"]["json"])})
    assert decoded is not None and decoded["json"] == json.loads(found["a"]["json"])
