"""Thumbnails keep the shape and the picture, and never cost more than themselves."""

import io
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest
from PIL import Image

from auditor.corpus.sample import Kind, Problem, Span
from auditor.report.thumbnails import ThumbnailError, Thumbnails, make_thumbnail
from tests.support.clips import make_clip, make_numbered_clip, make_photo, read_number


@pytest.fixture(scope="module")
def thumbnails() -> Iterator[Thumbnails]:
    with closing(Thumbnails(size=64, frames=3)) as thumbnails:
        yield thumbnails


def opened(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    assert image.format == "JPEG"
    return image


@pytest.mark.parametrize(
    ("size", "expected"), [((200, 100), (64, 32)), ((99, 301), (21, 64)), ((7, 5), (64, 46)), ((900, 2), (64, 1))]
)
def test_the_shape_is_kept_and_nothing_padded(
    thumbnails: Thumbnails, size: tuple[int, int], expected: tuple[int, int]
) -> None:
    ((_, made),) = thumbnails.map([(0, make_photo(*size, "PNG", (20, 120, 220)), "image", None)])
    assert isinstance(made, bytes)
    image = opened(made)
    assert image.size == expected
    assert np.abs(np.asarray(image).astype(int) - (20, 120, 220)).max() < 12  # no white border


def test_videos_show_their_middle_and_a_strip(thumbnails: Thumbnails) -> None:
    data = make_clip(frames=48)
    strip = thumbnails.frames(data, "video")
    assert [round(time * 24) for time, _ in strip if time is not None] == [8, 24, 40]
    greys = [np.asarray(opened(made))[-8:, -8:].mean() for _, made in strip]
    assert greys == pytest.approx([40, 120, 200], abs=8)
    assert opened(strip[0][1]).size == (64, 48)
    ((_, middle),) = thumbnails.map([(0, data, "video", None)])
    assert middle == strip[1][1]
    assert [time for time, _ in thumbnails.frames(make_photo(), "image")] == [None]


def test_bad_files(thumbnails: Thumbnails) -> None:
    media: list[tuple[str, bytes, Kind, Span | None]] = [
        ("a", make_photo(), "image", None),
        ("b", b"junk", "image", None),
        ("c", make_photo(), "image", None),
    ]
    made = dict(thumbnails.map(media))
    assert isinstance(made["b"], Problem) and isinstance(made["a"], bytes) and isinstance(made["c"], bytes)
    with pytest.raises(ThumbnailError, match="cannot be shown"):
        thumbnails.frames(b"junk", "video")


def test_the_function_for_one() -> None:
    assert opened(make_thumbnail(make_photo(300, 150), "image", 96)).size == (96, 48)
    with pytest.raises(ThumbnailError):
        make_thumbnail(b"junk", "image", 96)


def test_the_function_for_a_span_of_a_video() -> None:
    """Not the middle of the whole: the caption is about its second second."""
    data = make_numbered_clip("h264", "mp4", 100)
    shown = np.asarray(opened(make_thumbnail(data, "video", 96, Span(1.0, 2.0))))
    assert 25 <= read_number(shown) < 50


def test_nothing_heavy_is_imported_and_nothing_is_left_running() -> None:
    script = """
import sys
import auditor.report.thumbnails as t
assert not {"model", "torch", "numpy"} & set(sys.modules), sys.modules
from tests.support.clips import make_photo
assert t.make_thumbnail(make_photo(), "image", 32)
assert "torch" not in sys.modules
print(*t._open_thumbnails(32)._pool.pids)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    (pid,) = done.stdout.split()
    gone = subprocess.run(["ps", "-p", pid], capture_output=True)
    assert gone.returncode == 1
