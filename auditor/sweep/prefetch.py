"""Runs a generator in a thread of its own, a bounded number of bytes ahead of its consumer.

Waking a thread takes longer than most items take to make, so a consumer that waits is woken for `WAKE_ITEMS` items, or
for a sixteenth of the budget, or after `WAKE_SECONDS`.
"""

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import TypeVar

T = TypeVar("T")
WAKE_ITEMS = 16
WAKE_SECONDS = 0.01


class Prefetch(Iterator[T]):
    """Iterates over `source` while a thread produces the next items. `close` stops the thread and the source."""

    def __init__(self, source: Generator[T, None, None], weigh: Callable[[T], int], budget: int):
        self.source, self.weigh, self.budget = source, weigh, budget
        self.items: deque[tuple[T, int]] = deque()
        self.taken: deque[T] = deque()  # by the consumer, who has not used them yet
        self.held = 0
        self.finished = self.closed = False
        self.error: BaseException | None = None
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self._produce, daemon=True, name="prefetch")
        self.thread.start()

    def _produce(self) -> None:
        try:
            for item in self.source:
                if not self._put(item):
                    break
        except BaseException as error:  # raised again in the consumer's thread
            self.error = error
        finally:
            self.source.close()
            with self.changed:
                self.finished = True
                self.changed.notify_all()

    def _put(self, item: T) -> bool:
        weight = self.weigh(item)
        with self.changed:
            # One item always fits, however large, or the consumer would wait forever.
            while not self.closed and self.items and self.held + weight > self.budget:
                self.changed.notify_all()
                self.changed.wait()
            if self.closed:
                return False
            self.items.append((item, weight))
            self.held += weight
            if len(self.items) >= WAKE_ITEMS or self.held * WAKE_ITEMS >= self.budget:
                self.changed.notify_all()
        return True

    @property
    def has_item(self) -> bool:
        """Whether the next item is there, so that nobody has to wait for it."""
        return bool(self.taken or self.items)

    def __next__(self) -> T:
        if not self.taken:
            self.taken.extend(self._take())
        if self.taken:
            return self.taken.popleft()
        raise self.error or StopIteration

    def _take(self) -> list[T]:
        """Wait for items; return some, nothing at the end."""
        with self.changed:
            while not self.items and not self.finished:
                self.changed.wait(WAKE_SECONDS)
            batch = [self.items.popleft() for _ in range(min(len(self.items), self._count_next()))]
            self.held -= sum(weight for _, weight in batch)
            self.changed.notify_all()
        return [item for item, _ in batch]

    def _count_next(self) -> int:
        """How many items are taken at once: few, if they are large, because those taken do not count as held."""
        return WAKE_ITEMS if self.held * WAKE_ITEMS < self.budget * len(self.items) else 1

    def close(self) -> list[T]:
        """Stop producing and wait for the thread; return the items that were produced but never consumed."""
        with self.changed:
            self.closed = True
            unused = [*self.taken, *(item for item, _ in self.items)]
            self.items.clear()
            self.changed.notify_all()
        self.thread.join()
        return unused
