"""Train on the good part of a corpus: read the original shards, and skip the samples that the audit rejects.

    python examples/train_on_the_good_part.py demo/audit

No shard is rewritten. `webdataset()` reads the kept samples by offset; `predicate()` filters your own pipeline:
`wds.WebDataset(urls).select(keep)`.
"""

import sys

from auditor import Audit


def main(path: str) -> None:
    with Audit(path) as audit:
        kept = audit.keep(max_p_mismatch=0.1, no_duplicates=True)
        print(f"{len(kept):,} of {audit.count():,} rows are kept")
        number = 0
        for number, sample in enumerate(kept.webdataset(), 1):
            if number <= 3:
                print(sample["__key__"], sorted(name for name in sample if not name.startswith("__")))
        print(f"{number:,} samples read from the original shards")


if __name__ == "__main__":
    main(*sys.argv[1:])
