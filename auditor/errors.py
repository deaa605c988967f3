"""The errors that a user can do something about: the command line prints them as one line."""


class AuditorError(Exception):
    """Base of every error whose message is meant for a person; the message says what was wrong and what to do."""


class AuditError(AuditorError):
    """An audit that cannot be made, gone on with, or opened."""
