"""The parts of a row's caption, read from its columns."""

import pytest

from auditor.schema.caption_spans import CaptionSpan, format_numbers, list_caption_spans, tabulate_caption_spans

ROW = {
    "caption": "A dog runs. A cat sleeps.",
    "part_ends": "11 25",
    "part_probabilities": "0.012 0.981",
    "weakest_part": 1,
}


def test_spans_cover_the_caption_and_name_the_weak_part() -> None:
    spans = list_caption_spans(ROW)
    assert spans == [CaptionSpan("A dog runs.", 0.012, False), CaptionSpan(" A cat sleeps.", 0.981, True)]
    assert [span.weak for span in spans] == [False, True]
    assert [row["text"] for row in tabulate_caption_spans(ROW)] == ["A dog runs.", "A cat sleeps."]
    assert [row[""] for row in tabulate_caption_spans(ROW)] == ["", "weakest"]


def test_probabilities_may_be_missing() -> None:
    spans = list_caption_spans(ROW | {"part_probabilities": None})
    assert [(span.p, span.weak) for span in spans] == [(None, False), (None, False)]


@pytest.mark.parametrize(
    "change",
    [
        {"part_ends": None},
        {"part_ends": "25"},
        {"part_ends": "11 26"},
        {"part_ends": "11 11"},
        {"part_ends": "25 11"},
        {"part_ends": "-3 25"},
        {"part_ends": "eleven 25"},
        {"part_probabilities": "x 1"},
        {"caption": None},
    ],
)
def test_columns_that_do_not_fit_the_caption_give_no_spans(change: dict[str, object]) -> None:
    assert list_caption_spans(ROW | change) == []


def test_numbers_are_written_as_they_are_read() -> None:
    assert format_numbers([0, 1, 0.12345]) == "0.000 1.000 0.123"
