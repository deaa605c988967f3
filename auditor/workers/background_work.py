"""Work in threads whose results a function needs later. It ends with the function, also if that fails or is stopped.

with open_background(engine) as (threads, engine):
    search = threads.submit(search_duplicates, folder, engine=engine)
"""

import importlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TypeVar

from auditor.errors import AuditorError
from auditor.workers.process_pool import Engine

T = TypeVar("T")
R = TypeVar("R")


def import_in_background(module: str) -> None:
    """Import a module in a thread. Who imports it before it is there waits for it, and gets its error."""
    threading.Thread(target=_import_quietly, args=(module,), name=f"import {module}").start()


def _import_quietly(module: str) -> None:
    with suppress(ImportError):
        importlib.import_module(module)


class StoppableEngine:
    """An engine whose calls fail after the item in work, once it is stopped."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.is_stopped = engine, False

    def each(self, work: Callable[[T], R], items: Sequence[T], /) -> Iterator[R]:
        for result in self.engine.each(work, items):
            if self.is_stopped:
                raise AuditorError("the work was stopped")
            yield result


@contextmanager
def open_background(engine: Engine, size: int = 2) -> Iterator[tuple[ThreadPoolExecutor, Engine]]:
    """Yield threads, and the engine for what runs in them: an interrupted block waits for an item, not for all."""
    stoppable = StoppableEngine(engine)
    with ThreadPoolExecutor(size) as threads:
        try:
            yield threads, stoppable
        except BaseException:
            stoppable.is_stopped = True
            raise
