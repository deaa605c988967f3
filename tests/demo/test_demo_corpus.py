"""The generated corpus: the same seed gives the same bytes, and every planted defect is present."""

import io
import random
import tarfile
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from auditor.corpus.open_corpus import open_corpus
from auditor.demo import scene_captions
from auditor.demo.corpus_plan import PlannedSample, plan_clip, plan_image, plan_split
from auditor.demo.demo_corpus import CorpusConfig, read_truth, render_sample, split_into_shards, write_corpus
from auditor.demo.planted_defects import COVER, DEFECTS
from auditor.demo.scenes import draw_scene
from auditor.errors import AuditorError
from tests.support.tiny import SEED, SIZE, tiny

SMALL = CorpusConfig(size=120, seed=3, train=12, val=0)


@pytest.fixture(scope="module")
def made() -> Path:
    assert tiny().shards
    return tiny().config.out


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A smaller corpus, drawn in this process."""
    out = tmp_path_factory.mktemp("small") / "demo"
    write_corpus(out, SMALL)
    return out


@pytest.fixture(scope="module")
def planned() -> list[PlannedSample]:
    return plan_split("audit", SIZE, SEED)


def shards(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*.tar"))}


@cache
def members(out: Path, split: str = "audit") -> list[tuple[str, bytes]]:
    found = []
    for path in sorted((out / "corpus" / split).glob("*.tar")):
        with tarfile.open(path) as tar:
            for info in tar:
                file = tar.extractfile(info)
                assert file is not None
                found.append((info.name, file.read()))
    return found


def medium(out: Path, key: str) -> bytes:
    return next(data for name, data in members(out) if name.startswith(f"{key}.") and not name.endswith(".txt"))


def with_defect(planned: list[PlannedSample], defect: str) -> list[PlannedSample]:
    found = [sample for sample in planned if defect in sample.defects]
    assert found
    return found


def decodes(data: bytes, kind: str) -> bool:
    try:
        if kind == "image":
            Image.open(io.BytesIO(data)).convert("RGB")
        else:
            with av.open(io.BytesIO(data)) as container:
                return sum(1 for _ in container.decode(video=0)) > 0
    except (OSError, av.FFmpegError):
        return False
    return True


def test_one_process_and_two_write_the_same_bytes(small: Path, tmp_path: Path) -> None:
    write_corpus(tmp_path / "two", SMALL, workers=2)
    assert shards(small) == shards(tmp_path / "two")
    assert (small / "truth.jsonl").read_bytes() == (tmp_path / "two" / "truth.jsonl").read_bytes()


def test_another_seed_gives_another_corpus() -> None:
    assert {s.captions for s in plan_split("audit", 120, 0)}.isdisjoint(
        {s.captions for s in plan_split("train", 120, 0)}
    )
    first, second = plan_split("train", 5, 0), plan_split("train", 5, 1)
    assert render_sample(first[0]) == render_sample(plan_split("train", 5, 0)[0]) != render_sample(second[0])


def test_a_lost_shard_is_written_again_and_the_others_are_left_alone(small: Path) -> None:
    before = shards(small)
    times = {path: path.stat().st_mtime_ns for path in small.rglob("*.tar")}
    lost = small / "corpus" / "train" / "00000.tar"
    lost.unlink()
    write_corpus(small, SMALL)
    assert shards(small) == before
    assert {path for path in times if path.stat().st_mtime_ns != times[path]} == {lost}


def test_the_truth_has_one_record_for_every_pair_of_the_shards(made: Path) -> None:
    truth = Counter((row["shard"], row["key"], row["occurrence"], row["caption_index"]) for row in read_truth(made))
    found: Counter[tuple[str, str, int, int]] = Counter()
    for shard in open_corpus(str(made / "corpus" / "audit")).shards:
        with shard.open() as opened:
            assert not opened.problems
            for sample in opened.samples:
                for index in range(max(1, len(sample.captions))):
                    found[shard.name, sample.key, sample.occurrence, index] += 1
    assert truth == found
    assert max(truth.values()) == 1


def test_captions_in_the_shards_are_those_of_the_truth(made: Path) -> None:
    truth = {(row["shard"], row["key"], row["occurrence"], row["caption_index"]): row for row in read_truth(made)}
    for shard in open_corpus(str(made / "corpus" / "audit")).shards:
        with shard.open() as opened:
            for sample in opened.samples:
                for index, caption in enumerate(sample.captions):
                    assert truth[shard.name, sample.key, sample.occurrence, index]["caption"] == caption


def test_every_defect_is_planted_about_as_often_as_it_says() -> None:
    planned = plan_split("audit", 1500, 0)
    rows = Counter(defect for sample in planned for defect in sample.defects)
    clips = sum(sample.kind == "video" for sample in planned)
    for name, defect in DEFECTS.items():
        base = {"swapped": rows.total(), "vague": rows.total(), "multi_scene": clips}.get(name, len(planned))
        assert rows[name] / base == pytest.approx(defect.share, rel=0.15)


def test_training_data_are_clean_but_for_a_few_unclear_ones(made: Path) -> None:
    spoilt = Counter(sample.defect for sample in plan_split("train", 1000, 3))
    assert set(spoilt) == {None, "blurred", "occluded", "near_blank"}
    assert 0.9 < spoilt[None] / 1000 < 0.97
    assert not any(sample.defect for sample in plan_split("val", 100, 3))
    assert len(members(made, "train")) == 4 * SIZE  # a picture and its captions, twice as many as to audit
    assert all(name.endswith(".txt") or decodes(data, "image") for name, data in members(made, "train"))


def test_swapped_captions_belong_to_other_samples(planned: list[PlannedSample]) -> None:
    """Compare with the plan before the swap: the scenes are the same, the captions differ."""
    swapped = [(s, i) for s in with_defect(planned, "swapped") for i, d in enumerate(s.defects) if d == "swapped"]
    words = [sample.captions[i] for sample, i in swapped]
    for sample, i in swapped:
        own = original_captions(sample)
        assert sample.captions[i] not in own
        assert sum(own[i] == given for given in words) == 1  # its own caption went to exactly one other sample


def original_captions(sample: PlannedSample) -> tuple[str, ...]:
    seed, kind, index = sample.seed.split("/")
    made = {"image": plan_image, "clip": plan_clip}[kind](int(index), int(seed))
    assert made.content == sample.content
    return made.captions


def test_vague_captions_are_vague(planned: list[PlannedSample]) -> None:
    beginnings = tuple(scene_captions.make_sentence(words)[:-1] for words in scene_captions.VAGUE[0])
    for sample in planned:
        for caption, defect in zip(sample.captions, sample.defects, strict=True):
            assert caption.startswith(beginnings) == (defect == "vague")


@pytest.mark.parametrize("defect", ["undecodable", "truncated"])
def test_broken_files_do_not_decode(made: Path, planned: list[PlannedSample], defect: str) -> None:
    for sample in with_defect(planned, defect):
        assert not decodes(medium(made, sample.key), sample.kind)


def test_truncation_breaks_every_format() -> None:
    """Includes formats that the small corpus above may lack."""
    picture = next(s for s in plan_split("audit", 120, 0) if s.kind == "image" and not any(s.defects))
    clip = next(s for s in plan_split("audit", 120, 0) if s.kind == "video" and not any(s.defects))
    for sample in [clip, *(replace(picture, extension=extension) for extension in ("jpg", "png", "webp"))]:
        for seed in range(4):
            whole, broken = (
                render_sample(replace(sample, defects=(defect,), captions=("x",), seed=f"{sample.seed}/{seed}"))
                for defect in (None, "truncated")
            )
            assert decodes(whole[sample.extension], sample.kind)
            assert not decodes(broken[sample.extension], sample.kind)


def test_missing_files_are_missing(made: Path, planned: list[PlannedSample]) -> None:
    names = Counter(name for name, _ in members(made))
    for sample in with_defect(planned, "missing_media"):
        assert names[f"{sample.key}.txt"] == 1 and names[f"{sample.key}.{sample.extension}"] == 0
    for sample in with_defect(planned, "missing_caption"):
        assert names[f"{sample.key}.txt"] == 0 and names[f"{sample.key}.{sample.extension}"] == 1


def test_repetitions_have_the_same_key_or_bytes(made: Path, planned: list[PlannedSample]) -> None:
    files = members(made)
    for sample in with_defect(planned, "duplicate_key"):
        same = [data for name, data in files if name.startswith(f"{sample.key}.") and not name.endswith(".txt")]
        assert len(same) == 2 and same[0] != same[1]
    for sample in with_defect(planned, "duplicate_media"):
        data = medium(made, sample.key)
        assert sum(other == data for _, other in files) == 2
    broken = {s.key for s in with_defect(planned, "undecodable")}  # the same error page may occur twice
    contents = Counter(data for name, data in files if not name.endswith(".txt") and name.split(".")[0] not in broken)
    assert contents.most_common()[0][1] == 2
    assert sum(count == 2 for count in contents.values()) == len(with_defect(planned, "duplicate_media"))


@pytest.mark.parametrize("defect", ["blurred", "near_blank"])
def test_damaged_pictures_have_lost_their_detail(made: Path, planned: list[PlannedSample], defect: str) -> None:
    for sample in with_defect(planned, defect):
        picture = np.asarray(Image.open(io.BytesIO(medium(made, sample.key))).convert("L"), np.float64)
        whole = np.asarray(draw_scene(sample.content).convert("L"), np.float64)  # type: ignore[arg-type]
        assert detail(picture) < 0.35 * detail(whole)


def test_occluded_pictures_are_mostly_covered(made: Path, planned: list[PlannedSample]) -> None:
    for sample in with_defect(planned, "occluded"):
        picture = np.asarray(Image.open(io.BytesIO(medium(made, sample.key))).convert("RGB"), np.int16)
        assert (np.abs(picture - COVER).max(axis=2) < 12).mean() > 0.7


def detail(picture: np.ndarray) -> float:
    return float(np.abs(np.diff(picture, axis=0)).mean() + np.abs(np.diff(picture, axis=1)).mean())


def test_clips_of_several_scenes_are_of_several_scenes(planned: list[PlannedSample]) -> None:
    for sample in planned:
        shots = getattr(sample.content, "shots", (None,))
        assert len(shots) == (3 if sample.defect == "multi_scene" else 1)


def test_a_repeated_key_stays_in_one_shard() -> None:
    sample = plan_split("train", 1, 0)[0]
    many = [replace(sample, key=f"k{i // 2}") for i in range(301)]
    assert [len(shard) for shard in split_into_shards(many)] == [150, 150, 1]
    assert [len(shard) for shard in split_into_shards(many[1:])] == [151, 149]


def test_a_folder_of_something_else_is_refused(tmp_path: Path, small: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(AuditorError, match="not empty"):
        write_corpus(tmp_path, SMALL)
    with pytest.raises(AuditorError, match="size 120 and seed 3"):
        write_corpus(small, replace(SMALL, seed=4))
    with pytest.raises(AuditorError, match="too small"):
        write_corpus(tmp_path / "new", CorpusConfig(size=10))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["thesis.txt"]


def test_the_global_generator_is_not_used() -> None:
    """Planning uses its own generators: it neither changes nor depends on the global one."""
    random.seed(1)
    before = random.getstate()
    first = plan_split("audit", 120, 0)
    assert random.getstate() == before
    random.seed(2)
    assert plan_split("audit", 120, 0) == first
