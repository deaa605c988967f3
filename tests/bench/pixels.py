"""Measure how many images a core decodes and fits, by size: Pillow (exact pixels), ours, and bare torchvision.

Prints processor time of this process on one thread, the three in turns. Then the cosine of the embeddings to the exact
ones (by the small real model, if available), and how many images per second all cores deliver to an encoder that costs
nothing, by wall time and by processor time (which depends less on the load of the machine).

    python -m tests.bench.pixels [rates] [cosines] [fed]
"""

import io
import json
import os
import sys
import tarfile
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from auditor.audit_folder.folder import Folder
from auditor.console import print_table
from auditor.corpus.open_corpus import open_corpus
from auditor.sweep.languages import detect_language
from auditor.sweep.sweep import Sweeper
from auditor.sweep.sweep_config import SweepConfig
from model import fast_pixels, pixels
from model.backbone import Backbone, load_backbone
from model.pixels import DecodeLimits, PixelSpec
from tests.conftest import SHARED
from tests.support.corpora import make_caption, make_picture, write_random_model, write_tar

RESULTS = Path("bench-results")
SIZES = {(500, 375): 48, (1024, 768): 24, (2048, 1536): 8, (3264, 2448): 4}  # images of each
ROUNDS = 5
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


def fed(exact_pixels: bool, size: tuple[int, int], count: int = 600) -> dict[str, object]:
    """Images per second from tar files to an encoder that costs nothing, on all cores of this machine."""
    source = photos()
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        made = load_backbone(write_random_model(root / "model"))
        backbone = Instant(made.spec, made.model, made.tokenizer, SPEC, made.config, pretrained=True)
        some = [mosaic(source, *size) for _ in range(12)]
        rows = ((f"{i:05d}", {"jpg": some[i % 12], "txt": make_caption(i).encode()}) for i in range(count))
        write_tar(root / "c/0.tar", rows)
        with Sweeper(backbone, Folder(root / "out"), SweepConfig(exact_pixels=exact_pixels, batch_size=256)) as sweeper:
            list(sweeper.pool.map([(None, some[0], "image")] * 8))
            detect_language("a detector that is loaded once, however many captions there are")
            pids = sweeper.pool.pids
            started, used = time.perf_counter(), processor_seconds(pids)
            (report,) = sweeper.sweep(open_corpus(str(root / "c")).shards)
            seconds, used = time.perf_counter() - started, processor_seconds(pids) - used
        assert report.status == {"ok": count}
    return {
        "pixels": "exact" if exact_pixels else "fast",
        "size": f"{size[0]}x{size[1]}",
        "images_per_s": round(count / seconds),
        "ms_of_processor": round(1000 * used / count, 2),
        "by_processor_time": round((os.cpu_count() or 1) * count / used),
    }


def main() -> None:
    warnings.simplefilter("ignore")  # torchvision's decoders are deprecated, but serve as a comparison
    torch.set_num_threads(1)
    asked = sys.argv[1:] or ["rates", "cosines", "fed"]
    found: dict[str, list[dict[str, object]]] = {}
    if "rates" in asked:
        found["rates"] = rates()
        print_table(found["rates"], "images per second and core, decoded and fitted to 224")
    if "cosines" in asked:
        found["cosines"] = cosines()
        print_table(found["cosines"], "embeddings of fast pixels against exact ones")
    if "fed" in asked:
        found["fed"] = [fed(way, size) for size in ((500, 375), (1024, 768)) for way in (True, False)]
        print_table(found["fed"], "images per second delivered to an encoder that costs nothing, two decoders")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "pixels.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
