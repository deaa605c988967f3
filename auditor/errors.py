"""The errors of this package that are the user's to mend: the command line prints them as one line."""


class AuditorError(Exception):
    """Base of every error whose message is meant for a person; the message says what was wrong and what to do."""
