"""The command that starts the dashboard: its settings, its errors and its imports."""

import asyncio
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from auditor.cli import run_command_line
from auditor.commands.everyday.dashboard import FOLDER, flatten_keys
from auditor.dashboard_settings import Settings, read_settings

APP = Path(__file__).resolve().parents[2] / "dashboard" / "app.py"


def test_settings_survive_the_environment() -> None:
    settings = Settings(("/a b", "s3://c/d"), "/corpus", None)
    assert read_settings(settings.environment()) == settings
    assert read_settings({}) == Settings()
    assert flatten_keys({"theme": {"light": {"a": 1}, "b": 2}}) == {"theme.light.a": 1, "theme.b": 2}


def test_the_command_starts_the_pages_of_this_checkout() -> None:
    assert APP.parent == FOLDER and (FOLDER / "server.py").is_file() and (FOLDER / "streamlit.toml").is_file()


def test_the_command_fails_in_one_line(
    tmp_path: Path, small: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["dashboard", str(tmp_path)]) == 1
    assert "is not an audit" in capsys.readouterr().err
    assert run_command_line(["dashboard", str(small[0]), "--results", str(tmp_path / "none")]) == 1
    assert "is not a folder" in capsys.readouterr().err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert run_command_line(["dashboard", str(small[0]), "--port", str(taken.getsockname()[1]), "--no-open"]) == 1
    error = capsys.readouterr().err
    assert "choose another --port" in error and error.count("\n") == 1


def test_the_command_needs_streamlit(
    small: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert run_command_line(["dashboard", str(small[0])]) == 1
    assert "pip install 'pau-auditor[dashboard]'" in capsys.readouterr().err


def test_the_dashboard_imports_no_torch() -> None:
    modules = ", ".join(
        f"dashboard.{file.stem}" for file in APP.parent.glob("*.py") if file.stem not in {"app", "__init__"}
    )
    code = (
        f"import {modules}, sys; "
        "bad = {'torch', 'ray', 'open_clip', 'model'} & {m.split('.')[0] for m in sys.modules}; "
        "sys.exit(str(bad) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=APP.parents[1], check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("headless", [True, False])
def test_the_server_runs_the_first_page_before_anyone_visits(headless: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from dashboard import server

    runs, addresses = [], []

    async def run_script() -> None:
        runs.append("first page")

    options = {"server.headless": headless, "server.address": "127.0.0.1"}
    monkeypatch.setattr(
        server.runtime, "get_instance", lambda: SimpleNamespace(does_script_run_without_error=run_script)
    )
    monkeypatch.setattr(server.config, "get_option", options.__getitem__)
    monkeypatch.setattr(server, "get_url", lambda host: f"http://{host}:8501")
    monkeypatch.setattr(server.webbrowser, "open", addresses.append)

    async def start_and_stop() -> None:
        async with server.warm_up(server.app):
            await asyncio.sleep(0.2)

    with ThreadPoolExecutor(1) as thread:  # the browser of other tests has a loop in this one
        thread.submit(lambda: asyncio.run(start_and_stop())).result(30)
    assert runs == ["first page"]
    assert addresses == ([] if headless else ["http://127.0.0.1:8501"])
