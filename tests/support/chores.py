"""Work for a process pool, in a module of its own because each process imports it."""

import os


class UnpicklableError(Exception):
    """Cannot be unpickled: its constructor needs two arguments, but only one is stored."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(first)


def raise_unpicklable_error(_: int) -> None:
    raise UnpicklableError(1, 2)


def report_threads_and_pid(_: int) -> tuple[str, int]:
    return os.environ["OPENBLAS_NUM_THREADS"], os.getpid()
