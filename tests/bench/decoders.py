"""Cost of a few frames of a video by each decoder, each in a fresh process on one thread.

    python -m tests.bench.decoders            # 10 s and 60 s, 480p and 1080p; --long adds ten minutes
    python -m tests.bench.decoders --one pyav clip.mp4

CPU seconds, so that a busy machine does not matter much. TorchCodec is measured where it can be imported. `bare` seeks
to the key frame before each wanted frame and decodes up to it, every frame: what a decoder that skips nothing must do.
"""

import argparse
import io
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np

from auditor.console import table
from model.video.decode import Source, by_decord, by_pyav
from model.video.formats import read_header
from model.video.index import read_index
from model.video.plan import centres
from model.video.seek import Reach
from tests.support.clips import joined

FRAMES, RATE, LOOP = 12, 25, 10
SIZES = {"480p": (854, 480), "1080p": (1920, 1080)}
LENGTHS = {"10 s": 1, "60 s": 6, "10 min": 60}


def picture(width: int, height: int, number: int) -> Any:
    generator = np.random.default_rng(0)
    coarse = generator.integers(0, 256, (height // 16 + 40, width // 16 + 40, 3), dtype=np.uint8)
    wide = np.repeat(np.repeat(coarse, 16, axis=0), 16, axis=1)
    top, left = int(300 + 200 * np.sin(number / 40)), int(300 + 200 * np.cos(number / 55))
    return np.ascontiguousarray(wide[top : top + height, left : left + width])


def make(path: Path, size: tuple[int, int], loops: int) -> None:
    """Ten seconds of a moving texture, encoded once and joined as often as needed."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream: Any = container.add_stream("libx264", rate=RATE, options={"preset": "veryfast", "crf": "26"})
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        for number in range(LOOP * RATE):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture(*size, number), format="rgb24")))
        container.mux(stream.encode(None))
    path.write_bytes(joined([buffer.getvalue()] * loops))


def source(path: str) -> Source:
    from model.pixels import Limits

    return Source(path, Path(path).open("rb").read(16), read_header(path, Limits()), None)


def bare(path: str) -> int:
    """Seek to the key frame of each wanted frame and decode every frame up to it."""
    index = read_index(path)
    with av.open(path) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        reach = Reach(container, stream, index)
        reach.skips = False
        numbers = {index.pts[number]: number for number in centres(len(index), FRAMES)}
        wanted = sorted(numbers.values())
        return sum(
            1
            for number in wanted
            for _, frame in reach.decode_to(number, numbers)
            if frame.to_ndarray(format="rgb24").size
        )


def by_torchcodec(path: str) -> int:
    import torch
    from torchcodec.decoders import VideoDecoder

    torch.set_num_threads(1)
    decoder = VideoDecoder(path, num_ffmpeg_threads=1, dimension_order="NHWC")
    return len(decoder.get_frames_at(centres(len(decoder), FRAMES)).data.numpy())


DECODERS: dict[str, Callable[[str], Any]] = {
    "pyav": lambda path: by_pyav(source(path), FRAMES),
    "bare": bare,
    "decord": lambda path: by_decord(source(path), FRAMES),
    "torchcodec": by_torchcodec,
}


def measure(name: str, path: str) -> dict[str, float]:
    """CPU seconds and most memory, in this process; the libraries are loaded by a first run on a tiny clip."""
    started = time.process_time()
    DECODERS[name](path)
    seconds = time.process_time() - started
    return {"seconds": seconds, "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def measured(name: str, path: Path) -> dict[str, float] | None:
    command = [sys.executable, "-m", "tests.bench.decoders", "--one", name, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--one", nargs=2)
    arguments.add_argument("--long", action="store_true")
    chosen = arguments.parse_args()
    if chosen.one:
        print(json.dumps(measure(*chosen.one)))
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for size, shape in SIZES.items():
            for length, loops in LENGTHS.items():
                if loops == 60 and not chosen.long:
                    continue
                path = Path(folder) / f"{size}-{loops}.mp4"
                make(path, shape, loops)
                found = {name: measured(name, path) for name in DECODERS}
                cost = {
                    name: f"{one['seconds']:.2f} s, {one['megabytes']:.0f} MB" if one else "-"
                    for name, one in found.items()
                }
                rows.append({"clip": f"{size}, {length}", **cost})
    table(rows, f"{FRAMES} frames: CPU seconds (the import of the library among them) and most memory")


if __name__ == "__main__":
    main()
