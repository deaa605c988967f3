"""A section of a dataset card (README.md of a Hugging Face repository) with what an audit found.

It stands between two markers, its numbers under one metadata key; every other byte stays.
"""

import html
import json
import re
from collections.abc import Iterator
from typing import Any

from auditor.audit_folder.fault_records import read_faults
from auditor.audit_folder.folder import Folder, split_target
from auditor.errors import AuditorError
from auditor.keep.export_target import read_export_plan
from auditor.query.database import AuditDatabase
from auditor.query.summary import summarize_audit
from auditor.report.findings import find_findings, quote_for_shell
from auditor.terminal import format_value

BEGIN, END = "<!-- auditor card: begin -->", "<!-- auditor card: end -->"
METADATA = re.compile(r"\A(---\r?\n)(.*?)(^---[ \t]*\r?$)", re.DOTALL | re.MULTILINE)
OWN_KEY = re.compile(r"^auditor:.*\n", re.MULTILINE)  # its value is JSON, on one line
DIGEST = (  # of keys, media and captions in any order
    "SELECT lower(hex(bit_xor(md5_number(concat_ws('/', key, caption_index, media_digest, caption_hash))))) "
    "FROM measured"
)


class CardError(AuditorError):
    """A card that is not ours to change."""


def write_card(database: AuditDatabase, out: str, subset: str | None = None) -> str:
    """Write or update a card and return the digest of the corpus; `subset` is a folder of `auditor filter`."""
    folder, name = split_target(out)
    summary, manifest = summarize_audit(database), database.manifest
    facts = {
        "corpus": manifest.get("corpus", {}).get("spec", "CORPUS"),
        "corpus_digest": database.value(DIGEST),
        "model": manifest.get("model", {}).get("spec", "MODEL"),
        "version": manifest.get("versions", {}).get("pau-auditor"),
        "finished": manifest.get("finished"),
    }
    numbers = {f"mismatched_{noise.kind}s": [noise.share, noise.low, noise.high] for noise in summary.noise}
    section = "\n".join(list_card_lines(database, facts, summary.lines(), subset))
    try:
        card = folder.read_bytes(name).decode() if folder.exists(name) else ""
        card = update_card(card, json.dumps({**facts, "rows": summary.rows, **numbers}), section)
    except (CardError, UnicodeDecodeError) as error:
        raise CardError(f"{out} is not changed: {error}") from None
    with folder.writing(name) as path:
        path.write_bytes(card.encode())
    return str(facts["corpus_digest"])


def update_card(card: str, facts: str, section: str) -> str:
    markers = [card.find(BEGIN), card.find(END)]
    if [card.count(BEGIN), card.count(END)] not in ([0, 0], [1, 1]) or markers != sorted(markers):
        raise CardError(f"it needs one {BEGIN} and one {END} after it, or neither")
    if card.startswith("---") and not METADATA.match(card):
        raise CardError("its metadata has no closing ---")
    newline = "\r\n" if "\r\n" in card else "\n"
    body = f"{BEGIN}\n{section}\n{END}".replace("\n", newline)
    if markers[0] < 0:
        card += newline * 2 * bool(card) + body + newline
    else:
        card = card[: markers[0]] + body + card[markers[1] + len(END) :]
    if not METADATA.match(card):
        card = newline.join(["---", "---", card])
    line = f"auditor: {facts}{newline}"
    return METADATA.sub(lambda match: match[1] + OWN_KEY.sub("", match[2]) + line + match[3], card, count=1)


def escape_markdown(value: object) -> str:
    """Untrusted text that cannot add markup."""
    return re.sub(r"([\\`*_\[\]#|!~@:$])", r"\\\1", html.escape(format_value(value), quote=False))


def list_card_lines(
    database: AuditDatabase, facts: dict[str, Any], numbers: list[tuple[str, str]], subset: str | None
) -> Iterator[str]:
    yield "## Audit\n"
    yield from (f"- {escape_markdown(name)}: {escape_markdown(value)}" for name, value in [*facts.items(), *numbers])
    yield "\n### Findings\n"
    for finding in find_findings(database):
        yield f"- {finding.rows:,} ({finding.percent}) {escape_markdown(f'{finding.title}. {finding.describe()}')}"
    yield from (f"- {escape_markdown(fault.sentence)}" for fault in read_faults(database.files.folder) or ())
    if subset:
        plan = read_export_plan(Folder(subset))
        if plan.get("state") != "complete":
            raise CardError(f"{subset} is not a finished export of `auditor filter`")
        rules = escape_markdown(plan.get("rules"))
        yield f"\n### Removed\n\n`auditor filter` kept {plan.get('samples')} samples by the rules {rules}."
    command = " ".join(["auditor audit", quote_for_shell(facts["corpus"]), "--out audit --model", facts["model"]])
    yield f"\n### Reproduce\n\n```\n{format_value(command)}\n```"
