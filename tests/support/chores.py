"""Work for a crew of processes to do; a module of its own, since each of them imports it."""

import os


class AwkwardError(Exception):
    """Does not survive being sent: it wants two arguments and remembers one."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(one)


def be_awkward(_: int) -> None:
    raise AwkwardError(1, 2)


def threads_and_process(_: int) -> tuple[str, int]:
    return os.environ["OPENBLAS_NUM_THREADS"], os.getpid()
