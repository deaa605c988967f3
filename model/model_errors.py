"""Base of the errors in model/, in a module that imports nothing."""


class ModelError(Exception):
    """An error with a message for the user, which the command line prints as one line."""
