"""Data frames of pandas, polars and pyarrow become the same Parquet table."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.corpus.open_corpus import open_corpus
from auditor.corpus.shard import CorpusError, CorpusOptions
from auditor.corpus.tables.data_frame import is_data_frame, write_data_frame
from tests.support.corpora import make_picture

OPTIONS = CorpusOptions(media_column="file", caption_column="words")


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_every_frame_gives_the_same_corpus(
    make: Callable[[Any], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.jpg").write_bytes(make_picture(1))
    frame = make({"file": ["a.jpg", "s3://bucket/b.jpg"], "words": ["a red dog", None], "unused": [1.5, 2.5]})
    table = tmp_path / "out" / "corpus.parquet"
    assert is_data_frame(frame)
    roots = write_data_frame(frame, table, OPTIONS)
    assert roots == (str(tmp_path),)
    assert pq.read_table(table).to_pydict() == {
        "file": [str(tmp_path / "a.jpg"), "s3://bucket/b.jpg"],
        "words": ["a red dog", None],
    }
    with open_corpus(str(table), replace(OPTIONS, media_root=roots)).shards[0].open() as shard:
        first, second = shard.samples
    assert first.captions == ("a red dog",) and first.media is not None and first.problem is None
    assert second.problem is not None and second.problem.status == "outside"


def test_path_objects_bytes_and_missing_captions_of_pandas(tmp_path: Path) -> None:
    table = tmp_path / "corpus.parquet"
    write_data_frame(
        pd.DataFrame({"path": [Path("/x/a.jpg"), None], "text": ["a dog", float("nan")]}), table, CorpusOptions()
    )
    assert pq.read_table(table).to_pydict() == {"path": ["/x/a.jpg", None], "text": ["a dog", None]}
    write_data_frame(pd.DataFrame({"image": [make_picture(1)], "text": ["a dog"]}), table, CorpusOptions())
    assert pq.read_table(table)["image"].to_pylist() == [make_picture(1)]


def test_an_equal_table_is_not_written_again(tmp_path: Path) -> None:
    table, frame = tmp_path / "corpus.parquet", pd.DataFrame({"file": ["a.jpg"], "words": ["a dog"]})
    write_data_frame(frame, table, OPTIONS)
    changed = table.stat().st_mtime_ns
    write_data_frame(frame, table, OPTIONS)
    assert table.stat().st_mtime_ns == changed
    write_data_frame(frame.assign(words="a cat"), table, OPTIONS)
    assert pq.read_table(table)["words"].to_pylist() == ["a cat"]


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (pd.DataFrame({"fil": ["a"], "words": ["b"]}), "no column 'file': the DataFrame has .*; did you mean 'fil'?"),
        (pd.DataFrame({"file": [], "words": []}), "the DataFrame has no rows"),
        (pd.DataFrame({"file": ["a.jpg", 3.5], "words": ["b", "c"]}), "cannot be stored as Parquet"),
    ],
)
def test_bad_frames(frame: pd.DataFrame, words: str, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=words):
        write_data_frame(frame, tmp_path / "corpus.parquet", OPTIONS)
    assert not list(tmp_path.iterdir())
