"""One minute on a machine with a GPU: does encoding on it work, and is it kept busy? Prints what to report.

    python jobs/gpu_smoke.py                                  # ViT-B-32 with random weights: nothing is downloaded
    python jobs/gpu_smoke.py --device cpu                     # the same path with a tiny model, to try the script

Synthetic photos go from a tar through decoders and encoder into Parquet, as in an audit. The GPU is busy for the share
of the time that the same batches take when nothing but the encoder runs.
"""

import io
import json
import os
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout works without being installed

from auditor.cli import run_command_line
from auditor.cores import count_cores
from auditor.errors import AuditorError
from auditor.terminal import print_line

BATCHES = 8  # that the encoder alone is measured with
TINY = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "patch_size": 16, "head_width": 16},
    "text_cfg": {"context_length": 24, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
}


def make_photos(count: int) -> Iterator[tuple[str, bytes]]:
    """Yield members of a tar: the same twelve noisy JPEGs of 500 x 375 again and again, each with its own caption."""
    import numpy as np
    from PIL import Image

    generator = np.random.default_rng(0)
    files = []
    for _ in range(12):
        coarse = Image.fromarray(generator.integers(0, 255, (9, 12, 3), dtype=np.uint8)).resize((500, 375))
        noise = generator.normal(0, 12, (375, 500, 3))
        buffer = io.BytesIO()
        Image.fromarray(np.clip(np.asarray(coarse) + noise, 0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=90)
        files.append(buffer.getvalue())
    for number in range(count):
        yield f"{number:06d}.jpg", files[number % len(files)]
        yield f"{number:06d}.txt", f"photo {number} of a street with {number % 7} cars".encode()


def write_photos(path: Path, count: int) -> None:
    with tarfile.open(path, "w") as tar:
        for name, data in make_photos(count):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def load_tiny_model(folder: Path) -> Any:
    """Load a model of open_clip's form with random weights that any machine encodes at once."""
    from safetensors.torch import save_file

    from model.backbone import load_backbone
    from model.clip_import import open_clip

    folder.mkdir()
    save_file(open_clip.model.CLIP(**TINY).state_dict(), folder / "open_clip_model.safetensors")
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": TINY, "preprocess_cfg": {"size": 32}}))
    return load_backbone(f"local-dir:{folder}")


def measure_encoder(backbone: Any, batch_size: int) -> float:
    """Return the pictures per second of the encoder alone, from pinned memory; the first batches do not count."""
    from model.encoding.device_calls import download

    batch = backbone.device_calls.allocate((batch_size, *backbone.pixels.size, 3))
    batch.random_(0, 256)
    for count in (2, BATCHES):
        started = time.perf_counter()
        download([backbone.encode_frames(batch) for _ in range(count)], backbone.dim)
    return BATCHES * batch_size / (time.perf_counter() - started)


def measure_sweep(backbone: Any, root: Path, config: Any, photos: int) -> float:
    """Return the samples per second from tar to Parquet, after a first tar with which everything starts."""
    from auditor.audit_folder.folder import Folder
    from auditor.corpus.tar_shard import TarShard
    from auditor.sweep.sweep import Sweeper

    seconds = 0.0
    with Sweeper(backbone, Folder(root / "audit"), config) as sweeper:
        for name, count in (("start", 8 * config.decoders), ("photos", photos)):
            write_photos(root / f"{name}.tar", count)
            started = time.perf_counter()
            (report,) = sweeper.sweep([TarShard(name, str(root / f"{name}.tar"))])
            seconds = time.perf_counter() - started
            if report.status != {"ok": count}:
                raise AuditorError(f"{count} photos gave {report.failure or report.status}")
    return photos / seconds


def run_smoke_test(device: str, photos: int, batch_size: int, decoders: int, precision: str) -> dict[str, object]:
    import torch

    from auditor.sweep.sweep_config import SweepConfig
    from model.backbone import load_backbone
    from model.precision import resolve_precision

    on_gpu = device.startswith("cuda")
    chosen = resolve_precision(precision, device)
    config = SweepConfig(batch_size=batch_size, decoders=decoders, precision=chosen)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        backbone = load_backbone("ViT-B-32", device) if on_gpu else load_tiny_model(root / "model")
        rate = measure_sweep(backbone, root, config, photos)
        cosines = {tower: round(cosine, 5) for tower, cosine in backbone.precision.least_cosines.items()}
        alone = measure_encoder(backbone, batch_size)
    memory = torch.cuda.max_memory_allocated(device) / 2**20 if on_gpu else 0.0
    return {
        "device": torch.cuda.get_device_name(device) if on_gpu else "cpu",
        "torch": torch.__version__,
        "cuda": torch.version.cuda if on_gpu else None,
        "cores": os.cpu_count(),
        "decoders": decoders,
        "precision": chosen,
        "least cosine to float32": cosines or "exact",
        "samples/s from tar to Parquet": round(rate),
        "pictures/s of the encoder alone": round(alone),
        "utilization of the encoder": f"{min(1.0, rate / alone):.0%}",
        "peak memory of the GPU in MiB": round(memory),
    }


@click.command()
@click.option("--device", default="cuda", show_default=True, help="Device to test, such as cuda:1; cpu: a tiny model.")
@click.option("--photos", default=20_000, show_default=True, help="Number of synthetic photos.")
@click.option("--batch-size", default=256, show_default=True, help="Number of photos encoded at once.")
@click.option("--decoders", type=int, default=count_cores, help="Decoder processes [default: cores].")
@click.option("--precision", default="auto", show_default=True, help="auto, float32, bfloat16 or float16.")
def command(device: str, photos: int, batch_size: int, decoders: int, precision: str) -> None:
    """Encode synthetic photos on a GPU for a minute and print what to report.

    \b
    python jobs/gpu_smoke.py
    """
    import torch

    if device.startswith("cuda") and not torch.cuda.is_available():
        raise AuditorError("torch sees no GPU on this machine; --device cpu runs the same path with a tiny model")
    for name, value in run_smoke_test(device, photos, batch_size, decoders, precision).items():
        print_line(f"{name}: {value}")


if __name__ == "__main__":
    sys.exit(run_command_line(command=command))
