"""Review: one pair after the other, a key for each decision, the next pictures already loaded."""

from typing import Any

import streamlit as st

from auditor.query.row_queries import row as find_row
from auditor.query.sandbox import QueryError
from auditor.review.certificate import certify
from auditor.review.label_sample import judged_strata, marks_of_sample, read_sample
from auditor.review.review_queues import CERTIFICATION, MOST, Place, marks_by, queue, queue_names
from auditor.review.reviewer_agreement import reviewers_agreement
from dashboard.audit_source import source
from dashboard.display_text import empty, number, percent
from dashboard.media_preview import REVIEW, thumbnails
from dashboard.review_cards import COMPACT, cards, deck, send_all
from dashboard.url_state import identity, reviewer

AHEAD = 12  # pictures that are loaded before they are asked for

found = source()
database = found.database


def upcoming(places: list[Place], marks: dict[tuple[str, int], str]) -> list[Place]:
    """Those without a mark of this reviewer; what was put off comes last."""
    later: set[str] = st.session_state.get("skipped", set())
    left = [place for place in places if (place.uid, place.caption_index) not in marks]
    return sorted(left, key=lambda place: f"{place.uid}-{place.caption_index}" in later)


def whole(place: Place) -> dict[str, Any] | None:
    """The row of a place, read once for a session."""
    known: dict[Place, dict[str, Any] | None] = st.session_state.setdefault("whole_rows", {})
    if place not in known:
        known[place] = find_row(database, place.uid, place.caption_index, place.shard)
    return known[place]


@st.fragment
def reviewing(places: list[Place], name: str) -> None:
    marks = marks_by(database, reviewer())
    left = upcoming(places, marks)
    rows = [whole(place) for place in left[:AHEAD]]
    blind = name.startswith(CERTIFICATION)  # the score would lead the eye
    items = cards(database, [row for row in rows if row], thumbnails(REVIEW), marks, () if blind else COMPACT)
    done = [identity({"uid": p.uid, "caption_index": p.caption_index}) for p in places if p not in left]
    deck(database, f"{name} {reviewer()}", items, done=done, total=len(places), left=len(left))


def certificate(name: str) -> None:
    """What the marks of a certification sample prove so far."""
    sample = read_sample(database.files.folder, name)
    proven = certify(judged_strata(sample, marks_of_sample(database, sample)), filtered=bool(sample.rules))
    share = proven.mismatched
    st.markdown(
        f"**{proven.labels}** of {len(sample.rows)} judged: between **{percent(share.low)}** and "
        f"**{percent(share.high)}** of the pairs are mismatched (90%)."
    )


def agreement() -> None:
    """Of each two reviewers."""
    pairs = reviewers_agreement(database)
    if not pairs:
        st.caption("Two reviewers must mark the same rows before their agreement can be told.")
        return
    st.dataframe(
        [
            {
                "reviewers": f"{one.first}, {one.second}",
                "rows": one.rows,
                "same mark": percent(one.same),
                "Cohen's kappa": number(one.kappa),
            }
            for one in pairs
        ],
        hide_index=True,
    )


with st.sidebar:
    name = st.selectbox("Queue", queue_names(database), key="queue", bind="query-params")
    where = st.text_input("Of the rows where", key="queue_where", bind="query-params", placeholder="kind = 'video'")
    st.caption(f"A queue has at most {MOST} rows. Draw a certification sample with `auditor certify`.")
st.title("Review")
try:
    places = found.ask("queue", queue, name, where or None)
except QueryError as error:
    empty("The SQL condition cannot be used", str(error), icon=":material/error:")
    st.stop()
if not places:
    empty("This queue is empty", "No usable row meets the condition.")
    st.stop()
send_all()
reviewing(places, name)
with st.expander("Agreement of reviewers, and what the marks prove"):
    if name.startswith(CERTIFICATION):
        certificate(name.removeprefix(CERTIFICATION))
    agreement()
