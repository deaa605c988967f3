"""Review: one pair after the other, with a key for each decision and the next pictures already loaded."""

from dataclasses import asdict, astuple
from functools import partial
from typing import Any

import streamlit as st

from auditor.query.distributions import compute_percentiles
from auditor.query.explain import Explanation, explain_row
from auditor.query.row_queries import list_captions, read_row
from auditor.query.sandbox import QueryError
from auditor.review.certificate import certify
from auditor.review.label_sample import count_labels, fetch_sample_marks, read_label_sample
from auditor.review.review_queues import CERTIFICATION, MOST, QueueRow, fetch_queue, fetch_reviewer_marks, list_queues
from auditor.review.reviewer_agreement import compare_all_reviewers
from dashboard.audit_source import open_first_audit
from dashboard.caption_editor import list_choices, list_sentences
from dashboard.display_text import (
    describe_scores,
    format_number,
    format_percent,
    shorten_text,
    show_condition_error,
    show_empty_state,
)
from dashboard.media_preview import REVIEW, thumbnail_cache
from dashboard.review_cards import CARD_NUMBERS, make_review_cards, resend_pictures, show_review_cards
from dashboard.url_state import current_reviewer, format_row_id

PRELOADED = 12  # pictures
EXPLAINED = 20_000  # rows of a corpus that a pair is compared with; of a larger one, its reference sample

audit = open_first_audit()
database = audit.database


def list_unmarked(queue: list[QueueRow], marks: dict[tuple[str, int], str]) -> list[QueueRow]:
    """The rows that this reviewer has not marked, the skipped ones last."""
    skipped: set[str] = st.session_state.get("skipped", set())
    unmarked = [row for row in queue if (row.uid, row.caption_index) not in marks]
    return sorted(unmarked, key=lambda row: format_row_id(asdict(row)) in skipped)


def read_whole_row(queue_row: QueueRow) -> dict[str, Any] | None:
    """All columns of a row, read once per session."""
    rows: dict[QueueRow, dict[str, Any] | None] = st.session_state.setdefault("whole_rows", {})
    if queue_row not in rows:
        rows[queue_row] = read_row(database, queue_row.uid, queue_row.caption_index, queue_row.shard)
    return rows[queue_row]


@st.fragment
def show_queue(queue: list[QueueRow], name: str) -> None:
    reviewer = current_reviewer()
    marks = fetch_reviewer_marks(database, reviewer)
    unmarked = list_unmarked(queue, marks)
    rows = [row for queue_row in unmarked[:PRELOADED] if (row := read_whole_row(queue_row))]
    numbers = () if name.startswith(CERTIFICATION) else CARD_NUMBERS  # a score or an edit would bias a certification
    items = make_review_cards(database, rows, thumbnail_cache(REVIEW), marks, numbers)
    for item, row in zip(items, rows, strict=True):
        item |= {} if numbers else {"edit": None}
        item["sentences"] = list_sentences(row, (item["edit"] or {}).get("text") or row["caption"] or "")
        item |= st.session_state.get("details", {}).get(item["id"], {})
    show_review_cards(
        database,
        f"{name} {reviewer}",
        items,
        decided=[format_row_id(asdict(row)) for row in queue if row not in unmarked],
        total=len(queue),
        remaining=len(unmarked),
        on_focus=partial(explain_card, queue) if numbers else None,
    )
    if problem := st.session_state.pop("edit_problem", None):
        show_empty_state("The caption was not changed", problem, icon=":material/error:")


def explain_card(queue: list[QueueRow], identity: str) -> None:
    """Save the evidence of a card for its next run: sentences, the best caption of the corpus, the medium's others."""
    row = next((row for row in queue if format_row_id(asdict(row)) == identity), None)
    if row is not None and (whole := read_whole_row(row)):
        explanation = audit.ask("explain", partial(explain_row, whole_corpus=EXPLAINED), *astuple(row))
        choices = list_choices(whole, "", list_captions(database, whole).to_pylist())
        st.session_state["details"] = {identity: {"details": list_details(whole, explanation), "choices": choices}}


def list_details(row: dict[str, Any], explanation: Explanation) -> list[dict[str, Any]]:
    scores = describe_scores(row, audit.ask("percentiles", compute_percentiles, row))
    sentences = [*(score.sentence for score in scores[:1]), *explanation.reasons]
    others = [other for other in list_captions(database, row).to_pylist() if other["caption"] != row["caption"]]
    parts = [
        ("Evidence", [f"{sentence[0].upper()}{sentence[1:]}." for sentence in sentences]),
        ("The caption of the corpus that fits best", [shorten_text(best.caption) for best in explanation.captions[:1]]),
        ("Other captions of this medium", [shorten_text(other["caption"]) for other in others]),
        ("Duplicates", [f"{len(explanation.duplicates)} others, shown on its page"] * bool(explanation.duplicates)),
    ]
    return [{"title": title, "lines": lines} for title, lines in parts if lines]


def show_certificate(name: str) -> None:
    sample = read_label_sample(database.files.folder, name)
    certificate = certify(count_labels(sample, fetch_sample_marks(database, sample)), filtered=bool(sample.rules))
    share = certificate.mismatched
    st.markdown(
        f"**{certificate.labels}** of {len(sample.rows)} judged: between **{format_percent(share.low)}** and "
        f"**{format_percent(share.high)}** of the pairs are mismatched (90% confidence)."
    )


def show_reviewer_agreement() -> None:
    agreements = compare_all_reviewers(database)
    if not agreements:
        st.caption("Two reviewers must mark the same rows before their agreement can be measured.")
        return
    rows = [
        {"reviewers": f"{pair.first}, {pair.second}", "rows": pair.rows}
        | {"same mark": format_percent(pair.same), "Cohen's kappa": format_number(pair.kappa)}
        for pair in agreements
    ]
    st.dataframe(rows, hide_index=True)


with st.sidebar:
    name = st.selectbox("Queue", list_queues(database), key="queue", bind="query-params")
    where = st.text_input("SQL condition", key="queue_where", bind="query-params", placeholder="kind = 'video'")
    st.caption(f"A queue has at most {MOST} rows. Draw a certification sample with `auditor certify`.")
st.title("Review")
try:
    queue = audit.ask("queue", fetch_queue, name, where or None, version=database.reviews_version)
except QueryError as error:
    show_condition_error(error)
    st.stop()
if not queue:
    show_empty_state("This queue is empty", "No usable row meets the condition.")
    st.stop()
resend_pictures()
show_queue(queue, name)
with st.expander("Agreement of reviewers, and what the marks prove"):
    if name.startswith(CERTIFICATION):
        show_certificate(name.removeprefix(CERTIFICATION))
    show_reviewer_agreement()
