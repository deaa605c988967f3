"""Decode three hours of video with up to 2,000 timed captions: memory of decoder and reader, frames decoded twice.

    python -m tests.bench.long_video

The frames are those of an audit (12 of each span, one every 2 seconds around); they are discarded.
"""

import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

from auditor.console import print_table
from auditor.corpus.sample import Span
from auditor.workers.decoder_pool import Decoded, DecoderPool, PixelSpec, SpanStream
from tests.support.clips import concatenate_clips, make_numbered_clip

RATE, MINUTE, SECONDS = 10, 600, 3 * 3600


def three_hours() -> bytes:
    """One minute of video, repeated 180 times."""
    return concatenate_clips([make_numbered_clip("h264", "mp4", MINUTE, gop=50, rate=RATE)] * (SECONDS // 60))


def resident(pid: int | str, what: str = "VmHWM") -> int:
    """Megabytes; VmHWM is the peak."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(what)).split()[1]) // 1024


def measure(data: bytes, captions: int) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    starts = np.sort(generator.uniform(0, SECONDS - 10, captions))
    spans = [
        Span(float(start), float(start + length))
        for start, length in zip(starts, generator.uniform(2, 9, captions), strict=True)
    ]
    with DecoderPool(PixelSpec(), frames=12, workers=1) as pool:
        began = time.monotonic()
        ((_, stream),) = pool.map([(0, SpanStream(data, spans, context=30.0), "video")])
        assert isinstance(stream, SpanStream)
        came = sum(len(part) for part in stream)
        result = stream.result()
        assert isinstance(result, Decoded) and result.times is not None and result.span_frames is not None
        wanted = sum(len(places) for places in result.span_frames.by_span if not isinstance(places, str))
        return {
            "captions": captions,
            "frames of spans": wanted,
            "frames decoded and sent": came,
            "twice": came - len(set(result.times)),
            "decoder, most MB": resident(pool.pids[0]),
            "reader, most MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            "seconds": round(time.monotonic() - began, 1),
        }


def main() -> None:
    data = three_hours()
    print_table([measure(data, captions) for captions in (20, 200, 2000)], f"three hours, {len(data) / 2**20:.0f} MB")


if __name__ == "__main__":
    main()
