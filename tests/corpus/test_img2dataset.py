"""img2dataset's table and statistics beside a tar: each failed download is a row with its reason."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.corpus.open_corpus import CorpusOptions, open_corpus
from auditor.python_api import Audit
from auditor.run.audit_config import AuditConfig
from auditor.run.run_audit import run_audit
from auditor.sweep.sweep_config import SweepConfig
from tests.support.corpora import make_sample, write_tar

# as img2dataset writes it for --output_format webdataset
SCHEMA = pa.schema(
    [
        ("url", pa.string()),
        ("caption", pa.string()),
        ("key", pa.string()),
        ("status", pa.string()),
        ("error_message", pa.string()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("original_width", pa.int32()),
        ("original_height", pa.int32()),
        ("exif", pa.string()),
        ("sha256", pa.string()),
    ]
)


def entry(number: int, status: str = "success", message: str | None = None) -> dict[str, Any]:
    return {
        "url": f"https://example.org/{number}.jpg",
        "caption": f"a picture of {number}",
        "key": f"{number:09d}",
        "status": status,
        "error_message": message,
        "width": 48 if status == "success" else None,
    }


def write_download(folder: Path, count: int = 30, failed: int = 10, shard: str = "00000") -> Path:
    """Write a tar of the successes, the table of all samples and their statistics."""
    rows = [entry(number) for number in range(count)]
    rows += [entry(count, "failed_to_resize", "Image decoding error")]
    rows += [entry(count + i, "failed_to_download", "HTTP Error 404:\n Not Found") for i in range(1, failed)]
    folder.mkdir(parents=True, exist_ok=True)
    write_tar(folder / f"{shard}.tar", ((row["key"], make_sample(i)) for i, row in enumerate(rows[:count])))
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), folder / f"{shard}.parquet")
    stats = {"count": count + failed, "successes": count, "failed_to_download": failed - 1, "failed_to_resize": 1}
    (folder / f"{shard}_stats.json").write_text(json.dumps(stats))
    return folder


def opened(folder: Path, **options: Any) -> Any:
    (shard,) = open_corpus(str(folder), CorpusOptions(**options)).shards
    with shard.open() as found:
        return found


def test_a_failed_download_is_a_sample_with_the_reason(tmp_path: Path) -> None:
    found = opened(write_download(tmp_path), carry=("url",))
    assert len(found.samples) == 40 and found.problems == []
    lost = {sample.key: sample for sample in found.samples if sample.media is None}
    assert len(lost) == 10
    resized, missing = lost["000000030"], lost["000000035"]
    assert resized.problem.status == missing.problem.status == "not_downloaded"
    assert resized.problem.message == "failed_to_resize: Image decoding error"
    assert missing.problem.message == "failed_to_download: HTTP Error 404: Not Found"
    assert missing.captions == ("a picture of 35",)
    assert json.loads(missing.carried[0]) == {"url": "https://example.org/35.jpg"}


def test_an_audit_has_rows_for_all_tried_samples(tmp_path: Path, random_model: str) -> None:
    write_download(tmp_path / "corpus", count=4, failed=12)
    corpus, out, sweep = str(tmp_path / "corpus"), str(tmp_path / "audit"), SweepConfig(decoders=1)
    manifest = run_audit(AuditConfig(corpus, out, random_model, sweep=sweep, allow_random_weights=True, quiet=True))
    assert manifest.counts["status"] == {"ok": 4, "not_downloaded": 12}
    with Audit(tmp_path / "audit") as audit:
        shown = audit.errors()
        assert {row["status"] for row in shown} == {"not_downloaded"} and sum(row["rows"] for row in shown) == 12
        assert audit.count() == 16


def test_a_changed_table_changes_the_shard(tmp_path: Path) -> None:
    (shard,) = open_corpus(str(write_download(tmp_path))).shards
    before = shard.fingerprint()
    assert shard.fingerprint() == before
    pq.write_table(pa.Table.from_pylist([entry(0)], schema=SCHEMA), tmp_path / "00000.parquet")
    assert shard.fingerprint() != before


def test_video2dataset_counts_videos_and_not_the_clips_of_them(tmp_path: Path) -> None:
    members = [(f"{video:07d}_{clip:05d}", make_sample(video)) for video in range(3) for clip in range(4)]
    write_tar(tmp_path / "00000.tar", members)
    rows = [{**entry(0), "key": key} for key, _ in members] + [{**entry(3, "failed_to_download"), "key": "0000003"}]
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), tmp_path / "00000.parquet")
    (tmp_path / "00000_stats.json").write_text(json.dumps({"count": 4, "successes": 3, "failed_to_download": 1}))
    (shard,) = open_corpus(str(tmp_path / "00000.tar")).shards
    with shard.open() as found:
        assert found.problems == [] and len(found.samples) == 13
        assert found.samples[-1].problem is not None and found.samples[-1].problem.status == "not_downloaded"


def test_counts_that_disagree_are_reported(tmp_path: Path) -> None:
    write_download(tmp_path)
    rows = [entry(number) for number in range(31)]
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), tmp_path / "00000.parquet")
    (tmp_path / "00000_stats.json").write_text(json.dumps({"count": 40, "successes": 31}))
    found = opened(tmp_path)
    assert found.problems == ["00000_stats.json counts 31 successes, the tar has 30 samples"]
    (lost,) = [sample for sample in found.samples if sample.media is None]
    assert lost.problem.status == "missing_media" and "reports a success" in lost.problem.message
    (tmp_path / "00000.parquet").unlink()
    assert opened(tmp_path).problems[1] == (
        "00000_stats.json counts 9 samples that failed; the .parquet file that lists them is missing"
    )


@pytest.mark.parametrize("table", [b"no parquet", None])
def test_other_files_beside_a_tar_do_no_harm(tmp_path: Path, table: bytes | None) -> None:
    write_download(tmp_path)
    if table is None:
        pq.write_table(pa.table({"text": ["of somebody else"]}), tmp_path / "00000.parquet")
    else:
        (tmp_path / "00000.parquet").write_bytes(table)
    (tmp_path / "00000_stats.json").write_text("{}")
    found = opened(tmp_path)
    assert len(found.samples) == 30
    assert all("cannot be read" in problem for problem in found.problems)
    assert len(found.problems) == (1 if table is None else 2)
