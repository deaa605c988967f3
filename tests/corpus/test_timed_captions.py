"""Captions with spans: from subtitles, segments in JSON, video2dataset's fields, and columns of tables."""

import csv
import datetime
import json
import math
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.corpus.open_corpus import open_corpus
from auditor.corpus.sample import Sample, Span
from auditor.corpus.shard import CorpusError, CorpusOptions
from auditor.corpus.timed_captions import parse_subtitles, parse_time
from tests.support.clips import make_clip
from tests.support.corpora import write_tar

VTT = """WEBVTT - some title
Kind: captions

STYLE
::cue { color: red }

NOTE a remark
00:00:09.000 --> 00:00:10.000

intro
00:00:00.500 --> 00:00:01.500 align:start position:0%
<v Ann>A dog &amp; a <c.yellow>cat</c></v>

00:01.500 --> 00:00:02.000
A dog &amp; a cat
in the <00:00:01.700>snow

01:00:00.000 --> 01:00:02.000
far away
"""
SRT = "1\r\n00:00:00,500 --> 00:00:01,500\r\nA dog\r\n\r\n2\r\n00:00:03,000 --> 00:00:02,000\r\n{\\an8}Reversed\r\n"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (12, 12.0),
        (1.25, 1.25),
        ("12.5", 12.5),
        ("12.5s", 12.5),
        ("1:02", 62.0),
        ("0:00:16.300", 16.3),
        ("01:02:03,500", 3723.5),
        ("-3", -3.0),
        ("2.5e-1", 0.25),
        (Decimal("1.5"), 1.5),
        (datetime.timedelta(minutes=1, milliseconds=500), 60.5),
        (datetime.time(1, 2, 3, 500_000), 3723.5),
    ],
)
def test_times(value: object, seconds: float) -> None:
    assert parse_time(value) == pytest.approx(seconds)


@pytest.mark.parametrize("value", [None, True, "", "soon", "1:2:3:4", [1], 10**400, "nan"])
def test_unreadable_times_are_nan(value: object) -> None:
    assert math.isnan(parse_time(value))


def test_subtitles() -> None:
    assert parse_subtitles(VTT) == [
        ("A dog & a cat", Span(0.5, 1.5)),
        ("in the snow", Span(1.5, 2.0)),  # the line before rolls on, and comes once
        ("far away", Span(3600.0, 3602.0)),
    ]
    assert parse_subtitles(SRT) == [("A dog", Span(0.5, 1.5)), ("Reversed", Span(3.0, 2.0))]
    ((text, span),) = parse_subtitles("1\nsoon --> later\nwhen?\n")
    assert text == "when?" and math.isnan(span.start)
    assert parse_subtitles("") == parse_subtitles("WEBVTT\n\n\n") == []


def test_subtitles_as_people_write_them() -> None:
    told = "WEBVTT\nX-TIMESTAMP-MAP=LOCAL:00:00:00.000\n\nREGION\nid:fred\n\nNOTE\n00:07.000 --> 00:08.000\nno\n"
    told += "\n00:01.000-->00:02.000 region:fred line:-1\n<i>3 < 5</i> and <b>7 > 6</b>\nit --> them\n"
    assert parse_subtitles(told) == [("3 < 5 and 7 > 6 it --> them", Span(1.0, 2.0))]
    dense = "1\n00:00:01,000 --> 00:00:02,000\none\n2\n00:00:02,000 --> 00:00:03,000\ntwo\n3\n"  # no blank lines
    assert parse_subtitles(dense) == [("one", Span(1, 2)), ("two 3", Span(2, 3))]
    assert [span for _, span in parse_subtitles("-00:00:01,500 --> 00:00:02,000\nearly\n")] == [Span(-1.5, 2.0)]


def test_a_repeated_line_is_a_caption_and_a_rolling_line_is_not() -> None:
    again = "0:01.000 --> 0:02.000\nyes\n\n0:02.000 --> 0:04.000\nyes\n\n0:09.000 --> 0:10.000\nyes\nno\n"
    assert parse_subtitles(again) == [("yes", Span(1, 2)), ("yes", Span(2, 4)), ("yes no", Span(9, 10))]
    rolling = "0:00.000 --> 0:02.000\n \none\n\n0:02.000 --> 0:02.010\none\n\n0:02.010 --> 0:04.000\none\ntwo\n"
    assert parse_subtitles(rolling) == [("one", Span(0, 2)), ("two", Span(2.01, 4.0))]


def only(spec: str, options: CorpusOptions | None = None) -> list[Sample]:
    found = []
    for shard in open_corpus(spec, options or CorpusOptions()).shards:
        with shard.open() as opened:
            found += opened.samples
    return found


def test_subtitles_beside_the_medium_and_in_a_tar(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.mp4").write_bytes(make_clip(frames=3))
    (folder / "a.en.vtt").write_text(VTT)
    (folder / "b.mp4").write_bytes(make_clip(frames=4))
    (folder / "b.srt").write_text(SRT)
    (folder / "b.txt").write_text("a whole film\n")
    members = {key: {f.name.partition(".")[2]: f.read_bytes() for f in folder.glob(f"{key}.*")} for key in "ab"}
    write_tar(tmp_path / "s.tar", members.items())
    for spec in (str(folder), str(tmp_path / "s.tar")):
        first, second = only(spec)
        assert first.captions == ("A dog & a cat", "in the snow", "far away") and first.problem is None
        assert first.spans[2] == Span(3600.0, 3602.0)
        assert second.captions == ("a whole film", "A dog", "Reversed")
        assert second.spans == (None, Span(0.5, 1.5), Span(3.0, 2.0))


def test_subtitles_come_before_a_table_as_other_sidecars_do(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_bytes(make_clip(frames=3))
    (tmp_path / "a.vtt").write_text(VTT)
    write_table(tmp_path / "metadata.csv", [["file", "title"], ["a.mp4", "a title"]])
    (sample,) = only(str(tmp_path))
    assert sample.captions[0] == "A dog & a cat"
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(CorpusError, match=r"timed:captions\.json::videos"):
        only(str(tmp_path / "x.json"))


def test_a_changed_subtitle_changes_the_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_bytes(make_clip(frames=3))
    (tmp_path / "a.vtt").write_text(VTT)
    (before,) = open_corpus(str(tmp_path), CorpusOptions()).shards
    mark = before.fingerprint()
    (tmp_path / "a.vtt").write_text(VTT.replace("dog", "cow"))
    (after,) = open_corpus(str(tmp_path), CorpusOptions()).shards
    assert after.fingerprint() != mark


def test_segments_and_video2dataset_in_json(tmp_path: Path) -> None:
    segments = {
        "segments": [{"start": 0, "end": "00:00:01.0", "caption": "one"}, {"start": 1, "end": 2, "text": "two"}]
    }
    cues = [{"start": "00:00:08.670", "end": "00:00:09.000", "lines": ["a word", "or two"]}]
    cut = {"clips": [[8.5, 48.5]], "clip_subtitles": cues, "yt_meta_dict": {"subtitles": cues}}
    records = {"a": segments, "b": cut, "c": {"yt_meta_dict": {"subtitles": cues}}, "d": {**cut, "caption": "a man"}}
    members = [(key, {"mp4": b"x", "json": json.dumps(record).encode()}) for key, record in records.items()]
    write_tar(tmp_path / "s.tar", members)
    a, b, c, d = only(str(tmp_path / "s.tar"))
    assert (a.captions, a.spans) == (("one", "two"), (Span(0, 1), Span(1, 2)))
    assert b.captions == ("a word or two",)
    assert b.spans[0] is not None and b.spans[0].start == pytest.approx(0.17)  # the file begins at 8.5 s
    assert c.spans == (Span(8.67, 9.0),)
    assert d.captions == ("a man",) and d.spans == ()  # speech is no caption where there is one


def in_tar(folder: Path, record: dict[str, object]) -> Sample:
    write_tar(folder / "one.tar", [("a", {"mp4": b"x", "json": json.dumps(record).encode()})])
    (sample,) = only(str(folder / "one.tar"))
    return sample


def test_video2dataset_by_language(tmp_path: Path) -> None:
    """Later versions write subtitles by language; the lines at the ends of a clip reach beyond it."""
    said = {"start": "00:00:07.000", "end": "00:00:09.000"}
    whole = {"en": [{**said, "lines": ["a word"]}], "de": [{**said, "lines": ["ein Wort"]}]}
    sample = in_tar(tmp_path, {"caption": None, "yt_meta_dict": {"info": {}, "subtitles": whole}})
    assert (sample.captions, sample.spans) == (("a word",), (Span(7.0, 9.0),))
    lines = {"en": ["a word"], "de": ["ein Wort"]}
    late = {"start": "00:00:11.000", "end": "00:00:20.000", "lines": {"en": ["late"]}}
    clip = {"clips": [["00:00:08.000", "00:00:12.000"]], "clip_subtitles": [{**said, "lines": lines}, late]}
    sample = in_tar(tmp_path, {**clip, "yt_meta_dict": {"subtitles": whole}})
    assert (sample.captions, sample.spans) == (("a word", "late"), (Span(0.0, 1.0), Span(3.0, 4.0)))
    first = {"clips": [[0.0, 4.0]], "yt_meta_dict": {"subtitles": whole}}  # speech of all, and the clip has none
    assert in_tar(tmp_path, first).captions == ()


def test_marks_of_automatic_captions_in_video2dataset(tmp_path: Path) -> None:
    """In a real shard, a cue of 10 ms marks the end of a line that was spoken before it."""
    marks = [("00:00:08.670", "00:00:08.680"), ("00:00:15.270", "00:00:15.280"), ("00:00:15.280", "00:00:16.000")]
    cues = [{"start": a, "end": b, "lines": [f"line {number}"]} for number, (a, b) in enumerate(marks)]
    sample = in_tar(tmp_path, {"clips": [[8.5, 48.5]], "clip_subtitles": cues})
    times = [time for span in sample.spans if span is not None for time in (span.start, span.end)]
    assert times == pytest.approx([0, 0.18, 0.18, 6.78, 6.78, 7.5])


def test_clips_of_a_video_that_was_not_cut(tmp_path: Path) -> None:
    clips = {"clips": [[0, 1], ["00:00:01.000", "00:00:02.500"]]}
    for texts in ({"caption": ["one", "two"]}, {"captions": ["one", "two"]}, {"subtitles": ["one", "two"]}):
        sample = in_tar(tmp_path, {**clips, **texts})
        assert (sample.captions, sample.spans) == (("one", "two"), (Span(0, 1), Span(1, 2.5)))
    sample = in_tar(tmp_path, {**clips, "caption": "one of both"})
    assert (sample.captions, sample.spans) == (("one of both",), ())


def write_table(path: Path, rows: list[list[object]]) -> str:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return str(path)


def test_tables_with_start_and_end(tmp_path: Path) -> None:
    (tmp_path / "x1.webm").write_bytes(make_clip(frames=3))
    rows: list[list[object]] = [["YoutubeID", "Start_timestamp", "End_timestamp", "Caption"]]
    rows += [["x1", "00:00:00.000", "00:00:01.000", "one"], ["x1", "1.5", "2.5", "two"], ["x1", "", "", "all of it"]]
    (sample,) = only(write_table(tmp_path / "t.csv", rows))
    assert sample.media is not None and sample.media.path.endswith("x1.webm")
    assert sample.captions == ("one", "two", "all of it")
    assert sample.spans == (Span(0.0, 1.0), Span(1.5, 2.5), None)


def test_columns_named_by_hand(tmp_path: Path) -> None:
    (tmp_path / "x1.mp4").write_bytes(make_clip(frames=3))
    path = write_table(tmp_path / "t.csv", [["file", "von", "bis", "text"], ["x1.mp4", 1, 2, "one"]])
    assert only(path)[0].spans == ()
    (sample,) = only(path, CorpusOptions(start_column="von", end_column="bis"))
    assert sample.spans == (Span(1.0, 2.0),)
    half = write_table(tmp_path / "half.csv", [["file", "von", "end", "text"], ["x1.mp4", 1, 2, "one"]])
    assert only(half, CorpusOptions(start_column="von"))[0].spans == (Span(1.0, 2.0),)  # the other by its usual name
    with pytest.raises(CorpusError, match="no column 'begin'"):
        only(path, CorpusOptions(start_column="begin"))
    with pytest.raises(CorpusError, match="--end-column needs"):
        only(path, CorpusOptions(end_column="bis"))


def test_columns_that_list_spans_and_captions(tmp_path: Path) -> None:
    """Panda-70M writes lists in Python syntax."""
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "v1.mp4").write_bytes(make_clip(frames=3))
    rows: list[list[object]] = [["videoID", "url", "timestamp", "caption", "matching_score"]]
    spans = "[['0:00:00.300', '0:00:01.566'], ['0:00:02.100', '0:00:03.066'], ['x', '1']]"
    rows.append(
        ["v1", "https://example.org/watch?v=v1", spans, "['it\\'s a dog', \"a 'cat'\", 'late']", "[0.4, 0.5, 0.1]"]
    )
    (sample,) = only(write_table(tmp_path / "p.csv", rows))
    assert sample.captions == ("it's a dog", "a 'cat'", "late")
    assert sample.spans[:2] == (Span(0.3, 1.566), Span(2.1, 3.066))
    assert sample.spans[2] is not None and math.isnan(sample.spans[2].start)


def test_an_empty_caption_of_a_list_takes_its_span_with_it(tmp_path: Path) -> None:
    (tmp_path / "v1.mp4").write_bytes(make_clip(frames=3))
    rows: list[list[object]] = [["video id", "timestamp", "caption"]]
    rows.append(["v1", "[[0, 1], [1, 2], [2, 3]]", '["one", "", "three"]'])
    (sample,) = only(write_table(tmp_path / "p.csv", rows))
    assert (sample.captions, sample.spans) == (("one", "three"), (Span(0, 1), Span(2, 3)))


def test_a_column_called_timestamp_may_hold_dates(tmp_path: Path) -> None:
    """A date is not a span, unless the option names the column."""
    (tmp_path / "v1.mp4").write_bytes(make_clip(frames=3))
    path = write_table(tmp_path / "t.csv", [["video", "caption", "timestamp"], ["v1.mp4", "[one]", "2021-05-01"]])
    (sample,) = only(path)
    assert (sample.captions, sample.spans) == (("[one]",), ())
    (sample,) = only(path, CorpusOptions(start_column="timestamp"))
    assert sample.spans[0] is not None and math.isnan(sample.spans[0].start)


def test_a_row_with_a_start_alone_keeps_it(tmp_path: Path) -> None:
    (tmp_path / "7.mp4").write_bytes(make_clip(frames=3))
    table = pa.table({"video_id": [7, 7], "start": [1.5, None], "end": pa.array([None, None], pa.float64())})
    pq.write_table(table.append_column("caption", pa.array(["one", "two"])), tmp_path / "t.parquet")
    (sample,) = only(str(tmp_path / "t.parquet"))
    assert sample.media is not None and sample.spans[1] is None
    assert sample.spans[0] is not None and sample.spans[0].start == 1.5 and math.isnan(sample.spans[0].end)


def test_rows_of_a_table_keep_their_uids(tmp_path: Path) -> None:
    (tmp_path / "v1.mp4").write_bytes(make_clip(frames=3))
    rows: list[list[object]] = [["video_id", "start", "end", "text", "uid"]]
    rows += [["v1", number, number + 1, f"caption {number}", f"{number:032x}"] for number in range(3)]
    (sample,) = only(write_table(tmp_path / "t.csv", rows))
    assert sample.uids == tuple(f"{number:032x}" for number in range(3))


def test_rows_of_a_video_are_not_cut_apart(tmp_path: Path) -> None:
    """A shard that begins in the middle of a video's rows would open the video twice."""
    videos = ["a"] * 3 + ["b"] * 4 + ["c"] + ["d"] * 5
    fields = {"video_id": videos, "start": list(range(13)), "end": list(range(1, 14)), "text": ["x"] * 13}
    pq.write_table(pa.table(fields), tmp_path / "t.parquet", row_group_size=2)
    corpus = open_corpus(str(tmp_path / "t.parquet"), CorpusOptions(shard_size=4))
    found = []
    for shard in corpus.shards:
        with shard.open() as opened:
            found.append([(sample.key, len(sample.captions)) for sample in opened.samples])
    assert found == [[("a", 3), ("b", 4)], [("c", 1)], [("d", 5)]]


def test_a_video_that_appears_later_changes_the_fingerprint(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", [["video_id", "start", "end", "text"], ["v1", 0, 1, "one"]])
    (before,) = open_corpus(path, CorpusOptions()).shards
    mark = before.fingerprint()
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "v1.mp4").write_bytes(make_clip(frames=3))
    assert before.fingerprint() != mark


def test_timed_captions_by_video(tmp_path: Path) -> None:
    """The published forms of ActivityNet and HowTo100M; a missing video and a wrong entry are rows, too."""
    (tmp_path / "videos").mkdir()
    for name in ("v_a.mp4", "b.webm", "d.mp4"):
        (tmp_path / "videos" / name).write_bytes(make_clip(frames=3))
    told = {
        "v_a": {"duration": 82.7, "timestamps": [[0.83, 19.86], [17.37, 60.81]], "sentences": ["A man ", "He sits."]},
        "b": {"start": [0.5, 2.0, 3.0], "end": [1.5, 2.5, 4.0], "text": ["one", "", "three"]},
        "c": {"start": [0], "end": [1], "text": ["gone"]},
        "d": ["no object"],
    }
    (tmp_path / "train.json").write_text(json.dumps(told))
    a, b, c, d = only(f"timed:{tmp_path / 'train.json'}::{tmp_path / 'videos'}")
    assert (a.key, a.captions) == ("v_a", ("A man", "He sits."))
    assert a.spans == (Span(0.83, 19.86), Span(17.37, 60.81)) and a.problem is None
    assert (b.captions, b.spans) == (("one", "three"), (Span(0.5, 1.5), Span(3.0, 4.0)))
    assert c.problem is not None and c.problem.status == "missing_media"
    assert d.problem is not None and "no object" not in str(d.problem) and d.problem.status == "corrupt"
    (tmp_path / "train.json").write_text("[]")
    with pytest.raises(CorpusError, match="an entry for each video"):
        only(f"timed:{tmp_path / 'train.json'}::{tmp_path / 'videos'}")
