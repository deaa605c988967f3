"""The tar walk against the standard tarfile on whole archives, and against what was written on damaged ones."""

import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditor.corpus.open_corpus import open_corpus
from auditor.corpus.tar_index import NotATarError, TarIndex, TarMember, index_tar
from auditor.corpus.tar_shard import group_tar_members

BLOCK = 512
# names as tars hold them: several folders deep, longer than the 100 bytes of a header, not only ASCII
SEGMENTS = st.text(
    st.characters(codec="utf-8", exclude_characters="/\0", exclude_categories=["Cc"]), min_size=1, max_size=40
)
NAMES = (
    st.lists(SEGMENTS, min_size=1, max_size=4).map("/".join).filter(lambda name: not set(name.split("/")) & {".", ".."})
)
FILES = st.lists(st.tuples(NAMES, st.binary(max_size=1500)), max_size=4)
FORMATS = st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])


def pack(files: list[tuple[str, bytes]], format_: int = tarfile.PAX_FORMAT) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=format_) as tar:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return packed.getvalue()


def index(data: bytes) -> TarIndex:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        return index_tar(file.fileno(), len(data))


def contents(data: bytes, members: list[TarMember]) -> list[tuple[str, bytes]]:
    return [(member.name, data[member.offset : member.offset + member.size]) for member in members]


FILE_A = ("a.jpg", b"A" * 700)
FILE_B = ("b.jpg", b"B" * 100)
FILE_C = ("c.jpg", b"C" * 1024)


@settings(max_examples=80, deadline=None)
@given(FILES, FORMATS)
def test_whole_archives_are_read_as_tarfile_reads_them(files: list[tuple[str, bytes]], format_: int) -> None:
    data = pack(files, format_)
    found = index(data)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        expected = [(member.name, member.offset_data, member.size) for member in tar.getmembers()]
    assert [(member.name, member.offset, member.size) for member in found.members] == expected
    assert contents(data, found.members) == files
    assert found.problems == []


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=1500), min_size=2, max_size=6), st.data())
def test_a_bad_header_costs_its_own_member_only(bodies: list[bytes], draw: st.DataObject) -> None:
    files = [(f"{number:03d}.bin", body) for number, body in enumerate(bodies)]
    data = bytearray(pack(files))
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        starts = [member.offset for member in tar.getmembers()]
    hit = draw.draw(st.integers(0, len(files) - 1))
    noise = draw.draw(st.binary(min_size=BLOCK, max_size=BLOCK).filter(lambda block: block.strip(b"\0") != b""))
    data[starts[hit] : starts[hit] + BLOCK] = noise
    found = index(bytes(data))
    assert contents(bytes(data), found.members) == [file for number, file in enumerate(files) if number != hit]
    assert [problem for problem in found.problems if f"offset {starts[hit]}:" in problem]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=1500), min_size=1, max_size=5), st.data())
def test_cut_anywhere_the_members_before_the_cut_are_whole(bodies: list[bytes], draw: st.DataObject) -> None:
    files = [(f"{number:03d}.bin", body) for number, body in enumerate(bodies)]
    data = pack(files)
    end = draw.draw(st.integers(BLOCK, len(data) - 1))
    found = index(data[:end])
    for member, (name, body) in zip(found.members, files, strict=False):
        assert member.name == name
        assert member.size == len(body)
        assert data[member.offset : member.offset + member.present] == body[: member.present]
        assert member.present == max(0, min(member.size, end - member.offset))
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        reached = sum(member.offset_data <= end for member in tar)
    assert len(found.members) == reached


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=4096))
def test_noise_never_crashes_the_walk(noise: bytes) -> None:
    try:
        found = index(noise)
    except NotATarError:
        return
    assert found.problems or not noise.strip(b"\0")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_flipped_bytes_never_crash_the_walk(draw: st.DataObject) -> None:
    data = bytearray(pack([("a" * 150 + ".jpg", b"A" * 600), ("ü.txt", b"t"), FILE_C]))
    for position, value in draw.draw(
        st.lists(st.tuples(st.integers(0, len(data) - 1), st.integers(0, 255)), max_size=8)
    ):
        data[position] = value
    for member in index(bytes(data)).members:
        assert 0 <= member.present <= member.size
        assert member.offset % BLOCK == 0


def test_the_walk_does_not_loop_between_good_and_bad_headers() -> None:
    data = bytearray(pack([FILE_A, ("ü.txt", b"t"), FILE_C]))
    with tarfile.open(fileobj=io.BytesIO(bytes(data))) as tar:
        for member in tar.getmembers()[1:]:  # their own headers, not the pax header before the first of them
            data[member.offset_data - BLOCK : member.offset_data] = b"\xff" * BLOCK
    found = index(bytes(data))
    assert [member.name for member in found.members] == [FILE_A[0]]
    assert any("no good one" in problem for problem in found.problems)


def test_the_walk_continues_after_lost_bytes() -> None:
    data = pack([FILE_A, FILE_B, FILE_C])
    shifted = data[:600] + data[637:]  # 37 bytes of a.jpg are lost
    found = index(shifted)
    assert contents(shifted, found.members)[1:] == [FILE_B, FILE_C]
    assert found.members[0] == TarMember("a.jpg", 512, 700, present=663)
    assert "bad header" in found.problems[0]


def test_a_hole_of_zeros_is_reported_and_skipped() -> None:
    data = bytearray(pack([FILE_A, FILE_B, FILE_C]))
    start = 1536  # the header and the data of b.jpg
    data[start : start + 1024] = bytes(1024)
    found = index(bytes(data))
    assert contents(bytes(data), found.members) == [FILE_A, FILE_C]
    assert found.problems == [
        "1024 zero bytes at offset 1536 and more data after them: "
        "readers that stop at the end-of-archive mark miss that data"
    ]


def test_concatenated_tars_are_read_to_the_end() -> None:
    data = pack([FILE_A]) + pack([FILE_B])
    found = index(data)
    assert contents(data, found.members) == [FILE_A, FILE_B]
    assert len(found.problems) == 1


def test_old_tars_without_magic_survive_a_bad_header_too() -> None:
    data = bytearray(pack([FILE_A, FILE_B, FILE_C], tarfile.USTAR_FORMAT))
    for start in (0, 1536, 2560):
        header = bytearray(data[start : start + BLOCK])
        header[257:265] = bytes(8)
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        data[start : start + BLOCK] = header
    assert contents(bytes(data), index(bytes(data)).members) == [FILE_A, FILE_B, FILE_C]
    data[1536] ^= 0xFF
    assert contents(bytes(data), index(bytes(data)).members) == [FILE_A, FILE_C]


def test_ustar_prefixes_and_huge_sizes() -> None:
    name = "/".join(["folder" * 5] * 4) + "/a.jpg"
    assert index(pack([(name, b"x")], tarfile.USTAR_FORMAT)).members[0].name == name
    info = tarfile.TarInfo("big.mp4")
    info.size = 2**40  # more than octal digits can say: base 256 in GNU tars, a pax record in POSIX ones
    for format_ in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        found = index(info.tobuf(format=format_) + b"only the start")
        assert (found.members[0].size, found.members[0].present) == (2**40, 14)
        assert found.problems == [f"the shard ends inside big.mp4: {2**40 - 14} of its {2**40} bytes are missing"]


def test_folders_are_not_members_and_links_have_no_bytes() -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, type_ in (("d", tarfile.DIRTYPE), ("d/soft.jpg", tarfile.SYMTYPE), ("d/hard.jpg", tarfile.LNKTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = type_, "/etc/passwd"
            tar.addfile(info)
    found = index(packed.getvalue())
    assert [(member.name, member.size, member.regular) for member in found.members] == [
        ("d/soft.jpg", 0, False),
        ("d/hard.jpg", 0, False),
    ]


def test_checksums_over_signed_bytes_are_good_too() -> None:
    header = bytearray(tarfile.TarInfo("é.jpg").tobuf(tarfile.GNU_FORMAT))
    rest = header[:148] + header[156:]
    header[148:156] = b"%06o\0 " % (256 + sum(byte - 256 if byte > 127 else byte for byte in rest))
    assert [member.name for member in index(bytes(header) + bytes(1024)).members] == ["é.jpg"]


def test_a_global_pax_header_applies_to_all_later_members() -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"path": "said.jpg"}) as tar:
        tar.addfile(tarfile.TarInfo("a.jpg"))
        tar.addfile(tarfile.TarInfo("ü.jpg"))  # has a pax header of its own, which comes first
    with tarfile.open(fileobj=io.BytesIO(packed.getvalue())) as tar:
        expected = tar.getnames()
    assert [member.name for member in index(packed.getvalue()).members] == expected == ["said.jpg", "ü.jpg"]


def test_names_that_are_not_utf8_stay_distinct() -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT, encoding="latin-1") as tar:
        for name in ("é.jpg", "è.jpg"):
            tar.addfile(tarfile.TarInfo(name))
    assert [member.name for member in index(packed.getvalue()).members] == ["\udce9.jpg", "\udce8.jpg"]


def test_gnu_tar_itself(tmp_path: Path) -> None:
    if os.system("tar --version > /dev/null 2>&1") != 0:
        pytest.skip("no tar command")
    long = "long" * 40
    (tmp_path / "in").mkdir()
    for name in ("a.jpg", f"{long}.jpg", "ü.txt"):
        (tmp_path / "in" / name).write_bytes(name.encode() * 50)
    for format_ in ("gnu", "pax", "oldgnu", "posix"):
        archive = tmp_path / f"{format_}.tar"
        assert os.system(f"tar --format={format_} -C {tmp_path}/in -cf {archive} .") == 0
        data = archive.read_bytes()
        found = index(data)
        assert found.problems == []
        assert {(name, body) for name, body in contents(data, found.members)} == {
            (f"./{name}", name.encode() * 50) for name in ("a.jpg", f"{long}.jpg", "ü.txt")
        }


def test_an_empty_archive_is_a_tar_and_text_is_not() -> None:
    assert index(pack([])).members == []
    with pytest.raises(NotATarError):
        index(b"<html>404</html>" * 100)


def test_an_archive_without_its_mark_may_be_cut() -> None:
    data = pack([FILE_C])
    assert index(data[:1536]).problems == ["no end-of-archive mark: the shard may have been cut off"]


@pytest.mark.parametrize(
    "form", [["--format=gnu"], *(["--format=posix", f"--sparse-version={v}"] for v in ("0.0", "0.1", "1.0"))]
)
def test_sparse_members_are_reported_and_cost_no_other(tmp_path: Path, form: list[str]) -> None:
    if shutil.which("tar") is None:
        pytest.skip("no GNU tar here")
    with (tmp_path / "b.jpg").open("wb") as file:  # thirty islands: the map of an old GNU member needs extra blocks
        for island in range(30):
            file.seek(island * 2**20)
            file.write(b"data %02d" % island)
    for name in ("a.jpg", "c.jpg"):
        (tmp_path / name).write_bytes(name.encode() * 300)
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.txt").write_text("a dog")
    made = ["tar", "-S", *form, "-cf", "s.tar", *(f"{name}.{end}" for name in "abc" for end in ("jpg", "txt"))]
    subprocess.run(made, cwd=tmp_path, check=True)
    with open_corpus(str(tmp_path / "s.tar")).shards[0].open() as opened:
        found = {sample.key: sample.problem for sample in opened.samples}
        pictures = [opened.read(sample.media) for sample in opened.samples if sample.media and sample.key != "b"]
    assert found["a"] is None and found["c"] is None and pictures == [b"a.jpg" * 300, b"c.jpg" * 300]
    assert found["b"] is not None and found["b"].status == "corrupt" and "sparse" in found["b"].message


def test_ten_thousand_members() -> None:
    whole = pack([("%06d.jpg", b"A" * 5)])[: 2 * BLOCK]
    blank = whole[:148] + b" " * 8 + whole[156:BLOCK]
    packed = bytearray()
    for number in range(10_000):
        name = b"%06d.%s" % (number // 2, b"txt" if number % 2 else b"jpg")
        header = bytearray(name.ljust(100, b"\0") + blank[100:])
        header[148:156] = b"%06o\0 " % sum(header)
        packed += header + whole[BLOCK:]
    found = index(bytes(packed) + bytes(2 * BLOCK))
    assert len(found.members) == 10_000 and found.problems == [] and found.members[-1].name == "004999.txt"
    assert len(group_tar_members(found, "s.tar")) == 5_000
