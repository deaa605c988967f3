"""Numbers and places in words."""

from dashboard.display_text import number, score_words, shortened, span_words


def test_scores_in_words() -> None:
    row = {"kind": "video", "p_mismatch": 0.93, "matches_text": 12.3, "similarity": None}
    found = {score.label: score for score in score_words(row, {"p_mismatch": 0.999})}
    assert "93.0% do not belong" in found["Probability of a mismatch"].words
    assert "above 99% of the video pairs" in found["Probability of a mismatch"].words
    assert "about 12.3 videos" in found["Media that fit the caption"].words
    assert "Similarity" not in found
    assert number(0.99999) == "> 0.999" and number(1.0) == "1"
    assert number(0.00001) == "< 0.001" and number(None) == "–" and number(12345.6) == "12,346"
    assert shortened("a\n b " + "c" * 300).startswith("a b c") and len(shortened("c" * 300)) == 220


def test_the_place_of_a_timed_caption_in_words() -> None:
    row = {"start": 2.4, "end": 64.6, "best_start": 5.0, "best_end": 61.0, "time_shift": -3.25, "p_time_shift": 0.001}
    said = span_words(row)
    assert "0:02.4 to 1:04.6" in said and "from 0:05.0 to 1:01.0" in said and "shifted by -3.2 s" in said
    assert "shifted" not in span_words({**row, "p_time_shift": 0.4})
    assert "best" not in span_words({"start": 2.4, "end": 64.6})
