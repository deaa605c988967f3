"""Look for a CPU mode faster than float32 that gives the same embeddings, and from how many samples on it pays.

Each mode runs in a child process, because some end it (an illegal instruction). Measured are the processor seconds of
the first batch (which compiles) and of a picture and a caption after it, on one thread, and the smallest cosine to
float32 of the embeddings of real photos and captions. A mode is useful from a cosine of 0.9999; it pays from the number
of samples on whose saving is larger than the cost of the start. MODEL is a model's folder [default: the small one].

    python -m tests.bench.cpu_encoding [--model MODEL] [MODE ...]
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from auditor.console import print_table
from tests.conftest import SHARED

RESULTS = Path("bench-results")
MODES = ("float32", "MKL", "float16", "bfloat16", "int8", "compiled")
BATCH, ROUNDS = 16, 3
SECONDS = 600  # for one mode


def load(spec: str, mode: str) -> Any:
    import torch

    from model import matrix_products
    from model.backbone import load_backbone

    torch.set_num_threads(1)
    backbone = load_backbone(spec)
    precision: Any = next((name for name in ("float16", "bfloat16") if name in mode.split()), "float32")
    backbone.set_precision(precision, compiled="compiled" in mode)
    backbone.precision.checked_samples.update(images=1 << 30, captions=1 << 30)  # the comparison is made here
    if mode == "int8":  # of pictures: open_clip's text tower asks its layers for their dtype
        linear = {torch.nn.Linear}
        backbone.model.visual = torch.ao.quantization.quantize_dynamic(backbone.model.visual, linear, dtype=torch.qint8)
    if mode in ("MKL", "int8"):
        matrix_products.is_mkl_slow = lambda: False  # type: ignore[assignment]
    return backbone


def measure_mode(spec: str, mode: str, out: str) -> None:
    """Run in a child process: write the embeddings, and the seconds, to files."""
    import numpy as np

    from model.pixels import DecodeLimits, decode_and_fit
    from tests.bench.pixels import mosaic, photos
    from tests.support.corpora import make_caption

    backbone = load(spec, mode)
    source = photos()
    files = [mosaic(source, 500, 375) for _ in range(2 * BATCH)]
    pixels = np.stack([decode_and_fit(data, backbone.pixels, DecodeLimits())[0] for data in files])
    captions = [make_caption(number) for number in range(2 * BATCH)]
    tasks = {
        "pictures": lambda rows: backbone.encode_images(pixels[rows]),
        "captions": lambda rows: backbone.encode_tokens(backbone.tokens(captions[rows]), by_length=False),
    }
    parts = slice(0, BATCH), slice(BATCH, None)
    seconds: dict[str, float] = {}
    for name, encode in tasks.items():
        started = read_seconds()
        vectors = [encode(rows).numpy() for rows in parts]
        seconds[f"start {name}"] = read_seconds() - started
        times = []
        for _ in range(ROUNDS):
            started = time.process_time()
            encode(parts[0])
            times.append(time.process_time() - started)
        seconds[name] = min(times) / BATCH
        np.save(f"{out}-{name}.npy", np.concatenate(vectors))
    Path(f"{out}.json").write_text(json.dumps(seconds))


def read_seconds() -> float:
    """Processor seconds of this process and of those it has waited for, such as compilers, to 10 ms."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def compare(spec: str, modes: list[str], folder: Path) -> list[dict[str, Any]]:
    import numpy as np

    rows: list[dict[str, Any]] = []
    base: dict[str, float] = {}
    exact: dict[str, Any] = {}
    for mode in modes:
        out = folder / mode.replace(" ", "-")
        command = [sys.executable, "-m", "tests.bench.cpu_encoding", "--child", spec, mode, str(out)]
        started = time.monotonic()
        try:
            child = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            rows.append({"mode": mode, "fails": f"no result within {SECONDS} s"})
            continue
        if child.returncode:
            last = (child.stderr.strip().splitlines() or [""])[-1][:90]
            rows.append({"mode": mode, "fails": f"exit {child.returncode} {last}"})
            continue
        seconds = json.loads(Path(f"{out}.json").read_text())
        vectors = {name: np.load(f"{out}-{name}.npy") for name in ("pictures", "captions")}
        base, exact = base or seconds, exact or vectors
        row: dict[str, Any] = {"mode": mode, "wall s": round(time.monotonic() - started)}
        for name in vectors:
            saved = base[name] - seconds[name]
            first = seconds[f"start {name}"] - 2 * BATCH * seconds[name]
            row |= {
                f"{name}/s": round(1 / seconds[name], 1),
                f"start {name}": round(first, 1),
                f"pays from {name}": round(first / saved) if saved > 0.02 * base[name] else None,
                f"cosine {name}": round(float((vectors[name] * exact[name]).sum(axis=1).min()), 6),
            }
        rows.append(row)
    return rows


def main() -> None:
    words = sys.argv[1:]
    if words[:1] == ["--child"]:
        measure_mode(*words[1:])
        return
    spec = f"local-dir:{SHARED / 'models/flickr8k-lite'}"
    if words[:1] == ["--model"]:
        spec, words = words[1], words[2:]
    RESULTS.mkdir(exist_ok=True)
    rows = compare(spec, ["float32", *words] if words else list(MODES), RESULTS)
    print_table(rows, f"processor seconds on one thread, {spec}")
    (RESULTS / "cpu_encoding.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
