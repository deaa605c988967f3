"""Packing benchmarks: a tiny source of every format, missing media, and pickles that hold more than words."""

import csv
import json
import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from auditor.commands.train_and_evaluate.pack import command
from auditor.corpus.open_corpus import open_corpus
from auditor.research.evaluate.annotations import BenchmarkError
from auditor.research.evaluate.benchmark_readers import load_msvd_captions
from auditor.research.evaluate.pack import PackConfig, pack


def media(path: Path, *names: str) -> None:
    path.mkdir(parents=True, exist_ok=True)
    for name in names:
        (path / name).write_bytes(b"bytes of " + name.encode())


def dump(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def rows(path: Path, *lines: tuple[str, ...]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(lines)


def unpack(shards: Path, split: str) -> dict[str, dict[str, bytes]]:
    samples: dict[str, dict[str, bytes]] = {}
    for path in sorted(shards.glob(f"{split}-*.tar")):
        with tarfile.open(path) as tar:
            for member in tar:
                key, extension = member.name.split(".", 1)
                content = tar.extractfile(member)
                assert content is not None
                samples.setdefault(key, {})[extension] = content.read()
    return samples


def karpathy(name: str, splits: dict[str, str]) -> dict[str, Any]:
    images = [
        {
            "filename": filename,
            "filepath": "val2014",
            "imgid": number,
            "cocoid": 100 + number,
            "split": split,
            "sentences": [{"raw": f"{filename} says\n {i}", "sentid": 10 * number + i} for i in range(5)],
        }
        for number, (filename, split) in enumerate(splits.items())
    ]
    return {"images": images, "dataset": name}


def test_coco_of_karpathy(tmp_path: Path) -> None:
    source = tmp_path / "coco"
    media(source / "images" / "val2014", "a.jpg", "b.jpg", "c.jpg", "d.jpg")
    media(source / "images" / "train2014", "a.jpg.old", "b.jpg")  # the other b.jpg is in the wrong folder
    (source / "images" / "train2014" / "b.jpg").write_bytes(b"wrong")
    splits = {"a.jpg": "train", "b.jpg": "restval", "c.jpg": "val", "d.jpg": "test"}
    dump(source / "dataset_coco.json", karpathy("coco", splits))
    report = pack("coco", source, tmp_path / "out")
    assert report.media == {"train": 2, "val": 1, "test": 1}
    assert report.captions == {"train": 10, "val": 5, "test": 5}
    train = unpack(tmp_path / "out", "train")
    assert train["101"]["jpg"] == b"bytes of b.jpg"
    assert train["101"]["txt"].decode().splitlines() == [f"b.jpg says {i}" for i in range(5)]
    ids = json.loads(train["101"]["json"])
    assert ids["caption_ids"] == [str(n) for n in range(10, 15)]  # COCO's own numbers
    assert ids["split"] == "train" and ids["id"] == "101"
    assert json.loads((tmp_path / "out" / "benchmark.json").read_text())["media"] == report.media


@pytest.mark.parametrize("by", ["images", "captions"])
def test_coco_of_its_own_files_with_id_lists(tmp_path: Path, by: str) -> None:
    source = tmp_path / "coco"
    media(source / "train2014", "t1.jpg")
    media(source / "val2014", "v1.jpg", "v2.jpg")
    for part, images in (("train", {1: "t1.jpg"}), ("val", {2: "v1.jpg", 3: "v2.jpg"})):
        annotations = [{"id": 100 * i + n, "image_id": i, "caption": f"{i} {n}"} for i in images for n in range(5)]
        content = {"images": [{"id": i, "file_name": n} for i, n in images.items()], "annotations": annotations}
        dump(source / "annotations" / f"captions_{part}2014.json", content)
    for split, image in (("train", 1), ("dev", 2), ("test", 3)):
        if by == "images":
            (source / f"{split}_ids.txt").write_text(f"{image}\n")
        else:
            np.save(source / f"coco_{split}_ids.npy", np.array([100 * image + n for n in range(5)]))
    report = pack("coco", source, tmp_path / "out")
    assert report.media == {"train": 1, "val": 1, "test": 1}
    assert unpack(tmp_path / "out", "test")["3"]["txt"].decode().splitlines() == [f"3 {n}" for n in range(5)]


def msrvtt(source: Path) -> None:
    media(source / "videos", "video0.mp4", "video1.webm", "video2.mp4")
    sentences = [
        {"video_id": f"video{v}", "caption": f"caption {v} {i}", "sen_id": i} for v in range(3) for i in range(4)
    ]
    dump(source / "MSRVTT_data.json", {"videos": [{"video_id": f"video{v}"} for v in range(3)], "sentences": sentences})
    rows(source / "MSRVTT_train.9k.csv", ("video_id",), ("video0",), ("video1",))
    rows(
        source / "MSRVTT_JSFUSION_test.csv",
        ("key", "vid_key", "video_id", "sentence"),
        ("ret0", "msr2", "video2", "the one, chosen"),
    )


def test_msrvtt(tmp_path: Path) -> None:
    msrvtt(tmp_path / "in")
    report = pack("msrvtt", tmp_path / "in", tmp_path / "out")
    assert report.media == {"train": 2, "test": 1} and report.captions == {"train": 8, "test": 1}
    assert unpack(tmp_path / "out", "train")["video1"]["webm"] == b"bytes of video1.webm"
    assert unpack(tmp_path / "out", "test")["video2"]["txt"] == b"the one, chosen"


def msvd(source: Path, captions: Any) -> None:
    media(source / "YouTubeClips", "-aB_1_2.avi", "c_3_4.avi", "e_5_6.avi")
    for split, video in (("train", "-aB_1_2"), ("val", "c_3_4"), ("test", "e_5_6")):
        (source / f"{split}_list.txt").write_text(video + "\n")
    (source / "raw-captions.pkl").write_bytes(captions)


@pytest.mark.parametrize("protocol", range(6))
def test_msvd(tmp_path: Path, protocol: int) -> None:
    captions = {video: [["a", "man", "n°", str(i)] for i in range(40)] for video in ("-aB_1_2", "c_3_4", "e_5_6")}
    msvd(tmp_path / "in", pickle.dumps(captions, protocol=protocol))
    report = pack("msvd", tmp_path / "in", tmp_path / "out")
    assert report.captions == {"train": 40, "val": 40, "test": 40}
    assert unpack(tmp_path / "out", "test")["e_5_6"]["txt"].decode().splitlines()[7] == "a man n° 7"


class Danger:
    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_wants_more_than_words_is_refused_and_runs_nothing(tmp_path: Path, protocol: int) -> None:
    mark = tmp_path / "executed"
    msvd(tmp_path / "in", pickle.dumps({"e_5_6": [["a", Danger(mark)]]}, protocol=protocol))
    with pytest.raises(BenchmarkError, match=r"the pickle refers to (posix|os)\.mkdir"):
        pack("msvd", tmp_path / "in", tmp_path / "out")
    assert not mark.exists() and not (tmp_path / "out").exists()


NO_CAPTIONS = ([1], {"v": [[1, 2]]}, {"v": None}, {"v": 3}, {"v": "letters are no sentences"})


@pytest.mark.parametrize("content", [b"", b"not a pickle", *(pickle.dumps(value) for value in NO_CAPTIONS)])
def test_a_pickle_that_is_not_captions_is_an_error_for_people(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "raw-captions.pkl").write_bytes(content)
    with pytest.raises(BenchmarkError, match=r"raw-captions\.pkl"):
        load_msvd_captions(tmp_path / "raw-captions.pkl")


def test_didemo_joins_moments_to_a_paragraph(tmp_path: Path) -> None:
    source = tmp_path / "in"
    media(source / "videos", "1@N00_2_3.mov.mp4", "4@N00_5_6.avi")
    for split, video in (("train", "1@N00_2_3.mov"), ("test", "4@N00_5_6.avi")):
        moments = [{"video": video, "description": text, "times": [[0, 0]]} for text in ("a dog runs.", "it jumps\nup")]
        dump(source / f"{split}_data.json", moments)
    report = pack("didemo", source, tmp_path / "out")
    assert report.media == {"train": 1, "test": 1}
    sample = unpack(tmp_path / "out", "train")["1@N00_2_3"]
    assert sample["txt"] == b"a dog runs. it jumps up" and sample["mp4"] == b"bytes of 1@N00_2_3.mov.mp4"


@pytest.mark.parametrize("form", ["token", "table", "karpathy"])
def test_flickr(tmp_path: Path, form: str) -> None:
    source = tmp_path / "in"
    names = ["1_a.jpg", "2_b.jpg", "3_c.jpg"]
    media(source / "Images", *names)
    if form == "karpathy":
        dump(
            source / "dataset_flickr8k.json",
            karpathy("flickr8k", dict(zip(names, ["train", "val", "test"], strict=True))),
        )
    else:
        if form == "token":
            (source / "Flickr8k.token.txt").write_text(
                "".join(f"{n}#{i}\tA {n}, {i} .\n" for n in names for i in range(5))
            )
        else:
            rows(
                source / "captions.txt", ("image", "caption"), *((n, f"A {n}, {i} .") for n in names for i in range(5))
            )
        for split, name in zip(["train", "dev", "test"], names, strict=True):
            (source / f"Flickr_8k.{split}Images.txt").write_text(name + "\n")
    report = pack("flickr8k", source, tmp_path / "out")
    assert report.media == {"train": 1, "val": 1, "test": 1} and report.captions["test"] == 5
    if form == "karpathy":
        ids = json.loads(unpack(tmp_path / "out", "val")["101"]["json"])
        assert ids["caption_ids"] == [f"sentid:{n}" for n in range(10, 15)]
    else:
        assert unpack(tmp_path / "out", "val")["2_b"]["txt"].decode().splitlines()[3] == "A 2_b.jpg, 3 ."


def test_a_token_file_without_split_lists_is_one_split(tmp_path: Path) -> None:
    media(tmp_path / "in", "1.jpg")
    (tmp_path / "in" / "results_20130124.token").write_text("1.jpg#0\tone\n1.jpg#1\ttwo\n")
    assert pack("flickr30k", tmp_path / "in", tmp_path / "out").media == {"all": 1}


def test_odd_characters_of_a_token_file_stay_inside_their_caption(tmp_path: Path) -> None:
    media(tmp_path / "in", "1.jpg")
    text = "1.jpg#0\tone\u2028line\r\n1.jpg#1\t\n1.jpg#2\ttwo\x0cpages\n"
    (tmp_path / "in" / "results_20130124.token").write_bytes(text.encode("utf-16"))
    pack("flickr30k", tmp_path / "in", tmp_path / "out")
    (shard,) = open_corpus(str(tmp_path / "out")).shards
    with shard.open() as opened:
        assert [sample.captions for sample in opened.samples] == [("one line", "two pages")]


def test_pack_takes_what_the_audit_decodes_and_nothing_else(tmp_path: Path) -> None:
    source = tmp_path / "in"
    msrvtt(source)
    videos = sorted((source / "videos").iterdir())
    videos[0].rename(videos[0].with_suffix(".flv"))
    videos[1].rename(videos[1].with_suffix(".heic"))
    report = pack("msrvtt", source, tmp_path / "out", PackConfig(max_missing=1.0))
    assert [name for names in report.missing_media.values() for name in names] == [videos[1].stem]
    for shard in open_corpus(str(tmp_path / "out")).shards:
        with shard.open() as opened:
            assert opened.samples and all(sample.problem is None for sample in opened.samples)


def test_losses_are_counted_named_and_refused_above_the_threshold(tmp_path: Path) -> None:
    source = tmp_path / "in"
    splits = {f"{i}.jpg": "test" for i in range(20)} | {"x.jpg": "holdout"}
    content = karpathy("coco", splits)
    content["images"][3]["sentences"] = []
    dump(source / "dataset_coco.json", content)
    media(source / "images", *(f"{i}.jpg" for i in range(18)), "x.jpg")
    with pytest.raises(BenchmarkError, match=r"3 of the 20 entries of test \(15\.0%\)") as caught:
        pack("coco", source, tmp_path / "out")
    said = str(caught.value)
    assert "1 of the 21 entries in all (4.8%)" in said and "2 of test without a media file (118, 119)" in said
    assert "1 of test without a caption (103)" in said and "unknown split 'holdout' (120)" in said
    assert os.listdir(tmp_path) == ["in"]
    report = pack("coco", source, tmp_path / "out", PackConfig(max_missing=0.2))
    assert report.media == {"test": 17} and report.lost() == {"test": 3}


def test_a_large_train_split_does_not_hide_what_the_test_split_lacks(tmp_path: Path) -> None:
    source = tmp_path / "in"
    splits = {f"{i}.jpg": "train" if i < 490 else "test" for i in range(500)}
    dump(source / "dataset_coco.json", karpathy("coco", splits))
    media(source / "images", *(name for name in splits if name != "495.jpg"))  # 0.2% of all, a tenth of test
    with pytest.raises(BenchmarkError, match=r"1 of the 10 entries of test \(10\.0%\) cannot be packed"):
        pack("coco", source, tmp_path / "out")
    media(source / "images", "495.jpg")
    (source / "images" / "7.jpg").unlink()
    assert pack("coco", source, tmp_path / "out").missing_media == {"train": ["107"]}


def test_photos_in_no_split_list_are_told_and_are_no_loss(tmp_path: Path) -> None:
    source = tmp_path / "in"
    names = [f"{i}.jpg" for i in range(12)]
    media(source, *names)
    (source / "Flickr8k.token.txt").write_text("".join(f"{n}#0\tA photo .\n" for n in names))
    for split, name in zip(["train", "dev", "test"], names, strict=False):
        (source / f"Flickr_8k.{split}Images.txt").write_text(name + "\n")
    result = CliRunner().invoke(command, ["flickr8k", "--source", str(source), "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "9 annotated but in no split list (3.jpg, 4.jpg, 5.jpg, ...)" in result.output
    assert "left out" not in result.output
    report = json.loads((tmp_path / "out" / "benchmark.json").read_text())
    assert report["media"] == {"test": 1, "train": 1, "val": 1} and len(report["unlisted"]) == 9


def test_captions_that_are_empty_or_null_go_with_their_ids_and_are_named(tmp_path: Path) -> None:
    source = tmp_path / "in"
    content = karpathy("coco", {"a.jpg": "test", "b.jpg": "test"})
    content["images"][0]["sentences"][1]["raw"] = None
    content["images"][0]["sentences"][3]["raw"] = " \n"
    del content["images"][1]["sentences"][2]["sentid"]
    dump(source / "dataset_coco.json", content)
    media(source, "a.jpg", "b.jpg")
    report = pack("coco", source, tmp_path / "out")
    packed = unpack(tmp_path / "out", "test")
    assert packed["100"]["txt"].decode().splitlines() == ["a.jpg says 0", "a.jpg says 2", "a.jpg says 4"]
    assert json.loads(packed["100"]["json"])["caption_ids"] == ["0", "2", "4"]
    assert len(packed["101"]["txt"].splitlines()) == 5 and "caption_ids" not in json.loads(packed["101"]["json"])
    assert report.captions == {"test": 8} and report.notes() == ["1 of test lack some of their captions (100)"]


def test_a_short_row_of_a_table_is_a_missing_caption(tmp_path: Path) -> None:
    msrvtt(tmp_path / "in")
    media(tmp_path / "in" / "videos", "video3.mp4")
    with (tmp_path / "in" / "MSRVTT_JSFUSION_test.csv").open("a") as table:
        table.write("ret1,msr3,video3\n")
    with pytest.raises(BenchmarkError, match=r"1 of test without a caption \(video3\)"):
        pack("msrvtt", tmp_path / "in", tmp_path / "out")


def test_a_short_row_of_the_flickr_table_is_a_missing_caption(tmp_path: Path) -> None:
    media(tmp_path / "in", "1.jpg", "2.jpg")
    rows(tmp_path / "in" / "captions.txt", ("image", "caption"), ("1.jpg", "one"), ("1.jpg",), ("2.jpg",))
    report = pack("flickr8k", tmp_path / "in", tmp_path / "out", PackConfig(max_missing=0.5))
    assert report.without_caption == {"all": ["2"]} and report.caption_missing == {"all": ["1"]}


def test_a_moment_without_description_is_named(tmp_path: Path) -> None:
    media(tmp_path / "in", "a.mp4")
    moments = [{"video": "a.mp4", "description": text} for text in ("a dog runs", None)]
    dump(tmp_path / "in" / "test_data.json", moments)
    report = pack("didemo", tmp_path / "in", tmp_path / "out")
    assert unpack(tmp_path / "out", "test")["a"]["txt"] == b"a dog runs"
    assert report.caption_missing == {"test": ["a"]}


def test_names_in_annotations_cannot_leave_the_source(tmp_path: Path) -> None:
    (tmp_path / "secret.jpg").write_bytes(b"secret")
    source = tmp_path / "in"
    media(source / "images", "a.jpg")
    dump(source / "dataset_coco.json", karpathy("coco", {"a.jpg": "test", "../../secret.jpg": "test"}))
    report = pack("coco", source, tmp_path / "out", PackConfig(max_missing=0.5))
    assert report.missing_media == {"test": ["101"]}


def test_shards_are_cut_repeatable_and_never_overwritten(tmp_path: Path) -> None:
    source = tmp_path / "in"
    media(source / "images", *(f"{i}.jpg" for i in range(5)))
    dump(source / "dataset_coco.json", karpathy("coco", {f"{i}.jpg": "test" for i in range(5)}))
    for out in ("one", "two"):
        assert pack("coco", source, tmp_path / out, PackConfig(samples_per_shard=2)).shards == {"test": 3}
    for name in ("test-00000.tar", "test-00002.tar"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert len(unpack(tmp_path / "one", "test")) == 5
    with pytest.raises(BenchmarkError, match="exists"):
        pack("coco", source, tmp_path / "one")


def test_a_failure_midway_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "in"
    msrvtt(source)
    monkeypatch.setattr(
        "auditor.corpus.shard_writer.add_sample_members", lambda *_: (_ for _ in ()).throw(OSError("disk full"))
    )
    with pytest.raises(OSError, match="disk full"):
        pack("msrvtt", source, tmp_path / "out")
    assert os.listdir(tmp_path) == ["in"]


def test_command_prints_splits_and_losses(tmp_path: Path) -> None:
    msrvtt(tmp_path / "in")
    (tmp_path / "in" / "videos" / "video0.mp4").unlink()
    arguments = ["msrvtt", "--source", str(tmp_path / "in"), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(command, [*arguments, "--max-missing", "0.5"])
    assert result.exit_code == 0, result.output
    assert "left out: 1 of train without a media file (video0)" in result.output


@pytest.mark.parametrize("benchmark", ["coco", "flickr8k", "flickr30k", "msrvtt", "msvd", "didemo"])
def test_an_empty_source_says_what_it_lacks(tmp_path: Path, benchmark: str) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(BenchmarkError, match="has no "):
        pack(benchmark, tmp_path / "in", tmp_path / "out")
