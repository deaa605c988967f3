"""Text in any encoding is read correctly or as the user specifies; guesses are reported."""

import csv
import io
import json
from pathlib import Path

import pytest

from auditor.corpus.caption_text import find_encoding
from auditor.corpus.open_corpus import CorpusError, CorpusOptions, OpenShard, open_corpus
from auditor.corpus.sample import Sample
from tests.support.corpora import write_tar

TEXTS = {
    "cp1252": "Ein Mädchen fährt über die Brücke – „schön“",
    "latin-1": "Un niño pequeño corre detrás del balón",
    "utf-8": "Une fille à vélo près d'un café",
    "utf-8-sig": "Une fille à vélo",
    "utf-16": "Девочка едет на велосипеде",
    "utf-16-le": "a plain caption without a mark",
    "utf-16-be": "another plain caption without a mark",
    "cp1251": "Девочка едет на велосипеде по мосту",
    "gb18030": "一个女孩骑着自行车过桥，后面跟着一只狗",
    "shift_jis": "女の子が自転車で橋を渡っている",
    "cp949": "소녀가 자전거를 타고 다리를 건넌다",
}


def opened(spec: Path, **options: object) -> tuple[list[Sample], list[str]]:
    samples: list[Sample] = []
    problems: list[str] = []
    for shard in open_corpus(str(spec), CorpusOptions(**options)).shards:  # type: ignore[arg-type]
        with shard.open() as found:
            assert isinstance(found, OpenShard)
            samples += found.samples
            problems += found.problems
    return samples, problems


@pytest.mark.parametrize("encoding", TEXTS)
def test_encodings_are_detected(encoding: str) -> None:
    data = TEXTS[encoding].encode(encoding)
    assert data.decode(find_encoding(data)).removeprefix("\ufeff") == TEXTS[encoding]


def test_the_encoding_option_applies_unless_a_mark_contradicts_it() -> None:
    polish = "Mała dziewczynka jeździ na łyżwach"
    assert polish.encode("cp1250").decode(find_encoding(polish.encode("cp1250"), "cp1250")) == polish
    assert find_encoding(b"\xef\xbb\xbfabc", "cp1250") == "utf-8-sig"
    with pytest.raises(CorpusError, match="there is no encoding 'klingon'"):
        CorpusOptions(encoding="klingon")


@pytest.mark.parametrize("form", ["tar", "folder"])
def test_legacy_encodings_of_sidecars_are_read_and_reported(tmp_path: Path, form: str) -> None:
    german, record = TEXTS["cp1252"], {"caption": TEXTS["latin-1"]}
    files = {
        "a": {"jpg": b"A", "txt": german.encode("cp1252")},
        "b": {"jpg": b"B", "json": json.dumps(record, ensure_ascii=False).encode("latin-1")},
        "c": {"jpg": b"C", "txt": TEXTS["utf-8"].encode()},
    }
    spec = tmp_path / ("t.tar" if form == "tar" else "photos")
    if form == "tar":
        write_tar(spec, list(files.items()))
    else:
        spec.mkdir()
        for key, members in files.items():
            for extension, data in members.items():
                (spec / f"{key}.{extension}").write_bytes(data)
    samples, problems = opened(spec)
    assert [sample.captions for sample in samples] == [(german,), (TEXTS["latin-1"],), (TEXTS["utf-8"],)]
    assert [sample.encoding for sample in samples] == ["cp1252", "cp1252", None]
    assert (
        len(problems) == 1 and "2 samples are not in UTF-8 and were read as cp1252, such as those of a" in problems[0]
    )
    assert opened(spec, encoding="cp1250")[0][0].captions == (german.encode("cp1252").decode("cp1250"),)


def table(encoding: str, delimiter: str = ",", header: bool = True, rows: int = 40) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\r\n")
    if header:
        writer.writerow(["image", "caption", "licence"])
    text = TEXTS.get(encoding, TEXTS["utf-8"])
    for number in range(rows):
        words = f'{text}; "{number}",\nand more' if number == rows - 1 else f"plain, words | {number}"
        writer.writerow([f"img/{number}.jpg", words, "cc; by"])
    return out.getvalue().encode(encoding)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252", "cp1251", "gb18030"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_tables_in_any_encoding_with_any_delimiter(tmp_path: Path, encoding: str, delimiter: str) -> None:
    (tmp_path / "t.csv").write_bytes(table(encoding, delimiter))
    samples, problems = opened(tmp_path / "t.csv", shard_size=7, carry=("licence",))
    text = TEXTS.get(encoding, TEXTS["utf-8"])
    assert samples[-1].captions == (f'{text}; "39",\nand more',) and samples[3].captions == ("plain, words | 3",)
    assert [sample.key for sample in samples] == [f"img/{number}" for number in range(40)]
    assert {sample.carried for sample in samples} == {('{"licence": "cc; by"}',)}
    assert bool(problems) == (not encoding.startswith("utf"))
    assert not problems or f"read as {encoding}" in problems[0]


def test_rows_may_end_with_carriage_returns(tmp_path: Path) -> None:
    text = 'image;caption\ra.jpg;schön, "so"\rb.jpg;"two\rlines"\rc.jpg;three'
    (tmp_path / "t.csv").write_bytes(text.encode("cp1252"))
    samples, problems = opened(tmp_path / "t.csv", shard_size=2)
    assert [sample.key for sample in samples] == ["a", "b", "c"] and "read as cp1252" in problems[0]
    assert [sample.captions for sample in samples] == [('schön, "so"',), ("two\nlines",), ("three",)]


def test_options_override_the_detected_dialect(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("image^caption\na.jpg^Łódź\n".encode("cp1250"))
    samples, problems = opened(tmp_path / "t.csv", delimiter="^", encoding="cp1250")
    assert samples[0].captions == ("Łódź",) and "read as cp1250" in problems[0]
    with pytest.raises(CorpusError, match="one character"):
        CorpusOptions(delimiter="::")


def test_tables_without_a_header(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(table("utf-8", header=False))
    samples, problems = opened(tmp_path / "t.csv")
    assert len(samples) == 40 and samples[0].key == "img/0" and samples[0].captions == ("plain, words | 0",)
    assert "has no header: column 1 was taken for the media and column 2 for the captions" in problems[0]
    (tmp_path / "t.tsv").write_text("one thing\ta.jpg\nanother\tb.jpg\n")
    samples, _ = opened(tmp_path / "t.tsv", caption_column="1")
    assert [(sample.key, sample.captions) for sample in samples] == [("a", ("one thing",)), ("b", ("another",))]
    (tmp_path / "odd.csv").write_text("x,y\n1,2\n")  # names that look like any cells
    assert [s.captions for s in opened(tmp_path / "odd.csv", header=False, media_column="1")[0]] == [("y",), ("2",)]


def test_json_lines_in_another_encoding(tmp_path: Path) -> None:
    lines = [json.dumps({"image": f"{n}.jpg", "caption": TEXTS["cp1252"]}, ensure_ascii=False) for n in range(5)]
    (tmp_path / "t.jsonl").write_bytes("\n".join(lines).encode("cp1252"))
    samples, problems = opened(tmp_path / "t.jsonl", shard_size=2)
    assert {sample.captions for sample in samples} == {(TEXTS["cp1252"],)} and len(problems) == 1
