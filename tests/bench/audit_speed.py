"""Compare the speed of an audit with its limit: the same encoder in a bare loop over decoded batches.

Both run in this process, in turns, with the same threads and photos. The second part sweeps 1,000 and 100,000 small
samples with a tiny model, each in its own process, and prints the peak memory of both.

    python -m tests.bench.audit_speed
"""

import json
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from auditor.audit_folder.folder import Folder
from auditor.console import print_table
from auditor.corpus.open_corpus import open_corpus
from auditor.sweep.sweep import Sweeper
from auditor.sweep.sweep_config import SweepConfig
from model.backbone import Backbone, load_backbone
from model.pixels import decode_image, fit_image
from tests.conftest import SHARED
from tests.support.corpora import make_caption, make_picture, write_random_model, write_tar

RESULTS = Path("bench-results")
PHOTOS = 256
ROUNDS = 3


def photos(folder: Path) -> list[tuple[str, bytes, str]]:
    """Real Flickr8k photos with one caption each if available, else generated ones of that size."""
    real = SHARED / "data/flickr8k/val-00000.tar"
    found = []
    if real.is_file():
        with tarfile.open(real) as tar:
            members = {m.name: m for m in tar if m.isfile()}
            for name in [n for n in members if n.endswith(".jpg")][:PHOTOS]:
                data = tar.extractfile(members[name])
                text = tar.extractfile(members[name.replace(".jpg", ".txt")])
                assert data is not None and text is not None
                found.append((name.removesuffix(".jpg"), data.read(), text.read().decode().splitlines()[0]))
    return found or [(f"{i:04d}", make_picture(i, (340, 256)), make_caption(i)) for i in range(PHOTOS)]


def bare_loop(backbone: Backbone, pixels: np.ndarray, captions: list[str], batch: int) -> float:  # type: ignore[type-arg]
    """Seconds to encode decoded batches: the limit."""
    started = time.perf_counter()
    for start in range(0, len(pixels), batch):
        backbone.encode_images(pixels[start : start + batch])
    order = sorted(range(len(captions)), key=lambda i: len(captions[i]))
    backbone.encode_texts([captions[i] for i in order])
    return time.perf_counter() - started


def audited(backbone: Backbone, corpus: Path, config: SweepConfig) -> float:
    """Seconds from tar to embeddings on disk."""
    with tempfile.TemporaryDirectory() as out:
        shards = open_corpus(str(corpus)).shards
        with Sweeper(backbone, Folder(out), config) as sweeper:
            list(sweeper.pool.map([(None, make_picture(0), "image")]))  # the decoders are running, as in a long run
            started = time.perf_counter()
            reports = list(sweeper.sweep(shards))
            seconds = time.perf_counter() - started
    assert sum(report.status["ok"] for report in reports) == PHOTOS
    return seconds


def speed() -> dict[str, float]:
    backbone = load_backbone("ViT-B-32")  # random weights: the same computation as with pretrained ones
    config = SweepConfig(batch_size=32, decoders=2)
    with tempfile.TemporaryDirectory() as place:
        samples = photos(Path(place))
        half = len(samples) // 2
        for number, part in enumerate((samples[:half], samples[half:])):
            write_tar(
                Path(place) / f"{number}.tar", ((key, {"jpg": data, "txt": text.encode()}) for key, data, text in part)
            )
        pixels = np.stack([fit_image(backbone.pixels, decode_image(data)) for _, data, _ in samples])
        captions = [text for _, _, text in samples]
        bare_loop(backbone, pixels[:64], captions[:64], 32)  # warm
        limits, audits = [], []
        for _ in range(ROUNDS):
            limits.append(bare_loop(backbone, pixels, captions, config.batch_size))
            audits.append(audited(backbone, Path(place), config))
    limit, audit = PHOTOS / float(np.median(limits)), PHOTOS / float(np.median(audits))
    return {"limit_pairs_per_s": limit, "audit_pairs_per_s": audit, "ratio": audit / limit}


def memory_of(samples: int) -> dict[str, float]:
    """Peak resident memory of a process that sweeps this many samples."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.audit_speed", "--memory", str(samples)],
        capture_output=True,
        text=True,
        check=True,
    )
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def sweep_many(samples: int) -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        backbone = load_backbone(write_random_model(root / "model"))
        small = [make_picture(i, (32, 32)) for i in range(100)]
        for shard in range(samples // 1000):
            keys = range(shard * 1000, (shard + 1) * 1000)
            write_tar(
                root / f"c/{shard:05d}.tar",
                ((f"{i:07d}", {"jpg": small[i % 100], "txt": make_caption(i).encode()}) for i in keys),
            )
        started = time.perf_counter()
        with Sweeper(backbone, Folder(root / "out"), SweepConfig(batch_size=64, decoders=2)) as sweeper:
            rows = sum(report.rows for report in sweeper.sweep(open_corpus(str(root / "c")).shards))
        assert rows == samples
        peak = peak_mib()
        print(json.dumps({"samples": samples, "peak_rss_mib": peak, "seconds": time.perf_counter() - started}))


def peak_mib() -> float:
    """Peak resident memory of this process alone; ru_maxrss would include the parent it was forked from."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main() -> None:
    if "--memory" in sys.argv:
        sweep_many(int(sys.argv[sys.argv.index("--memory") + 1]))
        return
    measured = speed()
    print_table([measured], "ViT-B-32, real photos, this machine's threads")
    memory = [memory_of(1_000), memory_of(100_000)]
    print_table(memory, "memory of a sweep with a tiny model")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "audit_speed.json").write_text(json.dumps({"speed": measured, "memory": memory}, indent=1))


if __name__ == "__main__":
    main()
