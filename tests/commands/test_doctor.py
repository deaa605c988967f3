"""The doctor tells a sound installation from a broken one."""

import http.server
import json
import re
import shutil
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from auditor import cli
from auditor.commands.start import doctor
from auditor.workers import decoder_process
from auditor.workers.fork_server import ForkServer

ROOT = Path(__file__).resolve().parents[2]


def findings(check: Iterator[doctor.CheckResult]) -> dict[str, doctor.CheckResult]:
    return {finding.check: finding for finding in check}


def test_here_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command_line(["doctor", "--json"]) == 0
    found = {row["check"]: row for row in json.loads(capsys.readouterr().out)}
    assert found["decode images"]["detail"] == "JPEG, PNG, WEBP, GIF, BMP, TIFF"
    assert found["decode video"]["status"] == "ok" and found["decode by decord"]["status"] == "ok"
    assert found["torch"]["status"] == "ok" and found["python"]["status"] == "ok"
    assert "HF_HUB_OFFLINE" in found["hub weights"]["detail"]  # the suite sets it
    assert {"gpu", "gpu 0"} & set(found) and {"disk here", "disk for weights"} <= set(found)


def test_people_get_a_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "run_checks", lambda: iter([doctor.CheckResult("decode images", "ok", "JPEG")]))
    assert cli.run_command_line(["doctor"]) == 0
    output = capsys.readouterr().out
    assert "decode images" in output and "everything required works" in output


def test_broken_decoders_are_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(decoder_process, "FORK_SERVER", ForkServer())  # a running one would be reused
    monkeypatch.setattr(sys, "executable", "/bin/false")
    for name in ("check_packages", "check_gpu", "check_video_decoders"):
        monkeypatch.setattr(doctor, name, lambda: iter(()))
    assert cli.run_command_line(["doctor"]) == 1
    assert "to repair:" in capsys.readouterr().out


def test_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_version", lambda name: None)
    found = findings(doctor.check_packages())
    assert found["pyarrow"].status == "broken"
    assert found["ray"].status == "note" and "pau-auditor[ray]" in found["ray"].detail
    assert findings(doctor.check_gpu())["gpu"].status == "note"
    assert findings(doctor.check_video_decoders())["decode video"].status == "note"


def test_the_list_of_packages_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def names(requirements: list[str]) -> set[str]:
        return {re.split(r"[\[<>=!~ ]", requirement)[0] for requirement in requirements}

    assert set(doctor.NEEDED) == names(project["dependencies"])
    for extra, packages in doctor.EXTRAS.items():
        assert set(packages) == names(project["optional-dependencies"][extra]), extra


def test_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "not" / "yet"))
    for free, status in ((100 << 30, "ok"), (1 << 30, "note"), (1 << 20, "broken")):
        usage = shutil._ntuple_diskusage(200 << 30, 0, free)
        monkeypatch.setattr(shutil, "disk_usage", lambda folder, usage=usage: usage)
        found = findings(doctor.check_disk())
        assert found["disk here"].status == found["disk for weights"].status == status
        assert str(tmp_path) in found["disk for weights"].detail


class Silent(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.send_response(403)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def test_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with http.server.HTTPServer(("127.0.0.1", 0), Silent) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        found = findings(doctor.check_hub())
        server.shutdown()
        thread.join()
    assert found["hub weights"].status == "ok"
    found = findings(doctor.check_hub())  # nobody listens there any more
    assert found["hub weights"].status == "note" and "local-dir" in found["hub weights"].detail
