"""Measure the cost of decoding a few frames of a video with each decoder, in a fresh process with one thread.

    python -m tests.bench.decoders            # 10 s and 60 s, 480p and 1080p; --long adds ten minutes
    python -m tests.bench.decoders --hostile  # results for damaged and strange files
    python -m tests.bench.decoders --one pyav clip.mp4

Prints CPU seconds, which depend little on the load of the machine. TorchCodec is measured if it is installed. `bare`
seeks to the key frame before each chosen frame and decodes every frame up to it: the cost without skipping frames.
"""

import argparse
import io
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np

from auditor.console import print_table
from model.video.frame_index import read_frame_index
from model.video.frame_plan import segment_centers
from model.video.frame_seek import SeekingDecoder
from model.video.video_decode import VideoSource, decode_frames, decode_with_decord, decode_with_pyav
from model.video.video_formats import read_video_header
from tests.conftest import SHARED
from tests.support.clips import concatenate_clips, make_clip

FRAMES, RATE, LOOP = 12, 25, 10
PATIENCE = 120  # seconds
SIZES = {"480p": (854, 480), "1080p": (1920, 1080)}
LENGTHS = {"10 s": 1, "60 s": 6, "10 min": 60}


def picture(width: int, height: int, number: int) -> Any:
    generator = np.random.default_rng(0)
    coarse = generator.integers(0, 256, (height // 16 + 40, width // 16 + 40, 3), dtype=np.uint8)
    wide = np.repeat(np.repeat(coarse, 16, axis=0), 16, axis=1)
    top, left = int(300 + 200 * np.sin(number / 40)), int(300 + 200 * np.cos(number / 55))
    return np.ascontiguousarray(wide[top : top + height, left : left + width])


def make(path: Path, size: tuple[int, int], loops: int) -> None:
    """Encode ten seconds of a moving texture once, and repeat them as often as needed."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream: Any = container.add_stream("libx264", rate=RATE, options={"preset": "veryfast", "crf": "26"})
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        for number in range(LOOP * RATE):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture(*size, number), format="rgb24")))
        container.mux(stream.encode(None))
    path.write_bytes(concatenate_clips([buffer.getvalue()] * loops))


def source(path: str) -> VideoSource:
    from model.pixels import DecodeLimits

    return VideoSource(path, Path(path).open("rb").read(16), read_video_header(path, DecodeLimits()), None)


def bare(path: str) -> int:
    """Seek to the key frame before each chosen frame and decode every frame up to it."""
    index = read_frame_index(path)
    with av.open(path) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        reach = SeekingDecoder(container, stream, index)
        reach.skips = False
        numbers = {index.pts[number]: number for number in segment_centers(len(index), FRAMES)}
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
    return len(decoder.get_frames_at(segment_centers(len(decoder), FRAMES)).data.numpy())


DECODERS: dict[str, Callable[[str], Any]] = {
    "pyav": lambda path: decode_with_pyav(source(path), FRAMES),
    "bare": bare,
    "decord": lambda path: decode_with_decord(source(path), FRAMES),
    "torchcodec": by_torchcodec,
}
USED = {"as used": lambda path: decode_frames(Path(path).read_bytes(), FRAMES)}  # PyAV, then decord if it is exact


def measure(name: str, path: str) -> dict[str, float]:
    """CPU seconds and peak memory in this process, with the libraries already loaded."""
    decode = (DECODERS | USED)[name]
    loaded = Path(path).with_name("tiny.mp4")
    if loaded.exists():
        decode(str(loaded))
    started = time.process_time()
    decode(path)
    seconds = time.process_time() - started
    return {"seconds": seconds, "megabytes": most_memory() / 1024}


def most_memory() -> int:
    """Peak memory in kilobytes. Not `ru_maxrss`, which a new process inherits from its parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def alone(name: str, path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.bench.decoders", "--one", name, str(path)]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", "")


def measured(name: str, path: Path) -> dict[str, float] | None:
    done = alone(name, path)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


def speed(lengths: dict[str, int]) -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder) / "tiny.mp4", (64, 48), 1)
        for size, shape in SIZES.items():
            for length, loops in lengths.items():
                path = Path(folder) / f"{size}-{loops}.mp4"
                make(path, shape, loops)
                found = {name: measured(name, path) for name in DECODERS}
                path.unlink()
                cost = {
                    name: f"{one['seconds']:.2f} s, {one['megabytes']:.0f} MB" if one else "-"
                    for name, one in found.items()
                }
                ours, least = found["pyav"], found["bare"]
                ratio = f"{ours['seconds'] / least['seconds']:.2f}" if ours and least else "-"
                rows.append({"clip": f"{size}, {length}", **cost, "pyav to bare": ratio})
    print_table(rows, f"{FRAMES} frames: CPU seconds and peak memory, with libraries already loaded")


def hostile_files(folder: Path) -> Iterator[Path]:
    """Generated damaged files, and those of ../shared if available."""
    whole, quick = make_clip("mp4"), make_clip("mp4", options={"movflags": "faststart"})
    made = {
        "empty.mp4": b"",
        "an error page.mp4": b"<!DOCTYPE html><html>404</html>",
        "noise after ftyp.mp4": whole[:32] + np.random.default_rng(0).bytes(20_000),
        "cut off, index lost.mp4": whole[: len(whole) // 2],
        "cut off, index first.mp4": quick[: len(quick) * 3 // 4],
        "cut off.mkv": (mkv := make_clip("mkv"))[: len(mkv) * 3 // 4],
        "zeros in the middle.mp4": quick[: len(quick) // 2] + bytes(600) + quick[len(quick) // 2 + 600 :],
        "a playlist.mp4": b"#EXTM3U\n#EXTINF:10,\nfile:///etc/passwd\n",
    }
    for name, data in made.items():
        (folder / name).write_bytes(data)
    there = (SHARED / "data/hostile").glob("odd__decord__*")
    yield from sorted([*folder.iterdir(), *there])


def behaviour(name: str, path: Path) -> str:
    done = alone(name, path)
    if done.returncode == 0:
        return "frames"
    if done.returncode == 124:
        return f"hangs for {PATIENCE} s"
    return f"killed by signal {-done.returncode}" if done.returncode < 0 else "error"


def hostile() -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            {"file": path.name.rpartition("__")[2], **{name: behaviour(name, path) for name in USED | DECODERS}}
            for path in hostile_files(Path(folder))
        ]
    print_table(rows, f"results for damaged and strange files, {FRAMES} frames requested")


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--one", nargs=2)
    arguments.add_argument("--long", action="store_true")
    arguments.add_argument("--hostile", action="store_true")
    chosen = arguments.parse_args()
    if chosen.one:
        print(json.dumps(measure(*chosen.one)))
        return
    if chosen.hostile:
        hostile()
    else:
        speed({name: loops for name, loops in LENGTHS.items() if loops < 60 or chosen.long})


if __name__ == "__main__":
    main()
