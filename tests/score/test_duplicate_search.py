"""The search on disk: equal to the one in memory, in any order of work, with many cells; the best medium is kept."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from auditor.audit_folder.embeddings import build_nullable_vectors, name_embeddings_file
from auditor.audit_folder.folder import Folder, StorageError
from auditor.errors import AuditorError
from auditor.score import duplicate_search
from auditor.score.duplicate_search import duplicates_file, read_duplicates, search_duplicates
from auditor.score.pair_sample import ShardCounts, number_digests
from auditor.score.score_config import ScoreConfig
from auditor.vectors import Floats
from tests.score.statistics.test_duplicates import corpus
from tests.support.duplicates import group_duplicates
from tests.support.pairs import normalize_rows

SHARDS, MEDIA = 6, 100


def write_shards(
    folder: Folder, visual: Floats, digests: Sequence[str], thumbnails: Sequence[bytes] | None = None
) -> list[ShardCounts]:
    """Embeddings of six shards; every fourth row has no vector, because its medium is broken."""
    for number in range(SHARDS):
        chosen = slice(number * MEDIA, (number + 1) * MEDIA)
        rows = MEDIA + MEDIA // 3
        present = np.ones(rows, bool)
        present[3::4][: rows - MEDIA] = False
        digest = np.full(rows, None, object)
        digest[present] = digests[chosen]
        table = {
            "uid": [f"{number}-{row}" for row in range(rows)],
            "media_digest": pa.array(digest),
            "status": ["ok" if ok else "corrupt" for ok in present],
            "caption_index": pa.array(np.zeros(rows, np.int32)),
            "start": pa.nulls(rows, pa.float64()),
            "end": pa.nulls(rows, pa.float64()),
            "width": pa.array(np.arange(rows, dtype=np.int32)),
            "height": pa.array(np.ones(rows, np.int32)),
            "media_size": pa.array(-np.arange(rows, dtype=np.int64)),
            "sharpness": pa.array(np.arange(rows, dtype=np.float32), mask=np.arange(rows) % 2 == 1),
            "visual": build_nullable_vectors(visual[chosen], present),
        }
        stored = np.full(rows, None, object)
        if thumbnails is not None:
            stored[present] = thumbnails[chosen]
        table["thumbnail"] = pa.array(stored, pa.binary(1024))
        folder.write_table(name_embeddings_file(str(number)), pa.table(table))
    return [ShardCounts(str(number), Counter(image=MEDIA), Counter(image=MEDIA)) for number in range(SHARDS)]


def uids(folder: Folder) -> list[str]:
    tables = [folder.read_table(name_embeddings_file(str(number)), ["uid", "status"]) for number in range(SHARDS)]
    pairs = [zip(t["uid"].to_pylist(), t["status"].to_pylist(), strict=True) for t in tables]
    return [uid for shard in pairs for uid, status in shard if status == "ok"]


def read_all_duplicates(folder: Folder) -> dict[str, str]:
    return {k: v for number in range(SHARDS) for k, v in read_duplicates(folder, str(number)).items()}


class ReversedEngine:
    """Like a cluster: processes the items in another order and returns the results in the given order."""

    def each(self, work: Callable[[Any], Any], items: Sequence[Any], /) -> Iterator[Any]:
        results = {index: work(item) for index, item in reversed(list(enumerate(items)))}
        return (results[index] for index in range(len(items)))


def media(dim: int = 48, count: int = SHARDS * MEDIA) -> tuple[Floats, list[str]]:
    visual, _ = corpus(count, 90, seed=3, dim=dim)
    digests = [f"{number:032x}"[::-1] for number in range(count)]
    digests[5], visual[5] = digests[411], visual[411]
    return visual.astype(np.float16).astype(np.float32), digests


@pytest.mark.parametrize(("cells", "dim"), [(1, 48), (12, 48), (12, 160)])  # the widest have sketches
def test_the_search_on_disk_equals_that_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cells: int, dim: int
) -> None:
    monkeypatch.setattr(duplicate_search, "choose_cell_count", lambda media: cells)
    monkeypatch.setattr(duplicate_search, "FILE_BYTES", 60_000)
    monkeypatch.setattr(duplicate_search, "GROUP_BYTES", 20_000)
    folder = Folder(tmp_path)
    visual, digests = media(dim)
    counts = write_shards(folder, visual, digests)
    count = search_duplicates(folder, counts, ScoreConfig(), engine=ReversedEngine())["repeats"]
    first = group_duplicates(visual, number_digests(digests))
    names = uids(folder)
    assert read_all_duplicates(folder) == {names[i]: names[j] for i, j in enumerate(first.tolist()) if i != j}
    assert count == len(read_all_duplicates(folder)) >= 90
    assert not folder.exists("duplicates/sorted")


def test_a_file_that_was_cut_off_is_an_error(tmp_path: Path) -> None:
    class CuttingEngine:
        """Cuts off what the step before has written, as a full disk or a killed copy does."""

        def each(self, work: Callable[[Any], Any], items: Sequence[Any], /) -> Iterator[Any]:
            for path in (tmp_path / "duplicates" / "sorted").glob("*"):
                path.write_bytes(path.read_bytes()[:-1])
            return map(work, items)

    folder, (visual, digests) = Folder(tmp_path), media()
    counts = write_shards(folder, visual, digests)
    with pytest.raises(StorageError, match="duplicates/sorted/000000 was cut off"):
        search_duplicates(folder, counts, ScoreConfig(), engine=CuttingEngine())


def test_files_without_media_of_a_group_are_read_from_a_store_without_empty_ranges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def cat_range(fs: Any, path: str, start: int | None = None, end: int | None = None) -> bytes:
        with fs.open(path, "rb") as file:
            data: bytes = file.read()
        return data if start is None or start == end else data[start:end]  # as S3, to which an empty range is none

    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.cat_file", cat_range)
    monkeypatch.setattr(duplicate_search, "choose_cell_count", lambda media: 40)
    monkeypatch.setattr(duplicate_search, "GROUP_BYTES", 1)
    monkeypatch.setattr(duplicate_search, "FILE_BYTES", 1)
    folder, (visual, digests) = Folder("memory://ranges"), media()
    counts = write_shards(folder, visual, digests)
    assert search_duplicates(folder, counts, ScoreConfig())["repeats"] == len(read_all_duplicates(folder)) >= 90


def test_shards_without_media_are_not_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicate_search, "SAMPLE_SHARDS", 1)
    folder, (visual, digests) = Folder(tmp_path), media()
    counts = write_shards(folder, visual, digests)
    table = folder.read_table(name_embeddings_file("0"))
    for number in range(50):
        folder.write_table(name_embeddings_file(f"empty{number}"), table.slice(0, 0))
        counts.append(ShardCounts(f"empty{number}", Counter(), Counter()))
    assert search_duplicates(folder, counts, ScoreConfig())["repeats"] == len(read_all_duplicates(folder)) >= 90


def test_the_best_of_a_group_stays(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    visual, digests = media()
    counts = write_shards(folder, visual, digests)
    search_duplicates(folder, counts, ScoreConfig(keep_duplicate="first"))
    plain = read_all_duplicates(folder)
    search_duplicates(folder, counts, ScoreConfig(keep_duplicate="pixels"))
    largest = read_all_duplicates(folder)
    search_duplicates(folder, counts, ScoreConfig(keep_duplicate="media_size"))
    smallest_row = read_all_duplicates(folder)
    row = {uid: int(uid.split("-")[1]) for uid in uids(folder)}
    assert all(row[kept] >= row[uid] for uid, kept in largest.items())  # the wider picture
    assert all(row[kept] <= row[uid] for uid, kept in smallest_row.items())  # the larger file
    assert {frozenset(pair) for pair in plain.items()} == {frozenset(pair) for pair in largest.items()}


def test_the_best_by_any_column_is_kept_and_a_missing_value_is_worst(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    visual, digests = media()
    search_duplicates(folder, write_shards(folder, visual, digests), ScoreConfig(keep_duplicate="sharpness"))
    worth = {uid: -1 if row % 2 else row for uid in uids(folder) for row in [int(uid.split("-")[1])]}
    assert all(worth[kept] >= worth[uid] for uid, kept in read_all_duplicates(folder).items())
    assert any(worth[uid] < 0 < worth[kept] for uid, kept in read_all_duplicates(folder).items())


def test_an_unsuitable_column_is_an_error_of_one_line() -> None:
    for column in ("p_mismatch", "key", "nonsense"):
        with pytest.raises(AuditorError, match=f"takes one of .*, not '{column}'"):
            ScoreConfig(keep_duplicate=column)


def test_a_shard_without_duplicates_has_no_file_and_old_files_are_removed(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    visual, digests = media()
    counts = write_shards(folder, visual, digests)
    assert search_duplicates(folder, counts, ScoreConfig())["repeats"] > 0
    assert folder.exists(duplicates_file("5"))
    write_shards(folder, np.eye(SHARDS * MEDIA, dtype=np.float32), [f"{n:032x}"[::-1] for n in range(SHARDS * MEDIA)])
    assert search_duplicates(folder, counts, ScoreConfig(near_duplicate=0.9))["repeats"] == 0
    assert not folder.exists(duplicates_file("5")) and read_duplicates(folder, "5") == {}


def altered_media() -> tuple[Floats, list[bytes], dict[int, int]]:
    """Media with random pictures: 40 moderately near copies, 20 far copies in gray, 30 near media with other pixels."""
    generator = np.random.default_rng(7)
    visual, _ = corpus(SHARDS * MEDIA, 1, seed=5)
    pictures = generator.integers(0, 256, (SHARDS * MEDIA, 16, 16))
    place = generator.permutation(SHARDS * MEDIA)
    originals, copies, gray, similar = place[:90], place[90:130], place[130:150], place[150:180]
    for rows, sources in ((copies, originals[:40]), (similar, originals[60:])):
        visual[rows] = visual[sources] + 0.5 * normalize_rows(generator.normal(size=(len(rows), visual.shape[1])))
        visual[rows] = normalize_rows(visual[rows])
    pictures[copies] = np.clip(pictures[originals[:40]] * 0.8 + generator.normal(0, 4, (40, 16, 16)) + 20, 0, 255)
    pictures[copies] = pictures[copies][:, :, ::-1]  # mirrored
    pictures[gray] = pictures[originals[40:60]]
    thumbnails = [row.astype(np.uint8).repeat(2, 0).repeat(2, 1).tobytes() for row in pictures]
    pairs = zip([*copies, *gray], originals[:60], strict=True)
    return visual.astype(np.float16).astype(np.float32), thumbnails, {int(a): int(b) for a, b in pairs}


@pytest.mark.parametrize("cells", [1, 12])
def test_copies_are_found_by_embedding_or_layout_and_proved_by_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cells: int
) -> None:
    monkeypatch.setattr(duplicate_search, "choose_cell_count", lambda media: cells)
    monkeypatch.setattr(duplicate_search, "GROUP_BYTES", 200_000)
    folder, (visual, thumbnails, sources) = Folder(tmp_path), altered_media()
    counts = write_shards(folder, visual, [f"{n:032x}"[::-1] for n in range(len(visual))], thumbnails)
    rule = search_duplicates(folder, counts, ScoreConfig(), engine=ReversedEngine())
    names = uids(folder)
    expected = {names[max(pair)]: names[min(pair)] for pair in sources.items()}
    repeats = read_all_duplicates(folder)
    assert {uid: repeats.get(uid) for uid in repeats} == {uid: expected.get(uid) for uid in repeats}  # no wrong one
    assert rule["repeats"] == len(repeats) >= (60 if cells == 1 else 57)
    assert rule["agreement"] == 0.64 and rule["candidate"] < rule["cosine"]
    search_duplicates(folder, counts, ScoreConfig(keep_duplicate="pixels"))
    row = {uid: int(uid.split("-")[1]) for uid in names}
    assert all(row[kept] >= row[uid] for uid, kept in read_all_duplicates(folder).items())
    by_cosine = search_duplicates(folder, counts, ScoreConfig(copy_agreement=0, near_duplicate=0.8))
    assert by_cosine["agreement"] is None and len(read_all_duplicates(folder)) >= 70  # those with other pixels as well


def test_added_shards_point_to_old_media_and_old_files_stay(tmp_path: Path) -> None:
    folder, (visual, thumbnails, sources) = Folder(tmp_path), altered_media()
    counts = write_shards(folder, visual, [f"{n:032x}"[::-1] for n in range(len(visual))], thumbnails)
    search_duplicates(folder, counts[:4], ScoreConfig())
    old = [read_duplicates(folder, str(number)) for number in range(4)]
    search_duplicates(folder, counts, ScoreConfig(), only=["4", "5"])
    assert [read_duplicates(folder, str(number)) for number in range(4)] == old
    names, added = uids(folder), {**read_duplicates(folder, "4"), **read_duplicates(folder, "5")}
    late = {pair for pair in sources.items() if max(pair) >= 4 * MEDIA}
    assert added == {names[max(pair)]: names[min(pair)] for pair in late} and late


def test_shards_without_thumbnails_are_compared_by_cosine(tmp_path: Path) -> None:
    folder, (visual, digests) = Folder(tmp_path), media()
    counts = write_shards(folder, visual, digests)
    search_duplicates(folder, counts, ScoreConfig())
    without = read_all_duplicates(folder)
    write_shards(folder, visual, digests, [None] * len(visual))  # type: ignore[list-item]
    rule = search_duplicates(folder, counts, ScoreConfig())
    assert rule["agreement"] is None and read_all_duplicates(folder) == without


def test_few_usable_media_are_sampled_wherever_they_are(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    present = np.zeros(100, bool)
    present[[7, 93]] = True
    vectors = normalize_rows(np.random.default_rng(0).normal(size=(2, 8))).astype(np.float32)
    table = pa.table({"visual": build_nullable_vectors(vectors, present)})
    folder.write_table(name_embeddings_file("a"), table, storage={"row_group_size": 10})
    for seed in range(12):  # each begins with other row groups
        visual, thumbnails = duplicate_search._sample_media(folder, 2, seed, "a")
        assert len(visual) in (1, 2) and thumbnails.shape == (len(visual), 1024)
        assert all((np.abs(vectors - row).max(axis=1) < 1e-3).any() for row in visual.astype(np.float32))
    assert len(duplicate_search._sample_media(folder, 25, 0, "a")[0]) == 2
