"""A dashboard with a password, over real HTTP and in a real browser: nothing without a login, nothing after logout."""

import base64
import http.client
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from auditor.cli import run_command_line
from auditor.commands.everyday.dashboard import describe_exposure, is_loopback
from auditor.dashboard_settings import Settings, read_settings
from dashboard import password
from tests.support.browser import TIMEOUT, serve_dashboard, wait_until_idle

SECRET = "open sesame & more = ü"
EVERYTHING = ("/", "/browse?text=dog", "/media/abc.jpg", "/_stcore/health", "/_stcore/host-config", "/static/js/x.js")


@pytest.fixture(scope="module")
def address(small: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("locked")
    (folder / "password.txt").write_text(f"{SECRET}\nnot this line\n", encoding="utf-8")
    child, url = serve_dashboard([small[0]], folder, "--password-file", str(folder / "password.txt"))
    yield urlsplit(url).netloc
    child.terminate()
    child.wait(30)


def ask(address: str, path: str, method: str = "GET", cookie: str = "", body: str = "") -> tuple[int, str, str, str]:
    """Status, text, Set-Cookie and Location of an answer."""
    connection = http.client.HTTPConnection(address, timeout=30)
    connection.request(method, path, body, {"Cookie": cookie} if cookie else {})
    answer = connection.getresponse()
    text = answer.read().decode(errors="replace")
    connection.close()
    return answer.status, text, answer.headers.get("Set-Cookie", ""), answer.headers.get("Location", "")


def log_in(address: str, path: str = "/", entry: str = SECRET) -> tuple[int, str, str, str]:
    return ask(address, path, "POST", body=urlencode({"password": entry}))


def get_cookie(address: str, path: str = "/") -> tuple[str, str]:
    """The cookie and the location of a login."""
    status, _, cookie, location = log_in(address, path)
    assert status == 303
    return cookie.partition(";")[0], location


def open_websocket(address: str, cookie: str) -> tuple[socket.socket, int]:
    """A connection and the status of its handshake."""
    host, _, port = address.partition(":")
    connection = socket.create_connection((host, int(port)), timeout=30)
    key = base64.b64encode(os.urandom(16)).decode()
    lines = ["GET /_stcore/stream HTTP/1.1", f"Host: {address}", "Upgrade: websocket", "Connection: Upgrade"]
    lines += [f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", f"Cookie: {cookie}", "", ""]
    connection.sendall("\r\n".join(lines).encode())
    return connection, int(connection.recv(64).split()[1])


def test_nothing_is_shown_without_a_login(address: str) -> None:
    for path in EVERYTHING:
        status, text, cookie, _ = ask(address, path)
        assert (status, cookie) == (401, "") and "Password" in text and "streamlit" not in text.lower(), path
    for cookie in ("", f"auditor-login-{address.partition(':')[2]}=x"):
        connection, status = open_websocket(address, cookie)
        connection.close()
        assert status == 403


def test_a_wrong_password_delays_everybody_and_the_right_one_sets_a_strict_cookie(address: str) -> None:
    status, text, cookie, _ = log_in(address, entry="open says me")
    assert (status, cookie) == (401, "") and "not the password" in text
    status, text, cookie, _ = log_in(address)  # right, but from any address it is too early
    assert (status, cookie) == (429, "") and "Wait" in text
    time.sleep(password.DELAY)
    status, _, cookie, location = log_in(address, "/browse?text=dog")
    assert status == 303 and location == "/browse?text=dog"
    name, *attributes = cookie.lower().split("; ")
    assert {"httponly", "samesite=strict", "path=/"} <= set(attributes)
    assert len(name.partition("=")[2]) >= 40 and "sesame" not in name
    assert ask(address, "/_stcore/health", cookie=cookie)[0] == 200
    assert log_in(address)[2].split(";")[0] != cookie.split(";")[0]  # every login has its own token


def test_the_login_never_leads_to_another_host_and_reads_no_long_form(address: str) -> None:
    for path in ("//example.org/x", "/%5Cexample.org", "/logout"):
        location = get_cookie(address, path)[1]
        assert location.startswith("/") and not location.startswith(("//", "/\\")), path
        assert "logout" not in location
    assert log_in(address, entry="x" * 100_000)[0] == 413


def test_logout_ends_the_token_and_open_pages(address: str) -> None:
    cookie, _ = get_cookie(address)
    other, _ = get_cookie(address)
    connection, status = open_websocket(address, cookie)
    assert status == 101 and ask(address, "/browse", cookie=cookie)[0] == 200
    status, _, cleared, location = ask(address, "/logout", cookie=cookie)
    assert (status, location) == (303, "/") and "max-age=0" in cleared.lower()
    for path in EVERYTHING:
        assert ask(address, path, cookie=cookie)[0] == 401, path
    connection.sendall(b"\x82\x80\0\0\0\0")  # an empty message, as the open page would send one
    received = b"x"
    while received:  # times out if the server keeps the connection
        received = connection.recv(65536)
    connection.close()
    assert ask(address, "/browse", cookie=other)[0] == 200


def test_a_new_server_accepts_no_old_token() -> None:
    async def application(*_: object) -> None:
        raise AssertionError("no request gets here")

    first, second = (password.PasswordMiddleware(application, SECRET) for _ in range(2))
    assert first.key != second.key and first.password != second.password
    assert first._digest("a token") != second._digest("a token")


def test_log_in_and_out_in_a_browser(address: str, chromium: object) -> None:
    context = chromium.new_context()  # type: ignore[attr-defined]
    page = context.new_page()
    page.set_default_timeout(TIMEOUT)
    page.goto(f"http://{address}/browse")
    page.get_by_label("Password").fill(SECRET)
    page.get_by_role("button", name="Log in").click()
    wait_until_idle(page)
    assert page.url.endswith("/browse") and page.evaluate("document.cookie").count("auditor-login") == 0
    page.get_by_role("link", name="Log out").click()
    page.get_by_label("Password").wait_for()
    page.goto(f"http://{address}/browse")
    assert page.get_by_label("Password").count() == 1
    context.close()


def test_the_file_must_have_a_password(
    small: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").write_text("\nsecond line\n")
    for name, message in (("empty", "has no password in its first line"), ("none", "No such file")):
        assert run_command_line(["dashboard", str(small[0]), "--password-file", str(tmp_path / name)]) == 1
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("host", "here"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("box", False)]
)
def test_hosts(host: str, here: bool) -> None:
    assert is_loopback(host) is here
    assert "--password" in describe_exposure(host, 8501) and "\n" not in describe_exposure(host, 8501)


def test_settings_carry_the_password() -> None:
    assert read_settings(Settings(password="x").environment()).password == "x"
