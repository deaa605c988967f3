"""The number of kept captions is the same in every export and reader."""

import gc
import json
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import webdataset as wds
from click.testing import CliRunner

from auditor.cli import cli
from auditor.corpus.rewrite_captions import CorpusChangedError, keep_captions
from auditor.corpus.shard import DEFAULT_OPTIONS
from auditor.python_api import Audit
from tests.support.synthetic import write_corpus_audit

# WebDataset leaves the last tar to the collector
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
RULES: list[dict[str, Any]] = [
    {"max_p_mismatch": 0.05},
    {"where": "caption_index < 2"},
    {"min_similarity": 0.33, "per_medium": "any"},
    {"min_similarity": 0.25, "per_medium": "all"},
    {"max_p_mismatch": 0.2, "where": "caption_index <> 1", "per_medium": "mean"},
]


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_corpus_audit(tmp_path_factory.mktemp("captions"), captions=5)


def list_captions(samples: Any) -> set[tuple[str, str]]:
    """(key, caption) of samples; the .txt and .json of each agree."""
    found = set()
    for sample in samples:
        texts = sample["txt"].decode().split("\n")
        assert json.loads(sample["json"])["captions"] == texts
        assert len(texts) == len({(sample["__key__"], text) for text in texts})
        found |= {(sample["__key__"], text) for text in texts}
    return found


@pytest.mark.parametrize("rules", RULES, ids=lambda rules: " ".join(rules))
def test_every_count_is_the_same(made: tuple[Path, Path], rules: dict[str, Any], tmp_path: Path) -> None:
    audit = Audit(made[0])
    kept = audit.keep(**rules)
    uids = set(kept.uids.to_pylist())
    expected = {
        (row["key"], row["caption"]) for row in audit.sql("SELECT * FROM samples").to_pylist() if row["uid"] in uids
    }
    assert 0 < len(uids) == kept.count < audit.counts["status"]["ok"]
    done = kept.write(tmp_path / "out", shard_size=7)
    assert (done.captions, done.rows) == (kept.count, kept.media)
    written = sorted(str(path) for path in (tmp_path / "out").glob("*.tar"))
    originals = sorted(str(path) for path in made[1].glob("*.tar"))
    captions = pickle.loads(pickle.dumps(kept.captions()))
    assert list_captions(wds.WebDataset(written, shardshuffle=False)) == expected
    assert list_captions(kept.samples()) == expected
    assert list_captions(kept.webdataset()) == expected
    assert list_captions(wds.WebDataset(originals, shardshuffle=False).map(captions)) == expected
    removed = pq.read_table(tmp_path / "out" / "removed.parquet")
    assert removed.num_rows + kept.count == audit.count() and not uids & set(removed["uid"].to_pylist())
    effects = kept.effects()
    assert effects.kept == kept.count and effects.rows - effects.kept == removed.num_rows
    assert kept.write(tmp_path / "kept.txt").rows == kept.media == len((tmp_path / "kept.txt").read_text().split())
    assert kept.write(tmp_path / "kept.npy").rows == kept.count == len(np.load(tmp_path / "kept.npy"))


def test_decoded_samples_lose_captions_too(made: tuple[Path, Path]) -> None:
    kept = Audit(made[0]).keep(where="caption_index = 3")
    originals = sorted(str(path) for path in made[1].glob("*.tar"))
    samples = list(wds.WebDataset(originals, shardshuffle=False).decode().map(kept.captions()))
    assert len(samples) == kept.count
    for sample in samples:
        assert sample["json"]["captions"] == [sample["txt"]] and "\n" not in sample["txt"]


def test_records_keep_their_other_fields() -> None:
    record = {"caption": "a", "captions": ["a", "b"], "url": "http://x", "width": 3}
    members = {"jpg": b"...", "TXT": "ä\n\n b \r\nc".encode(), "json": json.dumps(record).encode(), "cls": b"7"}
    found = keep_captions(members, [1, 2], DEFAULT_OPTIONS)
    assert found["TXT"] == b"b\nc" and (found["jpg"], found["cls"]) == (b"...", b"7")
    assert json.loads(found["json"]) == {**record, "caption": "b", "captions": ["b", "c"]}
    only_json = keep_captions({"png": b"", "txt": b" \n", "json": members["json"]}, [0], DEFAULT_OPTIONS)
    assert only_json["txt"] == b" \n" and json.loads(only_json["json"]) == {**record, "captions": ["a"]}
    with pytest.raises(CorpusChangedError, match="3 captions, fewer than"):
        keep_captions(members, [3], DEFAULT_OPTIONS)


def test_pairs_without_an_estimate_are_counted_everywhere(made: tuple[Path, Path], tmp_path: Path) -> None:
    """Three videos among photos have no p_mismatch: summary, thresholds, dry run and filter say so."""
    audit = tmp_path / "audit"
    shutil.copytree(made[0], audit)
    shard = audit / "samples" / "00000.parquet"
    table = pq.read_table(shard)
    for name, value in (("p_mismatch", None), ("no_estimate", "too_few_pairs")):
        place = table.schema.get_field_index(name)
        column = [value] * 3 + table[name].to_pylist()[3:]
        table = table.set_column(place, table.schema.field(place), pa.array(column, table.schema.field(place).type))
    pq.write_table(table, shard)

    def said(*arguments: str) -> str:
        result = CliRunner().invoke(cli, [arguments[0], str(audit), *arguments[1:]])
        assert result.exit_code == 0, result.output
        return " ".join(result.output.split())

    assert "pairs without an estimate of p_mismatch" in said("summary")
    assert Audit(audit).count("no_estimate = 'too_few_pairs'") == 3
    assert "no estimate: 3, which no cut removes" in said("thresholds")
    rules = ["--max-p-mismatch", "0.99"]
    assert "no estimate: 3 pairs without p_mismatch, kept" in said("filter", *rules, "--dry-run")
    assert "3 pairs without p_mismatch, removed" in said("filter", *rules, "--unscored", "drop", "--dry-run")
    out = ["--out", str(tmp_path / "kept.txt")]
    assert "no estimate: 3 pairs without p_mismatch, kept" in said("filter", *rules, *out)
