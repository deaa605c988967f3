"""`auditor dashboard`: serve the pages of dashboard/ in a child process, by default for this machine only."""

import importlib.util
import ipaddress
import os
import socket
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from auditor.commands.options import CORPUS_HELP, audit_command, option
from auditor.dashboard_settings import Settings
from auditor.errors import AuditorError
from auditor.terminal import print_line

FOLDER = Path(__file__).resolve().parents[3] / "dashboard"
PATIENCE = 5.0  # seconds for the server to end


@audit_command
@click.argument("audit2", required=False)
@option(
    "--host",
    default="127.0.0.1",
    help="Address to listen on. Anyone who can reach it sees the corpus, unless there is a password.",
)
@option("--password", envvar="AUDITOR_PASSWORD", show_envvar=True, help="Password that visitors must enter.")
@option("--password-file", help="File with the password in its first line; other users cannot see it in `ps`.")
@option("--port", type=click.IntRange(1, 65535), default=8501, help="Port to listen on.")
@option("--corpus", help=CORPUS_HELP)
@option("--results", help="Folder of results of `auditor evaluate`, for the Benchmarks page.")
@option("--no-open", is_flag=True, help="Do not open a browser.")
def command(
    audit: str,
    audit2: str | None,
    host: str,
    password: str | None,
    password_file: str | None,
    port: int,
    corpus: str | None,
    results: str | None,
    no_open: bool,
) -> None:
    """Browse an audit: overview, gallery and search, review, thresholds, map, shards, faults.

    With AUDIT2, there is also a page that compares the two. Runs until Ctrl-C.

    \b
    auditor dashboard demo/audit
    auditor dashboard audit/ audit-new/ --results results/ --port 8600
    auditor dashboard audit/ --host 0.0.0.0 --password-file password.txt
    """
    from auditor.query.database import AuditDatabase

    audits = [audit, *([audit2] if audit2 else [])]
    for path in audits:
        AuditDatabase(path).close()  # raises a one-line error if it cannot be opened
    if results and not Path(results).is_dir():
        raise AuditorError(f"{results} is not a folder")
    if importlib.util.find_spec("streamlit") is None:
        raise AuditorError("streamlit is not installed; pip install 'pau-auditor[dashboard]'")
    if password_file:
        password = read_password(Path(password_file))
    check_port(host, port)
    local = [path if "://" in path else os.path.abspath(path) for path in audits]
    settings = Settings(tuple(local), corpus, os.path.abspath(results) if results else None, password)
    if not password and not is_loopback(host):
        print_line(f"note: {describe_exposure(host, port)}", err=True)
    sys.exit(wait_for_child(start_streamlit(settings, host, port, open_browser=not no_open)))


def read_password(file: Path) -> str:
    password = file.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
    if not password:
        raise AuditorError(f"{file} has no password in its first line")
    return password


def is_loopback(host: str) -> bool:
    """Whether only processes of this machine can reach this address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def describe_exposure(host: str, port: int) -> str:
    return (
        f"anyone who can reach {host} port {port} sees every caption, picture and video of the corpus, can query "
        "the audit in SQL and mark rows: add --password-file, or leave --host out and forward the port"
    )


def check_port(host: str, port: int) -> None:
    """Refuse a port in use; Streamlit would silently take the next free one."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise AuditorError(f"cannot listen on {host} port {port}: {error.strerror}; choose another --port") from None


def start_streamlit(settings: Settings, host: str, port: int, *, open_browser: bool) -> "subprocess.Popen[bytes]":
    options = {
        "server.address": host,
        "server.port": port,
        "server.headless": not open_browser,
        **flatten_keys(tomllib.loads((FOLDER / "streamlit.toml").read_text(encoding="utf-8"))),
    }
    flags = [f"--{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in options.items()]
    paths = os.pathsep.join(filter(None, [str(FOLDER.parent), os.environ.get("PYTHONPATH")]))
    # -P keeps a folder named dashboard in the current directory from shadowing ours
    arguments = [sys.executable, "-P", "-m", "streamlit", "run", str(FOLDER / "server.py"), *flags]
    return subprocess.Popen(arguments, env={**os.environ, "PYTHONPATH": paths, **settings.environment()})


def flatten_keys(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"theme": {"light": {"font": x}}} -> {"theme.light.font": x}"""
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        flat |= flatten_keys(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def wait_for_child(child: "subprocess.Popen[bytes]") -> int:
    try:
        return child.wait()
    except KeyboardInterrupt:
        child.terminate()
    try:
        child.wait(PATIENCE)
    except subprocess.TimeoutExpired:  # an open browser must not keep the server alive
        child.kill()
    return 0
