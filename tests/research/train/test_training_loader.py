"""The training loader: contents, order, shares of the processes, and resuming."""

import itertools
import json
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.corpus.sample import Sample, Span, split_by_span
from auditor.research.train.training_loader import Batch, MediaLoader, PairLoader
from auditor.research.train.training_reader import LoaderConfig, choose_captions
from auditor.research.train.training_shards import TrainError, count_shards
from auditor.workers.decoder_pool import DecoderPool
from model.pixels import DecodeLimits, PixelSpec
from model.training.training_processes import ProcessGroup
from tests.support.clips import make_numbered_clip, read_number
from tests.support.corpora import write_members
from tests.support.decoders import signal_decoder_at
from tests.support.training import make_png, make_sample_files, write_shards

CONFIG = LoaderConfig(batch=5, shuffle=7)


@pytest.fixture(scope="module")
def pool() -> Iterator[DecoderPool]:
    with DecoderPool(PixelSpec(size=(8, 8)), frames=4, workers=2) as pool:
        yield pool


def take(loader: PairLoader, count: int) -> list[Batch]:
    with closing(iter(loader)) as batches:
        return list(itertools.islice(batches, count))


def names(batches: list[Batch]) -> list[tuple[str, int]]:
    return [(draw.sample.key, draw.captions[0]) for batch in batches for draw in batch.draws]


# ----------------------------------------------------------------------------------------------------- corpora


def test_whatever_is_audited_can_be_trained_on(tmp_path: Path, pool: DecoderPool) -> None:
    """Shards, a folder, a table and COCO captions of the same four pictures give the same pairs."""
    media = {f"{i}": make_png("red", "blue", 10 + i) for i in range(4)}
    captions = {key: [f"first of {key}", f"second of {key}"] for key in media}
    texts = {key: "\n".join(lines).encode() for key, lines in captions.items()}
    write_members(tmp_path / "a.tar", [f for k in media for f in ((f"{k}.png", media[k]), (f"{k}.txt", texts[k]))])
    for folder in ("folder", "images"):
        (tmp_path / folder).mkdir()
        for key, data in media.items():
            (tmp_path / folder / f"{key}.png").write_bytes(data)
    for key, text in texts.items():
        (tmp_path / "folder" / f"{key}.txt").write_bytes(text)
    rows = [json.dumps({"image": f"images/{key}.png", "captions": captions[key], "key": key}) for key in media]
    (tmp_path / "table.jsonl").write_text("\n".join(rows))
    annotations = [{"image_id": int(key), "caption": line} for key, lines in captions.items() for line in lines]
    images = [{"id": int(key), "file_name": f"{key}.png"} for key in media]
    (tmp_path / "captions.json").write_text(json.dumps({"images": images, "annotations": annotations}))
    expected = sorted((key, index, line) for key, lines in captions.items() for index, line in enumerate(lines))
    for spec in ("a.tar", "folder", "table.jsonl", f"coco:{tmp_path}/captions.json::{tmp_path}/images"):
        found = count_shards(spec if ":" in spec else str(tmp_path / spec))
        assert (found.samples, found.pairs("all"), found.most_captions) == (4, 8, 2), spec
        draws = [d for batch in take(PairLoader(found, replace(CONFIG, batch=4), pool), 2) for d in batch.draws]
        assert sorted((Path(d.sample.key).stem, d.captions[0], d.caption) for d in draws) == expected, spec


@pytest.mark.parametrize("missing", [100, 300, 600, 900])  # in a header, in a header, in a caption, in an image
def test_a_truncated_shard_gives_what_it_holds_and_is_reported(tmp_path: Path, pool: DecoderPool, missing: int) -> None:
    path = write_members(tmp_path / "cut.tar", make_sample_files(6))
    path.write_bytes(path.read_bytes()[: 4 * 2048 + missing])
    found = count_shards(str(path))
    assert found.samples == 4
    assert len(found.problems) == 1 and found.problems[0].startswith("cut: ")
    batches = take(PairLoader(found, replace(CONFIG, batch=2, captions="one"), pool), 6)
    assert len({key for key, _ in names(batches)}) == 4


# ------------------------------------------------------------------------------------------------------- order


def test_order_depends_on_the_seed_only(tmp_path: Path, pool: DecoderPool) -> None:
    found = count_shards(write_shards(tmp_path))
    first, again = (names(take(PairLoader(found, CONFIG, pool), 12)) for _ in range(2))
    other = names(take(PairLoader(found, replace(CONFIG, seed=1), pool), 12))
    assert first == again
    assert first != other
    assert first != sorted(first)


def test_an_epoch_sees_every_caption_once_whatever_their_number(tmp_path: Path, pool: DecoderPool) -> None:
    home = tmp_path / "ragged"
    home.mkdir()
    counts = [1, 2, 3, 5, 5, 4, 1, 3]
    files = [
        file
        for i, count in enumerate(counts)
        for file in [(f"{i}.png", make_png("red", "blue")), (f"{i}.txt", "\n".join("abcde"[:count]).encode())]
    ]
    write_members(home / "0.tar", files)
    found = count_shards(str(home))
    assert found.pairs("all") == 24
    pairs = names(take(PairLoader(found, replace(CONFIG, batch=4), pool), 12))
    expected = {(str(i), j) for i, count in enumerate(counts) for j in range(count)}
    assert set(pairs[:24]) == expected
    assert set(pairs[24:]) == expected
    assert pairs[:24] != pairs[24:]


@given(count=st.integers(1, 9), most=st.integers(1, 9), number=st.integers(0, 2**40), cycle=st.integers(0, 5))
def test_captions_take_their_turns(count: int, most: int, number: int, cycle: int) -> None:
    most = max(count, most)
    chosen = [choose_captions(number, count, cycle * most + i, most, CONFIG) for i in range(most)]
    assert sorted(index for indices in chosen for index in indices) == list(range(count))
    one = replace(CONFIG, captions="one")
    turns = [choose_captions(number, count, cycle * count + i, most, one) for i in range(count)]
    assert sorted(turns) == [(index,) for index in range(count)]


def test_a_pass_has_each_medium_at_most_once(tmp_path: Path, pool: DecoderPool) -> None:
    found = count_shards(write_shards(tmp_path, count=2, size=10, captions=3))
    keys = [key for key, _ in names(take(PairLoader(found, CONFIG, pool), 12))]
    for start in range(0, 60, 20):
        assert len(set(keys[start : start + 20])) == 20


def test_join_makes_one_paragraph(tmp_path: Path, pool: DecoderPool) -> None:
    write_members(tmp_path / "a.tar", [("a.png", make_png("red", "blue")), ("a.txt", b"first.\nsecond.")])
    found = count_shards(str(tmp_path / "a.tar"))
    batch = take(PairLoader(found, replace(CONFIG, batch=1, captions="join"), pool), 1)[0]
    assert batch.captions == ["first. second."]


# ------------------------------------------------------------------------------------------------------- split


def test_processes_share_the_corpus(tmp_path: Path, pool: DecoderPool) -> None:
    found = count_shards(write_shards(tmp_path, count=3, size=8))
    config = replace(CONFIG, batch=6, captions="one")
    seen: Counter[str] = Counter()
    for rank in range(2):
        seen.update(key for key, _ in names(take(PairLoader(found, config, pool, ProcessGroup(rank, 2)), 2)))
    assert len(seen) == 24 and set(seen.values()) == {1}


def test_a_process_without_a_sample_is_an_error_not_a_loop(tmp_path: Path, pool: DecoderPool) -> None:
    found = count_shards(write_shards(tmp_path, count=1, size=1))
    with pytest.raises(TrainError, match="a training process has no samples"):
        take(PairLoader(found, CONFIG, pool, ProcessGroup(1, 2)), 1)


# ------------------------------------------------------------------------------------------------------ resume


def test_a_loader_goes_on_where_it_was(tmp_path: Path, pool: DecoderPool) -> None:
    home = Path(write_shards(tmp_path, count=2, size=9))
    write_members(home / "bad.tar", [("bad.png", b"junk"), ("bad.txt", b"x"), *make_sample_files(3, "more")])
    found = count_shards(str(home))
    config = replace(CONFIG, batch=4)
    straight = take(PairLoader(found, config, pool), 18)
    for cut in (0, 1, 5, 11):
        before = PairLoader(found, config, pool)
        done = take(before, cut)
        after = PairLoader(found, config, pool, state=json.loads(json.dumps(before.state())))
        resumed = done + take(after, 18 - cut)
        assert names(resumed) == names(straight)
        assert all((a.pixels == b.pixels).all() for a, b in zip(resumed, straight, strict=True))
        assert [f.key for f in after.failures.values()] == ["bad"]


def test_the_number_of_decoders_changes_nothing(tmp_path: Path, pool: DecoderPool) -> None:
    found = count_shards(write_shards(tmp_path))
    with DecoderPool(PixelSpec(size=(8, 8)), frames=4, workers=1) as alone:
        first, second = (take(PairLoader(found, CONFIG, some), 12) for some in (alone, pool))
    assert names(first) == names(second)
    assert all((a.pixels == b.pixels).all() for a, b in zip(first, second, strict=True))


# -------------------------------------------------------------------------------------------- decoding, keeping


def test_failures_are_counted_once_and_named(tmp_path: Path, pool: DecoderPool) -> None:
    home = Path(write_shards(tmp_path, count=1, size=6))
    write_members(
        home / "bad.tar",
        [("x.png", b"junk"), ("x.txt", b"a\nb"), ("y.jpg", b"2"), ("y.txt", b"c"), *make_sample_files(2)],
    )
    loader = PairLoader(count_shards(str(home)), CONFIG, pool)
    take(loader, 12)  # three epochs
    found = sorted((f.key, f.reason, f.shard) for f in loader.failures.values())
    assert found == [("x", "corrupt", "bad"), ("y", "corrupt", "bad")]


def test_a_file_that_kills_or_hangs_its_decoder_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blows = {b"crasher": signal.SIGSEGV, b"hanger": signal.SIGSTOP}
    signal_decoder_at(monkeypatch, blows)
    bad = [(f"{data.decode()}.{end}", data) for data in blows for end in ("png", "txt")]
    path = write_members(tmp_path / "bad.tar", [*make_sample_files(3), *bad, *make_sample_files(3, "more")])
    with DecoderPool(PixelSpec(size=(8, 8)), workers=1, limits=DecodeLimits(seconds=2.0)) as pool:
        loader = PairLoader(count_shards(str(path)), CONFIG, pool)
        seen = names(take(loader, 6))
    assert {key for key, _ in seen} == {
        name.removesuffix(".png") for name, _ in [*make_sample_files(3), *make_sample_files(3, "more")][::2]
    }
    reasons = {failure.key: (failure.reason, failure.message) for failure in loader.failures.values()}
    assert reasons == {
        "crasher": ("corrupt", "decoder died of SIGSEGV"),
        "hanger": ("timeout", "not decoded within 2 seconds"),
    }


def test_a_corpus_without_a_good_medium_is_an_error_not_a_loop(tmp_path: Path, pool: DecoderPool) -> None:
    write_members(tmp_path / "bad.tar", [("x.png", b"junk"), ("x.txt", b"a\nb"), ("y.png", b"2"), ("y.txt", b"c")])
    loader = PairLoader(count_shards(str(tmp_path / "bad.tar")), CONFIG, pool)
    with pytest.raises(TrainError, match="no medium of the corpus could be decoded") as caught:
        take(loader, 1)
    assert "\n" not in str(caught.value)


def test_kept_pixels_give_the_same_batches_without_the_shards(tmp_path: Path, pool: DecoderPool) -> None:
    home = Path(write_shards(tmp_path))
    write_members(home / "bad.tar", [("x.png", b"junk"), ("x.txt", b"a\nb"), *make_sample_files(2, "more")])
    found = count_shards(str(home))
    plain = take(PairLoader(found, CONFIG, pool), 40)
    with closing(iter(PairLoader(found, replace(CONFIG, cache_bytes=10**6), pool))) as keeping:
        kept = list(itertools.islice(keeping, 14))  # a pass is 7 batches of 5
        for path in home.iterdir():
            path.unlink()
        kept += itertools.islice(keeping, 26)
    assert names(kept) == names(plain)
    assert all((a.pixels == b.pixels).all() for a, b in zip(kept, plain, strict=True))


def test_a_small_budget_keeps_a_part_and_changes_nothing(tmp_path: Path, pool: DecoderPool) -> None:
    found = count_shards(write_shards(tmp_path))
    size = 8 * 8 * 3
    loader = PairLoader(found, replace(CONFIG, cache_bytes=10 * size), pool)
    assert names(take(loader, 20)) == names(take(PairLoader(found, CONFIG, pool), 20))
    assert len(loader.reader.cached_pixels) == 10 and loader.reader.used_bytes == 10 * size


def mp4(path: Path, frames: int) -> bytes:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=Fraction(10))
        stream.width = stream.height = 32
        for index in range(frames):
            image = np.full((32, 32, 3), 20 + 200 * index // frames, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())
    return path.read_bytes()


def test_videos_and_images_share_a_batch(tmp_path: Path, pool: DecoderPool) -> None:
    files = [
        ("a.png", make_png("red", "blue")),
        ("a.txt", b"an image"),
        ("b.mp4", mp4(tmp_path / "b.mp4", 30)),
        ("b.txt", b"a long clip"),
        ("c.mp4", mp4(tmp_path / "c.mp4", 2)),
        ("c.jpg", b"its poster"),
        ("c.txt", b"a short clip"),
    ]
    found = count_shards(str(write_members(tmp_path / "v.tar", files)))
    (batch,) = list(MediaLoader(found, CONFIG, pool))
    assert batch.pixels.shape == (3, 4, 8, 8, 3)
    assert batch.mask.tolist() == [[True, False, False, False], [True] * 4, [True, True, False, False]]
    brightness = batch.pixels[1].float().mean(dim=(1, 2, 3))
    assert (brightness.diff() > 20).all()  # frames in the order of time
    assert not batch.pixels[~batch.mask].any()


def test_validation_sees_every_medium_once_each_time(tmp_path: Path, pool: DecoderPool) -> None:
    found = count_shards(write_shards(tmp_path, count=3, size=5))
    for budget in (0, 10**6):
        loader = MediaLoader(found, replace(CONFIG, cache_bytes=budget), pool)
        for _ in range(2):
            numbers = [number for batch in loader for number in batch.numbers]
            assert len(numbers) == len(set(numbers)) == 15


# ------------------------------------------------------------------------------------------------------- timed captions


def test_what_is_known_of_a_video_says_nothing_of_its_spans(tmp_path: Path) -> None:
    """The whole video may be cached or may have failed: a timed caption is still read from the file."""
    record = json.dumps({"caption": "all", "segments": [{"start": 0, "end": 1, "caption": "part"}]}).encode()
    write_members(tmp_path / "t.tar", [("v.mp4", make_numbered_clip("h264", "mp4", 50)), ("v.json", record)])
    (tmp_path / "bad").mkdir()
    write_members(tmp_path / "bad" / "t.tar", [("v.mp4", b"no video"), ("v.json", record)])
    squash = PixelSpec(size=(64, 96), resize_mode="squash")
    with DecoderPool(squash, frames=3, workers=1) as decoders:
        cached = replace(CONFIG, batch=1, cache_bytes=1 << 20)
        loader = PairLoader(count_shards(str(tmp_path / "t.tar")), cached, decoders)
        assert [batch.captions[0] for batch in take(loader, 6)].count("part") == 3
        broken = PairLoader(count_shards(str(tmp_path / "bad" / "t.tar")), replace(CONFIG, batch=1), decoders)
        with pytest.raises(TrainError, match="no medium of the corpus could be decoded"):
            take(broken, 1)
    assert sorted(failure.reason for failure in broken.failures.values()) == ["corrupt", "corrupt"]


def test_spans_of_a_long_video_have_keys_of_their_own() -> None:
    spans = tuple(Span(10_000.12 + part / 100, 10_001.5) for part in range(3))
    assert len({one.key for one in split_by_span(Sample("s", "v", ("a", "b", "c"), None, spans=spans))}) == 3


def test_a_timed_caption_comes_with_the_frames_of_its_span(tmp_path: Path) -> None:
    spans = [(0.0, 1.0), (1.0, 2.0), (2.0, 4.0), (9.0, 12.0)]
    segments = [{"start": a, "end": b, "caption": f"from {a:g} to {b:g}"} for a, b in spans]
    record = json.dumps({"segments": segments}).encode()
    write_members(tmp_path / "t.tar", [("v.mp4", make_numbered_clip("h264", "mp4", 100)), ("v.json", record)])
    counted = count_shards(str(tmp_path / "t.tar"))
    squash = PixelSpec(size=(64, 96), resize_mode="squash")
    with DecoderPool(squash, frames=3, workers=2) as decoders:
        loader = PairLoader(counted, replace(CONFIG, batch=1), decoders)
        batches = take(loader, 9)  # three passes: the caption outside the video is a failure, the others go on
        validation = list(MediaLoader(counted, replace(CONFIG, batch=2), decoders))
    seen: dict[str, set[int]] = {}
    for batch in batches:
        numbers = {read_number(image) for image in batch.pixels[0].numpy()}
        low, high = (float(word) * 25 for word in batch.captions[0].split()[1::2])
        assert len(numbers) == 3 and all(low <= number < high for number in numbers)
        seen.setdefault(batch.captions[0], set()).add(batch.numbers[0])
    assert len(seen) == 3 and len(set.union(*seen.values())) == 3  # each span is a medium of its own
    assert [failure.reason for failure in loader.failures.values()] == ["bad_span"]
    with DecoderPool(squash, frames=3, workers=1) as decoders:
        further = PairLoader(counted, replace(CONFIG, batch=1), decoders, state=json.loads(json.dumps(loader.state())))
        resumed = take(further, 3)  # a span that failed is no reason to leave out the video
    assert {batch.captions[0] for batch in resumed} == set(seen) and len(further.failures) == 1
    assert [text for part in validation for (text,) in part.captions] == [f"from {a:g} to {b:g}" for a, b in spans[:3]]
