"""Errors that a user can act on. The command line prints their message as one line."""

import difflib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager


class AuditorError(Exception):
    """Base of all errors with a message for the user: what is wrong and what to do."""


class AuditError(AuditorError):
    """The audit cannot be made, resumed or opened."""


class ResumableInterrupt(KeyboardInterrupt):
    """Ctrl-C during work that can be resumed; the message says how."""


def explain_unknown_name(noun: str, name: object, choices: Collection[str]) -> str:
    similar = difflib.get_close_matches(str(name), choices, n=1, cutoff=0.4)
    hint = f"did you mean {similar[0]}?" if similar else f"the {noun}s are {', '.join(choices)}"
    return f"there is no {noun} {name!r}; {hint}"


@contextmanager
def explain_interrupt(explain_resume: Callable[[], str]) -> Iterator[None]:
    """Turn Ctrl-C into a ResumableInterrupt. `explain_resume` says what is done and how to resume."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        raise ResumableInterrupt(explain_resume()) from interrupt
