"""The thumbnail cache, the problems it reports, and the videos that browsers play."""

from pathlib import Path

import pytest

from auditor.python_api import Audit
from dashboard.media_preview import ThumbnailCache, video_mime_type


def test_media_are_cached_and_problems_reported(small: tuple[Path, Path]) -> None:
    audit = Audit(small[0])
    rows = audit.page("status = 'ok'", limit=3).to_pylist() + audit.page("status <> 'ok'", limit=1).to_pylist()
    cache = ThumbnailCache(64)
    shown = cache.show(audit.database, rows)
    assert [bool(one.jpeg) for one in shown] == [True, True, True, False]
    assert shown[3].problem == "cannot identify image file"
    again = cache.show(audit.database, rows)
    assert all(one is other for one, other in zip(shown, again, strict=True))
    gone = {**rows[0], "media_path": "/nowhere/00000.tar"}
    assert "is not read" in (cache.show(audit.database, [gone])[0].problem or "")


def test_an_unreachable_store_is_tried_again(small: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    audit, cache = Audit(small[0]), ThumbnailCache(64)
    rows = audit.page("status = 'ok'", limit=1).to_pylist()

    def fail(*_: object) -> bytes:
        raise OSError("the store is out of reach")

    with monkeypatch.context() as hiccup:
        hiccup.setattr("dashboard.media_preview.read_row_media", fail)
        assert cache.show(audit.database, rows)[0].problem == "the store is out of reach"
    assert cache.show(audit.database, rows)[0].jpeg


def test_mime_types_of_playable_videos() -> None:
    from tests.support.clips import make_clip

    assert video_mime_type(make_clip("mp4", frames=4)) == "video/mp4"
    assert video_mime_type(make_clip("webm", frames=4)) == "video/webm"
    assert video_mime_type(make_clip("avi", frames=4)) is None
    assert video_mime_type(make_clip("m4v", frames=4)) is None  # MPEG-4 part 2
    assert video_mime_type(b"") is None
