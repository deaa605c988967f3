"""Search near-duplicates among millions of media on disk: recall of planted copies, time and memory.

Vectors of width 256 with 40 true dimensions, in clusters and shards of 10,000. One in a hundred is a near copy of a
vector elsewhere in the corpus. A part of them is compared with brute force. Each core has a process.

    python -m tests.bench.duplicates [MEDIA ...]
"""

import json
import resource
import sys
import tempfile
import time
from collections import Counter, defaultdict
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa

from auditor.audit_folder.arrow_schema import EMBEDDINGS_STORAGE, THUMBNAIL_BYTES
from auditor.audit_folder.embeddings import build_nullable_vectors, name_embeddings_file
from auditor.audit_folder.folder import Folder
from auditor.console import print_table
from auditor.score.duplicate_search import read_duplicates, search_duplicates
from auditor.score.pair_sample import ShardCounts
from auditor.score.score_config import ScoreConfig
from auditor.score.statistics.duplicates import COPY_DISTANCE
from auditor.vectors import Floats
from auditor.workers.process_pool import ProcessPool, kill_workers

RESULTS = Path("bench-results")
WIDTH, TRUE_WIDTH, CLUSTERS, SHARD = 256, 40, 2000, 10_000
COPIES = 100  # one in this many
BRUTE = 40_000  # media that are also searched by brute force


def unit(rows: Floats) -> Floats:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


class Generator:
    """Generates any shard of the corpus from its number alone."""

    def __init__(self) -> None:
        chance = np.random.default_rng(0)
        self.basis = np.linalg.qr(chance.normal(size=(WIDTH, TRUE_WIDTH)))[0].astype(np.float32)
        self.centres = chance.normal(size=(CLUSTERS, TRUE_WIDTH)).astype(np.float32)

    @lru_cache(maxsize=2)  # noqa: B019 (one generator, as long as the program)
    def originals(self, shard: int) -> Floats:
        chance = np.random.default_rng([1, shard])
        latent = self.centres[chance.integers(CLUSTERS, size=SHARD)]
        latent = latent + 0.8 * chance.standard_normal(latent.shape, np.float32)
        return unit(latent @ self.basis.T + np.float32(0.02) * chance.standard_normal((SHARD, WIDTH), np.float32))

    def shard(self, number: int, count: int) -> tuple[Floats, list[tuple[int, int]]]:
        """Vectors of a shard, and (copy, original) for the copies of media of the next shard."""
        own, other = self.originals(number).copy(), self.originals((number + 1) % count)
        chance = np.random.default_rng([2, number])
        places = np.arange(COPIES - 1, SHARD, COPIES)
        sources = chance.integers(0, SHARD // COPIES, len(places)) * COPIES  # never copies themselves
        noise = unit((chance.normal(size=(len(places), TRUE_WIDTH)).astype(np.float32)) @ self.basis.T)
        cosine = 1 - chance.uniform(0, 0.95 * COPY_DISTANCE, (len(places), 1)).astype(np.float32)
        source = other[sources]
        noise = unit(noise - (noise * source).sum(1, keepdims=True) * source)
        own[places] = cosine * source + np.sqrt(1 - cosine**2) * noise
        return own, list(zip(places.tolist(), sources.tolist(), strict=True))


def uid(shard: int, medium: int) -> str:
    return f"{shard:08x}{medium:08x}"


def write(folder: Folder, generator: Generator, count: int) -> None:
    for number in range(count):
        visual, _ = generator.shard(number, count)
        names = [uid(number, medium) for medium in range(SHARD)]
        ones = pa.array(np.ones(SHARD, np.int32))
        columns = {
            "uid": names,
            "media_digest": [name.rjust(32, "0")[::-1] for name in names],
            "status": pa.array(["ok"] * SHARD),
            "caption_index": pa.array(np.zeros(SHARD, np.int32)),
            "start": pa.nulls(SHARD, pa.float64()),
            "end": pa.nulls(SHARD, pa.float64()),
            "width": ones,
            "height": ones,
            "media_size": pa.array(np.ones(SHARD, np.int64)),
            "thumbnail": pa.nulls(SHARD, pa.binary(THUMBNAIL_BYTES)),
            "visual": build_nullable_vectors(visual, np.ones(SHARD, bool)),
        }
        folder.write_table(name_embeddings_file(f"{number:05d}"), pa.table(columns), storage=EMBEDDINGS_STORAGE)


def read_peak() -> float:
    """MiB; ru_maxrss would be at least that of the process that started this one."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def search(place: str, count: int, answer: "list[float]") -> None:
    started, pool = time.perf_counter(), ProcessPool()
    counts = [ShardCounts(f"{number:05d}", Counter(image=SHARD), Counter(image=SHARD)) for number in range(count)]
    found = search_duplicates(Folder(place), counts, ScoreConfig(near_duplicate=1 - COPY_DISTANCE), engine=pool)[
        "repeats"
    ]
    seconds = time.perf_counter() - started
    kill_workers(pool.workers)  # so that their processor time and memory count
    own, workers = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu = sum(usage.ru_utime + usage.ru_stime for usage in (own, workers))
    answer.put([found, seconds, cpu, read_peak(), workers.ru_maxrss / 1024])  # type: ignore[attr-defined]


def expect_repeats(generator: Generator, number: int, count: int) -> dict[str, str]:
    """The repeats among the copies in a shard and their originals, by brute force: uid -> uid of the representative."""
    following = (number + 1) % count
    (own, pairs), other = generator.shard(number, count), generator.originals(following)
    families: dict[int, list[tuple[int, int, Floats]]] = defaultdict(list)
    for copy, original in pairs:
        families[original].append((number, copy, own[copy]))
    repeats: dict[str, str] = {}
    for original, copies in families.items():
        members = sorted([*copies, (following, original, other[original])], key=lambda member: member[:2])
        vectors = np.array([member[2] for member in members]).astype(np.float16).astype(np.float32)
        is_near, names = vectors @ vectors.T >= 1 - COPY_DISTANCE, [uid(*member[:2]) for member in members]
        for first, name in enumerate(names):
            if name not in repeats:
                later = [names[row] for row in np.flatnonzero(is_near[first]).tolist() if row > first]
                repeats |= {copy: name for copy in later if copy not in repeats}
    return repeats


def compare_planted(folder: Folder, generator: Generator, count: int) -> dict[str, float]:
    """Share of the planted copies that are found as brute force finds them, and of those that are with their original.

    The first is the recall. A copy can be near its original, but not near the copy that represents the original: then
    it stays, and the second is lower.
    """
    hits = total = together = planted = 0
    tables = {0: read_duplicates(folder, f"{0:05d}")}
    for number in reversed(range(count)):
        following = tables[(number + 1) % count]
        tables = {0: tables[0], number: read_duplicates(folder, f"{number:05d}")}
        repeats = tables[number] | following
        expected = expect_repeats(generator, number, count)
        total += len(expected)
        hits += sum(repeats.get(copy) == original for copy, original in expected.items())
        for copy, original in generator.shard(number, count)[1]:
            left, right = uid(number, copy), uid((number + 1) % count, original)
            planted += 1
            together += repeats.get(left, left) == repeats.get(right, right)
    return {"recall_of_planted": hits / total, "with_their_original": together / planted}


def against_brute_force(folder: Folder, generator: Generator, count: int) -> dict[str, float]:
    """Of the near pairs of the first shards, the share of which not both stay: 1 if the search is brute force."""
    shards = min(count, BRUTE // SHARD)
    visual = np.concatenate([generator.shard(number, count)[0] for number in range(shards)])
    stored = visual.astype(np.float16).astype(np.float32)
    repeats = {name for number in range(shards) for name in read_duplicates(folder, f"{number:05d}")}
    stays = np.array([uid(number, medium) not in repeats for number in range(shards) for medium in range(SHARD)])
    near = missed = 0
    for start in range(0, len(stored), 1000):
        left, right = np.nonzero(stored[start : start + 1000] @ stored.T >= 1 - COPY_DISTANCE)
        is_later = right > left + start
        near += int(is_later.sum())
        missed += int((stays[left + start] & stays[right] & is_later).sum())
    return {"brute_force_pairs": near, "recall_of_brute_force": 1 - missed / max(1, near)}


def measure(media: int) -> dict[str, float]:
    count, generator = media // SHARD, Generator()
    with tempfile.TemporaryDirectory() as place:
        folder = Folder(place)
        write(folder, generator, count)
        processes = get_context("spawn")
        answer = processes.Queue()
        process = processes.Process(target=search, args=(place, count, answer))
        process.start()
        found, seconds, cpu, peak, worker = answer.get()
        process.join()
        return {
            "media": media,
            "found": found,
            **compare_planted(folder, generator, count),
            **against_brute_force(folder, generator, count),
            "seconds": seconds,
            "processor_s": cpu,
            "peak_mib": peak,
            "worker_peak_mib": worker,
        }


def main() -> None:
    sizes = [int(size) for size in sys.argv[1:]] or [100_000, 1_000_000]
    rows = [measure(size) for size in sizes]
    print_table(rows, "near-duplicates on disk, width 256")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "duplicates.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
