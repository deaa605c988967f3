"""The HTML view of a result in a notebook. auditor/report/notebook.py registers how each class is drawn."""

from functools import singledispatch
from html import escape
from typing import Any


class NotebookView:
    """A result with a view; pictures come from its `database`."""

    database: Any = None

    def _repr_html_(self) -> str | None:
        try:
            return draw_view(self)
        except Exception as error:  # a view must not end a cell with a traceback
            return f"<p>This view cannot be drawn: {escape(str(error) or type(error).__name__)}</p>"


@singledispatch
def draw_view(result: Any) -> str | None:
    """Draw a view as HTML; without one, notebooks show the text of a result."""
    return None
