"""Numbers, scores and time spans in words, and the colors of heat tables."""

import pandas as pd

from dashboard.display_text import (
    describe_scores,
    describe_span,
    format_number,
    heat_colors,
    render_caption_parts,
    shorten_text,
)


def test_scores_in_words() -> None:
    row = {"kind": "video", "p_mismatch": 0.93, "ambiguity_text": 0.62, "similarity": None}
    found = {score.label: score for score in describe_scores(row, {"p_mismatch": 0.999})}
    assert "93.0% of pairs with such a score do not belong" in found["Probability of a mismatch"].sentence
    assert "above 99% of the video pairs" in found["Probability of a mismatch"].sentence
    assert "ambiguous from 0.5 up" in found["Ambiguity of the caption"].sentence
    assert "Similarity" not in found
    assert format_number(0.99999) == "> 0.999" and format_number(1.0) == "1"
    assert format_number(0.00001) == "< 0.001" and format_number(None) == "–" and format_number(12345.6) == "12,346"
    assert shorten_text("a\n b " + "c" * 300).startswith("a b c") and len(shorten_text("c" * 300)) == 220


def test_the_span_of_a_timed_caption_in_words() -> None:
    row = {"start": 2.4, "end": 64.6, "best_start": 5.0, "best_end": 61.0, "time_shift": -3.25, "p_time_shift": 0.001}
    said = describe_span(row)
    assert "0:02.4 to 1:04.6" in said and "from 0:05.0 to 1:01.0" in said and "shifted by -3.2 s" in said
    assert "shifted" not in describe_span({**row, "p_time_shift": 0.4})
    assert "best" not in describe_span({"start": 2.4, "end": 64.6})


def test_a_heat_table_is_deeper_in_color_where_numbers_are_worse() -> None:
    assert [opacity(style) for style in heat_colors(pd.Series([1.0, 21, 41]), False)] == [0, 0.375, 0.75]
    assert [opacity(style) for style in heat_colors(pd.Series([0.4, 0.2]), True)] == [0, 0.75]
    assert opacity(heat_colors(pd.Series([2.0, 2.1]), False)[1]) < 0.01  # groups that hardly differ
    worst = heat_colors(pd.Series([1.0, 41]), False)[1], heat_colors(pd.Series([0.4, 0.2]), True)[1]
    assert worst[0] == worst[1]  # bad is one color, whichever end is bad


def opacity(style: str) -> float:
    return float(style.rpartition(",")[2].rstrip(")")) if style else 0.0


def test_weak_parts_of_a_caption_are_marked_and_escaped() -> None:
    row = {"caption": "A <b> runs. A cat. More", "part_ends": "11 18", "part_probabilities": "0.020 0.970"}
    assert render_caption_parts(row) == (
        '<p class="caption-parts">A &lt;b&gt; runs.<mark title="probability of a mismatch"> A cat. '
        "<small>0.97</small></mark> More</p>"
    )
    assert render_caption_parts(row | {"part_probabilities": "0.020 0.030"}) == ""
    assert render_caption_parts({"caption": None}) == ""
