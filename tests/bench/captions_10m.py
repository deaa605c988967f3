"""Time the counting of exact and normalized repetitions among ten million captions.

    python -m tests.bench.captions_10m [ROWS]

Half of the captions occur once, the others up to a few thousand times. The audit (only the columns that are read) is
written to a temporary folder. Compare processor seconds if the machine is busy.
"""

import json
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.manifest import Manifest
from auditor.faults.repeated_captions import find_repeated_captions
from auditor.python_api import Audit
from auditor.query.sandbox import Limits
from auditor.sweep.caption_facts import hash_caption

FILES = 100


def make(folder: Path, rows: int) -> int:
    """Write the audit and return the number of occurrences of the most frequent caption."""
    generator = np.random.default_rng(0)
    places = ["".join(letters) for letters in product("abcdefghijklmn", repeat=3)]
    common = [f"{word} standing in the street of {place}" for place in places for word in ("A man", "a MAN,")]
    hashes = np.array([hash_caption(caption) for caption in common], np.int64)
    popular = 1 / np.arange(1, len(common) + 1)
    total = np.zeros(len(common), np.int64)
    (folder / "samples").mkdir()
    for file in range(FILES):
        count = rows // FILES
        which = generator.choice(len(common), count, p=popular / popular.sum())
        single = generator.random(count) < 0.5
        total += np.bincount(which[~single], minlength=len(common))
        names = [
            f"caption {file} {i}" if alone else common[j]
            for i, (j, alone) in enumerate(zip(which, single, strict=True))
        ]
        own = np.where(single, generator.integers(-(2**63), 2**63 - 1, count), hashes[which])
        uids = [f"{file:08x}{i:024x}" for i in range(count)]
        table = {"uid": uids, "caption": names, "caption_hash": own, "status": ["ok"] * count}
        pq.write_table(pa.table(table), folder / "samples" / f"{file:05d}.parquet")
    counts = {"keys": rows, "rows": rows, "status": {"ok": rows}}
    Manifest(corpus={"spec": "", "shards": FILES}, model={}, settings={}, state="complete", counts=counts).save(
        Folder(folder)
    )
    return int(np.bincount(np.unique(hashes, return_inverse=True)[1], total).max())


def main(rows: int = 10_000_000) -> None:
    with tempfile.TemporaryDirectory() as place:
        most = make(Path(place), rows)
        audit = Audit(place, limits=Limits(seconds=None))
        wall, processor = time.perf_counter(), time.process_time()
        found = find_repeated_captions(audit.database)
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
    assert found[0].rows == most and found[0].likeness == "normalised"
    print(json.dumps({"rows": rows, "groups": len(found), "wall": round(wall, 1), "processor": round(processor, 1)}))


if __name__ == "__main__":
    main(*(int(number) for number in sys.argv[1:]))
