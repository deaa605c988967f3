"""Time a target of many vectors, topics and balance on stored vectors of width 512, and check the target's values.

    python -m tests.bench.choose_million [MEDIA] [TARGET]

Writes an audit with one vector per pair (clusters of clusters, so that neighbors are unequally near), then computes
`towards` a target of other draws, `topic:1000`, and a selection in balance over these cells. Values are compared with
a bare matrix product on 2,000 media, and on Flickr8k's captions by the number of cells that are compared. Everything
runs in one process with one thread, so processor seconds on an idle core are what a core needs. Writes
bench-results/choose_million.json.
"""

import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from auditor.audit_folder.audit_files import get_shard_name
from auditor.audit_folder.embeddings import build_vector_column
from auditor.choose.media_columns import MediaColumn, read_shard_media, store_media_column
from auditor.choose.target_similarity import HighestCosine, build_index, collect_target
from auditor.choose.topic_cells import ensure_topics
from auditor.console import print_table
from auditor.python_api import Audit
from auditor.vectors import Floats
from tests.bench.filter_pools import encode_tars
from tests.bench.search_million import RESULTS
from tests.conftest import SHARED
from tests.support.synthetic import write_audit

WIDTH, SHARD, CHECKED, CENTERS = 512, 20_000, 2_000, 5_000
PROBES_TRIED = (8, 16, 32, 64)


def draw_vectors(count: int, seed: int) -> Floats:
    """Unit vectors in clusters of clusters within a cone, as those of CLIP are."""
    shared, generator = np.random.default_rng(0), np.random.default_rng(seed)
    coarse = shared.standard_normal((200, WIDTH), dtype=np.float32)
    fine = coarse[shared.integers(0, 200, CENTERS)] + 0.7 * shared.standard_normal((CENTERS, WIDTH), dtype=np.float32)
    spread = generator.gamma(4, 0.2, (count, 1)).astype(np.float32)
    vectors = 0.7 + fine[generator.zipf(1.3, count) % CENTERS]
    vectors += spread * generator.standard_normal((count, WIDTH), dtype=np.float32)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


def write_vectors(audit: Path) -> None:
    (audit / "embeddings").mkdir()
    for number, path in enumerate(sorted((audit / "samples").iterdir())):
        status = pq.read_table(path, columns=["status"])["status"]
        is_ok = np.array(status.to_pylist()) == "ok"
        vectors = draw_vectors(len(is_ok), number).astype(np.float16)
        table = pa.table({"status": status, "visual": build_vector_column(vectors, is_ok)})
        pq.write_table(table, audit / "embeddings" / path.name)


def time_step(name: str, work: Callable[[], Any], rows: list[dict[str, Any]]) -> Any:
    started = time.process_time()
    result = work()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows.append({"step": name, "processor s": time.process_time() - started, "peak MiB": round(peak)})
    return result


def multiply_all(visual: Floats, vectors: Floats) -> Floats:
    """The highest cosine of each medium, without an index."""
    blocks = np.array_split(visual, -(-len(visual) // 100))
    return np.concatenate([(block @ vectors.T).max(axis=1) for block in blocks])


def describe_errors(name: str, measure: HighestCosine, visual: Floats, exact: Floats) -> dict[str, Any]:
    """How much the highest cosine within the nearest cells is below the exact one."""
    import faiss

    cells, highest = faiss.extract_index_ivf(measure.index), measure(visual)
    error = exact - highest
    ranks = [np.argsort(np.argsort(values)) for values in (highest, exact)]
    return {
        "target": name,
        "cells compared": f"{cells.nprobe} of {cells.nlist:,}",
        "exact": float((error < 1e-5).mean()),
        "mean error": float(error.mean()),
        "99% below": float(np.quantile(error, 0.99)),
        "largest": float(error.max()),
        "rank correlation": float(np.corrcoef(*ranks)[0, 1]),
    }


def measure_real_errors() -> Iterator[dict[str, Any]]:
    """Errors on real vectors: 2,000 captions of Flickr8k towards 15,000 others."""
    import faiss

    model, folder = f"local-dir:{SHARED / 'models/flickr8k-lite'}", SHARED / "data/flickr8k"
    target = encode_tars(model, f"{folder}/train-{{00000..00002}}.tar")[0].text
    queries = encode_tars(model, f"{folder}/val-00000.tar")[0].text[:CHECKED]
    exact, measure = multiply_all(queries, target), HighestCosine(build_index(target, whole=0))
    for probes in PROBES_TRIED:
        faiss.extract_index_ivf(measure.index).nprobe = probes
        yield describe_errors("15,000 captions", measure, queries, exact)


def main() -> None:
    media, count = (int(text) for text in (sys.argv[1:] + ["1000000", "100000"][len(sys.argv) - 1 :]))
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        path = write_audit(Path(place) / "audit", media, SHARD)
        write_vectors(path)
        vectors = draw_vectors(count, 10**6)
        target = time_step("read the target", lambda: collect_target([vectors]), rows)
        measure = time_step("divide the target", lambda: HighestCosine(build_index(target.vectors)), rows)
        column = MediaColumn("towards", measure, "mark", {})
        with Audit(path) as audit:
            time_step("towards", lambda: store_media_column(audit.database, column), rows)
            time_step("1,000 topics", lambda: ensure_topics(audit.database, 1000), rows)
            shard = get_shard_name(audit.database.files.all[0])
            visual = read_shard_media(audit.database.files.folder, shard)[0][:CHECKED]
        exact = time_step(f"bare product, {CHECKED:,} media", lambda: multiply_all(visual, target.vectors), rows)
        errors = [describe_errors(f"{count:,} generated", measure, visual, exact), *measure_real_errors()]
        with Audit(path) as audit:
            kept: dict[str, Any] = {"balance": "topic:1000", "share": 0.3, "by": "towards"}
            time_step("balance over 1,000 cells", lambda: audit.keep(**kept).count, rows)
            time_step("drift", lambda: audit.keep(**kept).drift(), rows)
            kept |= {"balance": "topic:1000", "diverse": True, "by": None}
            time_step("diverse, in 1,000 cells", lambda: audit.keep(**kept).count, rows)
    print_table(rows, f"{media:,} media, {count:,} target vectors")
    print_table(errors)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "choose_million.json").write_text(
        json.dumps({"media": media, "steps": rows, "errors": errors}, indent=1)
    )


if __name__ == "__main__":
    main()
