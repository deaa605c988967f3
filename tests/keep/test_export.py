"""Every export target, checked by reading the written format."""

import gc
import hashlib
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import webdataset as wds

from auditor.corpus.file_names import make_portable_key
from auditor.corpus.read_medium import MediaError
from auditor.corpus.rewrite_captions import CorpusChangedError
from auditor.keep.export import export_csv, export_subset, parse_uids, sort_uids
from auditor.keep.export_shards import ShardPlan
from auditor.keep.export_target import ExportError
from auditor.keep.kept_rows import KeptRows
from auditor.keep.predicate import Predicate, UnknownShardError, hash_key
from auditor.keep.tiers import export_tiers
from auditor.python_api import Audit, QueryError
from auditor.query.sandbox import Sandbox
from auditor.schema import STORED
from tests.support.synthetic import add_member, make_photo, write_audit, write_corpus_audit

Members = dict[str, bytes]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_corpus_audit(tmp_path_factory.mktemp("export"))


@pytest.fixture(scope="module")
def audit(made: tuple[Path, Path]) -> Audit:
    return Audit(made[0])


def read_members(folder: Path) -> dict[str, bytes]:
    """All members of all tars of a folder by name; names are unique."""
    found: dict[str, bytes] = {}
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as tar:
            for info in tar:
                file = tar.extractfile(info)
                assert file is not None and info.name not in found
                found[info.name] = file.read()
    return found


def expected_members(corpus: Path, keys: set[str]) -> dict[str, bytes]:
    return {name: data for name, data in read_members(corpus).items() if name.partition(".")[0] in keys}


def test_npy_is_datacomps_subset_file(tmp_path: Path) -> None:
    audit = Audit(write_audit(tmp_path / "audit", 3000, 500))
    kept = audit.keep(max_p_mismatch=0.1)
    done = export_subset(kept, tmp_path / "kept.npy")
    found = np.load(tmp_path / "kept.npy")
    uids = kept.uids.to_pylist()
    naive = np.array([(int(uid[:16], 16), int(uid[16:32], 16)) for uid in uids], np.dtype("u8,u8"))
    naive.sort()
    assert found.dtype == np.dtype("u8,u8") and done.rows == len(found) == kept.count
    np.testing.assert_array_equal(found, naive)


def test_uids_with_equal_halves_sort_right() -> None:
    random = np.random.default_rng(0)
    pairs = random.integers(0, 5, (200, 2)).astype(np.uint64)
    pairs[0] = [2**64 - 1, 2**63]
    expected = sorted({(int(a), int(b)) for a, b in pairs})
    assert [(int(a), int(b)) for a, b in sort_uids(pairs)] == expected
    octets = pa.array([int(a).to_bytes(8) + int(b).to_bytes(8) for a, b in pairs])
    np.testing.assert_array_equal(parse_uids(octets), pairs)
    np.testing.assert_array_equal(parse_uids(octets.slice(7, 50)), pairs[7:57])


@pytest.mark.parametrize(
    ("uid", "told"),
    [("short", "uid short is not 32 hex digits"), ("g" * 32, "hex digit: g"), ("0" * 33, "32 hex"), ("", "32 hex")],
)
def test_uids_that_are_none(uid: str, told: str, tmp_path: Path) -> None:
    audit = write_audit(tmp_path / "audit", 50)
    file = audit / "samples" / "00000.parquet"
    table = pq.read_table(file)
    pq.write_table(table.set_column(0, "uid", pa.array([uid, *table["uid"].to_pylist()[1:]])), file)
    with pytest.raises(QueryError, match=told):
        export_subset(Audit(audit).keep(where="TRUE"), tmp_path / "kept.npy")
    assert not (tmp_path / "kept.npy").exists()


def test_parquet_has_the_columns_with_values_in_order(audit: Audit, tmp_path: Path) -> None:
    kept = audit.keep(min_similarity=0.25)
    result = export_subset(kept, tmp_path / "kept.parquet")
    rows = pq.read_table(tmp_path / "kept.parquet")
    samples = audit.sql("SELECT * FROM samples")
    stored = [column for column in samples.column_names if column in STORED]
    empty = [column for column in stored if samples[column].null_count == samples.num_rows]
    assert list(result.empty_columns) == empty and "language" in empty
    assert "error_message" in rows.column_names and rows["error_message"].null_count == rows.num_rows  # has values
    assert rows.column_names == [column for column in audit.columns if column not in empty]
    expected = audit.sql("SELECT * FROM samples WHERE status = 'ok' AND similarity >= 0.25")
    assert rows.equals(expected.select(rows.column_names).cast(rows.schema))
    assert pq.read_metadata(tmp_path / "kept.parquet").metadata[b"empty_columns"].decode() == ", ".join(empty)


def test_a_column_with_one_value_in_the_last_shard_is_written(made: tuple[Path, Path], tmp_path: Path) -> None:
    audit = tmp_path / "audit"
    shutil.copytree(made[0], audit)
    file = sorted((audit / "samples").glob("*.parquet"))[-1]
    table = pq.read_table(file)
    place = table.schema.get_field_index("language")
    languages = pa.array([*[None] * (len(table) - 1), "de"], table.schema.field(place).type)
    pq.write_table(table.set_column(place, "language", languages), file, row_group_size=7)
    rows = Audit(audit).keep(min_similarity=0.25)
    assert "language" not in rows.write(tmp_path / "kept.parquet").empty_columns
    assert pq.read_table(tmp_path / "kept.parquet")["language"].null_count == rows.count


def test_writing_parquet_counts_the_rows_on_the_way(
    audit: Audit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = audit.keep(min_similarity=0.25).count
    kept = audit.keep(min_similarity=0.25)
    monkeypatch.setattr(KeptRows, "count_where", lambda *_: pytest.fail("the audit is read once more"))
    done = kept.write(tmp_path / "kept.parquet")
    assert done.rows == done.captions == pq.read_metadata(tmp_path / "kept.parquet").num_rows == expected


@pytest.mark.parametrize("said", ["No space left on device", "Permission denied"])
def test_a_parquet_that_duckdb_cannot_write_is_named(
    audit: Audit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    def fail(*_: object) -> int:
        raise QueryError(f'IO Error: Could not write file ".part-x": {said}')

    monkeypatch.setattr(Sandbox, "run_copy", fail)
    expected = "the disk is full" if "space" in said else said
    with pytest.raises(ExportError, match=rf"cannot write .*/kept\.parquet: .*{expected}"):
        audit.keep().write(tmp_path / "kept.parquet")
    assert not list(tmp_path.iterdir())


def test_txt_lists_each_key_once(audit: Audit, tmp_path: Path) -> None:
    kept = audit.keep(max_p_mismatch=0.3)
    export_subset(kept, tmp_path / "kept.txt")
    found = (tmp_path / "kept.txt").read_text().splitlines()
    assert found == sorted(set(kept.keys.to_pylist())) and len(found) < kept.count


def test_shards_hold_the_original_bytes(audit: Audit, made: tuple[Path, Path], tmp_path: Path) -> None:
    kept = audit.keep(max_p_mismatch=0.3, per_medium="any")
    done = export_subset(kept, tmp_path / "out", shard_size=7)
    assert read_members(tmp_path / "out") == expected_members(made[1], set(kept.keys.to_pylist()))
    sizes = []
    for path in sorted((tmp_path / "out").glob("*.tar")):
        with tarfile.open(path) as tar:
            sizes.append(len({name.partition(".")[0] for name in tar.getnames()}))
    assert sum(sizes) == done.rows and max(sizes) <= 7 and max(sizes) - min(sizes) <= 1 and len(sizes) == done.shards


def test_removed_rows_have_reasons(audit: Audit, tmp_path: Path) -> None:
    kept = audit.keep(max_p_mismatch=0.3, min_similarity=0.25)
    export_subset(kept, tmp_path / "out", shard_size=100)
    removed = pq.read_table(tmp_path / "out" / "removed.parquet").to_pylist()
    assert len(removed) == audit.count() - kept.count
    assert {row["uid"] for row in removed}.isdisjoint(kept.uids.to_pylist())
    for row in removed:
        if row["status"] != "ok":
            assert row["reason"] == row["status"] == "corrupt"
            continue
        failed = [
            rule
            for rule, fails in (
                ("max_p_mismatch", row["p_mismatch"] > np.float32(0.3)),
                ("min_similarity", row["similarity"] < np.float32(0.25)),
            )
            if fails
        ]
        assert row["reason"] == ", ".join(failed) != ""


def test_a_sample_is_kept_with_its_kept_captions(audit: Audit) -> None:
    """Key 000000 has two captions; keeping only the second keeps the sample without the first."""
    kept = audit.keep(where="key = '000000' AND caption_index = 1")
    samples = list(kept.samples())
    assert kept.count == 1 and len(samples) == 1
    assert json.loads(samples[0]["json"])["captions"] == [samples[0]["txt"].decode()]


def test_existing_outputs_are_refused(audit: Audit, tmp_path: Path) -> None:
    kept = audit.keep(max_p_mismatch=0.3)
    for name in ("kept.npy", "kept.parquet", "kept.txt", "folder"):
        export_subset(kept, tmp_path / name)
        with pytest.raises(ExportError, match="--force"):
            export_subset(kept, tmp_path / name)
        export_subset(kept, tmp_path / name, force=True)
    for form in ("json", "zip"):
        with pytest.raises(ExportError, match=rf"cannot write \.{form}"):
            export_subset(audit.keep(), tmp_path / f"kept.{form}")


def test_force_never_clears_a_folder_that_is_no_export(audit: Audit, tmp_path: Path) -> None:
    (tmp_path / "00000.tar").write_bytes(b"precious")
    for force in (False, True):
        with pytest.raises(ExportError, match="choose another folder"):
            export_subset(audit.keep(), tmp_path, force=force)
    assert (tmp_path / "00000.tar").read_bytes() == b"precious"


def test_other_rules_are_not_mixed_in(audit: Audit, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(RuntimeError):
        export_subset(audit.keep(max_p_mismatch=0.3), out, shard_size=5, progress=stop_after(8))
    with pytest.raises(ExportError, match="other rules"):
        export_subset(audit.keep(max_p_mismatch=0.2), out, shard_size=5)
    with pytest.raises(ExportError, match="other rules"):
        export_subset(audit.keep(max_p_mismatch=0.3), out, shard_size=6)
    export_subset(audit.keep(max_p_mismatch=0.2), out, shard_size=5, force=True)


def stop_after(samples: int) -> Any:
    left = iter(range(samples))

    def progress(_: int) -> None:
        if next(left, None) is None:
            raise RuntimeError("stopped")

    return progress


def test_resumes_where_it_stopped(audit: Audit, made: tuple[Path, Path], tmp_path: Path) -> None:
    kept = audit.keep(max_p_mismatch=0.3)
    export_subset(kept, tmp_path / "whole", shard_size=5)
    with pytest.raises(RuntimeError):
        export_subset(kept, tmp_path / "out", shard_size=5, progress=stop_after(17))
    done = sorted((tmp_path / "out").glob("*.tar"))
    assert len(done) == 3 and not (tmp_path / "out" / "removed.parquet").exists()
    before = {path: path.stat().st_mtime_ns for path in done}
    written: list[int] = []
    total = sum(count for _, count in kept.by_shard())
    export_subset(kept, tmp_path / "out", shard_size=5, progress=written.append)
    assert {path: path.stat().st_mtime_ns for path in done} == before
    assert digest_files(tmp_path / "out") == digest_files(tmp_path / "whole")
    assert sum(written) == total - sum(ShardPlan(total, -(-total // 5)).shard_of(i) < 3 for i in range(total))
    assert not list((tmp_path / "out").glob(".*"))
    for name in ("00001.tar", "00004.tar", "00005.tar"):  # gaps, of which one spans several shards
        (tmp_path / "out" / name).unlink()
    export_state = tmp_path / "out" / "export.json"
    export_state.write_text(export_state.read_text().replace("complete", "writing"))
    export_subset(kept, tmp_path / "out", shard_size=5)
    assert digest_files(tmp_path / "out") == digest_files(tmp_path / "whole")


def digest_files(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.tar")}


def test_resumes_after_a_kill(made: tuple[Path, Path], tmp_path: Path) -> None:
    """A real SIGKILL while a shard is written."""
    code = (
        "import sys, time; from auditor.python_api import Audit; from auditor.keep.export import export_subset\n"
        "def slow(_):\n    time.sleep(0.02)\n"
        "export_subset(Audit(sys.argv[1]).keep(), sys.argv[2], shard_size=4, progress=slow)"
    )
    out = tmp_path / "out"
    child = subprocess.Popen([sys.executable, "-c", code, str(made[0]), str(out)])
    deadline = time.monotonic() + 60
    while len(list(out.glob("*.tar"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert 3 <= len(list(out.glob("*.tar"))) < 15
    kept = Audit(made[0]).keep()
    export_subset(kept, out, shard_size=4)
    assert read_members(out) == expected_members(made[1], set(kept.keys.to_pylist()))
    assert json.loads((out / "export.json").read_text())["state"] == "complete"
    assert not list(out.glob(".*"))


def test_moved_corpus(made: tuple[Path, Path], tmp_path: Path) -> None:
    shutil.copytree(made[0], tmp_path / "audit")
    manifest = json.loads((tmp_path / "audit" / "manifest.json").read_text())
    for path in (tmp_path / "audit" / "samples").glob("*.parquet"):
        table = pq.read_table(path)
        place = table.schema.get_field_index("media_path")
        moved = [f"/gone/{Path(one).name}" for one in table["media_path"].to_pylist()]
        pq.write_table(table.set_column(place, "media_path", pa.array(moved)), path)
    manifest["corpus"]["root"], manifest["id"] = "/gone", "0" * 32
    (tmp_path / "audit" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(MediaError, match="say where its media are with --corpus ROOT"):
        export_subset(Audit(tmp_path / "audit").keep(), tmp_path / "out")
    kept = Audit(tmp_path / "audit", corpus=made[1]).keep()
    export_subset(kept, tmp_path / "out2")
    assert read_members(tmp_path / "out2") == expected_members(made[1], set(kept.keys.to_pylist()))


def test_changed_corpus_is_noticed(tmp_path: Path) -> None:
    path, corpus = write_corpus_audit(tmp_path, shards=1)
    with tarfile.open(corpus / "00000.tar", "w") as tar:
        add_member(tar, "other.jpg", make_photo(1))
    with pytest.raises(CorpusChangedError, match="audit it again"):
        export_subset(Audit(path).keep(), tmp_path / "out")


def test_repeated_key_gives_the_occurrence_that_was_kept(tmp_path: Path) -> None:
    path, corpus = write_corpus_audit(tmp_path, shards=1)
    with tarfile.open(corpus / "00000.tar", "a") as tar:
        add_member(tar, "000003.jpg", b"another picture by the same name")
        add_member(tar, "000003.txt", b"another caption")
    sample = next(iter(Audit(path).keep(where="key = '000003'").samples()))
    assert sample["jpg"] == make_photo(3) and sample["txt"] != b"another caption"


def test_compressed_shards(tmp_path: Path) -> None:
    import gzip

    path, corpus = write_corpus_audit(tmp_path, shards=1)
    (corpus / "00000.tar.gz").write_bytes(gzip.compress((corpus / "00000.tar").read_bytes()))
    shard = path / "samples" / "00000.parquet"
    table = pq.read_table(shard)
    packed = pa.array([f"{one}.gz#compression=gzip" for one in table["media_path"].to_pylist()])
    pq.write_table(table.set_column(table.schema.get_field_index("media_path"), "media_path", packed), shard)
    kept = Audit(path).keep()
    export_subset(kept, tmp_path / "out")
    assert read_members(tmp_path / "out") == expected_members(corpus, set(kept.keys.to_pylist()))


def test_folder_corpora_give_medium_and_captions(tmp_path: Path) -> None:
    """Media that are separate files: their bytes are unchanged, with the kept captions beside them."""
    path, _ = write_corpus_audit(tmp_path, shards=1, per_shard=4)
    (tmp_path / "pictures").mkdir()
    shard = path / "samples" / "00000.parquet"
    table = pq.read_table(shard)
    files = [str(tmp_path / "pictures" / f"{key}.jpg") for key in table["key"].to_pylist()]
    for file, key in zip(files, table["key"].to_pylist(), strict=True):
        Path(file).write_bytes(make_photo(int(key)))
    for column, new in (("media_path", pa.array(files)), ("media_offset", pa.array([0] * len(files), pa.int64()))):
        table = table.set_column(table.schema.get_field_index(column), column, new)
    sizes = pa.array([os.path.getsize(file) for file in files], pa.int64())
    table = table.set_column(table.schema.get_field_index("media_size"), "media_size", sizes)
    pq.write_table(table, shard)
    kept = Audit(path, corpus=tmp_path / "pictures").keep()
    export_subset(kept, tmp_path / "out")
    found = read_members(tmp_path / "out")
    assert found["000001.jpg"] == make_photo(1)
    captions = [row["caption"] for row in table.to_pylist() if row["key"] == "000000"]
    assert found["000000.txt"].decode().split("\n") == captions and len(captions) == 2


def test_remote_targets(audit: Audit) -> None:
    kept = audit.keep(max_p_mismatch=0.3)
    export_subset(kept, "memory://export/kept.npy")
    export_subset(kept, "memory://export/shards", shard_size=20)
    memory = fsspec.filesystem("memory")
    with memory.open("/export/kept.npy") as file:
        assert len(np.load(file)) == kept.count
    assert memory.exists("/export/shards/00000.tar") and memory.exists("/export/shards/removed.parquet")
    with pytest.raises(ExportError, match="--force"):
        export_subset(kept, "memory://export/shards", shard_size=20)


def test_nothing_kept(audit: Audit, tmp_path: Path) -> None:
    kept = audit.keep(where="FALSE")
    assert export_subset(kept, tmp_path / "kept.npy").rows == 0 and len(np.load(tmp_path / "kept.npy")) == 0
    assert export_subset(kept, tmp_path / "out").shards == 0
    assert pq.read_table(tmp_path / "out" / "removed.parquet").num_rows == audit.count()


def test_plan_is_balanced() -> None:
    for total, shards in ((10, 3), (1, 1), (100, 7), (7, 7)):
        plan = ShardPlan(total, shards)
        sizes = np.bincount([plan.shard_of(i) for i in range(total)], minlength=shards)
        assert sizes.max() - sizes.min() <= 1


def test_webdataset_reads_the_corpus_itself(audit: Audit, made: tuple[Path, Path]) -> None:
    kept = audit.keep(max_p_mismatch=0.3, per_medium="any")
    found = list(kept.webdataset())
    expected = expected_members(made[1], set(kept.keys.to_pylist()))
    read = {f"{s['__key__']}.{ext}": data for s in found for ext, data in s.items() if not ext.startswith("__")}
    assert read == expected
    assert list(kept.samples()) == found


def test_predicate_knows_a_shard_in_a_folder_with_a_space() -> None:
    predicate = Predicate({"my shards/00001.tar": np.array([hash_key("a")])})
    assert predicate({"__key__": "a", "__url__": "/mnt/my shards/00001.tar"})


def test_webdataset_is_read_in_workers(audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker receives shard names, not rows, and reads its own shards."""
    kept = audit.keep(max_p_mismatch=0.3, keep_top="60%", by="similarity", where="samples.width > 0")
    sent = pickle.dumps(kept.webdataset())  # as a data loader sends it to spawned workers
    assert len(sent) < 3000
    monkeypatch.setenv("NUM_WORKERS", "2")
    parts: list[set[str]] = []
    for worker in range(2):
        monkeypatch.setenv("WORKER", str(worker))
        parts.append({sample["__key__"] for sample in pickle.loads(sent)})
    assert parts[0] | parts[1] == set(kept.keys.to_pylist())
    assert parts[0] and parts[1] and not parts[0] & parts[1]


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_predicate_filters_on_the_fly(audit: Audit, made: tuple[Path, Path]) -> None:
    kept = audit.keep(max_p_mismatch=0.3)
    predicate = pickle.loads(pickle.dumps(kept.predicate()))
    urls = [str(path) for path in sorted(made[1].glob("*.tar"))]
    chosen = [s["__key__"] for s in wds.WebDataset(urls, shardshuffle=False).select(predicate)]
    assert chosen == sorted(set(kept.keys.to_pylist()))
    gc.collect()  # WebDataset leaves the last tar to the garbage collector


@pytest.mark.parametrize(
    "url",
    [
        "{0}/00001.tar",
        "/mnt/elsewhere/00001.tar",
        "s3://b/x/00001.tar?v=1",
        "pipe:aws s3 cp s3://b/00001.tar",
        "pipe:aws s3 cp s3://b/00001.tar -",
        "pipe:curl -s -f 'https://b/00001.tar?v=1' || true",
        "00001.tar",
    ],
)
def test_predicate_knows_a_shard_by_its_name(audit: Audit, made: tuple[Path, Path], url: str) -> None:
    kept = audit.keep(max_p_mismatch=0.3)
    keys = set(kept.keys.to_pylist())
    predicate = kept.predicate()
    for number in range(20, 40):
        key = f"{number:06d}"
        assert predicate({"__key__": key, "__url__": url.format(made[1])}) == (key in keys)


def test_predicate_refuses_unknown_shards(audit: Audit) -> None:
    with pytest.raises(UnknownShardError, match=r"no shard /x/99999\.tar"):
        audit.keep().predicate()({"__key__": "a", "__url__": "/x/99999.tar"})


def test_predicate_drops_a_shard_of_which_nothing_is_kept(audit: Audit, made: tuple[Path, Path]) -> None:
    predicate = audit.keep(where="shard = '00000'").predicate()
    assert not predicate({"__key__": "000020", "__url__": str(made[1] / "00001.tar")})


@pytest.fixture(autouse=True)
def empty_memory() -> Iterator[None]:
    yield
    fsspec.filesystem("memory").store.clear()


@pytest.mark.parametrize(
    ("key", "portable"),
    [
        ("000001", "000001"),
        ("a/b/c", "a/b/c"),
        ("/data/my corpus/a.v2", "data/my corpus/a_v2"),
        ("../../etc/passwd", "etc/passwd"),
        ("https://host.org/x/y.jpg?a=1#2", "host.org/x/y_jpg_a=1_2"),
        ("C:\\photos\\a", "C__photos_a"),
        ("./", "sample"),
    ],
)
def test_keys_become_portable_names(key: str, portable: str) -> None:
    assert make_portable_key(key) == portable == make_portable_key(portable)


def test_members_of_an_exported_table_are_portable(tmp_path: Path, random_model: str) -> None:
    """Absolute paths, dots and a key in two shards become unique names that any system can unpack."""
    from auditor.run.audit_config import AuditConfig
    from auditor.run.run_audit import run_audit

    for name in ("a.v1.jpg", "a.v2.jpg", "sub/a_v1.jpg"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / name).write_bytes(make_photo(len(name)))
    table = tmp_path / "table.csv"
    rows = [(tmp_path / "photos" / "a.v1.jpg", "k.1"), (tmp_path / "photos" / "a.v2.jpg", "k_1")]
    lines = [f"{path},{key},words for {key}" for path, key in [*rows, (tmp_path / "photos/sub/a_v1.jpg", "/k.1")]]
    table.write_text("\n".join(["image,key,caption", *lines]))
    run_audit(AuditConfig(str(table), str(tmp_path / "audit"), random_model, allow_random_weights=True, quiet=True))
    export_subset(Audit(tmp_path / "audit").keep(), tmp_path / "out")
    names = set(read_members(tmp_path / "out"))
    assert names == {f"{key}.{end}" for key in ("k_1", "k_1-1", "k_1-2") for end in ("jpg", "txt", "json")}


def test_nothing_is_written_into_the_folder_of_the_corpus(tmp_path: Path) -> None:
    audit, corpus = write_corpus_audit(tmp_path)
    with Audit(audit) as opened:
        for target in ("clean", "kept.parquet", "deeper/kept.txt"):
            with pytest.raises(ExportError, match="lies in the corpus"):
                opened.keep().write(corpus / target)
        for write in (
            lambda: opened.keep().weigh(corpus / "weights.parquet"),
            lambda: opened.keep().to_datasets(corpus / "clean"),
            lambda: export_csv(opened.keep(), str(corpus / "rows.csv")),
            lambda: export_tiers(opened.keep(), str(corpus / "tiers"), 2, "p_mismatch", shard_size=10),
        ):
            with pytest.raises(ExportError, match="lies in the corpus"):
                write()
        assert opened.keep().write(tmp_path / "kept.txt").rows
    assert sorted(path.suffix for path in corpus.iterdir()) == [".tar"] * 3
