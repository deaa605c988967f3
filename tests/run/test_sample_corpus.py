"""A sample of a corpus is audited first; the whole audit goes on from there and does nothing twice."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest

from auditor.audit_folder.embeddings import name_embeddings_file
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.manifest import Manifest
from auditor.errors import AuditError, AuditorError
from auditor.python_api import Audit
from auditor.run.audit_config import AuditConfig
from auditor.run.extend import extend_audit
from auditor.run.rescore import read_score_settings, rescore
from auditor.run.run_audit import run_audit
from auditor.score.score_config import ScoreConfig
from auditor.sweep import sampled_shards, sweep
from tests.support.corpora import make_sample, write_corpus, write_random_model, write_tar
from tests.support.stored import write_datacomp

SHARDS, SIZE = 6, 30


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_random_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"), SHARDS, SIZE, captions=2)


@pytest.fixture
def swept_keys(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys whose media were read to be decoded."""
    keys: list[str] = []
    read_sample = sweep.read_sample

    def record(opened: Any, sample: Any, context: float) -> Any:
        keys.append(f"{sample.shard}/{sample.key}")
        return read_sample(opened, sample, context)

    monkeypatch.setattr(sweep, "read_sample", record)
    monkeypatch.setattr(sampled_shards, "SHARDS", 3)
    return keys


def audit(corpus: object, out: Path, model: str | None, limit: int | None = None, seed: int = 0) -> Manifest:
    score = ScoreConfig(seed=seed)
    sample = {} if limit is None else {"sample": True, "limit": limit}
    return run_audit(AuditConfig(str(corpus), str(out), model, score=score, quiet=True, **sample))  # type: ignore


def read_rows(out: Path) -> pa.Table:
    folder = Folder(out)
    return pa.concat_tables(folder.read_table(name_embeddings_file(s)) for s in folder.names("embeddings", ".parquet"))


def test_a_sample_goes_on_to_the_whole_without_sweeping_a_key_twice(
    corpus: Path, model: str, tmp_path: Path, swept_keys: list[str]
) -> None:
    sampled = audit(corpus, tmp_path / "audit", model, 36)
    first = set(swept_keys)
    assert len(swept_keys) == len(first) == sampled.counts["keys"] and 20 <= len(first) <= 52  # 36 on average
    assert len({key.split("/")[0] for key in first}) == sampled.corpus["shards"] == len(sampled.shards) == 3
    assert sampled.sample["of_shards"] == SHARDS and sampled.sample["fraction"] == pytest.approx(36 / 90)
    whole = audit(corpus, tmp_path / "audit", model)
    assert len(swept_keys) == len(set(swept_keys)) == SHARDS * SIZE and first < set(swept_keys)
    assert whole.sample == {} and whole.counts["keys"] == SHARDS * SIZE
    fresh = audit(corpus, tmp_path / "fresh", model)
    assert (whole.counts, whole.shards) == (fresh.counts, fresh.shards)
    rows, expected = read_rows(tmp_path / "audit"), read_rows(tmp_path / "fresh")
    vectors = [name for name in expected.column_names if "list" in str(expected.schema.field(name).type)]
    assert len(vectors) >= 2
    for name in expected.column_names:  # in the order of the shard
        if name not in vectors:
            assert rows[name].to_pylist() == expected[name].to_pylist(), name
        elif not (values := [table[name].combine_chunks().drop_null() for table in (rows, expected)])[1].null_count:
            flat = [np.array(pa.compute.list_flatten(value).to_pylist(), np.float64).ravel() for value in values]
            np.testing.assert_allclose(*flat, atol=2e-3)


def test_a_sample_says_what_it_is_of(corpus: Path, model: str, tmp_path: Path, swept_keys: list[str]) -> None:
    broken = tmp_path / "corpus"
    for shard in range(5):
        samples = [(f"{shard}{i:02d}", make_sample(100 * shard + i)) for i in range(40)]
        bad = [(key, {**files, "jpg": b"no picture"} if int(key) % 4 == 0 else files) for key, files in samples]
        write_tar(broken / f"{shard}.tar", bad)
    audit(broken, tmp_path / "audit", model, 60)
    with Audit(tmp_path / "audit") as opened:
        note = next(note for note in opened.summary().notes if "sample" in note)
        assert ", from 3 of 5 shards" in note and "without --sample goes on" in note and "hours" in note
        keys, total = (int(number) for number in re.findall(r"(\d+) of about (\d+) keys", note)[0])
        assert keys == opened.summary().rows and total == pytest.approx(keys / 0.5 * 5 / 3, abs=1)
        finding = next(f for f in opened.findings() if f.name == "corrupt")
        assert finding.interval is not None
        low, high = finding.interval
        assert low < 0.25 < high and low < finding.share < high and f"({100 * low:.1f} to" in str(opened.findings())
        (tmp_path / "budget.toml").write_text("[limits]\ncorrupt = 0.25\n")
        [checked] = opened.check(tmp_path / "budget.toml").results
        assert checked.verdict == "cannot tell" and checked.estimate is not None
        assert (checked.estimate.low, checked.estimate.high) == pytest.approx((low, high))
    rescore(str(tmp_path / "audit"), None, read_score_settings(str(tmp_path / "audit")), quiet=True)
    audit(broken, tmp_path / "audit", model)
    with Audit(tmp_path / "audit") as opened:
        assert not any("sample" in note for note in opened.summary().notes)
        finding = next(f for f in opened.findings() if f.name == "corrupt")
        assert finding.interval is None and finding.rows == 50


def test_small_shards_need_more_shards(model: str, tmp_path: Path, swept_keys: list[str]) -> None:
    write_corpus(tmp_path / "corpus", shards=10, size=5)
    manifest = audit(tmp_path / "corpus", tmp_path / "audit", model, 30)
    assert manifest.corpus["shards"] == 6 and len(swept_keys) == len(set(swept_keys)) == 30


def test_a_changed_shard_is_swept_as_a_whole(model: str, tmp_path: Path, swept_keys: list[str]) -> None:
    corpus = write_corpus(tmp_path / "corpus", shards=3, size=10)
    count = audit(corpus, tmp_path / "audit", model, 15).shards
    write_tar(corpus / "00001.tar", [(f"new{i}", make_sample(500 + i)) for i in range(10)])
    swept_keys.clear()
    manifest = audit(corpus, tmp_path / "audit", model)
    assert len(swept_keys) == 30 - count["00000"] - count["00002"] and manifest.counts["keys"] == 30
    with Audit(tmp_path / "audit") as opened:
        assert opened.sql("SELECT count(*) FROM samples WHERE key LIKE 'new%'").to_pylist() == [{"count_star()": 10}]


def test_folders_and_tables_are_sampled(model: str, tmp_path: Path, swept_keys: list[str]) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    lines = ["path,caption"]
    for i in range(40):
        files = make_sample(i)
        (photos / f"{i:03d}.jpg").write_bytes(files["jpg"])
        (photos / f"{i:03d}.txt").write_bytes(files["txt"])
        lines.append(f"photos/{i:03d}.jpg,{files['txt'].decode()}")
    (tmp_path / "table.csv").write_text("\n".join(lines))
    for name in ("photos", "table.csv"):
        manifest = audit(tmp_path / name, tmp_path / f"audit-{name}", model, 12)
        assert 4 <= manifest.counts["keys"] <= 22 and manifest.sample["fraction"] == 12 / 40
    stored = write_datacomp(tmp_path / "datacomp")
    with pytest.raises(AuditorError, match="embeddings without media"):
        audit(f"datacomp:{stored}", tmp_path / "stored", None, 10)


def test_samples_that_do_not_include_the_folder_are_refused(
    corpus: Path, model: str, tmp_path: Path, swept_keys: list[str]
) -> None:
    audit(corpus, tmp_path / "sample", model, 18)
    for limit, seed in ((9, 0), (18, 1)):
        with pytest.raises(AuditError, match=r"has another sample, or the whole corpus: use another --out"):
            audit(corpus, tmp_path / "sample", model, limit, seed)
    with pytest.raises(AuditError, match=r"is a sample: finish it"):
        extend_audit(AuditConfig(str(corpus), str(tmp_path / "sample"), model, quiet=True))
    with pytest.raises(AuditError, match="add --sample"):
        run_audit(AuditConfig(str(corpus), str(tmp_path / "other"), model, quiet=True, limit=9))
    audit(corpus, tmp_path / "whole", model)
    with pytest.raises(AuditError, match=r"or the whole corpus"):
        audit(corpus, tmp_path / "whole", model, 9)
