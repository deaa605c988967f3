"""`auditor dashboard`: serve the pages of dashboard/ in a child process, on this machine only unless told otherwise."""

import importlib.util
import ipaddress
import os
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from auditor.commands.output import CORPUS_HELP
from auditor.dashboard_settings import Settings
from auditor.errors import AuditorError
from auditor.say import say

FOLDER = Path(__file__).resolve().parents[2] / "dashboard"


class DashboardError(AuditorError):
    """The dashboard cannot be started."""


@click.command()
@click.argument("audit")
@click.argument("audit2", required=False)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Anyone who reaches it sees the corpus, unless there is a --password.",
)
@click.option("--password", envvar="AUDITOR_PASSWORD", show_envvar=True, help="Ask for it before any page is shown.")
@click.option("--port", type=click.IntRange(1, 65535), default=8501, show_default=True, help="Port to listen on.")
@click.option("--corpus", help=CORPUS_HELP)
@click.option("--results", help="Folder of results of `auditor evaluate`, for the Benchmarks page.")
@click.option("--no-open", is_flag=True, help="Do not open a browser.")
def command(
    audit: str,
    audit2: str | None,
    host: str,
    password: str | None,
    port: int,
    corpus: str | None,
    results: str | None,
    no_open: bool,
) -> None:
    """Look at an audit in a browser: overview, gallery and search, review, thresholds, map, shards, faults.

    With AUDIT2 also a comparison of the two.

    Runs until Ctrl-C.

    \b
    auditor dashboard demo/audit
    auditor dashboard audit/ audit-new/ --results results/ --port 8600
    AUDITOR_PASSWORD=... auditor dashboard audit/ --host 0.0.0.0
    """
    from auditor.audit import Audit

    audits = [audit, *([audit2] if audit2 else [])]
    for path in audits:
        Audit(path).close()  # says in one line what is wrong with it
    if results and not Path(results).is_dir():
        raise DashboardError(f"{results} is not a folder")
    if importlib.util.find_spec("streamlit") is None:
        raise DashboardError("streamlit is not installed; pip install 'pau-auditor[dashboard]'")
    check_port(host, port)
    local = [path if "://" in path else os.path.abspath(path) for path in audits]
    settings = Settings(tuple(local), corpus, os.path.abspath(results) if results else None, password)
    if not password and not is_this_machine(host):
        say(f"note: {exposure(host, port)}", err=True)
    child = start(settings, host, port, open_browser=not no_open)
    sys.exit(wait(child))


def is_this_machine(host: str) -> bool:
    """Whether only processes of this machine can reach what listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def exposure(host: str, port: int) -> str:
    return (
        f"anyone who can reach {host} port {port} sees every caption, picture and video of the corpus, may ask the "
        "audit in SQL and mark rows: add --password, or leave --host out and forward the port"
    )


def check_port(host: str, port: int) -> None:
    """Streamlit would take the next free port without a word."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise DashboardError(f"cannot listen on {host} port {port}: {error.strerror}; choose another --port") from None


def start(settings: Settings, host: str, port: int, *, open_browser: bool) -> "subprocess.Popen[bytes]":
    """`streamlit run dashboard/app.py` with its settings."""
    options = {
        "server.address": host,
        "server.port": port,
        "server.headless": not open_browser,
        "server.fileWatcherType": "none",
        "server.showEmailPrompt": False,
        "browser.gatherUsageStats": False,
        "client.toolbarMode": "viewer",
        "logger.hideWelcomeMessage": True,  # Streamlit's own advertisement would lie over the pages
        "client.showErrorDetails": "type",
        **flat(tomllib.loads((FOLDER / "theme.toml").read_text(encoding="utf-8"))),
    }
    flags = [f"--{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in options.items()]
    paths = os.pathsep.join(filter(None, [str(FOLDER.parent), os.environ.get("PYTHONPATH")]))
    # -P: a folder called dashboard where the command happens to be run must not come first
    arguments = [sys.executable, "-P", "-m", "streamlit", "run", str(FOLDER / "app.py"), *flags]
    return subprocess.Popen(arguments, env={**os.environ, "PYTHONPATH": paths, **settings.environment()})


def flat(nested: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """{"theme": {"light": {"font": x}}} -> {"theme.light.font": x}"""
    return dict(_items(nested, before))


def _items(nested: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    for name, value in nested.items():
        if isinstance(value, Mapping):
            yield from _items(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def wait(child: "subprocess.Popen[bytes]") -> int:
    """Until the child ends, or we are told to: then it is ended too."""
    signal.signal(signal.SIGTERM, lambda *_: end(child))
    try:
        return child.wait()
    except KeyboardInterrupt:  # the terminal has sent it to the child as well
        end(child)
        return 0


def end(child: "subprocess.Popen[bytes]", patience: float = 5.0) -> None:
    """Ask, then insist: an open browser must not keep the server alive."""
    child.terminate()
    until = time.monotonic() + patience
    while child.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    if child.poll() is None:
        child.kill()
