"""A cluster with token authentication, as `ray start --head` starts it if a token exists.

Jobs are submitted to it with the token and without, and one that joins it by its address without is told so in a line.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from auditor.run.ray_tokens import MODE, TOKEN, TOKEN_PATH
from tests.jobs.test_audit import free_port
from tests.run.test_run_audit import rows
from tests.support.corpora import write_corpus

ROOT = Path(__file__).resolve().parents[2]
RAY = str(Path(sys.executable).with_name("ray"))
pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("default")]


@dataclass(frozen=True)
class Head:
    address: str
    dashboard: str
    home: Path

    def run(self, *command: str, **more: str) -> "subprocess.CompletedProcess[str]":
        environment = clean(self.home) | more
        return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)

    def answers(self, token: str) -> bool:
        """Whether the job server is running: it starts after the cluster, much later on a busy machine."""
        request = urllib.request.Request(f"{self.dashboard}/api/jobs/", headers={"Authorization": f"Bearer {token}"})
        with contextlib.suppress(OSError):
            return int(urllib.request.urlopen(request, timeout=20).status) == 200
        return False

    def submit(self, *command: str, **more: str) -> "subprocess.CompletedProcess[str]":
        return self.run(RAY, "job", "submit", "--address", self.dashboard, "--working-dir", ".", "--", *command, **more)


def clean(home: Path) -> dict[str, str]:
    """The environment of a shell without settings for tokens."""
    spoken = {MODE, TOKEN, TOKEN_PATH, "RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"}
    kept = {name: value for name, value in os.environ.items() if name not in spoken}
    return kept | {"HOME": str(home), "HF_HUB_OFFLINE": "1", "RAY_USAGE_STATS_ENABLED": "0"}


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    home = tmp_path_factory.mktemp("home")
    port, dashboard = free_port(), free_port()
    found = Head(f"127.0.0.1:{port}", f"http://127.0.0.1:{dashboard}", home)
    made = found.run(RAY, "get-auth-token", "--generate")
    assert made.returncode == 0 and (home / ".ray" / "auth_token").read_text() == made.stdout.strip()
    ports = ["--port", str(port), "--dashboard-port", str(dashboard)]
    command = [RAY, "start", "--head", "--block", *ports, "--num-cpus", "3", "--object-store-memory", str(100 * 2**20)]
    with (home / "head.log").open("w") as log:
        process = subprocess.Popen(command, env=clean(home), stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + 300
        while not found.answers(made.stdout.strip()):
            assert process.poll() is None and time.monotonic() < deadline, (home / "head.log").read_text()
            time.sleep(1)
        yield found
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def test_a_job_is_submitted_with_the_token_and_not_without(head: Head, random_model: str, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", shards=2, size=4)
    job = [sys.executable, "jobs/audit.py", str(corpus), "--out", str(tmp_path / "audit"), "--model", random_model]
    job += ["--workers", "1", "--cpus-per-worker", "1"]
    refused = head.submit(*job)
    assert refused.returncode != 0 and "Missing authentication token" in refused.stderr + refused.stdout
    done = head.submit(*job, **{MODE: "token"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert rows(tmp_path / "audit").num_rows == 8


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "set RAY_AUTH_MODE=token: the token of "),
        ({MODE: "token", TOKEN: "f" * 64}, "the token of RAY_AUTH_TOKEN is not the cluster's"),
        ({MODE: "token", "HOME": "/"}, "requires a token: put the cluster's token into"),
    ],
)
def test_a_job_that_joins_without_the_token_is_told_in_a_line(
    head: Head, tmp_path: Path, random_model: str, more: dict[str, str], words: str
) -> None:
    corpus = write_corpus(tmp_path / "corpus", shards=1, size=4)
    job = [sys.executable, "jobs/audit.py", str(corpus), "--out", str(tmp_path / "never"), "--model", random_model]
    job += ["--address", head.address]
    refused = head.run(*job, **more)
    assert refused.returncode == 1 and "Traceback" not in refused.stderr
    [said] = [line for line in refused.stderr.splitlines() if line.startswith("auditor: ")]
    assert words in said and head.address in said and "docs/ray.md" in said
