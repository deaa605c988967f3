from auditor.review.label_sheet import build_label_card, build_label_csv, build_label_page

ROW = {"uid": "a" * 32, "caption_index": 1, "key": 'k"1', "caption": "<script>alert(1)</script>, a dog"}


def test_the_text_of_others_stays_text() -> None:
    page = build_label_page([ROW], ["/9g="], "judge")
    assert "<script>alert" not in page and "&lt;script&gt;alert(1)&lt;/script&gt;, a dog" in page
    assert 'data-key="k&quot;1"' in page and "judge.csv" in page
    assert "p_mismatch" not in page  # a score would bias reviewers


def test_a_row_without_a_picture_says_so() -> None:
    assert "no image" in build_label_card(ROW, "") and "<img" not in build_label_card(ROW, "")


def test_a_timed_caption_is_judged_by_its_span() -> None:
    timed = {**ROW, "start": 1.5, "end": 3.0}
    assert "a dog (1.5 to 3 s)" in build_label_card(timed, "")
    head, _, line = build_label_csv([ROW, timed], [None, "bad"]).splitlines()
    assert head == "uid,caption_index,key,caption,start,end,mark,note" and line.endswith(",1.5,3.0,bad,")


def test_csv_quotes_and_keeps_marks() -> None:
    head, line = build_label_csv([ROW], ["bad"]).splitlines()
    assert head == "uid,caption_index,key,caption,mark,note"
    assert line == f'{"a" * 32},1,"k""1","<script>alert(1)</script>, a dog",bad,'
