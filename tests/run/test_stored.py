"""Audits of stored embeddings, from the published layouts to rows: no media, no model, every row accounted for."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.audit_folder.embeddings import read_embeddings
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.manifest import Manifest
from auditor.cli import run_command_line
from auditor.corpus.open_corpus import CorpusError, CorpusOptions
from auditor.corpus.stored import stored_corpora, vector_shard
from auditor.errors import AuditError, AuditorError
from auditor.python_api import Audit
from auditor.run.audit_config import AuditConfig
from auditor.run.outcome import report_outcome
from auditor.run.run_audit import run_audit
from auditor.run.verify import verify_audit
from tests.support.stored import (
    make_datacomp_table,
    make_pairs,
    make_vector_table,
    normalize_rows,
    plant_related_pairs,
    write_clip_retrieval,
    write_datacomp,
)


def audit(corpus: object, out: Path, **options: Any) -> Manifest:
    settings = {name: options.pop(name) for name in ("logit_scale", "model", "max_error_rate") if name in options}
    return run_audit(AuditConfig(str(corpus), str(out), options=CorpusOptions(**options), quiet=True, **settings))


@pytest.fixture(scope="module")
def datacomp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_datacomp(tmp_path_factory.mktemp("datacomp"))


@pytest.fixture(scope="module")
def audited(datacomp: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("audited")
    audit(f"datacomp:{datacomp}", out)
    return out


def test_datacomp_rows_are_those_of_the_files(audited: Path) -> None:
    with Audit(audited) as opened:
        found = opened.sql("SELECT * FROM samples ORDER BY shard, key").to_pylist()
    expected = [(f"part-{part}", row) for part in (0, 1) for row in make_datacomp_table(300, part).to_pylist()]
    assert len(found) == len(expected)
    by_uid = {row["uid"]: row for row in found}
    for name, row in expected:
        got = by_uid[row["uid"]]
        assert (got["key"], got["shard"], got["caption"], got["status"]) == (row["uid"], name, row["text"], "ok")
        assert (got["width"], got["height"]) == (row["original_width"], row["original_height"])
        assert got["url"] == row["url"] and got["media_path"] is None
        assert got["clip_l14_similarity_score"] == pytest.approx(row["clip_l14_similarity_score"])
        assert got["media_digest"] == row["sha256"][:32]
        assert got["aspect"] == pytest.approx(row["original_width"] / row["original_height"])


def test_facts_of_captions_are_columns_of_stored_embeddings_too(tmp_path: Path) -> None:
    visual, text = make_pairs(200, 16)
    captions = [f"a dog in the park, number {row}" if row % 2 else "click HERE now: www.shop.com" for row in range(200)]
    pq.write_table(make_vector_table(visual, text, [*captions[:-1], None]), tmp_path / "v.parquet")
    options = CorpusOptions(visual_column="image_embedding", text_column="text_embedding")
    run_audit(AuditConfig(str(tmp_path / "v.parquet"), str(tmp_path / "audit"), options=options, quiet=True))
    with Audit(tmp_path / "audit") as audit:
        sql = "SELECT caption, words, looks_like, caption_count, status FROM samples ORDER BY key"
        rows = audit.sql(sql).to_pylist()
        assert rows[0]["looks_like"] == "url" and rows[0]["caption_count"] == 100
        assert (rows[1]["words"], rows[1]["looks_like"], rows[1]["caption_count"]) == (7, None, 99)
        assert rows[-1]["status"] == "missing_caption" and rows[-1]["words"] is None
        assert {fault.rows for fault in audit.faults() if fault.kind == "caption"} == {100, 99}


@pytest.mark.parametrize("features", ["b32", "l14"])
def test_similarity_is_the_cosine_of_the_stored_vectors(datacomp: Path, tmp_path: Path, features: str) -> None:
    manifest = audit(f"datacomp:{datacomp}", tmp_path / "out", features=features)
    with np.load(datacomp / "part-1.npz") as arrays:
        visual, text = (normalize_rows(arrays[f"{features}_{side}"].astype(np.float32)) for side in ("img", "txt"))
    with Audit(tmp_path / "out") as opened:
        found = opened.sql("SELECT similarity, uid FROM samples WHERE shard = 'part-1'").to_pylist()
    similarity = dict(zip(make_datacomp_table(300, 1)["uid"].to_pylist(), (visual * text).sum(1).tolist(), strict=True))
    assert manifest.model["dim"] == visual.shape[1]
    for row in found:
        assert row["similarity"] == pytest.approx(similarity[row["uid"]], abs=2e-3)


def test_planted_mismatches_are_found(audited: Path) -> None:
    swapped = np.concatenate([planted(part) for part in (0, 1)])
    with Audit(audited) as opened:
        p = {row["uid"]: row["p_mismatch"] for row in opened.sql("SELECT uid, p_mismatch FROM samples").to_pylist()}
    order = [uid for part in (0, 1) for uid in make_datacomp_table(300, part)["uid"].to_pylist()]
    values = np.array([p[uid] for uid in order])
    assert values[swapped].min() > values[~swapped].mean() + 0.1


def planted(part: int) -> Any:
    visual, text = make_pairs(300, seed=part)
    return (visual * text).sum(1) < 0.5


def test_everything_after_the_sweep_is_the_same_code(audited: Path, tmp_path: Path) -> None:
    out = str(audited)
    assert run_command_line(["summary", out]) == 0
    assert run_command_line(["worst", out, "--by", "clip_l14_similarity_score", "-n", "3"]) == 0
    assert run_command_line(["filter", out, "--max-p-mismatch", "0.5", "--out", str(tmp_path / "kept.npy")]) == 0
    assert run_command_line(["filter", out, "--where", "clip_b32_similarity_score > 0.5", "--dry-run"]) == 0
    assert run_command_line(["report", out, "--out", str(tmp_path / "report.html")]) == 0
    assert run_command_line(["search", out, "--like", make_datacomp_table(300, 0)["uid"][0].as_py()]) == 0
    kept = np.load(tmp_path / "kept.npy")
    with Audit(audited) as opened:
        wanted = opened.sql("SELECT uid FROM samples WHERE p_mismatch <= 0.5")["uid"].to_pylist()
    assert {f"{a:016x}{b:016x}" for a, b in kept.tolist()} == set(wanted)


def test_there_are_no_media_to_write(audited: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options in (
        ["--where", "true", "--out", str(tmp_path / "shards")],
        ["--tiers", "2", "--out", str(tmp_path / "tiers")],
    ):
        assert run_command_line(["filter", str(audited), *options]) == 1
        assert "600 of the kept rows have embeddings but no media" in capsys.readouterr().err
    with Audit(audited) as opened:
        for read in (lambda: list(opened.keep().samples()), opened.keep().webdataset, opened.keep().to_datasets):
            with pytest.raises(AuditorError, match="but no media"):
                read()
    assert not (tmp_path / "shards").exists() and not list(tmp_path.rglob("*.tar"))


def test_no_model_is_there_to_verify_or_search_texts_with(audited: Path) -> None:
    with pytest.raises(AuditorError, match="stored embeddings"):
        verify_audit(str(audited), 3)
    with Audit(audited) as opened, pytest.raises(AuditorError, match="search by example"):
        opened.search("a dog")


def test_the_same_command_sweeps_only_what_changed(datacomp: Path, tmp_path: Path) -> None:
    corpus = write_datacomp(tmp_path / "corpus")
    out = tmp_path / "out"
    audit(f"datacomp:{corpus}", out)
    before = {path.name: path.stat().st_mtime_ns for path in (out / "embeddings").iterdir()}
    visual, _ = make_pairs(300, seed=5)
    write_datacomp(corpus, files=1, l14_img=visual)
    audit(f"datacomp:{corpus}", out)
    after = {path.name: path.stat().st_mtime_ns for path in (out / "embeddings").iterdir()}
    assert after["part-1.parquet"] == before["part-1.parquet"]
    assert after["part-0.parquet"] != before["part-0.parquet"]


def test_a_url_that_is_no_web_address_says_where_the_medium_is(tmp_path: Path) -> None:
    corpus = write_datacomp(tmp_path / "corpus", files=1, count=12)
    table = pq.read_table(corpus / "part-0.parquet")
    urls = ["/data/0.jpg", "file:///data/1.jpg", "s3://bucket/2.jpg", "beside/3.jpg", None, "HTTPS://example.org/5.jpg"]
    place = table.column_names.index("url")
    column = pa.array([*urls, *table["url"].to_pylist()[len(urls) :]])
    pq.write_table(table.set_column(place, "url", column), corpus / "part-0.parquet")
    audit(f"datacomp:{corpus}", tmp_path / "audit")
    with Audit(tmp_path / "audit") as opened:
        found = opened.sql("SELECT url, media_path FROM samples").to_pylist()
    rows = {row["url"]: row["media_path"] for row in found}
    assert [rows.get(url) for url in urls[:4]] == [
        "/data/0.jpg",
        "/data/1.jpg",
        "s3://bucket/2.jpg",
        f"{corpus}/beside/3.jpg",
    ]
    assert not any(path for url, path in rows.items() if url not in urls[:4])


def test_clip_retrieval(tmp_path: Path) -> None:
    corpus = write_clip_retrieval(tmp_path / "corpus")
    manifest = audit(f"clip-retrieval:{corpus}", tmp_path / "out")
    assert manifest.counts["status"] == {"ok": 400}
    with Audit(tmp_path / "out") as opened:
        row = opened.sql("SELECT * FROM samples WHERE key = '010007'").to_pylist()[0]
        assert (row["caption"], row["license"]) == ("caption 7 of part 1", "cc-by")
        assert row["media_path"] == str(corpus / "metadata" / "010007")
        assert opened.count("license = 'unknown'") == 200


@pytest.mark.parametrize("fixed", [True, False])
def test_parquet_with_two_columns_of_vectors(tmp_path: Path, fixed: bool) -> None:
    visual, text = make_pairs(250)
    pq.write_table(make_vector_table(visual, text, [f"c {i}" for i in range(250)], fixed=fixed), tmp_path / "a.parquet")
    columns = {"visual_column": "image_embedding", "text_column": "text_embedding"}
    manifest = audit(tmp_path / "a.parquet", tmp_path / "out", **columns)
    assert manifest.counts["status"] == {"ok": 250}
    stored = read_embeddings(Folder(tmp_path / "out"), "a")
    assert np.allclose(stored.media.visual, visual, atol=1e-3) and np.allclose(stored.text, text, atol=1e-3)


def test_bad_vectors_get_a_status_that_says_why(tmp_path: Path) -> None:
    visual, text = make_pairs(250)
    visual[1], visual[2, 3], text[3, 0] = 0, np.nan, np.inf
    rows: list[Any] = [row.tolist() for row in visual]
    rows[4], rows[5] = None, [1.0, 2.0]
    captions: list[str | None] = [f"c {i}" for i in range(250)]
    captions[6], captions[7] = None, "  "
    table = make_vector_table(visual, text, captions, fixed=False)
    table = table.set_column(0, "image_embedding", pa.array(rows, pa.list_(pa.float32())))
    pq.write_table(table, tmp_path / "a.parquet")
    columns = {"visual_column": "image_embedding", "text_column": "text_embedding"}
    manifest = audit(tmp_path / "a.parquet", tmp_path / "out", **columns)
    assert manifest.counts["status"] == {"ok": 243, "bad_vector": 5, "missing_caption": 2}
    with Audit(tmp_path / "out") as opened:
        told = opened.sql("SELECT key, error_message AS why FROM samples WHERE status <> 'ok' ORDER BY key").to_pylist()
    assert [row["why"] for row in told] == [
        "the visual vector is zero",
        "the visual vector holds numbers that are not finite",
        "the text vector holds numbers that are not finite",
        "the visual vector is missing",
        "the visual vector has 2 numbers, not 16",
        "no caption in its row",
        "no caption in its row",
    ]


def test_a_width_is_found_however_late_the_first_vector_comes(tmp_path: Path) -> None:
    visual, text = make_pairs(1300)
    rows: list[Any] = [None if row < 1050 else values.tolist() for row, values in enumerate(visual)]
    table = make_vector_table(visual, text, [f"c {i}" for i in range(1300)])
    pq.write_table(
        table.set_column(0, "image_embedding", pa.array(rows, pa.list_(pa.float32()))), tmp_path / "a.parquet"
    )
    columns = {"visual_column": "image_embedding", "text_column": "text_embedding"}
    manifest = audit(tmp_path / "a.parquet", tmp_path / "out", max_error_rate=1.0, **columns)
    assert manifest.counts["status"] == {"ok": 250, "bad_vector": 1050}


def test_an_npz_with_another_number_of_rows_is_a_failed_shard(tmp_path: Path) -> None:
    corpus = write_datacomp(tmp_path / "corpus", l14_img=make_pairs(299)[0])
    manifest = audit(f"datacomp:{corpus}", tmp_path / "out")
    assert manifest.failed_shards == [
        {"shard": "part-0", "message": "l14_img of part-0.npz has 299 rows, part-0.parquet 300"}
    ]
    assert manifest.counts["rows"] == 300
    assert not (tmp_path / "out/embeddings/part-0.parquet").exists()
    assert not list((tmp_path / "out/embeddings").glob(".part-*"))


def test_a_file_without_uid_without_npz_or_of_another_width_is_a_failed_shard(tmp_path: Path) -> None:
    corpus = write_datacomp(tmp_path / "corpus", files=5)
    pq.write_table(make_datacomp_table(300, 1).drop_columns("uid"), corpus / "part-1.parquet")
    (corpus / "part-2.npz").unlink()
    visual, text = make_pairs(300, 24)
    np.savez(corpus / "part-3.npz", l14_img=visual, l14_txt=text)
    (corpus / "part-4.parquet").write_bytes(b"nothing")
    failed = {f["shard"]: f["message"] for f in audit(f"datacomp:{corpus}", tmp_path / "out").failed_shards}
    assert failed["part-1"] == "part-1.parquet has no column 'uid'"
    assert failed["part-2"].endswith("part-2.npz does not exist")
    assert failed["part-3"].endswith("l14_img of part-3.npz has vectors of 24 numbers, not 16")
    assert "part-4" in failed and len(failed) == 4


def test_two_widths_in_one_file_are_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = write_datacomp(tmp_path / "corpus", files=1, l14_txt=make_pairs(300, 24)[1])
    assert run_command_line(["audit", f"datacomp:{corpus}", "--out", str(tmp_path / "out")]) == 1
    assert "visual vectors of 16 numbers and text vectors of 24 numbers" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_uids_of_two_files_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = write_datacomp(tmp_path / "corpus")
    table = make_datacomp_table(300, 1)
    again = make_datacomp_table(300, 0)["uid"].to_pylist()[:7] + table["uid"].to_pylist()[7:]
    pq.write_table(table.set_column(0, "uid", pa.array(again)), corpus / "part-1.parquet")
    manifest = audit(f"datacomp:{corpus}", tmp_path / "out")
    assert manifest.shard_problems == [
        {
            "shard": "part-1",
            "message": "7 of its rows had the uid of a row of an earlier shard, and have another one here",
        }
    ]
    report_outcome(str(tmp_path / "out"), manifest, as_json=True)
    assert json.loads(capsys.readouterr().out)["shard_problems"] == manifest.shard_problems


def test_a_uid_twice_in_a_file_is_a_duplicate_key(tmp_path: Path) -> None:
    corpus = write_datacomp(tmp_path / "corpus", files=1)
    table = make_datacomp_table(300, 0)
    twice = table["uid"].to_pylist()
    twice[9] = twice[8]
    pq.write_table(table.set_column(0, "uid", pa.array(twice)), corpus / "part-0.parquet")
    manifest = audit(f"datacomp:{corpus}", tmp_path / "out")
    assert manifest.counts["status"] == {"ok": 299, "duplicate_key": 1} and not manifest.shard_problems


def test_large_files_are_cut_and_give_the_same_rows(
    datacomp: Path, audited: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_corpora, "LARGE_FILE_BYTES", 10)
    monkeypatch.setattr(stored_corpora, "SHARD_ROWS", 70)
    monkeypatch.setattr(vector_shard, "STRETCH_ROWS", 32)
    manifest = audit(f"datacomp:{datacomp}", tmp_path / "out")
    assert manifest.corpus["shards"] == 10 and manifest.counts["rows"] == 600
    shown = "SELECT uid, caption, status, round(similarity, 4) AS s, url FROM samples ORDER BY uid"
    with Audit(tmp_path / "out") as cut, Audit(audited) as whole:
        assert cut.sql(shown).equals(whole.sql(shown))


def test_cut_parquet_with_vectors_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    visual, text = make_pairs(250)
    table = make_vector_table(visual, text, [f"c {i}" for i in range(250)], fixed=False)
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=33)
    for module, name, value in (
        (stored_corpora, "LARGE_FILE_BYTES", 10),
        (stored_corpora, "SHARD_ROWS", 70),
        (vector_shard, "STRETCH_ROWS", 32),
    ):
        monkeypatch.setattr(module, name, value)
    columns = {"visual_column": "image_embedding", "text_column": "text_embedding"}
    audit(tmp_path / "a.parquet", tmp_path / "out", **columns)
    folder = Folder(tmp_path / "out")
    stored = [read_embeddings(folder, name).text for name in folder.names("embeddings", ".parquet")]
    assert [len(part) for part in stored] == [70, 70, 70, 40]
    assert np.allclose(np.concatenate(stored), text, atol=1e-3)


def test_the_scale_changes_what_fits_and_not_the_similarity(datacomp: Path, audited: Path, tmp_path: Path) -> None:
    audit(f"datacomp:{datacomp}", tmp_path / "out", logit_scale=10.0)
    with Audit(tmp_path / "out") as flat, Audit(audited) as sharp:
        mean = "SELECT avg(matches_text) AS fits, avg(similarity) AS s FROM samples"
        one, other = flat.sql(mean).to_pylist()[0], sharp.sql(mean).to_pylist()[0]
    assert one["fits"] > 2 * other["fits"] and one["s"] == pytest.approx(other["s"])


def test_what_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="does not exist"):
        audit(f"datacomp:{tmp_path / 'nowhere'}", tmp_path / "out")
    (tmp_path / "empty").mkdir()
    for spec in (f"datacomp:{tmp_path / 'empty'}", f"clip-retrieval:{tmp_path / 'empty'}"):
        with pytest.raises(CorpusError, match=r"no .*parquet"):
            audit(spec, tmp_path / "out")
    corpus = write_datacomp(tmp_path / "corpus", files=1)
    with pytest.raises(CorpusError, match="has no h14_img; it has b32_img"):
        audit(f"datacomp:{corpus}", tmp_path / "out", features="h14")
    with pytest.raises(CorpusError, match="give both"):
        audit(corpus, tmp_path / "out", visual_column="a")
    with pytest.raises(CorpusError, match="no column 'a'"):
        audit(corpus, tmp_path / "out", visual_column="a", text_column="b")
    with pytest.raises(CorpusError, match="not a list of floats"):
        audit(corpus, tmp_path / "out", visual_column="url", text_column="text")


def test_an_audit_of_stored_embeddings_is_not_mixed_with_another(datacomp: Path, audited: Path) -> None:
    with pytest.raises(AuditError, match=r"model l14_img/l14_txt \(.*\), not b32_img/b32_txt \(.*use another --out"):
        audit(f"datacomp:{datacomp}", audited, features="b32")


def test_on_s3_stored_embeddings_are_read_too(tmp_path: Path) -> None:
    import fsspec

    corpus = write_datacomp(tmp_path / "corpus")
    store = fsspec.filesystem("memory")
    for path in corpus.iterdir():
        store.pipe_file(f"/stored-datacomp/{path.name}", path.read_bytes())
    manifest = audit("datacomp:memory://stored-datacomp", tmp_path / "out")
    assert manifest.counts["status"] == {"ok": 600}


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An audit of two origins, one of which has another geometry; every fifth caption of the new one is swapped."""
    place = tmp_path_factory.mktemp("grouped")
    visual, text = plant_related_pairs(600)
    gap = normalize_rows(np.random.default_rng(5).normal(size=(1, visual.shape[1])))
    new = np.arange(600) % 2 == 0
    swapped = np.flatnonzero(new)[::5]
    text[swapped] = text[np.roll(swapped, 1)]
    visual[new], text[new] = normalize_rows(visual[new] + gap), normalize_rows(text[new] - gap)
    table = make_vector_table(visual, text, [f"a thing that has the number {row}" for row in range(600)])
    table = table.append_column("origin", pa.array(["new" if row else "old" for row in new]))
    table = table.append_column("swapped", pa.array(np.isin(np.arange(600), swapped)))
    for part in range(2):
        pq.write_table(table.slice(300 * part, 300), place / f"part-{part}.parquet")
    columns = {"visual_column": "image_embedding", "text_column": "text_embedding"}
    audit(str(place / "*.parquet"), place / "audit", logit_scale=20.0, **columns)
    return place / "audit"


def test_a_group_with_another_geometry_is_calibrated_by_itself(grouped: Path) -> None:
    with Audit(grouped) as opened:
        rows = opened.sql(
            "SELECT origin, calibration_group, swapped, count(*) AS n, avg(p_mismatch) AS p, "
            "avg(CAST(p_mismatch >= 0.5 AS INT)) AS flagged FROM samples WHERE no_estimate IS NULL GROUP BY ALL"
        ).to_pylist()
        summary, manifest = opened.summary(), opened.manifest
        key = opened.sql("SELECT key FROM samples WHERE swapped AND no_estimate IS NULL LIMIT 1").to_pylist()[0]["key"]
        explanation = opened.explain(key)
    assert {(row["origin"], row["calibration_group"]) for row in rows} == {("new", "new"), ("old", None)}
    assert all(row["flagged"] > 0.8 if row["swapped"] else row["flagged"] < 0.02 for row in rows)
    statistics = manifest["statistics"]["image"]
    assert statistics["calibrated_by"] == "origin" and set(statistics["groups"]) == {"", "new"}
    pairs = sum(row["n"] for row in rows)
    assert statistics["pi0"] == pytest.approx(sum(row["n"] * row["p"] for row in rows) / pairs, abs=1e-3)
    members = [row for row in rows if row["origin"] == "new"]
    group = statistics["groups"]["new"]
    assert group["pairs"] == sum(row["n"] for row in members)
    assert group["pi0"] == pytest.approx(sum(row["n"] * row["p"] for row in members) / group["pairs"], abs=1e-3)
    assert group["pi0_low"] <= group["pi0"] <= group["pi0_high"]
    assert re.search(r"calibrated by origin, mismatched: new about 2[01].*%.*, all others about 0", str(summary))
    assert "caption and medium are hardly more similar than random pairs" in explanation.reasons


def test_another_column_can_be_chosen_afterwards(grouped: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(grouped, tmp_path / "audit")
    assert run_command_line(["score", str(folder), "--calibrate-by", "kind", "--quiet"]) == 0
    with Audit(folder) as opened:
        assert opened.sql("SELECT count(calibration_group) AS n FROM samples").to_pylist() == [{"n": 0}]
        assert "calibrated by" not in str(opened.summary())
