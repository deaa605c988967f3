"""Prints the outcome of an audit as a summary or as JSON, and fails if some shards failed."""

from auditor.audit_folder.manifest import Manifest
from auditor.console import print_table
from auditor.errors import AuditorError
from auditor.query.database import AuditDatabase
from auditor.query.summary import summarize_audit
from auditor.report.findings import find_findings
from auditor.terminal import print_json, print_lines


class UnfinishedError(AuditorError):
    """Some shards could not be read: the audit has all others, but is not complete."""


def report_outcome(out: str, manifest: Manifest, *, as_json: bool) -> None:
    """Print the summary, the worst findings and the next steps; raise if a shard failed."""
    with AuditDatabase(out) as database:
        summary, findings = summarize_audit(database), find_findings(database)
    if as_json:
        shards = {"failed_shards": manifest.failed_shards, "shard_problems": manifest.shard_problems}
        print_json({**summary.to_dict(), **findings.to_dict(), **shards, "drift": manifest.drift})
    else:
        print_lines(str(summary))
        if manifest.drift:
            print_table(manifest.drift, "the shards that were added, against the old ones (95% intervals)")
        if manifest.shard_problems:
            print_table(manifest.shard_problems[:10], "notes on shards")
        print_lines("\n".join(["", *findings.lines(short=True)]))
        print_lines(
            f"\nnext: auditor thresholds {out}\n"
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
