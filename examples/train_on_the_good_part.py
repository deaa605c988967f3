"""A training loop's view of an audit: read the original shards, skip what the audit would not keep.

    python examples/train_on_the_good_part.py demo/audit

Nothing is rewritten. `webdataset()` reads the kept samples by offset; `predicate()` goes into a pipeline of your own:
`wds.WebDataset(urls).select(keep)`.
"""

import sys

from auditor import Audit


def main(path: str) -> None:
    with Audit(path) as audit:
        kept = audit.keep(max_p_mismatch=0.1, no_duplicates=True)
        print(f"{len(kept):,} of {audit.count():,} rows are kept")
        for number, sample in enumerate(kept.webdataset(), 1):
            if number <= 3:
                print(sample["__key__"], sorted(name for name in sample if not name.startswith("__")))
        print(f"{number:,} samples read from the original shards")


if __name__ == "__main__":
    main(*sys.argv[1:])
