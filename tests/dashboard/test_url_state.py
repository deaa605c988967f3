"""Views of the gallery survive the URL."""

from dashboard.row_selection import RowSelection
from dashboard.url_state import GallerySearch, GalleryView, format_range, parse_view


def test_views_survive_the_url() -> None:
    facets = {"col-a source": ("x", "y & z"), "flag": ("mismatch",), "status": ("not ok",)}
    chosen = RowSelection(facets, "reviewed", "a & b", "width > 3 AND key = 'x'", {"similarity": (0.1, 0.25)})
    plain = GalleryView(RowSelection())
    for view in (GalleryView(chosen, "width", False), GalleryView(RowSelection(review="none"), None), plain):
        assert parse_view(view.to_url()) == view
    assert plain.to_url() == ""
    assert parse_view(GalleryView(RowSelection(), size=48).to_url()).size == 48 and parse_view("size=7").size == 24
    assert GalleryView(RowSelection(), size=12).query(position=24) == {"size": "12", "page": "3"}
    assert plain.query(position=23) == {} and plain.query(position=24) == {"page": "2"}
    assert parse_view("kind=any&similarity=a&similarity=b&order=z&colour=x") == plain


def test_a_search_survives_the_url() -> None:
    view = GalleryView(RowSelection(), search=GallerySearch("a dog", over="captions"))
    assert parse_view(view.to_url()) == view and not GallerySearch("  ")


def test_a_range_keeps_its_ends_exactly() -> None:
    """The row with the smallest value of the audit is within a range that starts at this value."""
    ends = (-0.11890347629785538, 1 / 3)
    assert tuple(map(float, format_range(ends))) == ends
