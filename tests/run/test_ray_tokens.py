"""What a cluster that asks for a token would be shown, and the words for where it would be nothing."""

from pathlib import Path

import pytest

from auditor.doctor import ray_token
from auditor.run.ray_tokens import MODE, TOKEN, TOKEN_PATH, token_state


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in (MODE, TOKEN, TOKEN_PATH):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def write_token(home: Path) -> Path:
    (home / ".ray").mkdir()
    (home / ".ray" / "auth_token").write_text("a" * 64)
    return home / ".ray" / "auth_token"


def test_sources_are_looked_at_in_the_order_of_ray(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert token_state().source is None
    assert token_state().source is None and "set RAY_AUTH_MODE=token" in token_state().hint
    default = write_token(home)
    assert token_state().source == str(default)
    (home / "empty").touch()
    monkeypatch.setenv(TOKEN_PATH, str(home / "empty"))
    assert token_state().source is None  # Ray does not fall back either
    monkeypatch.setenv(TOKEN, "b" * 64)
    assert token_state().source == TOKEN


def test_a_token_is_sent_only_in_token_mode(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_token(home)
    assert not token_state().sent and "is not sent without it" in token_state().hint
    monkeypatch.setenv(MODE, "token")
    assert token_state().sent and "is not the cluster's" in token_state().hint
    assert "a" * 64 not in token_state().hint


def test_the_doctor_says_what_a_cluster_would_be_shown(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [none] = ray_token()
    assert none.status == "ok" and "none yet" in none.detail
    write_token(home)
    [unsent] = ray_token()
    assert unsent.status == "note" and "set RAY_AUTH_MODE=token" in unsent.detail
    monkeypatch.setenv(MODE, "token")
    [sent] = ray_token()
    assert sent.status == "ok" and "auth_token" in sent.detail
    (home / ".ray" / "auth_token").unlink()
    [missing] = ray_token()
    assert missing.status == "note" and "ray get-auth-token" in missing.detail
