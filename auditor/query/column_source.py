"""Names of new columns, and a source that appears whole or not at all."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from auditor.audit_folder.extra_columns import CARRIED, LONGEST_NAME, RESERVED, Source, publish, remove_source
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.lock import exclusive
from auditor.errors import AuditorError
from auditor.query.database import AuditDatabase


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
        raise ColumnError(
            f"{database.path} has columns called {name} already; --force replaces them, --prefix keeps both"
        )
    taken = {column.lower() for column in database.columns}
    taken -= {column.lower() for column in known[name].columns} if name in known else set()
    for column in columns:
        check_name(column)
        if column.lower() in taken:
            raise ColumnError(f"{database.path} has a column {column!r} already: give the new ones a --prefix")
        taken.add(column.lower())


def check_name(column: str) -> None:
    """Refuse what no query could ask for, or would take for something else."""
    if not column.strip() or len(column) > LONGEST_NAME or any(ord(character) < 32 for character in column):
        raise ColumnError(f"a column cannot be called {column[:50]!r}: rename it, or give the new ones a --prefix")
    if column.lower() in RESERVED:
        raise ColumnError(f"queries need the name {column!r} for themselves: give the new columns a --prefix")


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
