"""A dashboard with a password shows no page before it is entered; the command warns if it exposes the corpus."""

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from auditor.commands.dashboard import describe_exposure, is_loopback
from auditor.dashboard_settings import Settings, read_settings
from dashboard import password

APP = Path(__file__).resolve().parents[2] / "dashboard" / "app.py"


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> AppTest:
    for name, value in Settings(password="open sesame").environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(password, "DELAY", 0.0)
    return AppTest.from_file(str(APP), default_timeout=60).run()


def shown(app: AppTest) -> str:
    return " ".join(str(element.value) for element in [*app.markdown, *app.text, *app.error, *app.code])


def test_nothing_before_the_password_and_all_after_it(app: AppTest) -> None:
    assert not app.exception and [field.label for field in app.text_input] == ["Password"]
    assert "audit" not in shown(app)
    app.text_input[0].set_value("open says me").run()
    assert "not the password" in shown(app) and "There is no audit to show" not in shown(app)
    app.text_input[0].set_value("open sesame").run()
    assert not app.exception and not [field for field in app.text_input if field.label == "Password"]
    assert "There is no audit to show" in shown(app)


def test_the_cookie_holds_a_digest_of_the_password() -> None:
    digest = password.digest_password("open sesame")
    assert "sesame" not in digest and digest != password.digest_password("open says me")
    assert password.equal_in_constant_time(digest, digest) and not password.equal_in_constant_time(digest, "")


@pytest.mark.parametrize(
    ("host", "here"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("box", False)]
)
def test_hosts(host: str, here: bool) -> None:
    assert is_loopback(host) is here
    assert "--password" in describe_exposure(host, 8501) and "\n" not in describe_exposure(host, 8501)


def test_settings_carry_the_password() -> None:
    assert read_settings(Settings(password="x").environment()).password == "x"
