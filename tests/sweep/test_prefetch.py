"""The prefetching thread keeps order, passes errors on, holds no more than its budget and stops on request."""

import threading
from collections.abc import Generator

import pytest

from auditor.sweep.prefetch import Prefetch


def test_everything_arrives_in_order() -> None:
    def numbers() -> Generator[int, None, None]:
        yield from range(100)

    ahead = Prefetch(numbers(), weigh=lambda _: 1, budget=3)
    assert list(ahead) == list(range(100))
    assert ahead.close() == []


def test_it_is_visible_whether_the_next_item_is_there() -> None:
    blocked = threading.Event()

    def items() -> Generator[int, None, None]:
        yield 1
        assert blocked.wait(60)
        yield 2

    ahead = Prefetch(items(), weigh=lambda _: 1, budget=100)
    assert next(ahead) == 1 and not ahead.has_item
    blocked.set()
    ahead.thread.join(60)
    assert ahead.has_item and list(ahead) == [2] and not ahead.has_item


def test_an_error_reaches_the_consumer_after_what_came_before_it() -> None:
    def breaks() -> Generator[int, None, None]:
        yield 1
        raise KeyError("broken source")

    ahead = iter(Prefetch(breaks(), weigh=lambda _: 1, budget=10))
    assert next(ahead) == 1
    with pytest.raises(KeyError, match="broken source"):
        next(ahead)


def test_the_producer_never_runs_further_ahead_than_the_budget() -> None:
    produced = []
    full = threading.Event()

    def heavy() -> Generator[int, None, None]:
        for i in range(10):
            produced.append(i)
            if len(produced) == 4:
                full.set()
            yield i

    ahead = Prefetch(heavy(), weigh=lambda _: 10, budget=30)
    assert full.wait(10)
    assert not threading.Event().wait(0.05)
    assert produced == [0, 1, 2, 3]  # three held, the fourth waits at the door
    unused = ahead.close()
    assert unused == [0, 1, 2]


def test_closing_stops_the_source_and_the_thread() -> None:
    closed = threading.Event()

    def endless() -> Generator[int, None, None]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    ahead = Prefetch(endless(), weigh=lambda _: 1, budget=2)
    assert next(iter(ahead)) == 1
    ahead.close()
    assert closed.is_set()
    assert not ahead.thread.is_alive()


def test_one_item_always_fits() -> None:
    def one() -> Generator[int, None, None]:
        yield 5

    assert list(Prefetch(one(), weigh=lambda _: 1000, budget=1)) == [5]
