"""Measure how many images a core decodes and fits, by size: Pillow (exact pixels), ours, and bare torchvision.

Prints processor time of this process on one thread, the three in turns. Then the cosine of the embeddings to the exact
ones (by the small real model, if available), and how many images per second all cores deliver to an encoder that costs
nothing, by wall time and by processor time (which depends less on the load of the machine), from tar, folder and S3.
`decoder` measures one decoder process beside bare decoding.
`slept` replaces decoding by sleeping: what one reading process delivers if decoding takes none of its processor.

    python -m tests.bench.pixels [rates] [cosines] [fed] [decoder] [slept]
"""

import io
import itertools
import json
import os
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest.mock import patch

import boto3
import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from auditor.audit_folder.folder import Folder
from auditor.console import print_table
from auditor.corpus.open_corpus import open_corpus
from auditor.sweep.sweep import Sweeper
from auditor.sweep.sweep_config import SweepConfig
from auditor.workers import fork_server
from auditor.workers.decoder_pool import DecoderPool
from model import fast_pixels, pixels
from model.backbone import Backbone, load_backbone
from model.pixels import DecodeLimits, PixelSpec
from tests.bench.sleeping_decoders import SLEEP, serve_sleepers
from tests.conftest import SHARED
from tests.support.corpora import make_caption, make_picture, write_random_model, write_tar

RESULTS = Path("bench-results")
SIZES = {(500, 375): 48, (1024, 768): 24, (2048, 1536): 8, (3264, 2448): 4}  # images of each
ROUNDS, PER_TAR = 5, 2_000
SPEC = PixelSpec()
Decode = Callable[[bytes], npt.NDArray[np.uint8]]


def photos() -> Iterator[Image.Image]:
    """Real Flickr8k photos, repeated, if available, else generated ones."""
    real = SHARED / "data/flickr8k/val-00000.tar"
    while True:
        if real.is_file():
            with tarfile.open(real) as tar:
                for member in tar:
                    file = tar.extractfile(member) if member.name.endswith(".jpg") else None
                    if file is not None:
                        yield Image.open(io.BytesIO(file.read()))
        else:
            yield from (Image.open(io.BytesIO(make_picture(i, (340, 256)))) for i in range(256))


def mosaic(source: Iterator[Image.Image], width: int, height: int) -> bytes:
    """A JPEG of any size with the detail of real photos, which are tiled at their own size."""
    canvas = Image.new("RGB", (width, height))
    top = 0
    while top < height:
        left = 0
        while left < width:
            photo = next(source)
            canvas.paste(photo, (left, top))
            left += photo.width
        top += 200
    buffer = io.BytesIO()
    canvas.save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def exact(data: bytes) -> npt.NDArray[np.uint8]:
    return pixels.decode_and_fit(data, SPEC, DecodeLimits())[0]


def ours(data: bytes) -> npt.NDArray[np.uint8]:
    return fast_pixels.decode_and_fit(data, SPEC, DecodeLimits())[0]


def bare_torchvision(data: bytes) -> npt.NDArray[np.uint8]:
    """torchvision without checks, orientation and unusual modes: the minimum that gives such pixels."""
    from torchvision.io import decode_jpeg
    from torchvision.transforms.v2 import functional

    decoded = decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8))
    fitted = functional.center_crop(functional.resize(decoded, [224], interpolation=3, antialias=True), [224, 224])
    return fitted.permute(1, 2, 0).contiguous().numpy()  # type: ignore[no-any-return]


def decode_alone(data: bytes) -> npt.NDArray[np.uint8]:
    """Only libjpeg-turbo at full size: the lower limit of any exact method."""
    from simplejpeg import decode_jpeg

    return decode_jpeg(data)  # type: ignore[no-any-return]


WAYS: dict[str, Decode] = {
    "pillow": exact,
    "ours": ours,
    "torchvision": bare_torchvision,
    "decode_alone": decode_alone,
}


def rates() -> list[dict[str, object]]:
    source = photos()
    rows: list[dict[str, object]] = []
    for (width, height), count in SIZES.items():
        files = [mosaic(source, width, height) for _ in range(count)]
        best = {name: float("inf") for name in WAYS}
        for _ in range(ROUNDS):
            for name, decode in WAYS.items():
                started = time.process_time()
                for data in files:
                    decode(data)
                best[name] = min(best[name], time.process_time() - started)
        levels = np.mean([np.abs(exact(data).astype(int) - ours(data)).mean() for data in files[:4]])
        row = {name: round(count / seconds) for name, seconds in best.items()}
        rows.append(
            {
                "size": f"{width}x{height}",
                "kilobytes": round(np.mean([len(data) for data in files]) / 1000),
                **row,
                "ours_to_pillow": round(best["pillow"] / best["ours"], 2),
                "grey_levels_off": round(float(levels), 4),
            }
        )
    return rows


def cosines() -> list[dict[str, object]]:
    """The smallest cosine between embeddings of exact and of fast pixels."""
    model = SHARED / "models/flickr8k-lite"
    if not model.is_dir():
        return []
    backbone = load_backbone(f"local-dir:{model}")
    source = photos()
    rows: list[dict[str, object]] = []
    for size in ((1024, 768), (2048, 1638), (3264, 2448)):
        files = [mosaic(source, *size) for _ in range(16)]
        slow, fast = (
            torch.cat(
                [backbone.encode_images(way(data, backbone.pixels, DecodeLimits())[0][None].copy()) for data in files]
            )
            for way in (pixels.decode_and_fit, fast_pixels.decode_and_fit)
        )
        found = (slow * fast).sum(dim=1)
        rows.append(
            {
                "size": f"{size[0]}x{size[1]}",
                "decoded_at_1_to": fast_pixels.choose_reduction(backbone.pixels, size),
                "least_cosine": float(found.min()),
                "mean_cosine": float(found.mean()),
            }
        )
    return rows


class Instant(Backbone):
    """An encoder that finishes a batch at once, almost like a fast GPU."""

    def encode_images(self, pixels: npt.NDArray[np.uint8] | Tensor) -> Tensor:
        return torch.ones(len(pixels), self.dim)

    def encode_tokens(self, tokens: Tensor, batch: int = 256, *, by_length: bool = True) -> Tensor:
        return torch.ones(len(tokens), self.dim)


def processor_seconds(pids: list[int]) -> float:
    """Processor seconds of this process and others."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def make_corpus(root: Path, form: str, size: tuple[int, int], count: int) -> str:
    """Write a corpus of twelve pictures again and again; return its path or URL."""
    source = photos()
    some = [mosaic(source, *size) for _ in range(12)]
    rows = ((f"{i:05d}", {"jpg": some[i % 12], "txt": make_caption(i).encode()}) for i in range(count))
    root.mkdir()
    if form == "folder":
        for key, files in rows:
            for extension, data in files.items():
                (root / f"{key}.{extension}").write_bytes(data)
        return str(root)
    if form == "tar":
        while batch := list(itertools.islice(rows, PER_TAR)):
            write_tar(root / f"{batch[0][0]}.tar", batch)
        return str(root)
    path = write_tar(root / "0.tar", rows)
    client = boto3.client("s3")
    client.create_bucket(Bucket="bench")
    client.upload_file(str(path), "bench", f"{root.parent.name}/0.tar")
    return f"s3://bench/{root.parent.name}"


@contextmanager
def s3_server() -> Iterator[None]:
    """moto in a process of its own, whose processor time does not count."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    keys = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1"}
    os.environ.update(keys, AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}")
    command = [sys.executable, "-m", "moto.server", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        yield
    finally:
        server.kill()
        server.wait()


def sweep_corpus(root: Path, corpus: str, config: SweepConfig, count: int) -> tuple[float, float]:
    """Wall and processor seconds of a sweep in running processes, in which everything is imported."""
    made = load_backbone(write_random_model(root / "model"))
    backbone = Instant(made.spec, made.model, made.tokenizer, SPEC, made.config, pretrained=True)
    few = make_corpus(root / "few", "tar", (500, 375), 64)
    # A file that has just been written is hashed again after it is read; those of a real corpus are older.
    settled = patch("auditor.corpus.corpus_files.SETTLED_SECONDS", 0.0)
    with settled, Sweeper(backbone, Folder(root / "out"), config) as sweeper:
        list(sweeper.pool.map((None, make_picture(0), "image") for _ in range(8 * config.decoders)))
        list(sweeper.sweep(open_corpus(few).shards))
        sweeper.folder = Folder(root / "audit")
        pids = sweeper.pool.pids
        started, used = time.perf_counter(), processor_seconds(pids)
        reports = list(sweeper.sweep(open_corpus(corpus).shards))
        seconds, used = time.perf_counter() - started, processor_seconds(pids) - used
    assert sum(report.status.get("ok", 0) for report in reports) == count
    return seconds, used


def fed(
    exact_pixels: bool, size: tuple[int, int], form: str = "tar", count: int = 4000, decoders: int = 2
) -> dict[str, object]:
    """Images per second from a corpus to an encoder that costs nothing, on all cores of this machine."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        corpus = make_corpus(root / "corpus", form, size, count)
        config = SweepConfig(exact_pixels=exact_pixels, batch_size=256, decoders=decoders)
        seconds, used = sweep_corpus(root, corpus, config, count)
    return {
        "pixels": "exact" if exact_pixels else "fast",
        "size": f"{size[0]}x{size[1]}",
        "from": form,
        "decoders": decoders,
        "images_per_s": round(count / seconds),
        "ms_of_processor": round(1000 * used / count, 2),
        "by_processor_time": round((os.cpu_count() or 1) * count / used),
    }


def decoder_costs(size: tuple[int, int], count: int) -> dict[str, object]:
    """Processor milliseconds per picture of a decoder process and of decoding here, in turns: the least of each."""
    source = photos()
    files = list(itertools.islice(itertools.cycle([mosaic(source, *size) for _ in range(24)]), count))
    best: dict[str, float] = {}
    with DecoderPool(SPEC, workers=1, exact=False, measure=True) as pool:
        for turn in range(ROUNDS + 1):
            before = [run_seconds(pid) for pid in pool.pids]
            list(pool.map((None, data, "image") for data in files))
            seconds = {"decoder": sum(run_seconds(pid) for pid in pool.pids) - sum(before)}
            for name, decode in {"ours": ours, "bare": bare_torchvision, "alone": decode_alone}.items():
                started = time.thread_time()
                for data in files:
                    decode(data)
                seconds[name] = time.thread_time() - started
            if turn:  # the first one imports
                best = {name: min(best.get(name, value), value) for name, value in seconds.items()}
    row = {name: round(1000 * value / count, 3) for name, value in best.items()}
    return {"size": f"{size[0]}x{size[1]}", **row, "bare_to_decoder": round(best["bare"] / best["decoder"], 2)}


def run_seconds(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def slept(decoders: int, seconds: float = SLEEP, most: int = 24_000) -> dict[str, object]:
    """Images per second through one reading process from decoders that sleep instead of decoding.

    It takes eight seconds or longer: the first tar is opened and the last piece is written while no decoder works.
    """
    count = min(most, int(8 * decoders / seconds))
    fork_server.FORK_SERVER.close()
    with tempfile.TemporaryDirectory() as place, patch.object(fork_server, "serve_fork_requests", serve_sleepers):
        root = Path(place)
        corpus = make_corpus(root / "corpus", "tar", (500, 375), count)
        taken, used = sweep_corpus(root, corpus, SweepConfig(batch_size=256, decoders=decoders), count)
    fork_server.FORK_SERVER.close()
    limit = decoders / seconds
    return {
        "decoders": decoders,
        "images_per_s": round(count / taken),
        "limit": round(limit),
        "share": round(count / taken / limit, 3),
        "ms_of_processor": round(1000 * used / count, 3),
    }


def main() -> None:
    warnings.simplefilter("ignore")  # torchvision's decoders are deprecated, but serve as a comparison
    torch.set_num_threads(1)
    asked = sys.argv[1:] or ["rates", "cosines", "fed", "decoder", "slept"]
    found: dict[str, list[dict[str, object]]] = {}
    if "rates" in asked:
        found["rates"] = rates()
        print_table(found["rates"], "images per second and core, decoded and fitted to 224")
    if "cosines" in asked:
        found["cosines"] = cosines()
        print_table(found["cosines"], "embeddings of fast pixels against exact ones")
    if "fed" in asked:
        found["fed"] = [fed(False, (500, 375), form) for form in ("tar", "folder")]
        found["fed"].append(fed(False, (500, 375), decoders=1))
        with s3_server():
            found["fed"].append(fed(False, (500, 375), "s3"))
        found["fed"] += [fed(True, (500, 375), count=1000), fed(False, (1024, 768), count=600)]
        found["fed"].append(fed(False, (2048, 1536), count=200))
        print_table(found["fed"], "images per second delivered to an encoder that costs nothing")
    if "decoder" in asked:
        found["decoder"] = [decoder_costs((500, 375), 400), decoder_costs((1024, 768), 96)]
        found["decoder"].append(decoder_costs((2048, 1536), 24))
        print_table(found["decoder"], "processor ms per picture of a decoder process and of bare decoding")
    if "slept" in asked:
        found["slept"] = [slept(decoders) for decoders in (1, 2, 8, 32)]
        print_table(found["slept"], f"images per second from decoders that sleep {1000 * SLEEP:g} ms for each")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "pixels.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
