"""Small JPEGs of images and videos for the dashboard and the report, decoded in a killable process.

    jpeg = make_thumbnail(data, "video", 320)                    # the middle frame
    thumbnails = Thumbnails(size=160, frames=8)                  # until close()
    strip = thumbnails.frames(data, "video")                     # [(seconds, jpeg), ...]
    for key, result in thumbnails.map([("a", data, "image", None)]):
        ...                                                      # result: bytes or a Problem

Importing this module imports neither torch nor `model`; the first thumbnail starts the decoders.
"""

import atexit
import functools
import io
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from auditor.corpus.sample import Kind, Problem, Span
from auditor.errors import AuditorError

if TYPE_CHECKING:
    from auditor.workers.decoder_pool import Decoded

T = TypeVar("T")
QUALITY = 85


class ThumbnailError(AuditorError):
    """The medium cannot be shown."""


class Thumbnails:
    """Makes thumbnails that fit into a square of `size` pixels and keep their aspect ratio."""

    def __init__(self, size: int = 256, frames: int = 1, workers: int = 1, seconds: float = 30.0) -> None:
        from auditor.workers.decoder_pool import DecodeLimits, DecoderPool, PixelSpec

        spec = PixelSpec(size=(size, size), resize_mode="longest", fill=255)
        self._pool: DecoderPool = DecoderPool(spec, frames, workers, DecodeLimits(seconds=seconds))

    def close(self) -> None:
        self._pool.close()

    def map(self, media: Iterable[tuple[T, bytes, Kind, Span | None]]) -> Iterator[tuple[T, bytes | Problem]]:
        """A JPEG of each medium, in order; for a video or a span of it, the middle one of its frames."""
        tasks = ((tag, data, kind, [span] if span else []) for tag, data, kind, span in media)
        for tag, result in self._pool.map_spans(tasks):
            assert result is not None
            yield tag, result if isinstance(result, Problem) else encode_jpeg(result, len(result.pixels) // 2)

    def frames(self, data: bytes, kind: Kind, span: Span | None = None) -> list[tuple[float | None, bytes]]:
        """JPEGs of the frames of a video or a span of it, each with its time; an image is one frame without a time."""
        result = self._pool.decode(data, kind, span)
        if isinstance(result, Problem):
            raise ThumbnailError(f"cannot be shown: {result.message}")
        times: list[Any] = result.times or [None]
        return [(time, encode_jpeg(result, frame)) for frame, time in enumerate(times)]


def make_thumbnail(data: bytes, kind: Kind, size: int = 256, span: Span | None = None) -> bytes:
    """A JPEG of one medium; the decoders stay open for the next call. Raises ThumbnailError."""
    with _lock:
        thumbnails = _open_thumbnails(size)
    ((_, result),) = thumbnails.map([(0, data, kind, span)])
    if isinstance(result, Problem):
        raise ThumbnailError(f"cannot be shown: {result.message}")
    return result


_lock = threading.Lock()  # functools.cache may run a function twice if two threads call it at once


@functools.cache
def _open_thumbnails(size: int) -> Thumbnails:
    thumbnails = Thumbnails(size)
    atexit.register(thumbnails.close)
    return thumbnails


def encode_jpeg(decoded: "Decoded", frame: int) -> bytes:
    """A JPEG of one frame without its padding; small images are enlarged to the same square."""
    from PIL import Image

    size = decoded.pixels.shape[1]
    scale = size / max(decoded.width, decoded.height)
    width, height = (max(1, round(edge * scale)) for edge in (decoded.width, decoded.height))
    x, y = (size - width) // 2, (size - height) // 2
    buffer = io.BytesIO()
    Image.fromarray(decoded.pixels[frame, y : y + height, x : x + width]).save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()
