"""Small JPEGs of images and videos for the dashboard and the report, decoded where it can be killed.

    jpeg = thumbnail(data, "video", 320)                         # the middle frame
    with Thumbnails(size=160, frames=8) as thumbnails:
        strip = thumbnails.frames(data, "video")                 # [(seconds, jpeg), ...]
        for key, result in thumbnails.map([("a", data, "image")]):
            ...                                                  # result: bytes or a Problem

Importing this module imports neither torch nor `model`; the decoders come with the first thumbnail.
"""

import atexit
import functools
import io
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from auditor.corpus.sample import Kind, Problem, Span
from auditor.errors import AuditorError

if TYPE_CHECKING:
    from auditor.workers.decoder_pool import Decoded

T = TypeVar("T")
QUALITY = 85


class ThumbnailError(AuditorError):
    """A medium that cannot be shown."""


class Thumbnails:
    """Makes thumbnails that fit in a square of `size` pixels; the aspect ratio is kept."""

    def __init__(self, size: int = 256, frames: int = 1, workers: int = 1, seconds: float = 30.0) -> None:
        from auditor.workers.decoder_pool import DecoderPool, Limits, PixelSpec

        spec = PixelSpec(size=(size, size), resize_mode="longest", fill=255)
        self._pool: DecoderPool = DecoderPool(spec, frames, workers, Limits(seconds=seconds))

    def __enter__(self) -> "Thumbnails":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._pool.close()

    def map(
        self, media: Iterable[tuple[T, bytes, Kind]], spans: Mapping[T, Span] | None = None
    ) -> Iterator[tuple[T, bytes | Problem]]:
        """A JPEG of each, in order; of a video, or of its span, the middle one of its frames."""
        for tag, result in self._decoded(media, spans or {}):
            yield tag, result if isinstance(result, Problem) else jpeg(result, len(result.pixels) // 2)

    def _decoded(
        self, media: Iterable[tuple[T, bytes, Kind]], spans: Mapping[T, Span]
    ) -> Iterator[tuple[T, "Decoded | Problem"]]:
        from auditor.workers.decoder_pool import Stream

        tasks = ((tag, Stream(data, [spans[tag]]) if tag in spans else data, kind) for tag, data, kind in media)
        for tag, result in self._pool.map(tasks):
            yield tag, result.collected() if isinstance(result, Stream) else result

    def frames(self, data: bytes, kind: Kind, span: Span | None = None) -> list[tuple[float | None, bytes]]:
        """JPEGs of the frames of a video or a span of it, each with its time; one without a time for an image."""
        ((_, result),) = self._decoded([(0, data, kind)], {0: span} if span else {})
        if isinstance(result, Problem):
            raise ThumbnailError(f"cannot be shown: {result.message}")
        times: list[Any] = result.times or [None]
        return [(time, jpeg(result, index)) for index, time in enumerate(times)]


def thumbnail(data: bytes, kind: Kind, size: int = 256, span: Span | None = None) -> bytes:
    """One JPEG, by decoders that stay ready for the next call; raises ThumbnailError."""
    with _lock:
        thumbnails = _ready(size)
    ((_, shown),) = thumbnails.map([(0, data, kind)], {0: span} if span else {})
    if isinstance(shown, Problem):
        raise ThumbnailError(f"cannot be shown: {shown.message}")
    return shown


_lock = threading.Lock()  # a cached function may run twice when called twice at once


@functools.cache
def _ready(size: int) -> Thumbnails:
    thumbnails = Thumbnails(size)
    atexit.register(thumbnails.close)
    return thumbnails


def jpeg(decoded: "Decoded", frame: int) -> bytes:
    """One frame without its padding. Small images are shown enlarged to the same square."""
    from PIL import Image

    size = decoded.pixels.shape[1]
    scale = size / max(decoded.width, decoded.height)
    width, height = (max(1, round(edge * scale)) for edge in (decoded.width, decoded.height))
    left, top = (size - width) // 2, (size - height) // 2
    buffer = io.BytesIO()
    Image.fromarray(decoded.pixels[frame, top : top + height, left : left + width]).save(
        buffer, "JPEG", quality=QUALITY
    )
    return buffer.getvalue()
