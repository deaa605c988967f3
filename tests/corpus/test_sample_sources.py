"""Several sources of captions in every form of a corpus: which caption is from which, in a fixed order."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.corpus.open_corpus import CorpusError, CorpusOptions, open_corpus
from auditor.corpus.rewrite_captions import keep_captions, place_captions
from auditor.corpus.sample import Sample
from auditor.corpus.shard import DEFAULT_OPTIONS
from tests.support.corpora import write_members

PNG = b"\x89PNG\r\n\x1a\n"
COLUMNS = CorpusOptions(caption_column=("alt", "raw", "refined"))
Labeled = list[tuple[str, str | None]]


def read_samples(spec: Path | str, options: CorpusOptions = DEFAULT_OPTIONS) -> tuple[dict[str, Sample], list[str]]:
    samples: dict[str, Sample] = {}
    problems: list[str] = []
    for shard in open_corpus(str(spec), options).shards:
        with shard.open() as opened:
            samples |= {sample.key: sample for sample in opened.samples}
            problems += opened.problems
    return samples, problems


def label(sample: Sample) -> Labeled:
    return list(zip(sample.captions, sample.sources or [None] * len(sample.captions), strict=True))


def write_table(folder: Path, form: str, rows: list[dict[str, Any]]) -> Path:
    path = folder / f"t.{form}"
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif form == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        mark = "," if form == "csv" else "\t"
        lines = [mark.join(rows[0]), *(mark.join(str(cell or "") for cell in row.values()) for row in rows)]
        path.write_text("\n".join(lines))
    for row in rows:
        (folder / row["file_name"]).write_bytes(PNG)
    return path


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet"])
def test_columns_are_sources(tmp_path: Path, form: str) -> None:
    rows = [
        {"file_name": "a.png", "refined": "fine a", "raw": "r a", "alt": "alt a"},
        {"file_name": "b.png", "refined": "fine b", "raw": None, "alt": "alt b"},
        {"file_name": "c.png", "refined": None, "raw": "", "alt": None},
    ]
    samples, _ = read_samples(write_table(tmp_path, form, rows), COLUMNS)
    assert label(samples["a"]) == [("alt a", "alt"), ("r a", "raw"), ("fine a", "refined")]
    assert label(samples["b"]) == [("alt b", "alt"), ("fine b", "refined")]
    problem = samples["c"].problem
    assert problem is not None and problem.status == "missing_caption"


def test_lists_and_rows_of_one_medium(tmp_path: Path) -> None:
    rows = [
        {"file_name": "a.png", "alt": ["one", "two"], "raw": ["r"], "refined": []},
        {"file_name": "a.png", "alt": ["three"], "raw": [], "refined": ["f"]},
    ]
    samples, _ = read_samples(write_table(tmp_path, "parquet", rows), COLUMNS)
    assert label(samples["a"]) == [
        *(("one", "alt"), ("two", "alt"), ("r", "raw")),
        *(("three", "alt"), ("f", "refined")),
    ]


def test_cells_that_are_no_text_hold_no_caption(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"file_name": "a.png", "alt": "one", "raw": 17, "refined": {"text": "two"}},
        {"file_name": "b.png", "alt": True, "raw": [1, None, "three"], "refined": 3.5},
        {"file_name": "c.png", "alt": 1, "raw": [], "refined": False},
    ]
    samples, _ = read_samples(write_table(tmp_path, "jsonl", rows), COLUMNS)
    assert label(samples["a"]) == [("one", "alt")] and label(samples["b"]) == [("three", "raw")]
    problem = samples["c"].problem
    assert problem is not None and problem.status == "missing_caption"


def test_sources_of_unequal_number_share_the_spans(tmp_path: Path) -> None:
    spans = {"start": [0, 5], "end": [5, 9]}
    rows = [{"file_name": "a.mp4", "alt": ["x", "y"], "raw": ["only one"], "refined": ["p", "q"], **spans}]
    samples, _ = read_samples(write_table(tmp_path, "jsonl", rows), COLUMNS)
    spanned = [(text, source, span and span.start) for (text, source), span in zip(
        label(samples["a"]), samples["a"].spans, strict=True)]  # fmt: skip
    assert spanned == [
        *(("x", "alt", 0), ("y", "alt", 5), ("only one", "raw", 0), ("p", "refined", 0), ("q", "refined", 5)),
    ]


def test_a_column_may_have_a_comma_in_its_name(tmp_path: Path) -> None:
    path = write_table(tmp_path, "jsonl", [{"file_name": "a.png", "alt, raw": "one", "alt": "two"}])
    for names in (("alt", "raw"), "alt, raw"):
        samples, _ = read_samples(path, CorpusOptions(caption_column=names))  # type: ignore[arg-type]
        assert label(samples["a"]) == [("one", None)]


def make_members(key: str, **files: str) -> list[tuple[str, bytes]]:
    return [(f"{key}.{name.replace('_', '.')}", text.encode()) for name, text in files.items()]


@pytest.mark.parametrize("form", ["tar", "folder"])
def test_text_files_beside_the_plain_one(tmp_path: Path, form: str) -> None:
    """Only names of sources count, and not if a medium has that name; a key may contain dots."""
    members = [
        *make_members("a", png="x", txt="plain", refined_txt="fine\nfiner", alt_txt="alt", notes_txt="no caption"),
        *make_members("b", png="x", txt="alone"),
        *make_members("c.8", png="x", txt="eight", raw_txt="raw eight"),
    ]
    if form == "tar":
        spec = write_members(tmp_path / "a.tar", members)
    else:
        spec = tmp_path / "photos"
        spec.mkdir()
        for name, data in members:
            (spec / name).write_bytes(PNG if name.endswith("png") else data)
    samples, _ = read_samples(spec)
    assert label(samples["a"]) == [("plain", "txt"), ("alt", "alt"), ("fine", "refined"), ("finer", "refined")]
    assert label(samples["b"]) == [("alone", "txt")]
    assert label(samples["c" if form == "tar" else "c.8"]) == [("eight", "txt"), ("raw eight", "raw")]


def test_one_text_file_is_no_source(tmp_path: Path) -> None:
    """Corpora with sidecars of other names, media named like a source, or a single file read as before."""
    members = [
        *make_members("a", png="x", txt="plain", en_txt="other"),
        *make_members("b", png="x", alt_txt="the only one"),
        *make_members("c", png="x", txt="big", raw_png="x", raw_txt="of raw.png"),
    ]
    samples, _ = read_samples(write_members(tmp_path / "a.tar", members))
    assert [label(samples[key]) for key in "abc"] == [[("plain", None)], [("the only one", None)], [("big", None)]]


def test_fields_of_json_files(tmp_path: Path) -> None:
    record = {"caption": "not named", "raw": "r", "refined": ["f", "g"], "clips": [[0, 1], [1, 2], [2, 3]]}
    members = [*make_members("a", png="x", txt="text", alt_txt="alt", json=json.dumps(record))]
    members += make_members("b", png="x", txt="text", json='{"caption": "not named"}')
    tar = write_members(tmp_path / "a.tar", members)
    samples, problems = read_samples(tar, CorpusOptions(caption_fields=("refined", "raw", "alt.txt", "typo")))
    assert label(samples["a"]) == [("f", "refined"), ("g", "refined"), ("r", "raw"), ("alt", "alt")]
    assert samples["a"].spans == () and samples["b"].captions == ()
    assert problems == ["no sample has a caption in 'typo', which --caption-fields names"]
    single, problems = read_samples(tar, CorpusOptions(caption_fields=("raw",)))
    assert label(single["a"]) == [("r", None)] and problems == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (CorpusOptions(caption_column=("alt", "rwa")), "no column 'rwa': .* did you mean 'raw'"),
        (CorpusOptions(caption_fields=("alt",)), "is a table: name its columns with --caption-column"),
    ],
)
def test_a_wrong_name_is_one_line(tmp_path: Path, options: CorpusOptions, reason: str) -> None:
    path = write_table(tmp_path, "csv", [{"file_name": "a.png", "alt": "x", "raw": "y"}])
    with pytest.raises(CorpusError, match=reason):
        read_samples(path, options)
    with pytest.raises(CorpusError, match="caption_column names 'alt' twice"):
        CorpusOptions(caption_column=("alt", "raw", "alt"))


def test_columns_need_a_table(tmp_path: Path) -> None:
    tar = write_members(tmp_path / "a.tar", make_members("a", png="x", txt="text"))
    with pytest.raises(CorpusError, match="is no table: name the fields of its"):
        read_samples(tar, COLUMNS)


RECORD = {"raw": "r", "refined": ["f", "g"], "width": 3}


@pytest.mark.parametrize(
    ("files", "fields", "numbers", "kept"),
    [
        ({"txt": "p\nq", "alt_txt": "a"}, (), [1], {"txt": b"q", "alt.txt": b""}),
        ({"txt": "p\nq", "alt_txt": "a"}, (), [2], {"txt": b"", "alt.txt": b"a"}),
        ({"json": json.dumps(RECORD)}, ("raw", "refined"), [2], {"json": {**RECORD, "raw": "", "refined": ["g"]}}),
        ({"json": json.dumps(RECORD)}, ("raw", "refined"), [0], {"json": {**RECORD, "refined": []}}),
        ({"txt": "p", "json": '{"raw": "r"}'}, ("txt", "raw"), [0], {"txt": b"p", "json": {"raw": ""}}),
        (
            {"txt": "p", "alt_txt": "a", "json": '{"caption": "p", "captions": ["p"]}'},
            *((), [1]),
            {"txt": b"", "alt.txt": b"a", "json": {"caption": "", "captions": []}},
        ),
        (
            {"txt": "p\nq", "json": '{"captions": ["p", "q"], "caption_sources": ["raw", "alt"]}'},
            *((), [1]),
            {"txt": b"q", "json": {"captions": ["q"], "caption_sources": ["alt"]}},
        ),
        (
            {"txt": "p\nq", "json": '{"captions": ["p", "q"], "caption_sources": ["raw", "alt"]}'},
            *(("raw", "alt"), [1]),
            {"txt": b"q", "json": {"captions": ["q"], "caption_sources": ["alt"]}},
        ),
    ],
)
def test_dropped_sources_leave_empty_places(
    files: dict[str, str], fields: tuple[str, ...], numbers: list[int], kept: dict[str, Any]
) -> None:
    members = {name.partition(".")[2]: data for name, data in make_members("a", png="x", **files)}
    options = CorpusOptions(caption_fields=fields)
    written = keep_captions(members, numbers, options)
    parsed = {name: json.loads(data) if name == "json" else data for name, data in written.items()}
    assert parsed == {"png": b"x", **kept}


def test_the_sources_of_an_export_are_read_again(tmp_path: Path) -> None:
    record = {"captions": ["p", "q"], "caption_sources": ["raw", None]}
    members = make_members("a", png="x", txt="p\nq", json=json.dumps(record))
    tar = write_members(tmp_path / "a.tar", members)
    for options in (DEFAULT_OPTIONS, CorpusOptions(caption_fields=("raw", "refined"))):
        samples, _ = read_samples(tar, options)
        assert label(samples["a"]) == [("p", "raw"), ("q", None)]


@pytest.mark.parametrize("form", ["fields", "texts"])
def test_timed_samples_keep_only_the_kept_captions_of_their_sources(form: str) -> None:
    subtitles = b"WEBVTT\n\n00:00.000 --> 00:01.000\nspoken\n"
    members: dict[str, Any] = {"mp4": b"x", "vtt": subtitles}
    members |= (
        {"json": json.dumps({"raw": "r", "refined": ["f", "g"], "width": 3}).encode()}
        if form == "fields"
        else {"txt": b"r", "alt.txt": b"f\ng"}
    )
    options = CorpusOptions(caption_fields=("raw", "refined") if form == "fields" else ())
    labels = ["refined"] if form == "fields" else ["alt"]
    record = json.loads(keep_captions(members, [2], options, {2: "edited"})["json"])
    assert record["captions"] == ["edited"] and record["caption_sources"] == labels
    assert not {"raw", "refined"} & set(record) and record["segments"] == []


def test_arriving_captions_get_places_of_their_own() -> None:
    single = {"png": b"x", "alt.txt": b"old"}  # read as the source txt
    placed = place_captions(single, ["plain", "other"], ["txt", "alt"], DEFAULT_OPTIONS)
    assert placed == {"png": b"x", "txt": b"plain", "alt.txt": b"other"}
    named = CorpusOptions(caption_fields=("txt", "raw"))
    placed = place_captions({"png": b"x", "txt": b"old"}, ["new"], ["raw"], named)
    assert placed["txt"] == b"" and json.loads(placed["json"]) == {"raw": "new"}
    one = CorpusOptions(caption_fields=("alt",))
    placed = place_captions({"png": b"x", "json": b'{"alt": "wrong"}'}, ["right"], [None], one)
    assert json.loads(placed["json"]) == {"alt": "right"}
