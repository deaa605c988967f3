"""Tables as attackers write them: no crash, no memory beyond the limits, one line or a row with a reason."""

import io
import json
import os
import random
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.corpus import parquet_rows
from auditor.corpus.open_corpus import CorpusError, CorpusOptions, ShardError, open_corpus
from auditor.corpus.sample import Sample
from auditor.corpus.tables import table, text_table
from auditor.corpus.tables.entry_shard import TableEntry, merge_entries
from auditor.corpus.tables.parquet_table import MAX_PIECE_ROWS, cut_row_groups

PNG = b"\x89PNG\r\n\x1a\n"


def read_samples(spec: Path | str, **options: Any) -> list[Sample]:
    samples: list[Sample] = []
    for shard in open_corpus(str(spec), CorpusOptions(**options)).shards:
        shard.fingerprint()
        with shard.open() as opened:
            samples += opened.samples
    return samples


def write_parquet(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def write_arrow(path: Path, content: pa.Table) -> Path:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, content.schema) as writer:
        writer.write_table(content)
    return path


def make_text(data: bytes) -> pa.Array:
    """Bytes as a string column, whatever they are."""
    buffers = [None, pa.py_buffer(struct.pack("ii", 0, len(data))), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), 1, buffers)


READ_FILES = """
import sys
from tests.corpus.test_hostile_tables import CorpusError, read_samples
refused = 0
for path in sys.argv[1:]:
    try:
        read_samples(path)
    except CorpusError:
        refused += 1
print(refused)
"""


def test_no_arrow_file_crashes_the_process(tmp_path: Path) -> None:
    images = pa.array([{"bytes": PNG + bytes([i]), "path": f"{i}.png"} for i in range(50)])
    path = write_arrow(tmp_path / "t.arrow", pa.table({"image": images, "caption": [f"text {i}" for i in range(50)]}))
    whole, chance = path.read_bytes(), random.Random(0)
    for number in range(150):
        data = bytearray(whole)
        for _ in range(chance.choice([1, 2, 4, 8])):
            data[chance.randrange(8, len(data))] = chance.choice([0, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        (tmp_path / f"{number}.arrow").write_bytes(data)
    files = [str(file) for file in sorted(tmp_path.glob("[0-9]*.arrow"))]
    child = subprocess.run([sys.executable, "-c", READ_FILES, *files], capture_output=True, text=True, timeout=120)
    assert child.returncode == 0, child.stderr[-2000:]
    assert 10 < int(child.stdout) < 150


def test_offsets_that_lead_out_of_an_arrow_file(tmp_path: Path) -> None:
    path = write_arrow(tmp_path / "t.arrow", pa.table({"image": ["a.png"] * 2, "caption": ["x" * 111, "y" * 41]}))
    offsets, data = struct.pack("iii", 0, 111, 152), path.read_bytes()
    assert data.count(offsets) == 1
    path.write_bytes(data.replace(offsets, struct.pack("iii", 0, -(2**31), 5)))
    with pytest.raises(ShardError, match="offset"):
        read_samples(path)


def test_unreadable_cells_are_rows(tmp_path: Path) -> None:
    far = pa.array([2**62], pa.timestamp("us"))
    (sample,) = read_samples(write_parquet(tmp_path / "u.parquet", image=["a.png"], caption=make_text(b"\xff is bad")))
    assert sample.captions == ("\ufffd is bad",)
    lists = pa.ListArray.from_arrays([0, 1], make_text(b"\xfe"))
    (sample,) = read_samples(write_parquet(tmp_path / "l.parquet", image=["a.png"], caption=lists))
    assert sample.captions == ("\ufffd",)
    zone = far.cast(pa.timestamp("us", "No/Such_Zone"))
    for name, times in (("far", far), ("zone", zone)):
        path = write_parquet(tmp_path / f"{name}.parquet", image=["a.png"], caption=["x"], t=times)
        (sample,) = read_samples(path, carry=("t",))
        assert (sample.captions, sample.carried) == (("x",), ('{"t": null}',))


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    columns = [pa.array([value]) for value in ("a.png", "b.png", "x")]
    pq.write_table(pa.Table.from_arrays(columns, ["image", "image", "caption"]), tmp_path / "t.parquet")
    with pytest.raises(CorpusError, match="two columns 'image'"):
        read_samples(tmp_path / "t.parquet")


def test_a_large_cell_that_a_dictionary_repeats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes a row: 200 rows of a megabyte are 200 MB at once."""
    cells = pa.DictionaryArray.from_arrays(pa.array([0] * 200, pa.int32()), pa.array(["x" * 2**20]))
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"image": [f"{i}.png" for i in range(200)], "caption": cells}), path, compression="zstd")
    assert path.stat().st_size < 20_000
    monkeypatch.setattr(parquet_rows, "BATCH_BYTES", 8 * 2**20)
    monkeypatch.setattr(table, "MAX_SHARD_TEXT", 20 * 2**20)
    with parquet_rows.open_parquet(str(path)) as file:
        batch = next(parquet_rows.read_batches(file, 0, 200, 200, ["caption"]))
        assert batch.nbytes < 9 * 2**20
    samples = read_samples(path)
    assert [len(sample.captions) for sample in samples] == [1] * 20 + [0] * 180
    assert samples[20].problem is None or "--shard-size" in samples[20].problem.message


def test_a_billion_equal_rows_are_cut() -> None:
    cuts = cut_row_groups([10**9], 1000)
    assert max(stop - start for start, stop in cuts) == MAX_PIECE_ROWS
    assert cuts[0][0] == 0 and cuts[-1][1] == 10**9


def test_captions_of_one_picture_take_linear_time() -> None:
    entries = [TableEntry(row, "a.png", ("x",), places=((row, 0),), uids=(None,)) for row in range(60_000)]
    start = time.process_time()
    ((_, _, entry),) = merge_entries("/folder", entries)
    assert len(entry.captions) == 60_000 and entry.places[-1] == (59_999, 0)
    assert time.process_time() - start < 5.0


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "mac"])
def test_an_endless_line_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    monkeypatch.setattr(text_table, "MAX_LINE", 1000)
    returns = encoding == "mac"
    dialect = text_table.TableDialect("csv", "utf-8" if returns else encoding, returns=returns)
    end = "\r" if returns else "\n"
    data = (f"a,b{end}" + "x" * 10_500 + f"{end}c,d{end}").encode(dialect.encoding)
    lines = list(dialect.lines(io.BytesIO(data)))
    assert b"".join(lines) == data and len(lines) == 13
    assert max(map(len, lines)) <= 2000


def test_a_wide_table(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(5000)]
    (tmp_path / "a.png").write_bytes(PNG)
    (tmp_path / "t.csv").write_text(
        ",".join(["image", "caption", *names]) + "\n" + ("a.png,x" + ",1" * 5000 + "\n") * 3
    )
    write_parquet(tmp_path / "t.parquet", image=["a.png"] * 3, caption=["x"] * 3, **{name: [1] * 3 for name in names})
    for form in ("csv", "parquet"):
        (sample,) = read_samples(tmp_path / f"t.{form}")
        assert sample.captions == ("x",) * 3


@pytest.mark.parametrize(
    "record",
    [
        {"images": [1], "annotations": []},
        {"images": [{"file_name": "a.png", "id": 1}], "annotations": 7},
        {"images": [{"file_name": "a.png", "id": 1}], "annotations": [[1]]},
        "[" * 100_000,
    ],
)
def test_wrong_json_of_captions_is_one_line(tmp_path: Path, record: Any) -> None:
    (tmp_path / "c.json").write_text(record if isinstance(record, str) else json.dumps(record))
    with pytest.raises(CorpusError, match=os.fspath(tmp_path)):
        read_samples(f"coco:{tmp_path / 'c.json'}::{tmp_path}")


def test_ids_of_any_json_type(tmp_path: Path) -> None:
    record = {"images": [{"file_name": "\ud800.png", "id": [1]}], "annotations": [{"image_id": [1], "caption": "x"}]}
    (tmp_path / "c.json").write_text(json.dumps(record))
    (sample,) = read_samples(f"coco:{tmp_path / 'c.json'}::{tmp_path}")
    assert sample.captions == ("x",)
    sample.key.encode()
