"""Audits from corpus to Parquet account for every key, whatever is wrong with the corpus or the machine."""

import dataclasses
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.audit_folder.embeddings import read_embeddings
from auditor.audit_folder.folder import Folder, StorageError
from auditor.audit_folder.lock import LockedError, hold_folder_lock
from auditor.audit_folder.manifest import Manifest
from auditor.cli import run_command_line
from auditor.corpus.open_corpus import CorpusOptions
from auditor.errors import AuditError
from auditor.query.database import AuditDatabase
from auditor.query.summary import summarize_audit
from auditor.report.findings import find_findings
from auditor.report.report import render_report
from auditor.run.audit_config import AuditConfig
from auditor.run.engine import LocalEngine
from auditor.run.rescore import rescore
from auditor.run.run_audit import TooManyErrorsError, run_audit
from auditor.run.verify import verify_audit
from auditor.score.corpus_statistics import ScoreContext
from auditor.score.score_config import ScoreConfig
from auditor.sweep.sweep_config import SweepConfig
from tests.support.corpora import make_caption, make_picture, make_sample, write_corpus, write_tar
from tests.support.s3 import Bucket, bucket, s3_endpoint  # noqa: F401
from tests.support.snapshot import Snapshot, take_snapshot


def config(corpus: Path | str, out: Path | str, model: str, **changes: Any) -> AuditConfig:
    made = AuditConfig(str(corpus), str(out), model, quiet=True, sweep=SweepConfig(frames=4, batch_size=8))
    return dataclasses.replace(made, **changes)


def rows(audit: Path | str, part: str = "samples") -> pa.Table:
    """Every stored row of an audit, in the order of the shards."""
    folder = Folder(audit)
    return pa.concat_tables([folder.read_table(f"{part}/{name}.parquet") for name in folder.names(part, ".parquet")])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"), shards=4, size=24, captions=2)


@pytest.fixture(scope="module")
def undisturbed(corpus: Path, random_model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed")
    run_audit(config(corpus, out, random_model))
    return out


def test_embeddings_are_those_of_a_bare_loop(corpus: Path, undisturbed: Path, random_model: str) -> None:
    import io

    import open_clip
    import torch
    from PIL import Image

    model, _, preprocess = open_clip.create_model_and_transforms(random_model)
    model.eval()
    tokenizer = open_clip.get_tokenizer(random_model)
    stored = read_embeddings(Folder(undisturbed), "00001")
    with torch.inference_mode():
        for position, index in enumerate(range(24, 48)):
            image = preprocess(Image.open(io.BytesIO(make_picture(index))).convert("RGB"))
            visual = torch.nn.functional.normalize(model.encode_image(image[None]), dim=-1)[0]
            assert np.allclose(stored.media.visual[position], visual.numpy(), atol=2e-3)
            text = torch.nn.functional.normalize(model.encode_text(tokenizer([make_caption(index * 10 + 1)])), dim=-1)[
                0
            ]
            assert np.allclose(stored.text[2 * position + 1], text.numpy(), atol=2e-3)
    assert stored.media_index.tolist() == [i // 2 for i in range(48)]


def test_every_row_is_scored_and_its_similarity_is_the_cosine(undisturbed: Path) -> None:
    table = rows(undisturbed)
    assert table.num_rows == 4 * 24 * 2
    assert len(set(table.column("uid").to_pylist())) == table.num_rows
    for name in ("similarity", "similarity_normalised", "uncertainty_visual", "uncertainty_text"):
        assert table.column(name).null_count == 0, name
    # random weights cannot judge anything: p_mismatch is empty, and every row says why
    assert table.column("p_mismatch").null_count == table.num_rows
    assert set(table.column("no_estimate").to_pylist()) == {"blind_encoder"}
    stored = read_embeddings(Folder(undisturbed), "00000")
    cosine = (stored.media.visual[stored.media_index] * stored.text).sum(axis=1)
    assert np.allclose(table.column("similarity").to_numpy()[:48], cosine, atol=1e-5)


def test_a_blind_model_is_told_in_the_summary_and_the_report(undisturbed: Path) -> None:
    with AuditDatabase(undisturbed) as database:
        text = f"{summarize_audit(database)} {find_findings(database)}"
        page = render_report(database)
    for words in (text, page):
        assert "pairs without an estimate" in words and "This model cannot tell such pairs from random ones" in words
        assert re.search(r"does not see what is related \(skew -?0\.\d+, -?0\.\d+ to -?0\.\d+\); pairs are", words)
    assert "mismatched images" not in text
    head = Manifest.load(Folder(undisturbed)).model["head_settings"]
    assert (head["prototypes"], head["clip_evidence"]) == (64, "frames")


def test_the_number_of_decoders_changes_nothing(
    corpus: Path, undisturbed: Path, random_model: str, tmp_path: Path
) -> None:
    one = SweepConfig(frames=4, batch_size=8, decoders=1)
    run_audit(config(corpus, tmp_path, random_model, sweep=one))
    assert rows(tmp_path).equals(rows(undisturbed))
    assert rows(tmp_path, "embeddings").equals(rows(undisturbed, "embeddings"))


def test_running_again_sweeps_nothing_and_changes_nothing(undisturbed: Path, corpus: Path, random_model: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in undisturbed.glob("*/*.parquet")}
    run_audit(config(corpus, undisturbed, random_model))
    assert {path: path.stat().st_mtime_ns for path in undisturbed.glob("*/*.parquet")} == before


KILLED = """
import sys
from tests.run.test_run_audit import config
from auditor.run.run_audit import run_audit
run_audit(config(*sys.argv[1:]))
"""


def test_kill_9_at_random_moments_and_resume_equals_the_uninterrupted_run(
    corpus: Path, undisturbed: Path, random_model: str, tmp_path: Path
) -> None:
    chance = random.Random(3)
    command = [sys.executable, "-c", KILLED, str(corpus), str(tmp_path / "audit"), random_model]
    finished = 0
    for wanted in (1, 3):
        victim = subprocess.Popen(command, cwd=Path(__file__).parents[2])
        done = tmp_path / "audit" / "embeddings"
        while victim.poll() is None and len(list(done.glob("*.parquet"))) < wanted:
            time.sleep(0.005)
        time.sleep(chance.random() * 0.05)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        now = len(list(done.glob("*.parquet")))
        assert now >= finished
        finished = now
    kept = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "audit/embeddings").glob("*.parquet")}
    run_audit(config(corpus, tmp_path / "audit", random_model))
    assert rows(tmp_path / "audit").equals(rows(undisturbed))
    assert rows(tmp_path / "audit", "embeddings").equals(rows(undisturbed, "embeddings"))
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "audit/embeddings").glob("*.parquet")}
    assert kept.items() <= after.items()  # at most the shard in work was lost
    assert not [p for p in (tmp_path / "audit").rglob("*") if p.name.startswith(".part-")]


@pytest.fixture
def own_corpus(corpus: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(corpus, tmp_path / "own-corpus"))


@pytest.fixture(scope="module")
def finished(corpus: Path, random_model: str, tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    place = tmp_path_factory.mktemp("finished") / "place"
    shutil.copytree(corpus, place / "corpus")
    run_audit(config(place / "corpus", place / "audit", random_model))
    return take_snapshot(place, "before")


@pytest.fixture
def own_audit(finished: Snapshot) -> tuple[Path, Path]:
    """A corpus and its audit that a test may damage."""
    place = finished.restore()
    return place / "corpus", place / "audit"


def test_resume_trusts_only_content_that_is_unchanged(own_audit: tuple[Path, Path], random_model: str) -> None:
    own_corpus, out = own_audit
    before = rows(out).column("caption").to_pylist()
    stamp = (own_corpus / "00002.tar").stat()
    write_tar(own_corpus / "00002.tar", [(f"{i:06d}", make_sample(i + 500, 2)) for i in range(48, 72)])
    os.utime(own_corpus / "00002.tar", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    run_audit(config(own_corpus, out, random_model))
    after = rows(out).column("caption").to_pylist()
    assert after[:96] == before[:96]
    assert after[96:144] == [make_caption((i + 500) * 10 + j) for i in range(48, 72) for j in range(2)]


def test_rows_of_a_shard_that_left_the_corpus_leave_the_audit(own_audit: tuple[Path, Path], random_model: str) -> None:
    own_corpus, out = own_audit
    (own_corpus / "00003.tar").unlink()
    manifest = run_audit(config(own_corpus, out, random_model))
    assert manifest.counts["rows"] == rows(out).num_rows == 3 * 48


def test_every_kind_of_bad_sample_is_one_row_with_a_reason(random_model: str, tmp_path: Path) -> None:
    good = {f"good{i}": make_sample(i) for i in range(30)}
    bad: dict[str, dict[str, bytes]] = {
        "nocaption": {"jpg": make_picture(1)},
        "nomedium": {"txt": b"a dog"},
        "broken": {"jpg": make_picture(2)[:200], "txt": b"cut off"},
        "noimage": {"png": b"this is no picture", "txt": b"a lie"},
        "empty": {"jpg": b"", "txt": b"nothing"},
        "huge": {"png": make_picture(3, (3000, 3000), "PNG"), "txt": b"too large"},
    }
    samples = [*good.items(), *bad.items(), ("good3", make_sample(77))]
    write_tar(tmp_path / "c" / "0.tar", samples)
    from model.pixels import DecodeLimits

    small = SweepConfig(frames=4, batch_size=8, limits=DecodeLimits(max_pixels=1_000_000))
    manifest = run_audit(config(tmp_path / "c", tmp_path / "out", random_model, sweep=small))
    found = {(r["key"], r["status"]) for r in rows(tmp_path / "out").to_pylist()}
    assert found - {(key, "ok") for key in good} == {
        ("nocaption", "missing_caption"),
        ("nomedium", "missing_media"),
        ("broken", "corrupt"),
        ("noimage", "corrupt"),
        ("empty", "corrupt"),
        ("huge", "too_large"),
        ("good3", "duplicate_key"),
    }
    assert manifest.counts["keys"] == manifest.counts["rows"] == len(samples)
    for row in rows(tmp_path / "out").to_pylist():
        assert (row["error_message"] is None) == (row["status"] == "ok")
        assert (row["similarity"] is None) == (row["status"] != "ok")


def test_damaged_shards_lose_only_what_is_damaged(own_corpus: Path, random_model: str, tmp_path: Path) -> None:
    whole = (own_corpus / "00000.tar").read_bytes()
    (own_corpus / "00000.tar").write_bytes(whole[: len(whole) // 2 + 700])  # truncated
    middle = bytearray((own_corpus / "00001.tar").read_bytes())
    with tarfile.open(own_corpus / "00001.tar") as tar:
        victim = tar.getmember("000030.jpg")
    middle[victim.offset : victim.offset + 512] = b"\xff" * 512  # a bad header
    (own_corpus / "00001.tar").write_bytes(bytes(middle))
    (own_corpus / "00002.tar").write_bytes(b"")
    manifest = run_audit(config(own_corpus, tmp_path / "audit", random_model))
    assert [failed["shard"] for failed in manifest.failed_shards] == ["00002"]
    assert {problem["shard"] for problem in manifest.shard_problems} >= {"00001"}
    status = {(r["shard"], r["key"]): r["status"] for r in rows(tmp_path / "audit").to_pylist()}
    assert status["00001", "000030"] == "missing_media"  # its caption is there, its picture is not to be found
    assert Counter(s for (shard, _), s in status.items() if shard == "00001") == {"ok": 23, "missing_media": 1}
    assert Counter(s for (shard, _), s in status.items() if shard == "00003") == {"ok": 24}
    assert 5 < sum(s == "ok" for (shard, _), s in status.items() if shard == "00000") < 24


def test_a_failed_shard_makes_the_command_fail_and_is_named(
    own_corpus: Path, random_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (own_corpus / "00001.tar").write_bytes(b"no tar at all" * 100)
    code = run_command_line(
        ["audit", str(own_corpus), "--out", str(tmp_path / "a"), "--model", random_model, "--quiet", "--json"]
    )
    printed = capsys.readouterr()
    assert code == 1
    assert "1 of 4 shards could not be read: 00001" in printed.err
    assert json.loads(printed.out)["failed_shards"][0]["shard"] == "00001"
    assert rows(tmp_path / "a").num_rows == 3 * 48


class Forgetful(LocalEngine):
    """Fails to score one shard, like a worker that dies."""

    def score(self, shards: Sequence[str], context: ScoreContext) -> Iterator[tuple[str, int, str]]:
        yield from super().score([shard for shard in shards if shard != "00001"], context)
        yield "00001", 0, "its worker died"


def test_a_shard_that_cannot_be_scored_is_named_and_the_rest_is_finished(
    corpus: Path, undisturbed: Path, random_model: str, tmp_path: Path
) -> None:
    audit = config(corpus, tmp_path, random_model)
    manifest = run_audit(audit, lambda folder, backbone, given: Forgetful(folder, backbone, given.sweep))
    assert manifest.state == "complete" and manifest.statistics
    assert manifest.failed_shards == [{"shard": "00001", "message": "not scored: its worker died"}]
    assert run_audit(audit).failed_shards == []
    assert rows(tmp_path).equals(rows(undisturbed))


def test_a_shard_that_disappears_in_the_middle_is_named(own_corpus: Path, random_model: str, tmp_path: Path) -> None:

    class Vanishing(LocalEngine):
        def sweep(self, shards: Any, watch: Any) -> Any:
            (own_corpus / "00002.tar").unlink()
            return super().sweep(shards, watch)

    manifest = run_audit(config(own_corpus, tmp_path / "audit", random_model), lambda f, b, c: Vanishing(f, b, c.sweep))
    assert [failed["shard"] for failed in manifest.failed_shards] == ["00002"]
    assert rows(tmp_path / "audit").num_rows == 3 * 48


def test_a_corpus_of_which_nothing_decodes_fails(random_model: str, tmp_path: Path) -> None:
    write_tar(tmp_path / "c.tar", [(f"k{i}", {"jpg": b"junk", "txt": b"words"}) for i in range(5)])
    with pytest.raises(AuditError, match=r"no pair.*5 corrupt"):
        run_audit(config(tmp_path / "c.tar", tmp_path / "audit", random_model))
    assert Manifest.load(Folder(tmp_path / "audit")).state == "failed"


def test_a_run_that_goes_wrong_stops_early_and_can_go_on(random_model: str, tmp_path: Path) -> None:
    for shard in range(4):
        members = [(f"{shard}-{i}", {"jpg": b"junk", "txt": b"words"}) for i in range(150)]
        write_tar(
            tmp_path / "c" / f"{shard}.tar", [*members, *((f"{shard}-good{i}", make_sample(i)) for i in range(10))]
        )
    with pytest.raises(TooManyErrorsError, match=r"--max-error-rate 0\.5"):
        run_audit(config(tmp_path / "c", tmp_path / "audit", random_model))
    assert Manifest.load(Folder(tmp_path / "audit")).state == "failed"
    assert not Folder(tmp_path / "audit").names("samples", ".parquet")
    manifest = run_audit(config(tmp_path / "c", tmp_path / "audit", random_model, max_error_rate=1.0))
    assert manifest.counts["status"] == {"corrupt": 600, "ok": 40}


def test_other_settings_on_an_existing_audit_are_refused(
    corpus: Path, undisturbed: Path, random_model: str, tmp_path: Path
) -> None:
    before = (undisturbed / "manifest.json").read_bytes()
    with pytest.raises(AuditError, match="frames 4, not 8"):
        run_audit(config(corpus, undisturbed, random_model, sweep=SweepConfig(frames=8)))
    with pytest.raises(AuditError, match="captions lines, not whole"):
        run_audit(config(corpus, undisturbed, random_model, options=CorpusOptions(captions="whole")))
    with pytest.raises(AuditError, match="corpus spec"):
        run_audit(config(write_corpus(tmp_path / "other", 1), undisturbed, random_model))
    assert (undisturbed / "manifest.json").read_bytes() == before


def test_two_runs_on_one_audit_at_once(corpus: Path, undisturbed: Path, random_model: str) -> None:
    with hold_folder_lock(Folder(undisturbed)), pytest.raises(LockedError, match="another run"):
        run_audit(config(corpus, undisturbed, random_model))


def test_a_full_disk_is_one_line_and_the_run_can_go_on(
    corpus: Path, undisturbed: Path, random_model: str, tmp_path: Path
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a tmpfs cannot be mounted here (not root)")
    try:
        with pytest.raises(StorageError, match="the disk is full"):
            run_audit(config(corpus, small / "audit", random_model))
        assert not list((small / "audit").rglob(".part-*"))
        subprocess.run(["mount", "-o", "remount,size=64m", small], check=True)
        run_audit(config(corpus, small / "audit", random_model))
        assert rows(small / "audit").equals(rows(undisturbed))
    finally:
        subprocess.run(["umount", small], check=True)


def test_scoring_again_needs_no_corpus(own_audit: tuple[Path, Path]) -> None:
    own_corpus, out = own_audit
    before, swept = rows(out), {p: p.stat().st_mtime_ns for p in (out / "embeddings").iterdir()}
    shutil.rmtree(own_corpus)
    rescore(str(out), None, ScoreConfig(prototypes=3, reference=64), quiet=True)
    after = rows(out)
    assert {p: p.stat().st_mtime_ns for p in (out / "embeddings").iterdir()} == swept
    assert after.column("similarity").equals(before.column("similarity"))
    assert not after.column("uncertainty_text").equals(before.column("uncertainty_text"))
    assert not after.column("matches_text").equals(before.column("matches_text"))


def test_a_head_for_another_backbone_is_refused(undisturbed: Path, tmp_path: Path) -> None:
    shutil.copytree(undisturbed / "head", tmp_path / "head")
    stored = json.loads((tmp_path / "head/config.json").read_text())
    stored["backbone"]["fingerprint"] = "0" * 32
    (tmp_path / "head/config.json").write_text(json.dumps(stored))
    with pytest.raises(AuditError, match="another backbone"):
        rescore(str(undisturbed), str(tmp_path / "head"), ScoreConfig(), quiet=True)


def test_verify_finds_nothing_on_a_sound_audit_and_says_what_changed(own_audit: tuple[Path, Path]) -> None:
    own_corpus, out = own_audit
    checks = verify_audit(str(out), 30)
    assert len(checks) == 30
    assert {check.differs for check in checks} == {""}
    with tarfile.open(own_corpus / "00000.tar") as tar:
        member = tar.getmember("000003.jpg")
    damaged = bytearray((own_corpus / "00000.tar").read_bytes())
    damaged[member.offset_data + 300] ^= 0xFF
    (own_corpus / "00000.tar").write_bytes(bytes(damaged))
    found = {check.key: check.differs for check in verify_audit(str(out), 10_000)}
    assert [key for key, differs in found.items() if differs] == ["000003"]
    assert "bytes have changed" in found["000003"]
    table = pq.read_table(out / "samples/00001.parquet")
    wrong = table.set_column(
        table.schema.get_field_index("similarity"), "similarity", pa.array(np.full(48, 0.9), pa.float32())
    )
    pq.write_table(wrong, out / "samples/00001.parquet")
    assert any("similarity" in check.differs for check in verify_audit(str(out), 40) if check.shard == "00001")


def test_hostile_files_each_end_in_a_row(shared: Path, random_model: str, tmp_path: Path) -> None:
    folder = tmp_path / "hostile"
    folder.mkdir()
    files = sorted((shared / "data" / "hostile").iterdir())
    for number, path in enumerate(files):
        name = f"{number:03d}-{path.name.replace('.', '_')}"
        shutil.copy(path, folder / f"{name}{path.suffix}")
        (folder / f"{name}.txt").write_text(f"the file {number}")
    manifest = run_audit(config(folder, tmp_path / "audit", random_model, max_error_rate=1.0))
    found = rows(tmp_path / "audit").to_pylist()
    assert manifest.counts["keys"] == len(found) == len(files)
    assert not [row["key"] for row in found if "bad__" in row["key"] and row["status"] == "ok"]
    odd = [row for row in found if "odd__" in row["key"]]
    assert sum(row["status"] == "ok" for row in odd) >= 0.95 * len(odd)


def test_videos_have_frames_and_times(shared: Path, random_model: str, tmp_path: Path) -> None:
    clips = tmp_path / "clips"
    clips.mkdir()
    for name in ("bikes.mp4", "flipping_a_pancake.mkv", "scene_cuts.mp4"):
        shutil.copy(shared / "data" / "video" / name, clips)
        (clips / name).with_suffix(".txt").write_text("people do something\nsomebody moves")
    run_audit(config(clips, tmp_path / "audit", random_model))
    found = rows(tmp_path / "audit").to_pylist()
    assert len(found) == 6
    for row in found:
        assert (row["kind"], row["status"], row["frames"]) == ("video", "ok", 4)
        assert 0 <= row["best_frame"] < 4
        assert 0 <= row["best_frame_time"] <= row["duration"]
        assert row["frame_spread"] > 0
    folder = Folder(tmp_path / "audit")
    stored = read_embeddings(folder, folder.names("embeddings", ".parquet")[0])
    assert stored.media.frames is not None and stored.media.frames.shape == (3, 4, 16)
    mean = stored.media.frames.mean(axis=1)
    assert np.allclose(stored.media.visual, mean / np.linalg.norm(mean, axis=1, keepdims=True), atol=5e-3)


def test_a_model_without_weights_is_refused(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="add a pretrained tag"):
        run_audit(config(corpus, tmp_path, "ViT-B-32"))
    assert not (tmp_path / "manifest.json").exists()


def test_without_a_model_and_a_network_the_command_says_what_to_pass(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["audit", str(corpus), "--out", str(tmp_path / "audit"), "--quiet"]) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert "no --model was given" in lines[0] and "local-dir:PATH" in lines[0]
    assert not (tmp_path / "audit").exists()


def test_from_s3_to_s3_equals_from_disk_to_disk(
    corpus: Path,
    undisturbed: Path,
    random_model: str,
    bucket: Bucket,  # noqa: F811
) -> None:
    bucket.upload(corpus, "corpus/")
    out = f"{bucket.url}/audit"
    manifest = run_audit(config(f"{bucket.url}/corpus", out, random_model))
    assert manifest.counts["rows"] == 4 * 48
    places = ["media_path"]
    assert rows(out).drop_columns(places).equals(rows(undisturbed).drop_columns(places))
    assert set(rows(out).column("media_path").to_pylist()) == {f"{bucket.url}/corpus/{i:05d}.tar" for i in range(4)}
    again = run_audit(config(f"{bucket.url}/corpus", out, random_model))
    assert again.counts == manifest.counts
    with hold_folder_lock(Folder(out)), pytest.raises(LockedError, match="another run"):
        run_audit(config(f"{bucket.url}/corpus", out, random_model))
