"""How an audit ends: the summary people read, the JSON machines read, and the exit code both go by."""

from auditor.audit_folder.manifest import Manifest
from auditor.console import table
from auditor.errors import AuditorError
from auditor.query.database import AuditDatabase
from auditor.query.row_queries import calm_note, worst
from auditor.query.summary import summarise
from auditor.say import say_json, say_lines

SHOWN = ["key", "caption_index", "p_mismatch", "similarity", "caption"]


class UnfinishedError(AuditorError):
    """Some shards could not be read: what could be is done, but the audit must not pass for complete."""


def report_outcome(out: str, manifest: Manifest, *, as_json: bool) -> None:
    """Print the summary, name what failed, say what to try next; raises where a shard failed."""
    with AuditDatabase(out) as database:
        summary, suspects = summarise(database), worst(database, "p_mismatch", 10).to_pylist()
    if as_json:
        told = {"failed_shards": manifest.failed_shards, "shard_problems": manifest.shard_problems}
        say_json({**summary.to_dict(), **told, "drift": manifest.drift})
    else:
        say_lines(str(summary))
        title = calm_note(suspects, "p_mismatch") or "the ten most suspicious pairs"
        table(suspects, title, SHOWN) if suspects else say_lines(title)
        if manifest.drift:
            table(manifest.drift, "the shards that were added, against the old ones (95% intervals)")
        if manifest.shard_problems:
            table(manifest.shard_problems[:10], "notes on shards")
        say_lines(
            f"\nnext: auditor worst {out} --by p_mismatch -n 20\n"
            f"      auditor thresholds {out}\n"
            f"      auditor report {out} --out report.html\n"
            f"      auditor dashboard {out}"
        )
    if manifest.failed_shards:
        named = ", ".join(f"{failed['shard']} ({failed['message']})" for failed in manifest.failed_shards[:5])
        more = f" and {len(manifest.failed_shards) - 5} more" if len(manifest.failed_shards) > 5 else ""
        raise UnfinishedError(
            f"{len(manifest.failed_shards)} of {manifest.corpus['shards']} shards could not be read: {named}{more}; "
            "repair them and run the same command again"
        )
