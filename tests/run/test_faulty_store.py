"""Audits in an S3 bucket that fails: one line that names the object, no sound file called damaged, nothing lost."""
# ruff: noqa: F811

from pathlib import Path

import pytest

from auditor.cli import run_command_line
from auditor.corpus.open_corpus import open_corpus
from auditor.corpus.sample import Problem
from auditor.errors import AuditorError
from auditor.python_api import Audit
from auditor.sweep.sweep import read_sample
from auditor.sweep.sweep_events import DecodedSample
from tests.support.faulty_s3 import Fault, FaultyBucket, faulty_bucket  # noqa: F401
from tests.support.s3 import bucket, s3_endpoint  # noqa: F401
from tests.support.stored import write_datacomp

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # of s3fs, if a connection is cut
READERS = (["summary"], ["query", "SELECT count(*) FROM samples"], ["thresholds"])


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished audit on disk."""
    folder = tmp_path_factory.mktemp("local")
    corpus = write_datacomp(folder / "corpus", files=2, count=30)
    assert run_command_line(["audit", f"datacomp:{corpus}", "--out", str(folder / "audit"), "--quiet"]) == 0
    return folder / "audit"


@pytest.fixture
def out(faulty_bucket: FaultyBucket, local: Path) -> str:
    """The same audit in the bucket."""
    return faulty_bucket.upload(local, "audit/")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The exit code, and the line on stderr of a command that fails."""
    code = run_command_line(words)
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("note: ")]
    assert code == 0 or (code == 1 and len(lines) == 1), (words, lines)
    return code, lines[0] if code else ""


@pytest.mark.parametrize("kind", [403, 503])
def test_readers_name_what_cannot_be_read(
    kind: int,
    out: str,
    faulty_bucket: FaultyBucket,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for pattern in ("samples", "manifest.json"):
        with faulty_bucket.faults.inject(Fault(kind, f"audit/{pattern}")):
            for command, *options in READERS:
                code, line = run(capsys, command, out, *options)
                assert code == 1 and f"{out}" in line and "Traceback" not in line, line
                assert pattern == "samples" or "manifest.json" in line


@pytest.mark.parametrize("kind", [403, 500])
def test_a_refusal_is_not_called_damage(
    kind: int,
    out: str,
    faulty_bucket: FaultyBucket,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command_line(["verify", out, "--files"]) == 0
    capsys.readouterr()
    with faulty_bucket.faults.inject(Fault(kind, "audit/samples/.*parquet")):
        assert run_command_line(["verify", out, "--files", "--json"]) == 1
    printed = capsys.readouterr()
    assert f"cannot read {out}/samples/" in printed.out and "damaged" not in printed.out
    assert "check your access" in printed.err and "audit` command again" not in printed.err


def test_passing_faults_are_tried_again(
    out: str, faulty_bucket: FaultyBucket, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = ("reset", "slow", "cut", 503)
    for command, *options in (["query", "SELECT count(*) FROM samples"], ["verify", "--files"]):
        faults = [Fault(kind, "samples.*parquet", "GET", times=1) for kind in kinds]
        with faulty_bucket.faults.inject(*faults):
            assert run(capsys, command, out, *options)[0] == 0
        assert [fault.hits for fault in faults] == [1, 1, 1, 1]


def test_refused_writes_name_the_target_and_leave_nothing(
    out: str,
    faulty_bucket: FaultyBucket,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    target = f"{faulty_bucket.url}/kept.parquet"
    for kind in (403, 500):
        with faulty_bucket.faults.inject(Fault(kind, "kept.parquet", "PUT|POST")):
            code, line = run(capsys, "filter", out, "--where", "true", "--out", target)
            assert code == 1 and target in line
    keys = [entry["Key"] for entry in faulty_bucket.client.list_objects_v2(Bucket=faulty_bucket.name)["Contents"]]
    assert not [key for key in keys if not key.startswith("audit/")]
    assert run(capsys, "filter", out, "--where", "true", "--out", target)[0] == 0


def test_an_audit_is_resumed_after_an_outage(
    faulty_bucket: FaultyBucket,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    faulty_bucket.upload(write_datacomp(tmp_path / "corpus", files=2, count=30), "corpus/")
    out = f"{faulty_bucket.url}/audit"
    words = ["audit", f"datacomp:{faulty_bucket.url}/corpus", "--out", out, "--quiet"]
    with faulty_bucket.faults.inject(Fault(500, "samples/part-1.parquet", "PUT")):
        code, line = run(capsys, *words)
    assert code == 1 and f"{out}/samples/part-1.parquet" in line
    swept = faulty_bucket.get("audit/embeddings/part-0.parquet")
    with faulty_bucket.faults.inject(Fault(403, "embeddings/part-0.parquet")):  # a refusal does not sweep it again
        code, line = run(capsys, *words)
        assert code == 1 and f"{out}/embeddings/part-0.parquet" in line
    passing = ("reset", "", 2), ("cut", "parquet", 2), (503, "samples", 1), ("slow", "", 1), ("stale", "list-type", 3)
    faults = [Fault(kind, pattern, "GET", times=times) for kind, pattern, times in passing]
    with faulty_bucket.faults.inject(*faults, Fault(503, "samples", "PUT", times=1)):
        assert run(capsys, *words)[0] == 0
    assert swept == faulty_bucket.get("audit/embeddings/part-0.parquet")
    assert run(capsys, "verify", out, "--files")[0] == 0
    with Audit(out) as audit:
        assert audit.sql("SELECT count(*) AS n FROM samples WHERE status = 'ok'").to_pylist() == [{"n": 60}]


def test_media_are_not_missing_while_the_store_is_down(faulty_bucket: FaultyBucket) -> None:
    faulty_bucket.put("media/a.jpg", b"a picture")
    faulty_bucket.put("media/a.txt", b"a caption")
    [shard] = open_corpus(f"{faulty_bucket.url}/media").shards
    with shard.open() as opened:
        for kind in (500, 503):
            with faulty_bucket.faults.inject(Fault(kind, "a.jpg")), pytest.raises(AuditorError, match=r"media/a\.jpg"):
                read_sample(opened, opened.samples[0], 0.0)
        with faulty_bucket.faults.inject(Fault(403, "a.jpg")):
            event = read_sample(opened, opened.samples[0], 0.0)[0]
        assert isinstance(event, DecodedSample) and isinstance(event.medium, Problem)
        assert "media/a.jpg" in event.medium.message
