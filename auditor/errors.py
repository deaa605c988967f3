"""The errors that a user can do something about: the command line prints them as one line."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class AuditorError(Exception):
    """Base of every error whose message is meant for a person; the message says what was wrong and what to do."""


class AuditError(AuditorError):
    """An audit that cannot be made, gone on with, or opened."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in work that can be gone on with; the message says how."""


@contextmanager
def resumable(how: Callable[[], str]) -> Iterator[None]:
    """Work that Ctrl-C may stop: `how` then says what is done and how to go on."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise Interrupted(how()) from stop
