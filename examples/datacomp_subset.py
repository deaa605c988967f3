"""Select a subset of DataComp-small from its metadata, without downloading a picture: three commands, or this script.

    auditor audit datacomp:metadata/ --features l14 --out audit
    auditor thresholds audit --lose-at-most 2%
    auditor filter audit --lose-at-most 2% --no-duplicates --out subset.npy

    python examples/datacomp_subset.py metadata/ audit subset.npy

`metadata/` has the files that DataComp's download_upstream.py writes: NAME.parquet and NAME.npz. DataComp's resharder
reads the subset file: `python resharder.py -i shards -o filtered -s subset.npy`.
"""

import sys

from auditor import Audit
from auditor.keep.thresholds import choose_cut
from auditor.run.run_audit import AuditConfig, run_audit


def main(metadata: str, out: str, subset: str) -> None:
    manifest = run_audit(AuditConfig(corpus=f"datacomp:{metadata}", out=out, quiet=True))
    print(manifest.counts)
    with Audit(out) as audit:
        cut = float(choose_cut(audit.database, lose_at_most=0.02))
        written = audit.keep(max_p_mismatch=cut, no_duplicates=True).write(subset, force=True)
        print(f"p_mismatch <= {cut:.3g}: {written.rows:,} of {audit.count():,} uids in {written.target}")


if __name__ == "__main__":
    main(*sys.argv[1:])
