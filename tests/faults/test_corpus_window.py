"""Stored embeddings: the ends of a shard are read correctly, and little else is read."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.audit_folder.embeddings import build_nullable_vectors, name_embeddings_file
from auditor.audit_folder.folder import Folder
from auditor.faults.corpus_window import (
    average_captions,
    average_media,
    read_first_samples,
    read_last_samples,
    read_window,
)
from auditor.faults.pairing_evidence import SampleVectors
from tests.support.planted import make_embeddings

GROUP = 7  # rows: samples continue in the next row group


def write_shard(path: Path, samples: int = 40, seed: int = 0) -> Folder:
    """Samples of one to four captions; some have no medium, some captions no vector."""
    generator = np.random.default_rng(seed)
    sizes = generator.integers(1, 5, samples)
    index = np.concatenate([np.arange(size) for size in sizes])
    has_text = generator.random(len(index)) < 0.9
    has_visual = (index == 0) & (generator.random(len(index)) < 0.8)
    visual, text = make_embeddings(len(index), seed)
    names = [f"{row:032x}" for row in range(len(index))]
    columns = {
        "uid": names,
        "key": [f"s{sample}" for sample in np.repeat(np.arange(samples), sizes)],
        "caption": [f"caption {row % 9}" for row in range(len(index))],
        "caption_index": pa.array(index, pa.int32()),
        "visual": build_nullable_vectors(visual[has_visual], has_visual),
        "text": build_nullable_vectors(text[has_text], has_text),
    }
    folder = Folder(path)
    (path / "embeddings").mkdir(parents=True)
    pq.write_table(pa.table(columns), path / name_embeddings_file("a"), row_group_size=GROUP)
    return folder


def are_equal(one: SampleVectors, other: SampleVectors) -> bool:
    sides = ((one.visual, other.visual), (one.text, other.text), (one.present, other.present))
    return all(np.array_equal(mine, theirs) for mine, theirs in sides)


@pytest.mark.parametrize("count", [1, 3, 12, 39, 40, 500])
def test_the_ends_of_a_shard_are_those_of_the_whole(tmp_path: Path, count: int) -> None:
    folder = write_shard(tmp_path, seed=count)
    whole = read_window(folder, "a").samples
    assert are_equal(read_first_samples(folder, "a", count), whole.take(slice(0, count)))
    assert are_equal(read_last_samples(folder, "a", count), whole.take(slice(-count, None)))


def test_only_the_row_groups_of_the_last_samples_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, read = write_shard(tmp_path), list[int]()
    real = pq.ParquetFile.read_row_group

    def counted(file: pq.ParquetFile, group: int, *given: object) -> pa.Table:
        read.append(group)
        return real(file, group, *given)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    read_last_samples(folder, "a", 2)
    with folder.open_table(name_embeddings_file("a")) as file:
        assert file.num_row_groups > 10 and min(read) >= file.num_row_groups - 3


def test_a_shard_is_read_as_its_rows_say(tmp_path: Path) -> None:
    folder = write_shard(tmp_path)
    passage, rows = read_window(folder, "a"), folder.read_table(name_embeddings_file("a")).to_pylist()
    sample = np.cumsum([row["caption_index"] == 0 for row in rows]) - 1
    encoded = [i for i, row in enumerate(rows) if row["text"] is not None]
    assert [passage.uid(i) for i in range(len(encoded))] == [rows[i]["uid"] for i in encoded]
    assert passage.captions.to_pylist() == [rows[i]["caption"] for i in encoded]
    assert passage.sample.tolist() == sample[encoded].tolist()
    assert [passage.key(i) for i in range(len(passage))] == [row["key"] for row in rows if row["caption_index"] == 0]
    assert np.array_equal(passage.text, np.array([rows[i]["text"] for i in encoded], np.float32))
    media = {sample[i] for i, row in enumerate(rows) if row["visual"] is not None}
    assert set(np.flatnonzero(passage.samples.present)) == media and 0 < len(media) < len(passage)


@pytest.mark.parametrize("sample", [[0, 1, 2, 3], [0, 2, 3, 5], [0, 0, 2, 5], [1, 1, 1, 4], []])
def test_captions_are_the_mean_of_each_sample(sample: list[int]) -> None:
    given = make_embeddings(8)[0][: len(sample)]
    count = 4 if sample == [0, 1, 2, 3] else 6
    expected = np.zeros((count, given.shape[1]), np.float32)
    for number in set(sample):
        expected[number] = given[np.array(sample) == number].mean(axis=0)
    found = average_captions(given, np.array(sample, np.int64), count)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    lengths = np.linalg.norm(average_media(given, np.array(sample, np.int64), count), axis=1)
    np.testing.assert_allclose(lengths, [float(i in sample) for i in range(count)], atol=1e-5)
