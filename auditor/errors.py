"""Errors that a user can act on. The command line prints their message as one line."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class AuditorError(Exception):
    """Base of all errors with a message for the user: what is wrong and what to do."""


class AuditError(AuditorError):
    """The audit cannot be made, resumed or opened."""


class ResumableInterrupt(KeyboardInterrupt):
    """Ctrl-C during work that can be resumed; the message says how."""


@contextmanager
def explain_interrupt(explain_resume: Callable[[], str]) -> Iterator[None]:
    """Turn Ctrl-C into a ResumableInterrupt. `explain_resume` says what is done and how to resume."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        raise ResumableInterrupt(explain_resume()) from interrupt
