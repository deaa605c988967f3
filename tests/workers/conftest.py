"""Fixtures of this room."""

from tests.support.bootstraps import few_bootstraps  # noqa: F401
