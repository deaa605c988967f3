"""Prints the outcome of an audit as a summary or as JSON, and fails if some shards failed."""

from auditor.audit_folder.manifest import Manifest
from auditor.console import print_table
from auditor.errors import AuditorError
from auditor.query.database import AuditDatabase
from auditor.query.row_queries import find_worst_rows, write_calm_note
from auditor.query.summary import summarize_audit
from auditor.terminal import print_json, print_lines

SHOWN = ["key", "caption_index", "p_mismatch", "similarity", "caption"]


class UnfinishedError(AuditorError):
    """Some shards could not be read: the audit has all others, but is not complete."""


def report_outcome(out: str, manifest: Manifest, *, as_json: bool) -> None:
    """Print the summary, the failed shards and the next steps; raise if a shard failed."""
    with AuditDatabase(out) as database:
        summary, suspects = summarize_audit(database), find_worst_rows(database, "p_mismatch", 10).to_pylist()
    if as_json:
        shards = {"failed_shards": manifest.failed_shards, "shard_problems": manifest.shard_problems}
        print_json({**summary.to_dict(), **shards, "drift": manifest.drift})
    else:
        print_lines(str(summary))
        title = write_calm_note(suspects, "p_mismatch") or "the ten most suspicious pairs"
        print_table(suspects, title, SHOWN) if suspects else print_lines(title)
        if manifest.drift:
            print_table(manifest.drift, "the shards that were added, against the old ones (95% intervals)")
        if manifest.shard_problems:
            print_table(manifest.shard_problems[:10], "notes on shards")
        print_lines(
            f"\nnext: auditor worst {out} --by p_mismatch -n 20\n"
            f"      auditor thresholds {out}\n"
            f"      auditor report {out} --out report.html\n"
            f"      auditor dashboard {out}"
        )
    if manifest.failed_shards:
        count = len(manifest.failed_shards)
        examples = ", ".join(f"{failed['shard']} ({failed['message']})" for failed in manifest.failed_shards[:5])
        remaining = f" and {count - 5} more" if count > 5 else ""
        raise UnfinishedError(
            f"{count} of {manifest.corpus['shards']} shards could not be read: "
            f"{examples}{remaining}; repair them and run the same command again"
        )
