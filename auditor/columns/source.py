"""Names of new columns, and a source that appears whole or not at all."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from auditor.errors import AuditorError
from auditor.query.database import AuditDatabase
from auditor.store.extra_columns import CARRIED, Source, publish, remove_source
from auditor.store.folder import Folder
from auditor.store.lock import exclusive


class ColumnError(AuditorError):
    """Columns that cannot be added."""


def source_name(given: str) -> str:
    """A name for a folder, from a prefix or a path."""
    last = given.rstrip("/").rsplit("/", 1)[-1].split(".")[0]
    name = re.sub(r"[^\w-]+", "_", last).strip("_") or "columns"
    return f"{name}_" if name == CARRIED else name


def check_new(database: AuditDatabase, name: str, columns: Mapping[str, str], force: bool) -> None:
    """Refuse what would hide or mix columns that are there."""
    known = {source.name: source for source in database.files.sources}
    if name in known and not force:
        raise ColumnError(f"{database.path} has columns called {name} already; --force replaces them")
    taken = {column.lower() for column in database.columns}
    taken -= {column.lower() for column in known[name].columns} if name in known else set()
    for column in columns:
        if column.lower() in taken:
            raise ColumnError(f"{database.path} has a column {column!r} already: give the new ones a --prefix")


@contextmanager
def replace_source(folder: Folder, source: Source) -> Iterator[None]:
    """Take the old columns away, let the new ones be written, show them; after a failure there are none."""
    with exclusive(folder):
        remove_source(folder, source.name)
        try:
            yield
        except BaseException:
            remove_source(folder, source.name)
            raise
        publish(folder, source)
