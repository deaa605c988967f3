"""Corpus specs: lists, braces, globs, folders and URLs, and one-line errors for wrong ones."""

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.corpus.corpus_spec import expand_braces
from auditor.corpus.file_names import find_common_root, make_shard_names, natural_sort_key, split_key
from auditor.corpus.open_corpus import CorpusError, CorpusOptions, open_corpus
from auditor.corpus.shard_writer import write_shard

SAMPLE = [("a", {"jpg": b"x", "txt": b"fine"})]


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    for name in ("s-0.tar", "s-1.tar", "s-2.tar", "s-10.tar", "deep/er/s-1.tar"):
        write_shard(tmp_path / name, SAMPLE)
    (tmp_path / "s-0.parquet").write_bytes(b"img2dataset leaves one beside each tar")
    (tmp_path / "s-0_stats.json").write_bytes(b"{}")
    return tmp_path


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ("", ["deep__er__s-1", "s-0", "s-1", "s-2", "s-10"]),
        ("/", ["deep__er__s-1", "s-0", "s-1", "s-2", "s-10"]),
        ("/s-1.tar", ["s-1"]),
        ("/s-?.tar", ["s-0", "s-1", "s-2"]),
        ("/**/s-1.tar", ["deep__er__s-1", "s-1"]),
        ("/s-{0..2}.tar", ["s-0", "s-1", "s-2"]),
        ("/s-{2..0}.tar", ["s-0", "s-1", "s-2"]),
        ("/s-{0,10}.tar", ["s-0", "s-10"]),
        ("/s-{0,1}*.tar", ["s-0", "s-1", "s-10"]),
        ("/{deep,deep/er}", ["s-1"]),
    ],
)
def test_forms_of_a_spec(shards: Path, spec: str, names: list[str]) -> None:
    assert [shard.name for shard in open_corpus(f"{shards}{spec}").shards] == names


def test_lists_are_joined_without_duplicates(shards: Path) -> None:
    corpus = open_corpus(f"{shards}/s-2.tar::{shards}/s-{{0..1}}.tar::{shards}/s-2.tar")
    assert [shard.name for shard in corpus.shards] == ["s-0", "s-1", "s-2"]
    assert corpus.root == str(shards)


def test_a_missing_shard_of_an_expansion_is_an_error_only_when_opened(shards: Path) -> None:
    corpus = open_corpus(f"{shards}/s-{{0..4}}.tar")
    assert len(corpus.shards) == 5
    with pytest.raises(CorpusError, match=r"s-4: .*s-4.tar does not exist"), corpus.shards[4].open():
        pass


def test_names_with_braces_or_brackets_are_found_as_they_are(tmp_path: Path) -> None:
    write_shard(tmp_path / "odd{0..1}[x].tar", SAMPLE)
    assert [shard.name for shard in open_corpus(f"{tmp_path}/odd{{0..1}}[x].tar").shards] == ["odd_0..1__x_"]


def test_relative_paths_and_file_urls(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shards)
    for spec in ("s-1.tar", "./s-1.tar", f"file://{shards}/s-1.tar", "~/s-1.tar"):
        monkeypatch.setenv("HOME", str(shards))
        corpus = open_corpus(spec)
        with corpus.shards[0].open() as shard:
            assert shard.samples[0].media is not None
            assert shard.samples[0].media.path == f"{shards}/s-1.tar"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("", "the corpus is empty"),
        ("pipe:cat a.tar", "pipe: runs a command and is never opened"),
        ("{tmp}/s-1.tar::pipe:rm -rf", "pipe: runs a command and is never opened"),
        ("{tmp}/s-1.tar::", "an empty path in the list"),
        ("{tmp}/nowhere.tar", "nowhere.tar does not exist"),
        ("{tmp}/none-*.tar", "nothing matches .*none-"),
        ("{tmp}/none-{{0..3}}.tar", "none of its 4 paths"),
        ("{tmp}/x-{{0..99999999}}.tar", "expands to more than"),
        ("{tmp}/x-{{0..9999}}-{{0..9999}}.tar", "expands to more than"),
        ("{tmp}/" + "{{a,b}}" * 24 + ".tar", "expands to more than"),
        ("{tmp}/empty", "no tar, no image or video and no table"),
        ("{tmp}/s-0_stats.json", "coco:captions.json::images"),
        ("{tmp}/s-0.tar::{tmp}/s-0.parquet", "not of the same kind"),
        ("nosuchprotocol://x/y.tar", "nosuchprotocol"),
    ],
)
def test_wrong_specs_give_a_one_line_error(shards: Path, spec: str, said: str) -> None:
    (shards / "empty").mkdir()
    with pytest.raises(CorpusError, match=said) as caught:
        open_corpus(spec.format(tmp=shards))
    assert "\n" not in str(caught.value)


def test_wrong_options_raise() -> None:
    with pytest.raises(CorpusError, match="shard_size"):
        CorpusOptions(shard_size=0)
    with pytest.raises(CorpusError, match="captions"):
        CorpusOptions(captions="all")  # type: ignore[arg-type]


def test_ten_thousand_shards_are_listed_without_looking_at_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shard(tmp_path / "000000.tar", SAMPLE)
    looked: list[str] = []

    def look(path: str) -> bool:
        looked.append(path)
        return path.endswith("000000.tar")

    for name in ("exists", "isdir", "isfile"):
        monkeypatch.setattr(f"os.path.{name}", look)
    corpus = open_corpus(f"{tmp_path}/{{000000..009999}}.tar")
    assert len(corpus.shards) == 10_000
    assert len(looked) < 50
    assert len({shard.name for shard in corpus.shards}) == 10_000
    assert len(pickle.dumps(corpus.shards)) < (len(corpus.shards[0].path) + 25) * 10_000  # little but the path


@pytest.mark.parametrize(
    ("pattern", "expanded"),
    [
        ("a", ["a"]),
        ("{a,b}-{1..2}", ["a-1", "a-2", "b-1", "b-2"]),
        ("{08..11}", ["08", "09", "10", "11"]),
        ("{8..11}", ["8", "9", "10", "11"]),
        ("{a}", ["{a}"]),
        ("{a..b}", ["a", "b"]),
        ("{a,{b,c}}", ["a", "b", "c"]),
        ("{,x}", ["", "x"]),
        ("{a", ["{a"]),
    ],
)
def test_braces(pattern: str, expanded: list[str]) -> None:
    assert expand_braces(pattern) == expanded


@given(st.integers(0, 300), st.integers(0, 300), st.booleans())
def test_counting_braces_equal_the_naive_list(first: int, last: int, padded: bool) -> None:
    width = 5 if padded else 0
    step = 1 if first <= last else -1
    expected = [f"x{number:0{width}d}" for number in range(first, last + step, step)]
    assert expand_braces(f"x{{{first:0{width}d}..{last:0{width}d}}}") == expected


@given(st.lists(st.text(min_size=1, max_size=200), unique=True, max_size=20))
def test_shard_names_are_unique_and_safe(paths: list[str]) -> None:
    names = make_shard_names(paths)
    assert len({name.casefold() for name in names}) == len(paths)
    for name in names:
        assert not set(name) & set('/\\\0*?[]{}=#"') and name[0] != "." and 0 < len(name.encode()) <= 200


@given(st.lists(st.integers(0, 10**9), max_size=20))
def test_natural_order_is_the_order_of_the_numbers(numbers: list[int]) -> None:
    names = [f"shard-{number}.tar" for number in numbers]
    assert sorted(names, key=natural_sort_key) == [f"shard-{number}.tar" for number in sorted(numbers)]


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("a.jpg", ("a", "jpg")),
        ("d.1/a.b.JPG", ("d.1/a", "b.jpg")),
        ("a", None),
        ("d/.a.jpg", None),
        ("a.", None),
        ("__x__/a.jpg", None),
    ],
)
def test_keys_end_at_the_first_dot(name: str, split: tuple[str, str] | None) -> None:
    assert split_key(name) == split


def test_common_root() -> None:
    assert find_common_root(["s3://b/x/1.tar", "s3://b/xy/2.tar"]) == "s3://b"
    assert find_common_root(["/a/b/1.tar"]) == "/a/b"
    assert find_common_root(["/1.tar"]) == "/"
