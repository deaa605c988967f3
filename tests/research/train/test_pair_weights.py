"""Weights of pairs: that of the right caption of the right sample, or an error."""

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.corpus.sample import Sample
from auditor.corpus.shard import DEFAULT_OPTIONS, load_saved_options
from auditor.keep.weights import Weighing
from auditor.python_api import Audit
from auditor.research.train.pair_weights import PairWeights, read_audit_options
from auditor.research.train.training_loader import PairLoader
from auditor.research.train.training_reader import Draw, LoaderConfig
from auditor.research.train.training_shards import TrainError, count_shards
from auditor.run.audit_config import AuditConfig
from auditor.run.run_audit import run_audit
from auditor.workers.decoder_pool import DecoderPool
from model.pixels import PixelSpec
from model.training.training_config import ConfigError, TrainConfig
from tests.support.corpora import make_picture, write_members
from tests.support.synthetic import write_audit, write_corpus_audit


def draw(key: str, *indices: int, captions: Sequence[str] = ("x", "y"), shard: str = "s") -> Draw:
    return Draw(0, Sample(shard, key, tuple(captions), None), indices or (0,))


def table(path: Path, rows: Sequence[dict[str, Any]]) -> PairWeights:
    pq.write_table(pa.Table.from_pylist(list(rows)), path)
    return PairWeights.read(str(path))


def test_weights_come_from_a_table_or_a_folder_of_them(tmp_path: Path) -> None:
    rows = {"key": ["a", "a", "b"], "caption_index": [0, 1, 0], "p_mismatch": [0.9, 0.25, None]}
    (tmp_path / "tables").mkdir()
    pq.write_table(pa.table(rows), tmp_path / "tables" / "0.parquet")
    for path in (tmp_path / "tables", tmp_path / "tables" / "0.parquet"):
        found = PairWeights.read(str(path)).weigh_draws([draw("a", 0), draw("a", 1), draw("b", 0), draw("c", 0)])
        assert found == pytest.approx([0.1, 0.75, 1.0, 1.0])
    pq.write_table(pa.table({"key": ["a"]}), tmp_path / "short.parquet")
    with pytest.raises(TrainError, match="no column caption_index"):
        PairWeights.read(str(tmp_path / "short.parquet"))
    with pytest.raises(TrainError, match="cannot read the weights"):
        PairWeights.read(str(tmp_path / "absent.parquet"))


def test_an_export_without_any_estimate_weighs_all_pairs_alike(tmp_path: Path) -> None:
    """It has no column p_mismatch, because the column is empty in the audit."""
    audit = write_audit(tmp_path / "audit", 50)
    for file in (audit / "samples").glob("*.parquet"):
        table = pq.read_table(file)
        place = table.schema.get_field_index("p_mismatch")
        nulls = pa.nulls(len(table), table.schema.field(place).type)
        pq.write_table(table.set_column(place, "p_mismatch", nulls), file)
    with Audit(audit) as opened:
        kept = opened.keep(min_similarity=-1)
        assert "p_mismatch" in kept.write(tmp_path / "kept.parquet").empty_columns
        (first, *_) = kept.to_arrow().to_pylist()
    weights = PairWeights.read(str(tmp_path / "kept.parquet"))
    index, captions = first["caption_index"], (first["caption"],) * (first["caption_index"] + 1)
    assert len(weights.ratings) > 40
    assert weights.weigh_draws([draw(first["key"], index, captions=captions, shard=first["shard"])]) == [1.0]


def test_weights_come_from_an_audit_itself_and_from_what_weigh_writes(tmp_path: Path) -> None:
    audit, _ = write_corpus_audit(tmp_path)
    with Audit(audit) as opened:
        rows = opened.sql("SELECT * FROM samples WHERE status = 'ok'").to_pylist()
        opened.keep(max_p_mismatch=0.1).weigh(tmp_path / "w.parquet", Weighing(temperature=0.5))
    draws = [
        Draw(0, Sample(row["shard"], row["key"], (row["caption"],) * 2, None), (row["caption_index"],)) for row in rows
    ]
    p = [row["p_mismatch"] for row in rows]
    assert PairWeights.read(str(audit)).weigh_draws(draws) == pytest.approx([1 - x for x in p])
    assert PairWeights.read(str(tmp_path / "w.parquet")).weigh_draws(draws) == pytest.approx(
        [(1 - x) ** 2 if x <= 0.1 else 0.0 for x in p]
    )
    manifest = json.loads((audit / "manifest.json").read_text())
    (audit / "manifest.json").write_text(json.dumps({**manifest, "state": "scoring"}))
    with pytest.raises(TrainError, match="not finished"):
        PairWeights.read(str(audit))


def test_the_best_caption_is_drawn_in_every_pass(tmp_path: Path) -> None:
    """The audit's choice, or the largest weight of a table; the corpus is read as the audit read it."""
    audit, corpus = write_corpus_audit(tmp_path, captions=3)
    with Audit(audit) as opened:
        kept = opened.keep(best_caption=True).to_arrow(["shard", "key", "caption", "caption_index"]).to_pylist()
        opened.keep(best_caption=True).weigh(tmp_path / "w.parquet")
    best = {(row["shard"], row["key"]): row["caption_index"] for row in kept}
    assert len(set(best.values())) == 3
    for weights in (PairWeights.read(str(audit), only_best=True), PairWeights.read(str(tmp_path / "w.parquet"))):
        texts = {(row["shard"], row["key"]): row["caption"] for row in kept}
        samples = [Sample(*place, tuple(text if i == best[place] else "x" for i in range(3)), None)
            for place, text in texts.items()]  # fmt: skip
        assert [weights.find_best_caption(sample) for sample in samples] == list(best.values())
    assert PairWeights({}, "").find_best_caption(samples[0]) == 0
    options = read_audit_options(str(audit))
    assert options == load_saved_options(json.loads((audit / "manifest.json").read_text())["corpus"])
    assert read_audit_options(str(tmp_path / "w.parquet")) == DEFAULT_OPTIONS
    found = count_shards(str(corpus), options=options)
    config = LoaderConfig(batch=4, captions="best", find_best=lambda sample: best.get((sample.shard, sample.key), 0))
    with (
        DecoderPool(PixelSpec(size=(8, 8)), workers=1) as pool,
        closing(iter(PairLoader(found, config, pool))) as drawn,
    ):
        draws = [draw for _, batch in zip(range(40), drawn, strict=False) for draw in batch.draws]
    assert {(draw.sample.key, draw.captions) for draw in draws} <= {(key, (i,)) for (_, key), i in best.items()}
    with pytest.raises(ConfigError, match=r'captions = "best" needs weights'):
        TrainConfig(corpus="c", out="o", captions="best")


@pytest.mark.parametrize(("column", "value"), [("weight", -0.1), ("weight", float("nan")), ("p_mismatch", 1.5)])
def test_a_weight_that_cannot_be_is_one_line(tmp_path: Path, column: str, value: float) -> None:
    with pytest.raises(TrainError, match=f"{column} of .* must"):
        table(tmp_path / "w.parquet", [{"key": "a", "caption_index": 0, column: value}])


def test_joined_captions_weigh_the_mean_of_theirs(tmp_path: Path) -> None:
    rows = [{"key": "a", "caption_index": i, "p_mismatch": p} for i, p in enumerate([0.2, 0.6])]
    assert table(tmp_path / "w.parquet", rows).weigh_draws([draw("a", 0, 1)]) == pytest.approx([0.6])


def test_keys_of_several_shards_are_told_apart(tmp_path: Path) -> None:
    rows = [
        {"key": "0", "caption_index": 0, "p_mismatch": 0.9, "shard": "a", "caption": "x"},
        {"key": "0", "caption_index": 0, "p_mismatch": 0.1, "shard": "b", "caption": "x"},
        {"key": "0", "caption_index": 0, "p_mismatch": None, "shard": "c", "caption": "x"},  # did not decode
        {"key": "0", "caption_index": 0, "p_mismatch": None, "shard": "a", "caption": "z"},  # the key repeated
    ]
    for order in (rows, rows[::-1]):
        weights = table(tmp_path / "w.parquet", order)
        assert weights.weigh_draws([draw("0", shard=name) for name in "abc"]) == pytest.approx([0.1, 0.9, 1.0])
        with pytest.raises(TrainError, match="several pairs of key 0, but not exactly one of shard elsewhere"):
            weights.weigh_draws([draw("0", shard="elsewhere")])


def test_another_caption_is_a_complaint_not_a_weight(tmp_path: Path) -> None:
    row = {"key": "a", "caption_index": 0, "p_mismatch": 0.9, "shard": "other", "caption": "x\ny"}
    weights = table(tmp_path / "w.parquet", [row])
    assert weights.weigh_draws([draw("a", captions=["x\ny"])]) == pytest.approx([0.1])
    with pytest.raises(TrainError, match=r"caption 0 of key a in .* is not that of the corpus"):
        weights.weigh_draws([draw("a", captions=["x", "y"])])


HOSTILE = [
    ("txt", "\ufeffone\ntwo".encode()),
    ("txt", "one\ntwo".encode("utf-16")),
    ("txt", "one\u2028still one\n\x0ctwo\x0bstill two\x85".encode()),
    ("txt", b"one\r\rtwo\r\n\n \xff three"),
    ("json", b'{"captions": [], "caption": "one"}'),
    ("json", b'{"captions": ["one", 3, " ", "two"]}'),
    ("json", b'\xef\xbb\xbf{"caption": "one"}'),
]


def test_every_caption_of_a_hostile_corpus_gets_its_own_weight(tmp_path: Path, random_model: str) -> None:
    """An audit with a different p_mismatch in each row; the training loader must find every one."""
    (tmp_path / "corpus").mkdir()
    for number, shard in enumerate("ab"):  # the same keys in both
        members = [(f"{i}", *HOSTILE[i % 7]) for i in range(14)]
        media = [make_picture(100 * number + i) for i in range(14)]
        files = [
            f
            for (k, end, text), jpg in zip(members, media, strict=True)
            for f in ((f"{k}.jpg", jpg), (f"{k}.{end}", text))
        ]
        write_members(tmp_path / "corpus" / f"{shard}.tar", [*files, ("0.jpg", media[1]), ("0.txt", b"again")])
    run_audit(AuditConfig(str(tmp_path / "corpus"), str(tmp_path / "audit"), random_model, quiet=True))
    rows = pq.read_table(tmp_path / "audit" / "samples").to_pylist()
    for number, row in enumerate(rows):
        row["p_mismatch"] = number / len(rows) if row["status"] == "ok" else None
    weights = table(tmp_path / "w.parquet", rows)
    expected = {(r["shard"], r["key"], r["caption"]): 1 - r["p_mismatch"] for r in rows if r["status"] == "ok"}
    found = count_shards(str(tmp_path / "corpus"))
    assert len(expected) == found.pairs("all") > 40
    with DecoderPool(PixelSpec(size=(8, 8)), workers=1) as pool:
        loader = PairLoader(found, LoaderConfig(batch=found.pairs("all")), pool)
        with closing(iter(loader)) as batches:
            draws = next(batches).draws
    assert {(d.sample.shard, d.sample.key, d.caption) for d in draws} == set(expected)
    expected_weights = [expected[d.sample.shard, d.sample.key, d.caption] for d in draws]
    assert weights.weigh_draws(draws) == pytest.approx(expected_weights)
