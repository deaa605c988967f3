"""Commands that write, killed at every file operation: what is left can be read, and the same command ends the work."""

import json
import shutil
from pathlib import Path

import pytest

from auditor.cli import run_command_line
from auditor.python_api import Audit
from tests.support.kill_points import KilledRun, folder_after_kill, kill_everywhere
from tests.support.synthetic import write_corpus_audit


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("template")
    made = write_corpus_audit(tmp_path_factory.mktemp("made"), shards=1, per_shard=10, captions=1)
    shutil.copytree(made[0], place / "audit")
    with Audit(place / "audit") as audit:
        uids = audit.sql("SELECT uid FROM samples ORDER BY uid").column(0).to_pylist()
    (place / "scores.csv").write_text("uid,beauty\n" + "".join(f"{uid},{i}\n" for i, uid in enumerate(uids)))
    (place / "marks.csv").write_text("uid,caption_index,mark\n" + "".join(f"{uid},0,good\n" for uid in uids[:3]))
    return place


def killed(template: Path, tmp_path: Path, module: str, *words: str) -> list[KilledRun]:
    """Every kill; the audit that each leaves can be read, and nothing temporary is left after the second run."""
    found = kill_everywhere(template, tmp_path, module, *words)
    assert len(found) > 1 and not found[-1].operation
    for one in found:
        assert run_command_line(["summary", str(folder_after_kill(one.folder) / "audit")]) == 0, one
        if one.next_exit == 0:
            assert not [*one.folder.rglob(".part-*"), *one.folder.rglob(".lock")], one
    return found


def test_join(template: Path, tmp_path: Path) -> None:
    found = killed(template, tmp_path, "auditor.query.join_columns", "join", "{}/audit", "{}/scores.csv", "--on", "uid")
    for one in found:
        assert one.next_exit == 0 or "--force replaces them" in one.stderr, one
        with Audit(one.folder / "audit") as audit:
            assert audit.sql("SELECT count(beauty) = count(*) FROM samples").column(0).to_pylist() == [True], one
    assert sum(one.next_exit for one in found) <= 3  # it was there already


def test_certify(template: Path, tmp_path: Path) -> None:
    words = ["certify", "{}/audit", "--labels", "5", "--marks", "{}/marks.csv", "--reviewer", "me"]
    for one in killed(template, tmp_path, "auditor.review.label_sample", *words):
        assert one.next_exit == 0, one
        with Audit(one.folder / "audit") as audit:  # a mark that is made twice counts once
            assert audit.sql("SELECT count(*) FROM samples WHERE review = 'good'").column(0).to_pylist() == [3], one


@pytest.mark.parametrize("name", ["report.html", "kept.npy"])
def test_files(template: Path, tmp_path: Path, name: str) -> None:
    words = ["report", "{}/audit", "--no-media"] if name == "report.html" else ["filter", "{}/audit", "--where", "true"]
    found = killed(template, tmp_path, "auditor.keep.export", *words, "--out", f"{{}}/{name}")
    for one in found:
        assert one.next_exit == 0 or "--force replaces it" in one.stderr, one
        left = folder_after_kill(one.folder) / name
        assert not left.exists() or left.stat().st_size == (one.folder / name).stat().st_size, one


def test_pack(tmp_path: Path) -> None:
    source = tmp_path / "template" / "source"
    (source / "images").mkdir(parents=True)
    entries = []
    for i in range(6):
        (source / "images" / f"{i}.jpg").write_bytes(b"picture %d" % i)
        sentence = {"raw": f"caption {i}", "sentid": i}
        entries.append({"filename": f"{i}.jpg", "imgid": i, "split": "test", "sentences": [sentence], "filepath": ""})
    (source / "dataset_flickr30k.json").write_text(json.dumps({"images": entries, "dataset": "flickr30k"}))
    words = ["pack", "flickr30k", "--source", "{}/source", "--out", "{}/packed"]
    found = kill_everywhere(tmp_path / "template", tmp_path / "work", "auditor.research.evaluate.pack", *words)
    assert len(found) > 3 and not found[-1].operation
    for one in found:
        assert one.next_exit == 0 or "exists; choose a new folder" in one.stderr, one
        assert sorted(path.name for path in one.folder.iterdir()) == ["packed", "source"], one
