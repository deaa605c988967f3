"""Pieces of samples: each one follows exactly the frames of its own samples."""

import numpy as np
import pytest

from auditor.corpus.sample import Media, Sample
from auditor.sweep import sample_pieces
from auditor.sweep.sample_pieces import describe_samples
from auditor.sweep.sweep_events import DecodedSample, DecodeEvent, FramePart, SamplePiece, ShardEnd, ShardStart
from auditor.workers.decoder_pool import Decoded
from model.backbone import Backbone
from model.checkpoint import load_model


@pytest.fixture(scope="module")
def backbone(random_model: str) -> Backbone:
    return load_model(random_model).backbone


def make_decoded(number: int, frames: int) -> DecodedSample:
    media = Media("0.tar", number, 9, "video")
    sample = Sample("0", f"{number:03d}", ("a dog", "A cat sleeps. A dog barks."), media)
    return DecodedSample(sample, "d" * 32, Decoded(np.zeros((frames, 8, 8, 3), np.uint8), 8, 8, times=[0.0] * frames))


def test_the_frames_before_a_piece_are_those_of_its_samples(
    backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_pieces, "PIECE_VECTORS", 500)
    counts = np.random.default_rng(0).integers(1, 30, 150).tolist()
    events: list[DecodeEvent] = [ShardStart("0", "f", 150, ())]
    events += [make_decoded(number, frames) for number, frames in enumerate(counts)]
    frames, keys, sizes = 0, [], []
    for event in describe_samples(backbone, [*events, ShardEnd()]):
        if isinstance(event, FramePart):
            frames += len(event.pixels)
        elif isinstance(event, SamplePiece):
            keys += [decoded.sample.key for decoded in event.samples]
            assert frames == sum(decoded.frames for decoded in event.samples)
            assert event.facts["key"].to_pylist() == [decoded.sample.key for decoded in event.samples for _ in "12"]
            sizes.append(frames + sum(len(texts.tokens) for texts in event.texts))
            frames = 0
    assert keys == [f"{number:03d}" for number in range(150)]
    assert len(sizes) > 3 and max(sizes) < 500 + 30 + 64 * 4  # a sample's frames and the texts of 64 samples more
