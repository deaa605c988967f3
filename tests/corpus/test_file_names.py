"""Keys and paths of any bytes: different names stay different, each leads to its file, and shards report escapes."""

import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.corpus.file_names import escape_name, resolve_stored_path, unescape_name
from auditor.corpus.open_corpus import open_corpus
from auditor.corpus.raw_samples import group_sound_members
from auditor.corpus.tar_archive import open_tar
from tests.support.corpora import make_picture

NAMES = (b"caf\xe9", b"caf\xe8", rb"caf\xe9", b"caf\xc3\xa9", b"nul\\x00", b"a\xed\xa0\x80b")


@given(st.binary(max_size=12), st.binary(max_size=12))
def test_escaping_is_reversible_and_unique(one: bytes, other: bytes) -> None:
    names = [data.decode("utf-8", "surrogateescape") for data in (one, other, one + rb"\xe9", one + b"\xe9")]
    texts = [escape_name(name) for name in names]
    assert [unescape_name(text) for text in texts] == names
    assert len(set(texts)) == len(set(names))
    for text in texts:
        assert "\0" not in text and text.encode().decode() == text


@pytest.mark.parametrize("name", ["plain", "日本", r"back\slash", "a/b c"])
def test_usual_names_stay_as_they_are(name: str) -> None:
    assert escape_name(name) == name


def raw_tar(path: Path, names: tuple[bytes, ...], form: int = tarfile.GNU_FORMAT) -> Path:
    with tarfile.open(path, "w", format=form, encoding="utf-8", errors="surrogateescape") as tar:
        for name in names:
            for extension, data in (("jpg", make_picture(1)), ("txt", b"a red dog")):
                info = tarfile.TarInfo(os.fsdecode(name) + "." + extension)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return path


def test_members_that_differ_in_bytes_only_are_samples_of_their_own(tmp_path: Path) -> None:
    tar = raw_tar(tmp_path / "00000.tar", NAMES)
    with open_corpus(str(tar)).shards[0].open() as opened:
        samples, problems = opened.samples, opened.problems
        assert all(opened.read(sample.media) == make_picture(1) for sample in samples if sample.media)
    assert [unescape_name(sample.key).encode("utf-8", "surrogateescape") for sample in samples] == list(NAMES)
    assert all(sample.problem is None for sample in samples)
    assert any("5 keys contain bytes that are not text" in problem and r"caf\xe9" in problem for problem in problems)
    with open_tar(str(tar)) as again:  # as an export finds them
        assert [key for key, _ in group_sound_members(again, str(tar))] == [sample.key for sample in samples]


def test_a_nul_in_a_pax_name_stays_distinct(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "00000.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        for key in ("a\0b", "a\ufffdb", r"a\x00b"):
            for extension, data in (("jpg", make_picture(1)), ("txt", b"a red dog")):
                info = tarfile.TarInfo("short")
                info.pax_headers, info.size = {"path": f"{key}.{extension}"}, len(data)
                tar.addfile(info, io.BytesIO(data))
    with open_corpus(str(tmp_path / "00000.tar")).shards[0].open() as opened:
        assert [sample.key for sample in opened.samples] == [r"a\x00b", "a\ufffdb", r"a\x5cx00b"]


def test_files_with_latin_1_names_are_found_again(tmp_path: Path) -> None:
    for number, name in enumerate((b"caf\xe9", b"caf\xe8", rb"caf\xe9")):
        base = os.fsencode(tmp_path) + b"/" + name
        Path(os.fsdecode(base + b".jpg")).write_bytes(make_picture(number))
        Path(os.fsdecode(base + b".txt")).write_text("a red dog")
    with open_corpus(str(tmp_path)).shards[0].open() as opened:
        found = {sample.key: opened.read(sample.media) for sample in opened.samples if sample.media}
        paths = [sample.media.path for sample in opened.samples if sample.media]
    assert found == {r"caf\xe9": make_picture(0), r"caf\xe8": make_picture(1), r"caf\x5cxe9": make_picture(2)}
    assert all(path.encode() and os.path.exists(resolve_stored_path(path)) for path in paths)


def test_a_path_that_only_looks_escaped_is_found(tmp_path: Path) -> None:
    old = tmp_path / r"was\xe9.jpg"
    old.write_bytes(b"x")
    assert resolve_stored_path(str(old)) == str(old)
