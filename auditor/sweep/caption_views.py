"""What the captions of a sample are about, as encoded frames with their times: its whole medium, or each a span."""

from collections.abc import Sequence
from dataclasses import dataclass

from auditor.corpus.sample import Problem
from auditor.sweep.sample_rows import Shape, Swept
from auditor.vectors import Floats


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Frames that are encoded as one medium."""

    vectors: Floats  # (F, D)
    times: tuple[float, ...]  # seconds; none for an image


def views_of(one: Swept, vectors: Floats) -> list[View]:
    """A view for each row in which a medium begins (auditor.audit_folder.embeddings.begins_medium), in their order."""
    if isinstance(one.outcome, Problem):
        return []
    if one.outcome.seen is None:
        return [View(vectors, one.outcome.times or ())]
    found: list[View] = []
    before: object = ()
    for index, span in enumerate(one.sample.spans):
        places = one.frames_of(index)
        if not isinstance(places, Problem):
            if span != before:
                found.append(view_at(one.outcome, vectors, places))
            before = span
    return found


def view_at(shape: Shape, vectors: Floats, places: Sequence[int]) -> View:
    times = shape.times or ()
    return View(vectors[list(places)], tuple(times[place] for place in places))


def around_spans(one: Swept, vectors: Floats) -> View:
    """The frames that belong to no span; none where captions have no spans."""
    if isinstance(one.outcome, Problem) or one.outcome.seen is None:
        return View(vectors[:0], ())
    used = {place for places in one.outcome.seen.of_span if not isinstance(places, str) for place in places}
    return view_at(one.outcome, vectors, [place for place in one.outcome.seen.around if place not in used])
