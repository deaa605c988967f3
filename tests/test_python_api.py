"""The query layer against plain NumPy on the same rows, on finished, unfinished, remote and broken audits."""

import inspect
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from auditor.audit_folder.arrow_schema import FACTS, SAMPLES
from auditor.audit_folder.manifest import FORMAT
from auditor.errors import AuditError, AuditorError
from auditor.python_api import Audit
from auditor.query.sandbox import QueryError
from auditor.schema import MEASUREMENTS, RULES
from tests.support.s3 import Bucket, bucket, s3_endpoint  # noqa: F401
from tests.support.synthetic import write_audit, write_corpus_audit

ROWS = 3000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_audit(tmp_path_factory.mktemp("query") / "audit", ROWS, 500)


@pytest.fixture(scope="module")
def audit(folder: Path) -> Audit:
    return Audit(folder)


@pytest.fixture(scope="module")
def table(folder: Path) -> pa.Table:
    return pq.read_table(folder / "samples", schema=SAMPLES)


def test_summary(audit: Audit, table: pa.Table) -> None:
    found = audit.summary()
    ok = table.filter(pc.equal(table["status"], "ok"))
    assert found.rows == ROWS and found.usable == len(ok)
    assert found.status == {e["values"]: e["counts"] for e in pc.value_counts(table["status"]).to_pylist()}
    assert found.kinds == {e["values"]: e["counts"] for e in pc.value_counts(ok["kind"]).to_pylist()}
    assert found.flags["mismatch"] == int((ok["p_mismatch"].to_numpy() >= 0.5).sum())
    assert found.typical["similarity"]["median"] == pytest.approx(np.median(ok["similarity"].to_numpy()))
    assert found.noise[0].share == 0.07
    assert "about 7.0% (6.4 to 7.7), not counting related captions" in str(found)
    json.dumps(found.to_dict())


def test_worst_takes_the_suspicious_end(audit: Audit, table: pa.Table) -> None:
    for column, largest in (("p_mismatch", True), ("uncertainty_text", True), ("similarity", False)):
        values = table[column].drop_null().to_numpy()
        expected = np.sort(values)[::-1][:25] if largest else np.sort(values)[:25]
        found = audit.worst(column, 25)
        np.testing.assert_array_equal(found[column].to_numpy(), expected)
        assert found.column_names == audit.columns
    assert set(audit.worst(n=5, where="kind = 'video'")["kind"].to_pylist()) == {"video"}


def test_pages_are_stable_and_complete(audit: Audit, table: pa.Table) -> None:
    everything = [uid for i in range(0, ROWS, 700) for uid in audit.page(limit=700, offset=i)["uid"].to_pylist()]
    assert everything == table["uid"].to_pylist()
    pages = [audit.page("status = 'ok'", "similarity", True, 100, i)["uid"].to_pylist() for i in range(0, 300, 100)]
    order = table.filter(pc.equal(table["status"], "ok")).sort_by([("similarity", "descending")])
    assert [uid for page in pages for uid in page] == order["uid"].to_pylist()[:300]
    assert audit.page("FALSE").num_rows == 0


def test_row_and_its_shard(audit: Audit, table: pa.Table) -> None:
    wanted = table.slice(1234, 1).to_pylist()[0]
    for found in (audit.row(wanted["uid"]), audit.row(wanted["uid"], 0, wanted["shard"])):
        assert found is not None
        assert {name: found[name] for name in wanted} == wanted
    assert audit.row("f" * 32) is None
    assert audit.row(wanted["uid"], shard="nowhere") is None


def test_histogram(audit: Audit, table: pa.Table) -> None:
    values = table["similarity"].drop_null().to_numpy().astype(np.float64)
    found = audit.histogram("similarity", bins=20)
    expected, _ = np.histogram(values, found.edges)
    np.testing.assert_array_equal(found.counts, expected)
    assert found.missing == ROWS - len(values)
    videos = table.filter(pc.equal(table["kind"], "video"))["similarity"].drop_null()
    assert audit.histogram("similarity", "kind = 'video'").total == len(videos)


def test_logarithmic_histogram(audit: Audit, table: pa.Table) -> None:
    values = table["matches_text"].drop_null().to_numpy().astype(np.float64)
    found = audit.histogram("matches_text", bins=10, log=True)
    np.testing.assert_allclose(np.diff(np.log10(found.edges)), np.log10(values.max() / values.min()) / 10, rtol=1e-6)
    assert np.abs(found.counts - np.histogram(values, found.edges)[0]).max() <= 1  # rounding at an edge
    assert found.total == len(values)


def test_density_counts_rows_by_cell(audit: Audit, table: pa.Table) -> None:
    found = audit.density("similarity", "uncertainty_text", bins=12)
    x, y = (table[c].drop_null().to_numpy().astype(np.float64) for c in ("similarity", "uncertainty_text"))
    expected, _, _ = np.histogram2d(y, x, [found.y_edges, found.x_edges])
    np.testing.assert_array_equal(found.counts, expected)
    row, column = np.unravel_index(found.counts.argmax(), found.counts.shape)
    axes = (("similarity", found.x_edges, column), ("uncertainty_text", found.y_edges, row))
    where = " AND ".join(f"{name} BETWEEN {edges[i]} AND {edges[i + 1]}" for name, edges, i in axes)
    assert audit.count(where) == pytest.approx(found.counts.max(), abs=2)


def test_percentiles(audit: Audit, table: pa.Table) -> None:
    row = audit.worst("similarity", 40).to_pylist()[-1]
    found = audit.percentiles(row)
    same_kind = table.filter(pc.and_(pc.equal(table["kind"], row["kind"]), pc.equal(table["status"], "ok")))
    values = same_kind["similarity"].to_numpy()
    assert found["similarity"] == pytest.approx((values < row["similarity"]).mean())
    assert set(found) == set(MEASUREMENTS)
    assert audit.percentiles(row["uid"]) == found
    assert audit.percentiles("no such uid") == {}


def test_errors_name_an_example(audit: Audit, table: pa.Table) -> None:
    found = audit.errors()
    assert sum(error["rows"] for error in found) == pc.sum(pc.not_equal(table["status"], "ok")).as_py()
    assert audit.row(audit.page(f"key = '{found[0]['example']}'")["uid"][0].as_py()) is not None


def test_unknown_columns_name_the_nearest(audit: Audit) -> None:
    with pytest.raises(QueryError, match="did you mean similarity"):
        audit.worst("simlarity")
    with pytest.raises(QueryError, match="did you mean uncertainty_text"):
        audit.histogram("uncertanty_text")
    with pytest.raises(QueryError, match="is text"):
        audit.histogram("caption")


def test_no_audit(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="is not an audit"):
        Audit(tmp_path)
    with pytest.raises(AuditError, match="is not an audit"):
        Audit(tmp_path / "nowhere")
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(AuditError, match="not JSON"):
        Audit(tmp_path)
    (tmp_path / "manifest.json").write_text("[1]")
    with pytest.raises(AuditError, match="does not describe one"):
        Audit(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": 99}')
    with pytest.raises(AuditError, match="format 99"):
        Audit(tmp_path)


def test_unfinished_audit_shows_what_is_there(folder: Path, tmp_path: Path) -> None:
    """Two shards scored, one swept only, three to come."""
    manifest = {**json.loads((folder / "manifest.json").read_text()), "state": "scoring", "counts": {}}
    (tmp_path / "samples").mkdir()
    (tmp_path / "embeddings").mkdir()
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    for name in ("00000", "00001"):
        shutil.copy(folder / "samples" / f"{name}.parquet", tmp_path / "samples")
    facts = pq.read_table(folder / "samples" / "00002.parquet", columns=FACTS.names)
    vectors = pa.array([[0.0] * 4] * len(facts), pa.list_(pa.float16(), 4))
    facts = facts.append_column("visual", vectors).append_column("text", vectors)
    for name in ("00001", "00002"):
        pq.write_table(
            facts.append_column("visual", vectors).append_column("text", vectors),
            tmp_path / "embeddings" / f"{name}.parquet",
        )
    unfinished = Audit(tmp_path)
    assert unfinished.notes == [
        "this audit is not finished (state: scoring): 3 of 6 shards are here, 1 of them not scored yet"
    ]
    assert unfinished.count() == 1500 and unfinished.counts["rows"] == 1500
    assert unfinished.count("shard = '00002' AND similarity IS NULL AND caption IS NOT NULL") == 500
    assert unfinished.worst(n=10).num_rows == 10
    assert "note: this audit is not finished" in str(unfinished.summary())


def test_audit_that_has_only_begun(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"format": FORMAT, "state": "sweeping"}))
    empty = Audit(tmp_path)
    assert empty.count() == 0 and empty.summary().rows == 0
    assert empty.histogram("similarity").total == 0
    assert empty.keep(max_p_mismatch=0.5).count == 0
    assert empty.columns == Audit(folder).columns


def test_damaged_shard_is_named(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "audit")
    (tmp_path / "audit" / "samples" / "00000.parquet").write_bytes(b"PAR1 no, it is not")
    with pytest.raises(AuditorError, match=r"00000\.parquet"):
        Audit(tmp_path / "audit")


def test_columns_of_other_versions(folder: Path, tmp_path: Path) -> None:
    """A column that is missing is null, one that is new can be queried."""
    shutil.copytree(folder, tmp_path / "audit")
    for path in (tmp_path / "audit" / "samples").glob("*.parquet"):
        table = pq.read_table(path).drop_columns(["topic", "frame_spread"])
        pq.write_table(table.append_column("aesthetic", table["similarity"]), path)
    other = Audit(tmp_path / "audit")
    assert other.count("topic IS NULL") == ROWS
    assert other.sql("SELECT max(aesthetic) AS m FROM samples")["m"][0].as_py() > 0.3
    assert other.histogram("aesthetic").total == other.histogram("similarity").total


def test_quotes_in_the_path(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "it's [an] audit*")
    assert Audit(tmp_path / "it's [an] audit*").count() == ROWS


def test_remote_memory(folder: Path, table: pa.Table) -> None:
    fsspec.filesystem("memory").put(str(folder), "/remote-audit", recursive=True)
    remote = Audit("memory://remote-audit")
    assert remote.summary().rows == ROWS
    np.testing.assert_array_equal(
        remote.worst(n=5)["p_mismatch"].to_numpy(), np.sort(table["p_mismatch"].drop_null().to_numpy())[::-1][:5]
    )
    remote.mark(table["uid"][0].as_py(), "bad", reviewer="a")
    assert Audit("memory://remote-audit").count("review = 'bad'") == 1


def test_remote_s3(folder: Path, bucket: Bucket) -> None:  # noqa: F811
    remote = Audit(bucket.upload(folder, "audit/"))
    assert remote.summary().rows == ROWS
    assert remote.worst(n=3).num_rows == 3
    remote.mark("0" * 32, "good", reviewer="b")
    assert remote.sql("SELECT mark FROM reviews")["mark"].to_pylist() == ["good"]
    remote.mark("0" * 32, "bad", reviewer="b")
    assert remote.sql("SELECT mark FROM reviews")["mark"].to_pylist() == ["bad"]
    with pytest.raises(AuditError, match="is not an audit"):
        Audit(f"{bucket.url}/nothing")


def test_media_come_from_the_corpus(tmp_path: Path) -> None:
    path, corpus = write_corpus_audit(tmp_path)
    row = Audit(path).page("status = 'ok'", limit=1).to_pylist()[0]
    data = Audit(path).media(row)
    assert data.startswith(b"\xff\xd8") and data.endswith(b"\xff\xd9") and len(data) == row["media_size"]
    corpus.rename(tmp_path / "elsewhere")
    assert Audit(path, tmp_path / "elsewhere").media(row) == data


def test_import_is_light() -> None:
    code = (
        "import sys, auditor.python_api, auditor.keep.subset, auditor.keep.rule_effects, auditor.keep.export;"
        "import auditor.query.compare, auditor.report.report;"
        "print([m for m in ('torch', 'ray', 'pandas', 'model', 'webdataset', 'streamlit') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---------------------------------------------------------------------------------------------- for people in Python


def test_what_is_printed_says_what_it_is(folder: Path) -> None:
    with Audit(folder) as audit:
        usable = audit.counts["status"]["ok"]
        assert repr(audit) == f"Audit('{folder}': 3,000 pairs, {usable:,} of them usable, complete)"
        kept = audit.keep(max_p_mismatch="10%", no_duplicates=True)
        assert repr(kept).startswith(f"Subset(max_p_mismatch=0.1, no_duplicates=True: {len(kept):,} pairs, ")
        assert "samples to keep in 6 shards" in repr(kept.predicate())


def test_names_and_arguments_complete() -> None:
    import auditor

    assert [name for name in dir(auditor) if not name.startswith("_")] == ["Audit", "audit"]
    assert auditor.Audit is Audit and callable(auditor.audit)
    for method in (Audit.keep, Audit.certification_sample):
        named = inspect.signature(method).parameters
        assert {*RULES, "max", "min", "keep_top", "by", "where", "no_duplicates", "unscored"} <= set(named)
        assert not any(parameter.kind is parameter.VAR_KEYWORD for parameter in named.values())
    assert inspect.signature(Audit.keep).parameters["unscored"].default == "keep"
    assert list(inspect.signature(Audit.sql).parameters) == ["self", "query", "parameters", "limit"]


def test_parameters_stand_for_values(audit: Audit, table: pa.Table) -> None:
    key, limit = table["key"][7].as_py(), 0.3
    assert audit.sql("SELECT key FROM samples WHERE key = ?", [key])["key"].to_pylist() == [key]
    named = audit.sql("SELECT count(*) AS n FROM samples WHERE similarity > $least AND kind = $kind",
                      {"least": limit, "kind": "image"})  # fmt: skip
    expected = pc.and_(pc.greater(table["similarity"], limit), pc.equal(table["kind"], "image"))
    assert named["n"][0].as_py() == pc.sum(expected).as_py()
    hostile = "x' OR TRUE --"
    assert audit.sql("SELECT key FROM samples WHERE key = ?", [hostile]).num_rows == 0
    assert audit.sql("SELECT key FROM samples WHERE similarity > ?", [0.0], limit=3).num_rows == 3
    for wrong, words in (
        ([object()], "parameter 1 is object"),
        (["x" * 200_000], "200,000 characters"),
        ("key", "a list for"),
    ):
        with pytest.raises(QueryError, match=words):
            audit.sql("SELECT key FROM samples WHERE key = ?", wrong)


def test_results_go_to_arrow_pandas_and_polars(audit: Audit) -> None:
    import polars as pl

    kept = audit.keep(max_p_mismatch=0.05, where="kind = 'video'")
    rows = kept.to_arrow(["key", "p_mismatch"])
    assert rows.column_names == ["key", "p_mismatch"] and rows.num_rows == len(kept) > 0
    assert list(kept.to_pandas(["key"])["key"]) == rows["key"].to_pylist()
    frame = kept.to_polars()
    assert isinstance(frame, pl.DataFrame) and frame.columns == audit.columns and frame.height == len(kept)
    assert pl.DataFrame(audit.worst(n=5)).height == len(audit.worst(n=5).to_pandas()) == 5
    cuts = pl.DataFrame(audit.cut_offs([0.1, 0.5]))
    assert cuts["p"].to_list() == [0.1, 0.5] and "caught_high" in cuts.columns
    chosen = audit.choose_cut(lose_at_most=0.02)
    assert len(audit.keep(max_p_mismatch=float(chosen))) == audit.summary().usable - chosen.removed


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda audit: audit.worst("p_mismach"), r"by: there is no column 'p_mismach'; did you mean p_mismatch\?"),
        (lambda audit: audit.worst(n="ten"), "n is a whole number of at least 0, not 'ten'"),
        (lambda audit: audit.worst(where="1) OR (1"), "where: "),
        (lambda audit: audit.page(order_by="sise"), "order_by: there is no column 'sise'"),
        (lambda audit: audit.page(limit=-1), "limit is a whole number"),
        (lambda audit: audit.page(offset=1.5), "offset is a whole number"),
        (lambda audit: audit.keep(max_p_mismatch="lots"), "max_p_mismatch needs a number"),
        (lambda audit: audit.keep(max_p_mismach=0.1), r"did you mean max_p_mismatch\?"),
        (lambda audit: audit.keep(keep_top="30%", by="similarty"), "by: there is no column 'similarty'"),
        (lambda audit: audit.keep(max={"aesthetics": 5}), "max_aesthetics: there is no column 'aesthetics'"),
        (lambda audit: audit.keep(unscored="maybe"), "unscored is one of keep, drop"),
        (lambda audit: audit.keep().to_arrow(["kee"]), "columns: there is no column 'kee'"),
        (lambda audit: audit.choose_cut(lose_at_most=2), "lose_at_most"),
        (lambda audit: audit.histogram("kind"), "column: kind is text"),
        (lambda audit: audit.histogram("similarity", bins=0), "bins is a whole number of at least 1"),
        (lambda audit: audit.density("similarity", "similarty"), "there is no column 'similarty'"),
        (lambda audit: audit.media({"key": "a"}), "row has no media_offset"),
        (lambda audit: audit.sql(5), "query is SQL as text, not int"),
        (lambda audit: audit.count(3), "where is an SQL condition as text, not int"),
        (lambda audit: audit.keep(where=3), "where is an SQL condition as text, not int"),
        (lambda audit: audit.keep(max=3), 'max names its columns, max={"similarity": 0.3}, and is not 3'),
        (lambda audit: audit.keep(no_duplicates="no"), "no_duplicates is True or False, not 'no'"),
        (lambda audit: audit.keep(keep_top="some", by="similarity"), "keep_top: 'some' is neither a share"),
        (lambda audit: audit.keep().to_arrow("key"), r'columns must be a list of names: \["key"\]'),
        (lambda audit: audit.cut_offs([3]), "cut-offs in `at` must be between 0 and 1, not 3"),
        (lambda audit: audit.cut_offs(["x"]), "cut-offs in `at` must be between 0 and 1, not 'x'"),
        (lambda audit: audit.errors("all"), "limit is a whole number"),
        (lambda audit: audit.row(3), "uid is text, not 3"),
        (lambda audit: audit.explain(3), "key is text, not 3"),
        (lambda audit: audit.explain("000000000", "first"), "caption_index is a whole number"),
        (lambda audit: audit.compare("other/"), "other is an Audit, not 'other/'"),
        (lambda audit: audit.apply(len, columns=["captoin"]), "columns: there is no column 'captoin'"),
        (lambda audit: audit.apply("len", columns=["caption"]), "function must be a function, a class or the file"),
        (lambda audit: audit.join("scores.parquet", "uid", which="best"), "which is first or last, not 'best'"),
        (lambda audit: audit.apply(len, columns="caption"), "name the arguments of the function: columns="),
    ],
)
def test_errors_name_the_argument(audit: Audit, ask: Callable[[Audit], object], words: str) -> None:
    with pytest.raises(AuditorError, match=words):
        ask(audit)
