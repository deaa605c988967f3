"""Edits of captions are stored, belong to their rows, survive another audit, and are never lost to another writer."""

import json
import multiprocessing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from auditor.audit_folder.appended_lines import read_lines_version
from auditor.audit_folder.edit_records import (
    LONGEST,
    NAME,
    CaptionEdit,
    EditError,
    RowEdits,
    append_edits,
    clean_caption,
    make_edit,
    parse_edit_line,
    read_edits,
)
from auditor.audit_folder.folder import Folder
from auditor.sweep.caption_facts import hash_caption

ROW: dict[str, Any] = {
    "uid": "0" * 32,
    "shard": "00000",
    "key": "a/b",
    "caption_index": 0,
    "caption_hash": hash_caption("Two dogs."),
    "media_digest": "f" * 32,
    "caption": "Two dogs.",
}


def make_timed(text: str, reviewer: str, time: int, **row: Any) -> CaptionEdit:
    return replace(make_edit(ROW | row, text or None, reviewer), time=f"2026-01-01T00:00:{time:02d}")


@pytest.mark.parametrize(
    "text",
    [
        "Zwei Hünde",
        "两只狗。",
        "كلبان \u200fيركضان",
        "\u0e2a\u0e38\u0e19\u0e31\u0e02",
        "🐕\u200d🦺",
        "=1+1",
        "a\u3000b",
        "'quoted' \"text\"",
    ],
)
def test_text_of_every_language_is_stored_as_it_is(text: str, tmp_path: Path) -> None:
    edit = make_edit(ROW, text, "ann")
    append_edits(Folder(tmp_path), [edit])
    assert read_edits(Folder(tmp_path)) == [edit] and edit.new_caption == text


def test_line_breaks_become_spaces() -> None:
    assert clean_caption(" one \r\n two\n\n\nthree\u2028four\tfive ") == "one two three four five"


@pytest.mark.parametrize(
    "text", ["", " \n ", "\u200b\u200f", "a\0b", "\x1b[31mred", "a\x85b\x07", "\ud800", "x" * (LONGEST + 1)]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(EditError):
        make_edit(ROW, text, "ann")


def test_rows_that_cannot_be_edited() -> None:
    for caption in (None, "", "x" * (LONGEST + 1)):
        with pytest.raises(EditError, match="a/b"):
            make_edit({**ROW, "caption": caption}, "new", "ann")


@pytest.mark.parametrize(
    ("change", "belongs"),
    [
        ({}, True),
        ({"uid": "1" * 32}, True),  # another audit of the corpus
        ({"shard": "9", "uid": "2" * 32}, True),  # packed into other shards
        ({"media_digest": "e" * 32}, True),  # the picture was compressed again
        ({"media_digest": None}, True),
        ({"caption_index": 3}, True),
        ({"caption": "two DOGS"}, True),  # spelled differently
        ({"caption": "two DOGS", "caption_index": 3}, False),  # may be another caption of the medium
        ({"caption": "two DOGS", "shard": "9"}, False),
        ({"shard": "9", "media_digest": "e" * 32}, False),  # another medium with this key
        ({"shard": "9", "media_digest": None}, False),
        ({"key": "a/c"}, False),
        ({"caption": "Two cats.", "caption_hash": hash_caption("Two cats.")}, False),  # the caption has changed
    ],
)
def test_an_edit_belongs_to_its_key_and_caption(change: dict[str, Any], belongs: bool) -> None:
    edit = make_edit(ROW, "Two puppies", "ann")
    assert edit.belongs_to(ROW | change) == belongs
    assert RowEdits([edit]).find(ROW | change) == [edit] * belongs
    assert not replace(edit, media_digest=None, shard="8").belongs_to(ROW | {"media_digest": None})


def test_the_newest_of_the_latest_edits_is_applied() -> None:
    ann, bob = make_timed("A", "ann", 1), make_timed("B", "bob", 2)
    later = make_timed("A again", "ann", 3)
    assert RowEdits([ann, bob]).find(ROW) == [bob, ann]
    assert RowEdits([ann, bob, later]).find(ROW) == [later, bob]
    assert RowEdits([ann, bob, later, make_timed("", "ann", 4)]).find(ROW) == [bob]  # ann took hers back
    assert RowEdits([ann, bob, make_timed("", "bob", 5), make_timed("", "ann", 6)]).find(ROW) == []


def test_a_repeated_caption_of_a_medium_is_edited_with_its_twin_or_alone() -> None:
    twin = {"caption_index": 1}
    first, second = make_timed("first", "ann", 1), make_timed("second", "ann", 2, **twin)
    assert RowEdits([first]).find(ROW | twin) == [first]
    edits = RowEdits([first, second])
    assert (edits.find(ROW), edits.find(ROW | twin)) == ([first], [second])
    taken_back = RowEdits([first, make_timed("", "ann", 3, **twin)])
    assert (taken_back.find(ROW), taken_back.find(ROW | twin)) == ([first], [])


@pytest.mark.parametrize(
    "wrong",
    [
        {"uid": 5},
        {"key": None},
        {"key": "k" * 100_000},
        {"reviewer": ["ann"]},
        {"reviewer": "r" * 10_000},
        {"time": None},
        {"caption_index": True},
        {"caption_index": 2**40},
        {"caption_hash": 2**63},
        {"caption_hash": 1.5},
        {"media_digest": 7},
        {"old_caption": ""},
        {"old_caption": "\ud800"},
        {"old_caption": "x" * (5 * LONGEST)},
        {"new_caption": None},
        {"new_caption": "two\nlines"},
        {"new_caption": "\x1b[31m"},
        {"new_caption": " "},
        {"new_caption": "x" * (LONGEST + 1)},
    ],
)
def test_lines_of_strangers_are_checked(tmp_path: Path, wrong: dict[str, Any]) -> None:
    edit = make_edit(ROW, "new", "ann")
    append_edits(Folder(tmp_path), [edit])
    lines = [json.dumps({**asdict(edit), **wrong}), "[" * 100_000, '{"uid": "torn', "null", '{"uid": NaN}']
    with (tmp_path / "edits.jsonl").open("a") as file:
        file.write("\n".join(lines))
    append_edits(Folder(tmp_path), [replace(edit, reviewer="bob")])  # after a torn line
    assert [edit.reviewer for edit in read_edits(Folder(tmp_path))] == ["ann", "bob"]
    assert parse_edit_line(json.dumps(asdict(edit) | {"more": 1}).encode()) == edit


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "edits.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EditError, match="cannot store an edit"):
        append_edits(Folder(tmp_path), [make_edit(ROW, "new", "ann")])
    assert not (tmp_path / "elsewhere").exists()


def test_edits_in_an_object_store() -> None:
    folder = Folder("memory://audit-with-edits")
    assert read_edits(folder) == [] and read_lines_version(folder, NAME) == ""
    edits = [make_timed("A", "ann", 1), make_timed("B", "bob", 2)]
    for edit in edits:
        append_edits(folder, [edit])
    assert read_edits(folder) == edits


def write_many(path: str, reviewer: str, count: int) -> None:
    for number in range(count):
        append_edits(Folder(path), [make_edit(ROW | {"key": f"{reviewer} {number}"}, "new " * 500, reviewer)])


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_many, args=(str(tmp_path), name, 200)) for name in ("ann", "bob")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
        assert writer.exitcode == 0
    keys = {edit.key for edit in read_edits(Folder(tmp_path))}
    assert keys == {f"{name} {number}" for name in ("ann", "bob") for number in range(200)}
