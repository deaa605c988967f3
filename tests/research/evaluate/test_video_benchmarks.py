"""MSR-VTT, MSVD and DiDeMo from their published file layouts to tables: generated clips, packed and evaluated."""

import csv
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from auditor.research.evaluate.benchmark_evaluation import EvaluateConfig, evaluate_benchmark
from auditor.research.evaluate.benchmark_splits import SplitSweeper, make_audit_config
from auditor.research.evaluate.pack import pack
from auditor.research.evaluate.reproduce import ReproduceConfig, prepare_study, reproduce
from auditor.research.evaluate.trunk_features import FeatureEncoder
from model.backbone import Backbone, load_backbone
from model.similarity import pool_frames, similarity_matrix
from model.video.video_decode import decode_frames
from tests.support.clips import encode_clip
from tests.support.corpora import make_caption

VIDEOS, FRAMES = 6, 4  # of a split; of a video
CODECS: dict[str, dict[str, str]] = {"mp4": {}, "avi": {"form": "avi", "codec": "mpeg4"}}


@pytest.fixture(scope="module")
def backbone(random_model: str) -> Backbone:
    return load_backbone(random_model)


def moving(seed: int, form: str) -> bytes:
    """Twelve frames of changing soft colors; in AVI as MPEG-4, as in YouTubeClips."""
    corners = np.random.default_rng(seed).integers(0, 256, (2, 3, 4, 3))
    mixed = ((1 - t) * corners[0] + t * corners[1] for t in np.linspace(0, 1, 12))
    frames = (np.repeat(np.repeat(colors.astype(np.uint8), 16, 0), 16, 1) for colors in mixed)
    return encode_clip(frames, rate=8, **CODECS[form])


def msrvtt(source: Path) -> tuple[list[str], list[list[str]]]:
    """The original has 9,000 and 1,000 videos; this one has six and six."""
    names = [f"video{number}" for number in range(2 * VIDEOS)]
    write_videos(source / "videos" / "all", {f"{name}.mp4": number for number, name in enumerate(names)})
    sentences = [{"video_id": name, "sen_id": i, "caption": make_caption(i)} for i, name in enumerate(names * 3)]
    data = {"info": {}, "videos": [{"video_id": name, "split": "train"} for name in names], "sentences": sentences}
    (source / "MSRVTT_data.json").write_text(json.dumps(data))
    write_csv(source / "MSRVTT_train.9k.csv", [["video_id"], *([name] for name in names[:VIDEOS])])
    rows = [[f"ret{i}", f"msr{i}", name, make_caption(100 + i)] for i, name in enumerate(names[VIDEOS:])]
    write_csv(source / "MSRVTT_JSFUSION_test.csv", [["key", "vid_key", "video_id", "sentence"], *rows])
    return names[VIDEOS:], [[row[3]] for row in rows]


def msvd(source: Path) -> tuple[list[str], list[list[str]]]:
    names = [f"-v{number}_{number}_{number + 5}" for number in range(3 * VIDEOS)]
    write_videos(source / "YouTubeClips", {f"{name}.avi": number for number, name in enumerate(names)})
    for split, part in (("train", 0), ("val", 1), ("test", 2)):
        listed = names[part * VIDEOS : (part + 1) * VIDEOS]
        (source / f"{split}_list.txt").write_text("".join(f"{name}\n" for name in listed))
    told = {name: [make_caption(10 * number + i).split() for i in range(3)] for number, name in enumerate(names)}
    (source / "raw-captions.pkl").write_bytes(pickle.dumps(told))
    tested = names[2 * VIDEOS :]
    return tested, [[" ".join(words) for words in told[name]] for name in tested]


def didemo(source: Path) -> tuple[list[str], list[list[str]]]:
    names = [f"{number}@N00_{number}_{number}" for number in range(3 * VIDEOS)]
    write_videos(source / "videos", {f"{name}.mp4": number for number, name in enumerate(names)})
    told = {name: [make_caption(10 * number + i) for i in range(2)] for number, name in enumerate(names)}
    for split, part in (("train", 0), ("val", 1), ("test", 2)):
        chosen = names[part * VIDEOS : (part + 1) * VIDEOS]
        moments = [{"video": f"{n}.mp4", "description": t, "times": [[0, 1]]} for n in chosen for t in told[n]]
        (source / f"{split}_data.json").write_text(json.dumps(moments))
    tested = names[2 * VIDEOS :]
    return tested, [[" ".join(told[name])] for name in tested]


def write_videos(folder: Path, files: dict[str, int]) -> None:
    folder.mkdir(parents=True)
    for name, seed in files.items():
        (folder / name).write_bytes(moving(seed, name.rpartition(".")[2]))


def write_csv(path: Path, rows: list[list[str]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


@pytest.mark.parametrize("layout", [msrvtt, msvd, didemo])
def test_a_layout_gives_the_tables_of_a_plain_loop(
    layout: Callable[[Path], tuple[list[str], list[list[str]]]], tmp_path: Path, backbone: Backbone
) -> None:
    (tmp_path / "in").mkdir()
    names, captions = layout(tmp_path / "in")
    pack(layout.__name__, tmp_path / "in", tmp_path / "out")
    sweep_split = SplitSweeper(backbone, make_audit_config("", str(tmp_path / "swept"), "", FRAMES, decoders=1))
    config = EvaluateConfig(layout.__name__, str(tmp_path / "out"))
    found = evaluate_benchmark(config, backbone, None, sweep_split)
    asked = sum(len(several) for several in captions)
    table = next(one for one in found["tables"] if not one["reranked"] and one["text_to_visual"]["queries"] == asked)
    files = [next((tmp_path / "in").rglob(f"{name}.*")) for name in names]
    recall = naive_recall(backbone, [file.read_bytes() for file in files], captions)
    assert table["text_to_visual"]["R@1"] == pytest.approx(recall["text_to_visual"])
    assert table["visual_to_text"]["R@1"] == pytest.approx(recall["visual_to_text"])


def test_a_table_of_the_paper_from_a_layout(tmp_path: Path, backbone: Backbone) -> None:
    """From published files to `auditor reproduce`, with the features of every frame."""
    (tmp_path / "in").mkdir()
    msrvtt(tmp_path / "in")
    pack("msrvtt", tmp_path / "in", tmp_path / "out")
    config = ReproduceConfig(("pearson",), "msrvtt", str(tmp_path / "out"), seeds=1, epochs=1)
    with FeatureEncoder(backbone, frames=FRAMES, decoders=1) as encoder:
        [found], study = reproduce(config, encoder), prepare_study(config, encoder)
    about = found["data"]["media_and_captions"]
    assert about["similarity"] == "mean of the whole clip and its best frame" and about["test"] == [VIDEOS, VIDEOS]
    assert study.test.frames is not None and study.test.frames.shape[:2] == (VIDEOS, FRAMES)
    assert "6 media, that of msrvtt 1,000" in found["incomparable"] and len(found["rows"]) == 4


def naive_recall(backbone: Backbone, videos: list[bytes], captions: list[list[str]]) -> dict[str, float]:
    """R@1 in percent, pair by pair, from the mean of the cosines of the whole clip and of its best frame."""
    with torch.no_grad():
        decoded = [decode_frames(data, FRAMES, spec=backbone.pixels).images for data in videos]
        frames = torch.stack([backbone.encode_images(np.stack(images)) for images in decoded])
        text = backbone.encode_texts([one for several in captions for one in several])
        similarity = similarity_matrix(pool_frames(frames), frames, None, text).numpy()
    owners = np.repeat(np.arange(len(videos)), [len(several) for several in captions])
    by_text = np.mean([similarity[:, m].argmax() == owner for m, owner in enumerate(owners)])
    by_video = np.mean([owners[similarity[n].argmax()] == n for n in range(len(videos))])
    return {"text_to_visual": 100 * float(by_text), "visual_to_text": 100 * float(by_video)}
