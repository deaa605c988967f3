"""Audit a folder of pictures from Python, and write the uids of the pairs to keep.

    python examples/audit_a_folder.py photos/ my-audit local-dir:../shared/models/flickr8k-lite

`photos/` contains cat.jpg next to cat.txt. The third argument is an open_clip model or a PAU checkpoint.
"""

import sys

from auditor import Audit
from auditor.run.run_audit import AuditConfig, run_audit


def main(corpus: str, out: str, model: str) -> None:
    manifest = run_audit(AuditConfig(corpus=corpus, out=out, model=model, quiet=True))
    print(manifest.state, manifest.counts)
    with Audit(out) as audit:
        written = audit.keep(max_p_mismatch=0.5).write(f"{out}-kept.parquet", force=True)
        print(written)


if __name__ == "__main__":
    main(*sys.argv[1:])
