"""In every codec and container, seeking gives exactly the frames that decoding from the start gives."""

import random

import numpy as np
import pytest

from model.pixels import DecodeLimits
from model.video.frame_index import read_frame_index
from model.video.frame_plan import segment_centers
from model.video.frame_seek import decode_all_frames
from model.video.video_decode import VideoSource, decode_chosen_frames, decode_frames
from model.video.video_formats import open_as_path, read_video_header
from tests.support.clips import ENCODERS, make_numbered_clip, read_number

FRAMES = 60
CASES = [(codec, form) for codec, encoder in ENCODERS.items() for form in encoder.forms]


@pytest.mark.parametrize(("codec", "form"), CASES, ids=[f"{codec}-{form}" for codec, form in CASES])
def test_exactly_the_right_frames(codec: str, form: str) -> None:
    data = make_numbered_clip(codec, form, FRAMES)
    with open_as_path(data) as path:
        every = [frame.to_ndarray(format="rgb24") for frame, _, _ in decode_all_frames(path)]
        assert [read_number(image) for image in every] == list(range(FRAMES))
        source, index = (
            VideoSource(path, data[:16], read_video_header(path, DecodeLimits()), None),
            read_frame_index(path),
        )
        generator = random.Random(codec)
        for count in (1, 2, 9, 30):
            wanted = sorted(generator.sample(range(FRAMES), count))
            found = [
                (number, frame.to_ndarray(format="rgb24"))
                for number, frame in decode_chosen_frames(source, index, wanted)
            ]
            assert [number for number, _ in found] == wanted
            for number, image in found:
                np.testing.assert_array_equal(image, every[number])
    whole = decode_frames(data, 7)
    assert [read_number(image) for image in whole.images] == segment_centers(FRAMES, 7)
    assert whole.times == pytest.approx([number / 25 for number in segment_centers(FRAMES, 7)], abs=0.01)
    assert whole.decoder == "pyav" and whole.duration == pytest.approx(FRAMES / 25, abs=0.05)
    assert index.rate == pytest.approx(25) and index.constant


def test_few_frames_are_decoded_between_chosen_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the groups of pictures that contain chosen frames are decoded, and only half of their frames."""
    import model.video.frame_seek as seek

    data = make_numbered_clip("h264", "mp4", 600, gop=30)
    came: list[int] = []
    real = seek.SeekingDecoder.frames

    def counted(self: seek.SeekingDecoder, *arguments: object) -> object:
        for frame in real(self, *arguments):  # type: ignore[arg-type]
            came.append(frame.pts)
            yield frame

    monkeypatch.setattr(seek.SeekingDecoder, "frames", counted)
    found = decode_frames(data, 4)
    assert [read_number(image) for image in found.images] == [number % 128 for number in segment_centers(600, 4)]
    assert len(came) <= 4 * 30 * 2 / 3
