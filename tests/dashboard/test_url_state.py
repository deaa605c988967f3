"""Views of the gallery as parameters of a URL, and back."""

from dashboard.row_selection import Selection
from dashboard.url_state import View, Wanted, parse_view


def test_views_survive_the_url() -> None:
    chosen = Selection(
        "video", "not ok", ("mismatch",), "any", "a & b", "width > 3 AND key = 'x'", {"similarity": (0.1, 0.25)}
    )
    for view in (View(chosen, "width", False), View(Selection(review="none"), None), View(Selection())):
        assert parse_view(view.encoded()) == view
    assert View(Selection()).encoded() == ""
    assert parse_view(View(Selection(), size=48).encoded()).size == 48 and parse_view("size=7").size == 24
    assert View(Selection(), size=12).query(at=24) == {"size": ["12"], "page": ["3"]}
    assert View(Selection()).query(at=23) == {} and View(Selection()).query(at=24) == {"page": ["2"]}
    assert parse_view("kind=sound&status=x&flag=y&similarity=a&similarity=b&order=z") == View(Selection())


def test_a_search_survives_the_url() -> None:
    view = View(Selection(), wanted=Wanted("a dog", over="captions"))
    assert parse_view(view.encoded()) == view and not Wanted("  ")
