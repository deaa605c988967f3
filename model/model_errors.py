"""Errors whose message is meant for a person: the command line prints them as one line."""


class ModelError(Exception):
    """Base of every error whose message is meant for a person."""
