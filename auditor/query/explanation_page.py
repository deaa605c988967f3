"""The evidence behind one row as a page of text: `auditor explain`, and what Python prints for `Audit.explain`."""

import contextlib
import io
from typing import TYPE_CHECKING, Any

from auditor.console import print_table
from auditor.schema import list_column_names
from auditor.terminal import print_line

if TYPE_CHECKING:
    from auditor.query.explain import Explanation, Fit
    from auditor.query.prototype_evidence import PrototypeBelief


def format_explanation(explanation: "Explanation") -> str:
    with contextlib.redirect_stdout(io.StringIO()) as page:
        print_explanation(explanation)
    return page.getvalue().rstrip()


def print_explanation(explanation: "Explanation") -> None:
    row = explanation.row
    span = f", {row['start']:g} to {row['end']:g} s" if None not in (row.get("start"), row.get("end")) else ""
    header = f"{row['key']} caption {row['caption_index']}{span} ({row['kind']}, {row['status']})"
    print_line(f"{header}: {row['caption'] or ''}")
    if row["status"] != "ok":
        print_line(f"  {row['error_message']}")
    names = [name for name in list_column_names("headline", "detail") if row.get(name) is not None]
    print_table([{"measure": name, "value": row[name]} for name in names])
    for reason in explanation.reasons:
        print_line(f"  {reason}")
    if explanation.caption_rank is not None and explanation.medium_rank is not None:
        where = f"in the {explanation.compared_with}"
        captions = f"{explanation.captions_of:,} captions of {row['kind']}s {where} for this medium"
        media = f"{explanation.media_of:,} {row['kind']}s {where} for this caption"
        print_line(f"its caption is number {explanation.caption_rank:,} of the {captions}")
        print_line(f"its medium is number {explanation.medium_rank:,} of the {media}")
        print_table(tabulate_fits(explanation.captions), "captions of other media that fit this medium best")
        print_table(tabulate_fits(explanation.media), "other media that fit this caption best")
    if explanation.frames:
        frames = [
            {"time": frame.time, "similarity": frame.similarity, "fits": frame.fits}
            | {"": "best" if position == explanation.best_frame else ""}
            for position, frame in enumerate(explanation.frames)
        ]
        print_table(frames, "frames against the caption")
    for side, beliefs in (("medium", explanation.prototypes_visual), ("caption", explanation.prototypes_text)):
        if beliefs:
            like = "the caption nearest to it" if side == "medium" else "the medium nearest to it"
            print_table(tabulate_prototypes(beliefs, like), f"prototypes behind the uncertainty of the {side}")
    if explanation.duplicates:
        print_table(explanation.duplicates, "duplicates of this medium")


def tabulate_fits(matches: "list[Fit]") -> list[dict[str, Any]]:
    timed = any(fit.start is not None for fit in matches)
    return [
        {"similarity": fit.similarity, "key": fit.key}
        | ({"start": fit.start, "end": fit.end} if timed else {})
        | {"caption": fit.caption}
        for fit in matches
    ]


def tabulate_prototypes(beliefs: "list[PrototypeBelief]", like: str, limit: int = 4) -> list[dict[str, Any]]:
    return [
        {"prototype": belief.prototype, "cosine": belief.cosine, "belief": belief.belief}
        | ({like: belief.like} if belief.like is not None else {})
        for belief in beliefs[:limit]
    ]
