"""jobs/apply.py writes the same columns as `Audit.apply`: its worker alone, and the whole command on Ray."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from auditor.commands.repair_and_export.apply import load_function
from auditor.errors import AuditorError
from auditor.python_api import Audit
from auditor.query.apply_function import make_apply_task
from jobs.apply import ApplyWorker
from tests.support.synthetic import write_corpus_audit

ROOT = Path(__file__).resolve().parents[2]
CODE = """
class Letters:
    def __call__(self, caption):
        return {"letters": [len(text) for text in caption]}
number = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my_scores_of_a_test.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def test_a_worker_writes_its_shards_and_tells_what_failed(module: Path) -> None:
    audit, _ = write_corpus_audit(module)
    spec = "my_scores_of_a_test:Letters"
    work = make_apply_task(load_function(spec), ["caption"])
    worker = ApplyWorker(str(audit), None, spec, work)
    told = worker({"item": [pickle.dumps((shard, shard)) for shard in ("00000", "00002")]})
    assert [pickle.loads(outcome)[::2] for outcome in told["outcome"]] == [("00000", ""), ("00002", "")]
    with Audit(audit) as opened:
        done = opened.apply(load_function(spec), columns=["caption"])  # goes on where the worker left off
        assert (done.resumed, done.shards) == (2, 3)
        assert opened.count("letters = length(caption)") == opened.count("status = 'ok'")
    wrong = ApplyWorker(str(audit), None, spec, make_apply_task(load_function(spec), ["key"], name="other"))
    (outcome,) = wrong({"item": [pickle.dumps(("00000", "00000"))]})["outcome"]
    assert "unexpected keyword argument" in pickle.loads(outcome)[2]


@pytest.mark.parametrize(
    "spec", ["nothing", "no_such_module:x", "my_scores_of_a_test:absent", "my_scores_of_a_test:number"]
)
def test_what_is_no_function_is_one_line(module: Path, spec: str) -> None:
    with pytest.raises(AuditorError, match=r"is not of the form|cannot be imported|is not a function"):
        load_function(spec)


@pytest.mark.cluster
def test_the_command_on_a_ray_of_this_machine(module: Path) -> None:
    audit, _ = write_corpus_audit(module)
    command = [sys.executable, str(ROOT / "jobs" / "apply.py"), "audit", "my_scores_of_a_test:Letters"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("RAY_ADDRESS", None)
    arguments = ["--columns", "caption", "--workers", "2", "--cpus-per-worker", "1", "--address", "local"]
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, env=environment, cwd=module, check=False
    )
    assert done.returncode == 0, done.stderr
    with Audit(audit) as opened:
        assert opened.count("letters = length(caption)") == opened.count("status = 'ok'")
