"""Compare this auditor with clip-retrieval and data-juicer: the same photos, ViT-B/32 and random weights.

Installs each peer into its own environment (bench-results/peers; several GB, once), makes a corpus of 300 real photos
of which five are broken, runs each tool on two cores, and runs it again until kill -9 halfway.

    python -m tests.bench.peers [PHOTOS]
"""

import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from auditor.console import print_table
from tests.bench.peer_model import write_models
from tests.conftest import SHARED
from tests.support.corpora import write_tar

RESULTS = Path("bench-results")
PLACE = (RESULTS / "peers").resolve()
# Steps of an installation. The second adds requirements that the packages do not declare, or contradict.
PEERS = {
    "clip-retrieval": [["clip-retrieval==2.45.0"], ["setuptools<70"]],
    "data-juicer": [["py-data-juicer==1.6.1", "torch", "torchvision", "transformers"], ["aiohttp"]],
}
PHOTOS, SHARDS = 300, 10
LONGEST = 3600.0
BROKEN: list[Callable[[bytes], bytes]] = [
    lambda data: b"",
    lambda data: data[: len(data) // 3],
    lambda data: b"<html>not found</html>",
    lambda data: data[:2] + bytes(len(data)),
    lambda data: b"\x89PNG\r\n\x1a\n" + data[:100],
]


@dataclass(frozen=True)
class Tool:
    name: str
    command: Callable[[Path], list[str]]  # by the folder of its output
    keys: Callable[[Path], int]  # number of inputs in its output, with a result or a reason


def environment(name: str) -> Path:
    """The programs of a peer, which is installed if it is missing."""
    place = PLACE / name
    if not (place / "done").exists():
        print(f"installing {name} into {place}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        for packages in PEERS[name]:
            subprocess.run([place / "bin/pip", "install", "--quiet", *packages], check=True)
        (place / "done").touch()
    return place / "bin"


def photos(count: int) -> Iterator[tuple[str, bytes, str]]:
    """Key, file and caption of real photos, five of them broken."""
    number = 0
    for name in ("val-00000", "train-00000"):
        with tarfile.open(SHARED / f"data/flickr8k/{name}.tar") as tar:
            members = {member.name: member for member in tar if member.isfile()}
            for found in sorted(name for name in members if name.endswith(".jpg")):
                if number == count:
                    return
                data, text = (tar.extractfile(members[found.replace(".jpg", end)]) for end in (".jpg", ".txt"))
                assert data is not None and text is not None
                step = max(1, count // len(BROKEN))
                change = BROKEN[number // step % len(BROKEN)] if number % step == step // 2 else bytes
                yield f"{number:05d}", change(data.read()), text.read().decode().splitlines()[0]
                number += 1


def write_corpora(root: Path, count: int) -> None:
    """Write the photos as tars, and as files with the list that data-juicer reads."""
    listed, samples = [], list(photos(count))
    (root / "files").mkdir(parents=True)
    for key, data, text in samples:
        (root / "files" / f"{key}.jpg").write_bytes(data)
        listed.append({"id": key, "text": f"<__dj__image> {text}", "images": [str(root / "files" / f"{key}.jpg")]})
    (root / "list.jsonl").write_text("".join(json.dumps(one) + "\n" for one in listed))
    size = -(-count // SHARDS)
    for shard in range(SHARDS):
        some = samples[shard * size : (shard + 1) * size]
        write_tar(root / f"tars/{shard:05d}.tar", ((key, {"jpg": d, "txt": t.encode()}) for key, d, t in some))


def ours(root: Path) -> Tool:
    program = [sys.executable, "-m", "auditor.cli", "audit", str(root / "tars")]

    def keys(out: Path) -> int:
        return sum(pq.read_metadata(file).num_rows for file in out.glob("embeddings/*.parquet"))

    model = f"local-dir:{root / 'open_clip'}"
    return Tool("auditor", lambda out: [*program, "--out", str(out), "--model", model, "--quiet"], keys)


def clip_retrieval(root: Path) -> Tool:
    program = str(environment("clip-retrieval") / "clip-retrieval")
    weights = root / "open_clip/open_clip_model.safetensors"

    def command(out: Path) -> list[str]:
        tars = f"{root}/tars/{{00000..{SHARDS - 1:05d}}}.tar"
        given = {"input_dataset": tars, "output_folder": out, "input_format": "webdataset", "batch_size": 32}
        given |= {"num_prepro_workers": 2, "clip_model": f"open_clip:ViT-B-32/{weights}", "enable_metadata": False}
        return [program, "inference", *(f"--{name}={value}" for name, value in given.items())]

    def keys(out: Path) -> int:
        return sum(len(np.load(file, mmap_mode="r")) for file in out.glob("img_emb/*.npy"))

    return Tool("clip-retrieval", command, keys)


def data_juicer(root: Path) -> Tool:
    program = str(environment("data-juicer") / "dj-process")

    def command(out: Path) -> list[str]:
        out.mkdir(parents=True, exist_ok=True)
        rule = {"hf_clip": str(root / "hf"), "min_score": -1.0, "max_score": 1.0}
        config = {
            "project_name": "peers",
            "dataset_path": str(root / "list.jsonl"),
            "export_path": str(out / "kept.jsonl"),
            "np": 1,
            "keep_stats_in_res_ds": True,
            "process": [{"image_text_similarity_filter": rule}],
        }
        (out / "config.yaml").write_text(json.dumps(config))  # JSON is YAML
        return [program, "--config", str(out / "config.yaml")]

    def keys(out: Path) -> int:
        lines = [json.loads(line) for file in out.glob("kept.jsonl") for line in file.read_text().splitlines()]
        return sum(bool(line.get("__dj__stats__", {}).get("image_text_similarity")) for line in lines)

    return Tool("data-juicer", command, keys)


def members(group: int) -> Iterator[Path]:
    """The processes of a session."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if int((place / "stat").read_text().rpartition(")")[2].split()[3]) == group:
                yield place
        except OSError:
            continue


def memory(group: int) -> float:
    """MiB of all processes of a session; shared memory counts once."""
    total = 0
    for place in members(group):
        try:
            text = (place / "smaps_rollup").read_text()
            total += int(text.split("\nPss:")[1].split()[0])
        except (OSError, IndexError):
            continue
    return total / 1024


def run(command: list[str], log: Path, until: float = LONGEST) -> dict[str, Any]:
    """Run to the end, or kill -9 the whole session after `until` seconds."""
    threads = {"OMP_NUM_THREADS": "2", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    started, peak = time.monotonic(), 0.0
    with log.open("w") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=file, start_new_session=True, env={**os.environ, **threads}
        )
        while True:
            done, status, usage = os.wait4(process.pid, os.WNOHANG)
            if done:
                break
            if time.monotonic() - started > until:
                for place in members(process.pid):
                    os.kill(int(place.name), signal.SIGKILL)
            peak = max(peak, memory(process.pid))
            time.sleep(0.5)
    seconds = time.monotonic() - started
    used = usage.ru_utime + usage.ru_stime
    return {"seconds": seconds, "processor": used, "peak": peak, "code": os.waitstatus_to_exitcode(status)}


def measure(tool: Tool, root: Path, count: int) -> dict[str, Any]:
    whole, half = root / f"{tool.name}-whole", root / f"{tool.name}-half"
    logs = RESULTS / f"peers-{tool.name}.log"
    full = run(tool.command(whole), logs)
    left = run(tool.command(half), root / "half.log", full["seconds"] / 2)
    return {
        "tool": tool.name,
        "pairs/s": round(count / full["seconds"], 2),
        "pairs per processor s": round(count / full["processor"], 2),
        "peak MiB": round(full["peak"]),
        "exit code": full["code"],
        f"keys of {count}": tool.keys(whole),
        "left after kill -9": tool.keys(half),
        "killed after s": round(left["seconds"]),
    }


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        write_models(root)
        write_corpora(root, count)
        load = os.getloadavg()[0]
        rows = []
        for make in (ours, clip_retrieval, data_juicer):
            rows.append(measure(make(root), root, count))
            print(json.dumps(rows[-1]), flush=True)
    print_table(rows, f"{count} photos, ViT-B/32, two threads each, load {load:.1f} before the run")
    (RESULTS / "peers.json").write_text(json.dumps({"load": load, "rows": rows}, indent=1))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else PHOTOS)
