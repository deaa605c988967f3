"""Repaired shards: captions are with their media, nothing else changes, and the corpus is not modified."""

import json
import os
import shutil
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor import Audit
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.lock import LockedError, hold_folder_lock
from auditor.cli import run_command_line
from auditor.corpus.raw_samples import KeptShard
from auditor.corpus.read_medium import MediaPlaces
from auditor.corpus.shard import CorpusOptions
from auditor.corpus.shard_writer import write_shard
from auditor.errors import AuditorError
from auditor.faults.apply_repair import (
    CaptionMoves,
    apply_repairs,
    check_repair_target,
    describe_repairs,
    replace_captions,
    write_repair_list,
)
from auditor.faults.corpus_window import FaultsError
from auditor.faults.repair import Repair
from auditor.keep.caption_changes import CaptionChanges
from auditor.keep.export_target import ExportError, prepare_export
from auditor.query.database import AuditDatabase
from tests.support.kill_points import kill_everywhere
from tests.support.planted import make_embeddings, write_planted


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shards of 100 samples with an audit beside them; the captions of s000020 to s000049 are shifted by one."""
    source = np.arange(200)
    source[20:50] += 1
    texts = [f"caption {chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(200)]
    place = tmp_path_factory.mktemp("repair")
    folder = place / "corpus"
    for shard in range(2):
        rows = range(shard * 100, shard * 100 + 100)
        samples = [(f"s{i:06d}", {"jpg": b"medium %d" % i, "txt": texts[source[i]].encode()}) for i in rows]
        write_shard(folder / f"{shard:05d}.tar", samples)
    write_planted(place / "audit", *make_embeddings(200, 1), shards=2, source=source, captions=texts, corpus=folder)
    return place


@pytest.fixture(scope="module")
def audit(corpus: Path) -> Audit:
    return Audit(corpus / "audit")


@pytest.fixture(scope="module")
def repairs(audit: Audit) -> list[Repair]:
    return audit.repairs()


def read_members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]


def test_repaired_shards_have_the_right_captions(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read_members(corpus / "corpus" / "00000.tar")
    assert run_command_line(["repair", str(corpus / "audit"), "--out", str(tmp_path / "out"), "--apply"]) == 0
    assert "captions moved in 1 shards" in capsys.readouterr().out
    after = read_members(tmp_path / "out" / "00000.tar")
    for i in range(22, 50):  # the captions of the media inside the stretch
        wanted = f"caption {chr(97 + i % 26)}{chr(97 + i // 26)}"
        assert after[f"s{i:06d}.txt"].decode() == wanted
        assert after[f"s{i:06d}.jpg"] == before[f"s{i:06d}.jpg"]
    assert after["s000005.txt"] == before["s000005.txt"]
    assert "s000020.txt" not in after  # its caption belongs to the next medium, and none belongs to it
    assert not (tmp_path / "out" / "00001.tar").exists()
    assert read_members(corpus / "corpus" / "00000.tar") == before


def test_the_corpus_itself_is_refused(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for target in (corpus / "corpus", corpus / "corpus" / "repaired", corpus / "audit"):
        assert run_command_line(["repair", str(corpus / "audit"), "--out", str(target), "--apply"]) == 1
        said = capsys.readouterr().err
        assert ("is the corpus or a folder in it" in said) or ("is not empty" in said)
        assert said.count("\n") == 1


def test_embeddings_without_media_are_refused_in_one_line(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    audit = tmp_path / "audit"
    shutil.copytree(corpus / "audit", audit)
    for path in (audit / "samples").glob("*.parquet"):
        table = pq.read_table(path)
        place = table.schema.get_field_index("media_path")
        pq.write_table(table.set_column(place, "media_path", pa.nulls(len(table), pa.string())), path)
    assert run_command_line(["repair", str(audit), "--out", str(tmp_path / "out"), "--apply"]) == 1
    assert "but no media: write only the list of repairs" in capsys.readouterr().err
    assert run_command_line(["repair", str(audit), "--out", str(tmp_path / "list")]) == 0
    assert pq.read_metadata(tmp_path / "list" / "repairs.parquet").num_rows >= 28


def test_repairs_can_be_chosen_before_they_are_applied(audit: Audit, repairs: list[Repair], tmp_path: Path) -> None:
    (first, *_) = [repair for repair in repairs if repair.key == "s000030"]
    done = apply_repairs(audit.database, [first], str(tmp_path / "some"))
    assert (done.shards, done.moved, done.left_out) == (1, 1, 1)
    assert read_members(tmp_path / "some" / "00000.tar")["s000031.txt"] == b"caption fb"


def test_of_several_captions_those_that_do_not_move_stay() -> None:
    """A person refused the move of the second caption of `a`, and that of the only one of `b`."""
    listed = {
        "captions": ["one", "two"],
        "changes": [None] * 2,
        "sources": [None] * 2,
        "numbers": [0, 1],
        "uids": ["x", "y"],
        "starts": [None] * 2,
        "ends": [None] * 2,
    }
    rows = [{"key": "a", **listed}, {"key": "b", **{name: values[:1] for name, values in listed.items()}}]
    kept = KeptShard("s", pa.Table.from_pylist(rows))
    moved = Repair("x", "s", "a", 0, "s", "c", "z", "permuted", 0.95)
    found = CaptionMoves([moved], {("x", 0): {"caption": "one", "uid": "x", "start": None, "end": None}})
    assert {key: [one["caption"] for one in captions] for key, captions in found.captions(kept).items()} == {
        "a": ["two"]
    }
    both = CaptionMoves([moved, replace(moved, uid="y", caption_index=1)], {("x", 0): {}, ("y", 1): {}})
    assert both.captions(kept) == {"a": []}


def test_captions_in_json_change_too() -> None:
    given = {"jpg": b"x", "json": json.dumps({"caption": "old", "width": 3}).encode(), "txt": b"old"}
    moved = {"uid": "0" * 32, "caption": "new", "start": None, "end": None}
    found = replace_captions(given, [moved])
    assert json.loads(found["json"]) == {"caption": "new", "width": 3}
    assert found["txt"] == b"new" and found["jpg"] == b"x"


def test_timed_captions_take_their_spans_with_them() -> None:
    old = {"segments": [{"start": 5, "end": 6, "caption": "old"}], "url": "u"}
    given = {"mp4": b"x", "json": json.dumps(old).encode(), "vtt": b"WEBVTT"}
    timed = {"uid": "1" * 32, "caption": "new", "start": 1.0, "end": 2.5}
    found = replace_captions(given, [timed, {**timed, "caption": "of all", "start": None, "end": None}])
    assert json.loads(found["json"]) == {"captions": ["of all"], "segments": [timed], "url": "u"}
    assert set(found) == {"mp4", "json"}


def test_beside_shards_that_are_listed_is_outside_the_corpus(corpus: Path) -> None:
    """A folder beside `corpus/00000.tar` is outside the corpus, but inside it if the corpus is `corpus/`."""
    database = Audit(corpus / "audit").database
    beside = str(corpus / "corpus" / "repaired")
    with pytest.raises(FaultsError, match="a folder in it"):
        check_repair_target(database, beside)
    database.manifest["corpus"] = {"spec": f"{corpus}/corpus/00000.tar"}
    check_repair_target(database, beside)
    with pytest.raises(FaultsError, match="is the corpus"):
        check_repair_target(database, str(corpus / "corpus"))


def test_a_moved_corpus_must_be_named(corpus: Path, tmp_path: Path) -> None:
    audit = Audit(corpus / "audit")
    audit.database.places = MediaPlaces(())
    repair = Repair("0" * 32, "00000", "s000000", 0, "00000", "s000001", "1" * 32, "shift", 0.99)
    with pytest.raises(FaultsError, match="--corpus"):
        apply_repairs(audit.database, [repair], str(tmp_path / "out"))


def apply_list(folder: str) -> int:
    """Apply the repairs that are listed in a folder to the audit in it."""
    rows = pq.read_table(f"{folder}/list/repairs.parquet").to_pylist()
    try:
        with AuditDatabase(f"{folder}/audit") as database:
            apply_repairs(database, [Repair(**row) for row in rows], f"{folder}/out")
    except AuditorError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def test_killed_at_any_file_operation_it_goes_on_next_time(
    corpus: Path, repairs: list[Repair], tmp_path_factory: pytest.TempPathFactory
) -> None:
    template = tmp_path_factory.mktemp("template")
    shutil.copytree(corpus / "audit", template / "audit")
    write_repair_list(str(template / "list"), repairs)
    module = "tests.faults.test_apply_repair:apply_list"
    killed = kill_everywhere(template, tmp_path_factory.mktemp("work"), module, "{}")
    whole = read_members(killed[0].folder / "out" / "00000.tar")
    assert len(killed) > 6 and len(whole) > 100
    for one in killed:
        assert read_members(one.folder / "out" / "00000.tar") == whole, one
        assert (one.folder / "out" / "repairs.parquet").exists(), one
        assert one.next_exit == 0 or "holds a finished export" in one.stderr, one  # killed after everything was written
        assert not [*(one.folder / "out").glob(".part-*")], one
    assert sum(one.next_exit for one in killed) <= 3


@pytest.mark.parametrize("start", [None, 1.0])
def test_other_fields_are_read_in_the_encoding_of_the_audit(start: float | None) -> None:
    fields = json.dumps({"caption": "pies", "title": "pies na łące"}, ensure_ascii=False).encode("cp1250")
    moved = {"caption": "kot", "caption_source": None, "uid": "0" * 32, "start": start, "end": start}
    found = replace_captions({"json": fields}, [moved], CorpusOptions(encoding="cp1250"))
    assert json.loads(found["json"])["title"] == "pies na łące"


def test_two_repairs_into_one_folder(audit: Audit, repairs: list[Repair], tmp_path: Path) -> None:
    with hold_folder_lock(Folder(tmp_path / "out")), pytest.raises(LockedError):
        apply_repairs(audit.database, repairs, str(tmp_path / "out"))
    apply_repairs(audit.database, repairs, str(tmp_path / "out"))


def test_repairs_of_a_corpus_that_changes_in_between_are_not_mixed(
    corpus: Path, audit: Audit, repairs: list[Repair], tmp_path: Path
) -> None:
    folder = Folder(tmp_path / "out")
    prepare_export(folder, describe_repairs(audit.database, repairs, ["00000"], CaptionChanges()), force=False)
    os.utime(corpus / "corpus" / "00000.tar", ns=(1, 1))
    with pytest.raises(ExportError, match="has changed"):
        apply_repairs(audit.database, repairs, str(tmp_path / "out"))


def test_edited_captions_are_written_and_stay_with_their_media(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "audit"
    shutil.copytree(corpus / "audit", folder)
    with Audit(folder) as opened:
        for key in ("s000005", "s000030", "s000150"):  # beside the shift, within it, in another shard
            opened.edit(key, f"edited {key}", reviewer="ann")
    places = ["--corpus", str(corpus / "corpus")]
    assert run_command_line(["repair", str(folder), "--out", str(tmp_path / "out"), "--apply", *places]) == 0
    assert "3 captions written as edited" in capsys.readouterr().out
    after = read_members(tmp_path / "out" / "00000.tar")
    assert after["s000005.txt"] == b"edited s000005"
    assert after["s000030.txt"].splitlines()[0] == b"edited s000030"
    assert b"caption fb" not in b"".join(after.values())  # the caption of s000030 as it was, which would move
    other = read_members(tmp_path / "out" / "00001.tar")
    before = read_members(corpus / "corpus" / "00001.tar")
    assert {name for name in before if other[name] != before[name]} == {"s000150.txt"}
    listed = pq.read_table(tmp_path / "out" / "repairs.parquet")["key"].to_pylist()
    assert "s000031" in listed and "s000030" not in listed
    plain = ["repair", str(folder), "--out", str(tmp_path / "plain"), "--apply", "--no-edits", *places]
    assert run_command_line(plain) == 0
    assert "as edited" not in capsys.readouterr().out and not (tmp_path / "plain" / "00001.tar").exists()
    assert read_members(tmp_path / "plain" / "00000.tar")["s000005.txt"] != b"edited s000005"
