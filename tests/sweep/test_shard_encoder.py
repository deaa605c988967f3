"""The row of a medium's first caption holds its thumbnail: of a picture, or of the middle frame of a whole video."""

import json
from pathlib import Path

import numpy as np
import pytest

from auditor.audit_folder.embeddings import name_embeddings_file, read_thumbnails
from auditor.audit_folder.folder import Folder
from auditor.corpus.tar_shard import TarShard
from auditor.score.statistics.picture_match import compare_pictures
from auditor.sweep.sweep import Sweeper
from auditor.sweep.sweep_config import SweepConfig
from auditor.workers.pixel_facts import describe_pixels
from model.checkpoint import load_model
from model.pixels import decode_image, fit_image
from tests.support.clips import make_clip
from tests.support.corpora import make_picture, make_sample, write_tar


@pytest.mark.parametrize("exact", [True, False])
def test_thumbnails_are_stored_once_for_each_medium(random_model: str, tmp_path: Path, exact: bool) -> None:
    backbone, folder = load_model(random_model).backbone, Folder(tmp_path / "audit")
    segments = {"segments": [{"start": 0.0, "end": 1.0, "caption": "a dog"}]}
    samples = [
        ("a", make_sample(0, captions=2)),
        ("b", {"jpg": b"broken", "txt": b"a cat"}),
        ("c", {"mp4": make_clip(frames=20, size=(64, 48), rate=10), "txt": b"a bird"}),
        ("d", {"mp4": make_clip(frames=20, size=(64, 48), rate=10), "json": json.dumps(segments).encode()}),
    ]
    shard = TarShard("0", str(write_tar(tmp_path / "0.tar", samples)))
    with Sweeper(backbone, folder, SweepConfig(decoders=1, exact_pixels=exact)) as sweeper:
        list(sweeper.sweep([shard]))
    table = folder.read_table(name_embeddings_file("0"), ["key", "status", "thumbnail"])
    assert table["key"].to_pylist() == ["a", "a", "b", "c", "d"]
    assert [value is not None for value in table["thumbnail"].to_pylist()] == [True, False, False, True, False]
    thumbnails = read_thumbnails(table)
    pixels = fit_image(backbone.pixels, decode_image(make_picture(0)))
    expected = np.frombuffer(describe_pixels(pixels[None])[1], np.uint8)
    assert compare_pictures(expected, thumbnails[:1])[0] > 0.95
    assert np.abs(expected.astype(int) - thumbnails[0]).max() <= (0 if exact else 12)
    assert thumbnails[3].std() > 1 and not thumbnails[[1, 2, 4]].any()
