"""The training loader: what is read, in which order, by whom, and from where it goes on."""

import itertools
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.train.loader import Batch, LoaderError, MediaLoader, PairLoader, assign_slices, count_shards
from auditor.train.reader import LoaderConfig, choose_caption
from auditor.train.tarshards import ShardError, TarSample, list_shards, read_slice
from model.pixels import PixelSpec
from model.training.processes import World
from tests.support.training import png, samples, shards, write_tar

CONFIG = LoaderConfig(pixels=PixelSpec(size=(8, 8)), batch=5, shuffle=7)


def take(loader: PairLoader, count: int) -> list[Batch]:
    return list(itertools.islice(iter(loader), count))


def names(batches: list[Batch]) -> list[tuple[str, int]]:
    return [pair for batch in batches for pair in zip(batch.keys, batch.caption_index, strict=True)]


# ------------------------------------------------------------------------------------------------------ shards


def test_shards_are_listed_by_folder_glob_braces_and_commas(tmp_path: Path) -> None:
    home = shards(tmp_path, count=3, size=1)
    every = [f"{home}/{i:03}.tar" for i in range(3)]
    assert list_shards(home) == every
    assert list_shards(f"{home}/*.tar") == every
    assert list_shards(f"{home}/{{000..002}}.tar") == every
    assert list_shards(f"{home}/{{000,002}}.tar,{home}/001.tar") == [every[0], every[2], every[1]]
    assert list_shards(f"file://{home}/*.tar") == [f"file://{path}" for path in every]


def test_captions_come_from_lines_or_json(tmp_path: Path) -> None:
    image = png("red", "blue")
    path = write_tar(
        tmp_path / "a.tar",
        [
            ("a.png", image),
            ("a.txt", b"one\n\n  two  \r\n"),
            ("b.json", b'{"captions": ["x", " ", 3, "y"]}'),
            ("b.png", image),
            ("c.png", image),
            ("c.json", b'{"caption": "z"}'),
            ("d.png", image),  # no caption
            ("e.txt", b"no medium"),
            ("f.png", image),
            ("f.json", b"{broken"),
            ("__meta__/g.png", image),
        ],
    )
    found = count_shards(str(path))
    assert (found.samples, found.pairs("all"), found.pairs("one"), found.most_captions) == (3, 5, 3, 2)
    whole = assign_slices(1, 0, 1)[0]
    assert [(s.key, s.captions) for s in read_slice([str(path)], whole)] == [
        ("a", ("one", "two")),
        ("b", ("x", "y")),
        ("c", ("z",)),
    ]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p.mkdir(), "no tar shards at"),
        (lambda p: None, "no shard at"),
        (lambda p: p.write_bytes(b"this is not a tar" * 100), "is not a tar shard"),
        (lambda p: p.write_bytes(b""), "is not a tar shard"),
        (lambda p: write_tar(p, []), "holds no pairs"),
        (lambda p: write_tar(p, [("a.png", b"x"), ("b.txt", b"y")]), "holds no pairs"),
    ],
)
def test_bad_shards_are_one_clear_line(tmp_path: Path, make, message: str) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "shard.tar"
    make(path)
    with pytest.raises(ShardError, match=message) as caught:
        count_shards(str(path))
    assert "\n" not in str(caught.value) and "shard.tar" in str(caught.value)


@pytest.mark.parametrize("missing", [100, 300, 600, 900])  # in a header, in a header, in a caption, in an image
def test_a_truncated_shard_gives_what_it_holds_and_is_reported(tmp_path: Path, missing: int) -> None:
    path = write_tar(tmp_path / "cut.tar", samples(6))
    path.write_bytes(path.read_bytes()[: 4 * 2048 + missing])
    found = count_shards(str(path))
    assert found.samples == 4
    assert len(found.problems) == 1 and "cut.tar is cut off" in found.problems[0]
    batches = take(PairLoader(found, replace(CONFIG, batch=2, captions="one")), 6)
    assert len({key for key, _ in names(batches)}) == 4


# ------------------------------------------------------------------------------------------------------- order


def test_order_depends_on_the_seed_only(tmp_path: Path) -> None:
    found = count_shards(shards(tmp_path))
    first, again = (names(take(PairLoader(found, CONFIG), 12)) for _ in range(2))
    other = names(take(PairLoader(found, replace(CONFIG, seed=1)), 12))
    assert first == again
    assert first != other
    assert first != sorted(first)


def test_an_epoch_sees_every_caption_once_whatever_their_number(tmp_path: Path) -> None:
    home = tmp_path / "ragged"
    home.mkdir()
    counts = [1, 2, 3, 5, 5, 4, 1, 3]
    files = [
        file
        for i, count in enumerate(counts)
        for file in [(f"{i}.png", png("red", "blue")), (f"{i}.txt", "\n".join("abcde"[:count]).encode())]
    ]
    write_tar(home / "0.tar", files)
    found = count_shards(str(home))
    assert found.pairs("all") == 24
    pairs = names(take(PairLoader(found, replace(CONFIG, batch=4)), 12))
    expected = {(str(i), j) for i, count in enumerate(counts) for j in range(count)}
    assert set(pairs[:24]) == expected
    assert set(pairs[24:]) == expected
    assert pairs[:24] != pairs[24:]


@given(count=st.integers(1, 9), most=st.integers(1, 9), number=st.integers(0, 2**40), cycle=st.integers(0, 5))
def test_captions_take_their_turns(count: int, most: int, number: int, cycle: int) -> None:
    most = max(count, most)
    sample = TarSample(number >> 20, number & 0xFFFFF, "k", tuple("abcdefghi"[:count]), "image", None)
    chosen = [choose_caption(sample, cycle * most + i, most, CONFIG) for i in range(most)]
    assert sorted(c for c in chosen if c is not None) == list(range(count))
    one = replace(CONFIG, captions="one")
    assert sorted(choose_caption(sample, cycle * count + i, most, one) or 0 for i in range(count)) == list(range(count))


def test_a_pass_has_each_medium_at_most_once(tmp_path: Path) -> None:
    found = count_shards(shards(tmp_path, count=2, size=10, captions=3))
    keys = [key for key, _ in names(take(PairLoader(found, CONFIG), 12))]
    for start in range(0, 60, 20):
        assert len(set(keys[start : start + 20])) == 20


def test_join_makes_one_paragraph(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("a.png", png("red", "blue")), ("a.txt", b"first.\nsecond.")])
    found = count_shards(str(tmp_path / "a.tar"))
    batch = take(PairLoader(found, replace(CONFIG, batch=1, captions="join")), 1)[0]
    assert batch.captions == ["first. second."]


# ------------------------------------------------------------------------------------------------------- split


@pytest.mark.parametrize("shard_count", [1, 2, 3, 7])
@pytest.mark.parametrize("readers", [1, 2, 3, 4])
def test_slices_cover_everything_once_and_evenly(shard_count: int, readers: int) -> None:
    owners: Counter[tuple[int, int]] = Counter()
    sizes = []
    for reader in range(readers):
        mine = {(p.shard, i) for p in assign_slices(shard_count, reader, readers) for i in range(p.part, 12, p.parts)}
        owners.update(mine)
        sizes.append(len(mine))
    assert len(owners) == 12 * shard_count and set(owners.values()) == {1}
    assert len(set(sizes)) == 1


def test_many_shards_are_never_cut() -> None:
    assert {piece.parts for piece in assign_slices(1001, 3, 4)} == {1}


def test_processes_and_readers_share_the_corpus(tmp_path: Path) -> None:
    found = count_shards(shards(tmp_path, count=3, size=8))
    config = replace(CONFIG, batch=6, captions="one", workers=2)
    seen: Counter[str] = Counter()
    for rank in range(2):
        seen.update(key for key, _ in names(take(PairLoader(found, config, World(rank, 2)), 2)))
    assert len(seen) == 24 and set(seen.values()) == {1}


# ------------------------------------------------------------------------------------------------------ resume


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_goes_on_where_it_was(tmp_path: Path, workers: int) -> None:
    home = Path(shards(tmp_path, count=2, size=9))
    write_tar(home / "bad.tar", [("bad.png", b"junk"), ("bad.txt", b"x"), *samples(3, "more")])
    found = count_shards(str(home))
    config = replace(CONFIG, batch=4, workers=workers)
    straight = take(PairLoader(found, config), 18)
    for cut in (1, 7) if workers else (0, 1, 5, 11):
        before = PairLoader(found, config)
        done = take(before, cut)
        after = PairLoader(found, config, state=before.state())
        resumed = done + take(after, 18 - cut)
        assert names(resumed) == names(straight)
        assert all((a.pixels == b.pixels).all() for a, b in zip(resumed, straight, strict=True))
        assert [f.key for f in after.failures.values()] == ["bad"]


def test_another_number_of_readers_cannot_go_on(tmp_path: Path) -> None:
    found = count_shards(shards(tmp_path))
    state = PairLoader(found, CONFIG).state()
    with pytest.raises(LoaderError, match="1 decoding processes, not 2"):
        PairLoader(found, replace(CONFIG, workers=2), state=state)


# -------------------------------------------------------------------------------------------- decoding, keeping


def test_failures_are_counted_once_and_named(tmp_path: Path) -> None:
    home = Path(shards(tmp_path, count=1, size=6))
    write_tar(home / "bad.tar", [("x.png", b"junk"), ("x.txt", b"a\nb"), ("y.png", b""), ("y.txt", b"c"), *samples(2)])
    loader = PairLoader(count_shards(str(home)), CONFIG)
    take(loader, 12)  # three epochs
    assert sorted((f.key, f.reason, Path(f.shard).name) for f in loader.failures.values()) == [
        ("x", "corrupt", "bad.tar"),
        ("y", "corrupt", "bad.tar"),
    ]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_corpus_without_a_good_medium_is_an_error_not_a_loop(tmp_path: Path, workers: int) -> None:
    write_tar(tmp_path / "bad.tar", [("x.png", b"junk"), ("x.txt", b"a\nb"), ("y.png", b""), ("y.txt", b"c")])
    loader = PairLoader(count_shards(str(tmp_path / "bad.tar")), replace(CONFIG, workers=workers))
    with pytest.raises(LoaderError, match="no medium of the shards could be decoded") as caught:
        take(loader, 1)
    assert "\n" not in str(caught.value)


def test_kept_pixels_give_the_same_batches_without_the_shards(tmp_path: Path) -> None:
    home = Path(shards(tmp_path))
    write_tar(home / "bad.tar", [("x.png", b"junk"), ("x.txt", b"a\nb"), *samples(2, "more")])
    found = count_shards(str(home))
    plain = take(PairLoader(found, CONFIG), 40)
    keeping = iter(PairLoader(found, replace(CONFIG, cache_bytes=10**6)))
    kept = list(itertools.islice(keeping, 14))  # a pass is 7 batches of 5
    for path in home.iterdir():
        path.unlink()
    kept += itertools.islice(keeping, 26)
    assert names(kept) == names(plain)
    assert all((a.pixels == b.pixels).all() for a, b in zip(kept, plain, strict=True))


def test_a_small_budget_keeps_a_part_and_changes_nothing(tmp_path: Path) -> None:
    found = count_shards(shards(tmp_path))
    size = 8 * 8 * 3
    loader = PairLoader(found, replace(CONFIG, cache_bytes=10 * size))
    assert names(take(loader, 20)) == names(take(PairLoader(found, CONFIG), 20))
    reader = loader.stream.reader
    assert reader is not None and len(reader.kept) == 10 and reader.used == 10 * size


def mp4(path: Path, frames: int) -> bytes:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=Fraction(10))
        stream.width = stream.height = 32
        for index in range(frames):
            image = np.full((32, 32, 3), 20 + 200 * index // frames, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())
    return path.read_bytes()


def test_videos_and_images_share_a_batch(tmp_path: Path) -> None:
    files = [
        ("a.png", png("red", "blue")),
        ("a.txt", b"an image"),
        ("b.mp4", mp4(tmp_path / "b.mp4", 30)),
        ("b.txt", b"a long clip"),
        ("c.mp4", mp4(tmp_path / "c.mp4", 2)),
        ("c.jpg", b"its poster"),
        ("c.txt", b"a short clip"),
    ]
    found = count_shards(str(write_tar(tmp_path / "v.tar", files)))
    (batch,) = list(MediaLoader(found, replace(CONFIG, frames=4)))
    assert batch.pixels.shape == (3, 4, 8, 8, 3)
    assert batch.mask.tolist() == [[True, False, False, False], [True] * 4, [True, True, False, False]]
    brightness = batch.pixels[1].float().mean(dim=(1, 2, 3))
    assert (brightness.diff() > 20).all()  # frames in the order of time
    assert not batch.pixels[~batch.mask].any()


def test_validation_sees_every_medium_once_each_time(tmp_path: Path) -> None:
    found = count_shards(shards(tmp_path, count=3, size=5))
    for workers in (0, 2):
        loader = MediaLoader(found, replace(CONFIG, workers=workers, cache_bytes=10**6))
        for _ in range(2):
            numbers = [number for batch in loader for number in batch.numbers]
            assert len(numbers) == len(set(numbers)) == 15
