"""Which token a cluster would receive, and the advice if there is none."""

from pathlib import Path

import pytest

from auditor.commands.start.doctor import check_ray_token
from auditor.run.ray_tokens import MODE, TOKEN, TOKEN_PATH, find_token


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
    assert find_token().source is None
    assert find_token().source is None and "set RAY_AUTH_MODE=token" in find_token().hint
    default = write_token(home)
    assert find_token().source == str(default)
    (home / "empty").touch()
    monkeypatch.setenv(TOKEN_PATH, str(home / "empty"))
    assert find_token().source is None  # Ray does not fall back either
    monkeypatch.setenv(TOKEN, "b" * 64)
    assert find_token().source == TOKEN


def test_a_token_is_sent_only_in_token_mode(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_token(home)
    assert not find_token().sent and "is not sent without it" in find_token().hint
    monkeypatch.setenv(MODE, "token")
    assert find_token().sent and "is not the cluster's" in find_token().hint
    assert "a" * 64 not in find_token().hint


def test_the_doctor_says_what_a_cluster_would_be_shown(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [none] = check_ray_token()
    assert none.status == "ok" and "none yet" in none.detail
    write_token(home)
    [unsent] = check_ray_token()
    assert unsent.status == "note" and "set RAY_AUTH_MODE=token" in unsent.detail
    monkeypatch.setenv(MODE, "token")
    [sent] = check_ray_token()
    assert sent.status == "ok" and "auth_token" in sent.detail
    (home / ".ray" / "auth_token").unlink()
    [missing] = check_ray_token()
    assert missing.status == "note" and "ray get-auth-token" in missing.detail
