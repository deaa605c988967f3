"""An answer that is computed once, by whoever asks first; others wait for it, and for nothing else."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Cached(Generic[T]):
    """Keeps an answer; a question that fails is asked again by the next."""

    def __init__(self) -> None:
        self.answers: list[T] = []  # one, when it is known
        self._lock = threading.Lock()

    def get(self, compute: Callable[[], T]) -> T:
        with self._lock:
            if not self.answers:
                self.answers.append(compute())
            return self.answers[0]
