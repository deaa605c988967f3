"""Audits on a real Ray cluster of three raylets on this machine: kills, corrupt shards, S3, the job server.

Whatever is killed in the middle, the rows in the end are those of `auditor audit` run undisturbed on one machine.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster
from ray.job_submission import JobStatus, JobSubmissionClient

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.lock import LockedError
from auditor.audit_folder.manifest import Manifest
from auditor.corpus.open_corpus import CorpusOptions, Shard
from auditor.run import ray_engine as ray_engine_module
from auditor.run.audit_config import AuditConfig
from auditor.run.ray_engine import Placement, RayEngine, SweepWorker, make_ray_engine
from auditor.run.run_audit import run_audit
from auditor.sweep.sweep_events import ShardReport
from tests.run.test_run_audit import config, rows
from tests.support.corpora import make_caption, make_picture, make_sample, write_corpus, write_tar
from tests.support.s3 import Bucket, bucket, s3_endpoint  # noqa: F401
from tests.support.timed import write_film_table

ROOT = Path(__file__).resolve().parents[2]
SHARDS, SIZE = 24, 16
# What Ray itself warns of is not ours to fix.
pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("default")]


@dataclass
class Machines:
    """A head without CPUs and two nodes with two each."""

    cluster: Cluster
    dashboard: str

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def add(self) -> Any:
        return self.cluster.add_node(num_cpus=2, num_gpus=0, object_store_memory=100 * 2**20)

    def workers(self) -> list[int]:
        """The processes that sweep."""
        return [pid for pid, command in processes() if "SweepWorker" in command and self._mine(pid)]

    def _mine(self, pid: int) -> bool:
        raylets = {n.all_processes["raylet"][0].process.pid for n in self.cluster.list_all_nodes()}
        with contextlib.suppress(OSError):
            return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) in raylets
        return False


def processes() -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                yield int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    port = free_port()
    head = {
        "num_cpus": 0,
        "num_gpus": 0,
        "object_store_memory": 100 * 2**20,
        "include_dashboard": True,
        "dashboard_port": port,
    }
    cluster = Cluster(initialize_head=True, head_node_args=head)
    made = Machines(cluster, f"http://127.0.0.1:{port}")
    made.add()
    made.add()
    cluster.wait_for_nodes()
    yield made
    cluster.shutdown()


@pytest.fixture
def driver(machines: Machines) -> Iterator[Machines]:
    """This process as the driver of a job."""
    paths = {"env_vars": {"PYTHONPATH": str(ROOT), **aws()}}
    ray.init(machines.address, runtime_env=paths, log_to_driver=False, logging_level="error")
    yield machines
    ray.shutdown()


def aws() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("AWS_")}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards that take a while: pictures of two million pixels."""
    folder = tmp_path_factory.mktemp("corpus")
    large = [make_picture(i, (1600, 1250)) for i in range(8)]
    for shard in range(SHARDS):
        samples = range(shard * SIZE, shard * SIZE + SIZE)
        write_tar(
            folder / f"{shard:05d}.tar",
            [
                (f"{i:06d}", {"jpg": large[i % 8], "txt": f"{make_caption(i)}\n{make_caption(-i)}".encode()})
                for i in samples
            ],
        )
    return folder


@pytest.fixture(scope="module")
def undisturbed(corpus: Path, random_model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The audit of the local command, on one machine."""
    out = tmp_path_factory.mktemp("undisturbed")
    run_audit(config(corpus, out, random_model))
    return out


def spread(audit: AuditConfig, workers: int, worker: type = SweepWorker) -> Manifest:
    """The audit on the cluster."""

    def engine(*arguments: Any) -> RayEngine:
        return replace(make_ray_engine(Placement(workers, cpus=1.0), *arguments), worker=worker)

    return run_audit(audit, engine)


def assert_same(audit: Path | str, other: Path | str) -> None:
    assert rows(audit).equals(rows(other))
    assert rows(audit, "embeddings").equals(rows(other, "embeddings"))


def swept(out: Path) -> int:
    return len(list((out / "embeddings").glob("[!.]*.parquet")))


@contextlib.contextmanager
def in_the_middle(out: Path, act: Callable[[], None]) -> Iterator[None]:
    """Do something while an audit runs, and check that it was running."""
    done: list[int] = []

    def watch() -> None:
        while swept(out) < 2:
            time.sleep(0.005)
        act()
        done.append(swept(out))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    yield
    thread.join(60)
    assert done and done[0] < SHARDS


def test_one_worker_gives_the_rows_of_the_local_command(
    driver: Machines, corpus: Path, undisturbed: Path, random_model: str, tmp_path: Path
) -> None:
    manifest = spread(config(corpus, tmp_path, random_model), 1)
    assert_same(tmp_path, undisturbed)
    local = Manifest.load(Folder(undisturbed))
    assert (manifest.counts, manifest.statistics) == (local.counts, local.statistics)


def test_a_worker_is_killed_in_the_middle(
    driver: Machines, corpus: Path, undisturbed: Path, random_model: str, tmp_path: Path
) -> None:
    killed: list[int] = []

    def kill() -> None:
        killed.extend(driver.workers()[:1])
        os.kill(killed[0], signal.SIGKILL)

    with in_the_middle(tmp_path, kill):
        manifest = spread(config(corpus, tmp_path, random_model), 2)
    assert killed and manifest.failed_shards == []
    assert_same(tmp_path, undisturbed)
    assert not list(tmp_path.rglob(".part-*"))


def test_a_whole_node_is_killed_in_the_middle(
    driver: Machines, corpus: Path, undisturbed: Path, random_model: str, tmp_path: Path
) -> None:
    node = next(n for n in driver.cluster.list_all_nodes() if not n.is_head())
    with in_the_middle(tmp_path, lambda: driver.cluster.remove_node(node, allow_graceful=False)):
        manifest = spread(config(corpus, tmp_path, random_model), 3)
    driver.add()
    assert manifest.failed_shards == []
    assert_same(tmp_path, undisturbed)


def test_a_nearly_full_object_store_and_a_second_job(
    driver: Machines, corpus: Path, undisturbed: Path, random_model: str, tmp_path: Path
) -> None:
    """The store of 100 MB holds the driver's own 80 MB; a second job on the audit is refused while the first runs."""
    held = [ray.put(bytes(20 * 2**20)) for _ in range(4)]
    refusals: list[str] = []

    def start_second() -> None:
        try:
            spread(config(corpus, tmp_path, random_model), 1)
        except LockedError as error:
            refusals.append(str(error))

    with in_the_middle(tmp_path, start_second):
        manifest = spread(config(corpus, tmp_path, random_model), 2)
    assert len(held) == 4 and manifest.failed_shards == []
    assert len(refusals) == 1 and "another run is writing" in refusals[0]
    assert_same(tmp_path, undisturbed)


class Deadly(SweepWorker):
    """Dies on one shard, like an encoder that crashes on some input."""

    def run(self, shard: Shard) -> tuple[ShardReport, bool, str]:
        if shard.name == "00002":
            os._exit(1)
        return super().run(shard)


def test_a_shard_that_kills_its_worker_is_named_and_the_rest_is_finished(
    driver: Machines, random_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine_module, "PASSES", (False, True))
    small = write_corpus(tmp_path / "corpus", shards=5, size=4)
    manifest = spread(config(small, tmp_path / "audit", random_model), 1, Deadly)
    assert [failed["shard"] for failed in manifest.failed_shards] == ["00002"]
    assert "its worker died" in manifest.failed_shards[0]["message"]
    assert manifest.counts["rows"] == rows(tmp_path / "audit").num_rows == 4 * 4


def test_from_s3_to_s3_with_four_workers_and_a_corrupt_shard(
    bucket: Bucket,  # noqa: F811
    driver: Machines,
    random_model: str,
    tmp_path: Path,
) -> None:
    write_corpus(tmp_path / "corpus", shards=8, size=6)
    (tmp_path / "corpus" / "00003.tar").write_bytes(b"no tar at all" * 100)
    source = bucket.upload(tmp_path / "corpus", "shards/")
    manifest = spread(config(source, f"{bucket.url}/spread", random_model), 4)
    assert [failed["shard"] for failed in manifest.failed_shards] == ["00003"]
    assert "not a tar" in manifest.failed_shards[0]["message"]
    run_audit(config(source, f"{bucket.url}/local", random_model))
    assert rows(f"{bucket.url}/spread").num_rows == 7 * 6
    assert_same(f"{bucket.url}/spread", f"{bucket.url}/local")


def submit(
    machines: Machines, *arguments: str, job: str = "audit", act: Callable[[], None] = lambda: None
) -> tuple[JobStatus, str]:
    """Run a job of jobs/ through the job server and wait for its result."""
    client = JobSubmissionClient(machines.dashboard)
    entrypoint = f"{sys.executable} jobs/{job}.py {' '.join(arguments)} --workers 2 --cpus-per-worker 1 --frames 4"
    environment = {"working_dir": str(ROOT), "env_vars": {"HF_HUB_OFFLINE": "1"}}
    deadline = time.monotonic() + 500
    while True:
        try:
            number = client.submit_job(entrypoint=entrypoint, runtime_env=environment)
            break
        except RuntimeError as error:  # the job server starts after the cluster, on a busy machine long after
            if "No available agent" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(1)
    act()
    while not client.get_job_status(number).is_terminal() and time.monotonic() < deadline:
        time.sleep(0.2)
    return client.get_job_status(number), client.get_job_logs(number)


def test_a_submitted_job_that_is_killed_goes_on_when_it_is_submitted_again(
    machines: Machines, corpus: Path, undisturbed: Path, random_model: str, tmp_path: Path
) -> None:
    out = tmp_path / "audit"
    command = [str(corpus), "--out", str(out), "--model", random_model, "--batch-size", "8"]

    def kill_driver() -> None:
        while swept(out) < 2:
            time.sleep(0.005)
        for pid, line in processes():
            if "jobs/audit.py" in line and str(out) in line and pid != os.getpid():
                os.kill(pid, signal.SIGKILL)

    status, _ = submit(machines, *command, act=kill_driver)
    assert status == JobStatus.FAILED
    assert 2 <= swept(out) < SHARDS and not (out / "samples").exists()
    kept = {path: path.stat().st_mtime_ns for path in (out / "embeddings").glob("[!.]*.parquet")}
    status, log = submit(machines, *command)
    assert status == JobStatus.SUCCEEDED, log
    assert_same(out, undisturbed)
    assert kept.items() <= {path: path.stat().st_mtime_ns for path in kept}.items()  # swept once
    uploaded = next(
        Path(machines.cluster.head_node.get_session_dir_path()).glob("runtime_resources/working_dir_files/_ray_pkg_*/")
    )
    assert (uploaded / "auditor").is_dir()
    assert not [name for name in (".venv", ".git", "tests", "bench-results", "demo") if (uploaded / name).exists()]


def test_a_submitted_job_fails_where_the_audit_does(machines: Machines, random_model: str, tmp_path: Path) -> None:
    small = write_corpus(tmp_path / "corpus", shards=2, size=4)
    (small / "00001.tar").write_bytes(b"no tar at all" * 100)
    status, log = submit(machines, str(small), "--out", str(tmp_path / "audit"), "--model", random_model)
    assert status == JobStatus.FAILED
    assert "auditor: 1 of 2 shards could not be read: 00001" in log
    assert rows(tmp_path / "audit").num_rows == 4
    status, log = submit(machines, str(small), "--out", "here", "--model", random_model)
    assert status == JobStatus.FAILED and "auditor: --out here would be lost with the job" in log


def test_a_benchmark_is_submitted_and_encoded_on_the_cluster(
    machines: Machines, random_model: str, tmp_path: Path
) -> None:
    for split, first in (("test", 0), ("val", 100)):
        write_tar(tmp_path / f"{split}-00000.tar", ((f"{i:03d}", make_sample(i)) for i in range(first, first + 12)))
    out = tmp_path / "results.json"
    given = ["shards", "--data", str(tmp_path), "--model", random_model, "--out", str(out)]
    status, log = submit(machines, *given, job="evaluate")
    assert status == JobStatus.SUCCEEDED, log
    assert json.loads(out.read_text())["data"]["media"] == 12
    status, log = submit(machines, *given[:-1], "here.json", job="evaluate")
    assert status == JobStatus.FAILED and "would be lost with the job" in log


def test_the_script_alone_starts_ray_by_itself(random_model: str, tmp_path: Path) -> None:
    """A job file alone, as `ray submit` copies it; the package is installed. Parts, sources and spans as locally."""
    films = write_film_table(tmp_path / "corpus")
    (tmp_path / "audit.py").write_text((ROOT / "jobs" / "audit.py").read_text())
    command = [sys.executable, "audit.py", str(films), "--caption-column", "raw,refined", "--shard-size", "1"]
    command += ["--out", "out", "--model", random_model, "--json", "--address", "local"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["failed_shards"] == []
    sources = CorpusOptions(caption_column=("raw", "refined"), shard_size=1)
    run_audit(AuditConfig(str(films), str(tmp_path / "local"), random_model, options=sources, quiet=True))
    assert_same(tmp_path / "out", tmp_path / "local")
    table = rows(tmp_path / "out")
    assert table["parts"].to_pylist() == [2, 2, 2, 1, 1, 1] * 2 and len(set(table["shard"].to_pylist())) == 2


def test_the_example_cluster_is_one_that_ray_understands() -> None:
    import yaml  # type: ignore[import-untyped]
    from ray.autoscaler._private.util import prepare_config, validate_config

    described = yaml.safe_load((ROOT / "jobs" / "cluster.yaml").read_text())
    validate_config(prepare_config(described))
    assert any("constraints.txt" in command for command in described["setup_commands"])
    for image in ("head_image", "worker_image"):  # of the Ray that the package is tested with
        assert f":{ray.__version__}-py311-" in described["docker"][image]
    for kind in described["available_node_types"].values():  # else Ray takes an image that is too old
        assert kind["node_config"]["ImageId"]
    assert described["available_node_types"]["gpu"]["node_config"]["IamInstanceProfile"]
    assert "--env RAY_AUTH_MODE=token" in described["docker"]["run_options"]
    assert described["file_mounts"]["/home/ray/.ray/auth_token"] == "~/.ray/auth_token"
