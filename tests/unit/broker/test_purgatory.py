"""Parked requests end exactly once: by an attempt, at their deadline, or abandoned.

Method: requests that note their own attempts and ends; timers are run by hand.
"""

import gc
import weakref

import pytest

from ottla.base.pending import Pending
from ottla.base.timers import Timers
from ottla.broker.purgatory import DelayedOperation, Purgatory


class Request:
    """A request that answers once `ready`."""

    def __init__(
        self, purgatory: Purgatory, keys: str, deadline_ms: int = 100, wanted: int = 0
    ) -> None:
        self.ready = False
        self.attempts = 0
        self.expired = 0
        self.operation: DelayedOperation = purgatory.add(
            tuple(keys),
            attempt=self._attempt,
            expire=self._expire,
            deadline_ms=deadline_ms,
            wanted_bytes=wanted,
        )

    def _attempt(self) -> bool:
        self.attempts += 1
        return self.ready

    def _expire(self) -> None:
        self.expired += 1


def test_a_key_wakes_its_requests_in_order_of_parking() -> None:
    timers = Timers()
    purgatory = Purgatory(timers)
    order: list[int] = []
    for number in range(3):
        purgatory.add(
            "a",
            attempt=lambda n=number: order.append(n) or True,  # type: ignore[misc]
            expire=lambda: None,
            deadline_ms=1,
        )
    assert purgatory.wake("a") == 3
    assert order == [0, 1, 2]
    assert purgatory.count == 0
    assert len(timers) == 0  # Their deadlines are cancelled, too.


def test_an_answered_request_is_gone_from_all_its_keys() -> None:
    purgatory = Purgatory(Timers())
    request = Request(purgatory, "ab")
    request.ready = True
    assert purgatory.wake("b") == 1
    assert purgatory.wake("a") == 0
    assert not purgatory.waits_on("a")
    assert request.attempts == 1


def test_a_failed_attempt_leaves_the_request_in_the_purgatory() -> None:
    purgatory = Purgatory(Timers())
    request = Request(purgatory, "a")
    assert purgatory.wake("a") == 0
    assert purgatory.waits_on("a")
    request.ready = True
    assert purgatory.wake("a") == 1
    assert request.attempts == 2


def test_the_deadline_ends_a_request_once() -> None:
    timers = Timers()
    purgatory = Purgatory(timers)
    request = Request(purgatory, "a", deadline_ms=50)
    timers.run_due(49)
    assert request.expired == 0
    timers.run_due(50)
    request.ready = True
    assert (request.expired, purgatory.wake("a"), request.attempts) == (1, 0, 0)
    assert purgatory.count == 0


def test_few_bytes_do_not_cost_an_attempt() -> None:
    purgatory = Purgatory(Timers())
    request = Request(purgatory, "ab", wanted=100)
    request.ready = True
    purgatory.wake("a", 60)
    assert request.attempts == 0
    purgatory.wake("b", 40)  # All its keys count towards what it wants.
    assert request.attempts == 1


def test_another_change_than_growth_is_always_looked_at() -> None:
    purgatory = Purgatory(Timers())
    request = Request(purgatory, "a", wanted=100)
    purgatory.wake("a")
    assert request.attempts == 1


def test_an_abandoned_request_neither_answers_nor_expires() -> None:
    timers = Timers()
    purgatory = Purgatory(timers)
    request = Request(purgatory, "a")
    request.ready = True
    request.operation.abandon()
    timers.run_due(1_000)
    assert (purgatory.wake("a"), request.attempts, request.expired) == (0, 0, 0)


def test_a_request_may_park_another_while_it_is_answered() -> None:
    purgatory = Purgatory(Timers())
    later: list[Request] = []

    def answer() -> bool:
        later.append(Request(purgatory, "a"))
        return True

    purgatory.add("a", attempt=answer, expire=lambda: None, deadline_ms=1)
    assert purgatory.wake("a") == 1
    # The new one was not there when the wake began.
    assert later[0].attempts == 0
    assert purgatory.count == 1


def test_a_request_under_many_changed_keys_is_tried_once() -> None:
    purgatory = Purgatory(Timers())
    many, few = Request(purgatory, "abcdef"), Request(purgatory, "fx")
    few.ready = True
    purgatory.wake_each("abcdefg")
    assert (many.attempts, few.attempts) == (1, 1)
    assert not many.operation.done
    assert few.operation.done
    assert purgatory.count == 1


def test_an_answer_that_wakes_its_own_request_counts_once() -> None:
    """The next request of a connection is handled within the answer to the one before.

    Counted twice, the lot took itself for empty while a request waited in it, and nobody woke
    that one: producers waited for their time-out.
    """
    purgatory = Purgatory(Timers())
    attempts = 0

    def answer() -> bool:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            purgatory.wake("a")
        return True

    purgatory.add("a", attempt=answer, expire=lambda: None, deadline_ms=100)
    other = Request(purgatory, "b")
    assert purgatory.wake("a") == 1
    assert (attempts, purgatory.count) == (1, 1)
    other.ready = True
    assert purgatory.wake("b") == 1
    assert purgatory.count == 0


def test_what_is_woken_while_it_fails_is_tried_again() -> None:
    purgatory = Purgatory(Timers())
    attempts = 0

    def attempt() -> bool:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            purgatory.wake("a")
        return attempts == 2

    purgatory.add("a", attempt=attempt, expire=lambda: None, deadline_ms=100)
    assert purgatory.wake("a") == 1
    assert (attempts, purgatory.count) == (2, 0)


def test_a_connection_that_ends_within_the_answer_is_no_second_end() -> None:
    purgatory = Purgatory(Timers())
    request = Request(purgatory, "a")
    purgatory.add(
        "b",
        attempt=lambda: operation.abandon() or True,  # type: ignore[func-returns-value]
        expire=lambda: None,
        deadline_ms=100,
    )
    (operation,) = purgatory._by_key["b"]
    assert purgatory.wake("b") == 1
    assert purgatory.count == 1
    request.ready = True
    assert purgatory.wake("a") == 1
    assert purgatory.count == 0


def test_a_request_whose_asker_is_gone_is_forgotten() -> None:
    timers = Timers()
    purgatory = Purgatory(timers)
    closed: Pending[None] = Pending()
    answers: list[str] = []

    def add(is_ready: bool) -> None:
        purgatory.add(
            "a",
            attempt=lambda: is_ready and (answers.append("answered") or True),  # type: ignore[func-returns-value]
            expire=lambda: answers.append("expired"),
            deadline_ms=100,
            closed=closed,
        )

    add(True)
    add(False)
    assert purgatory.wake("a") == 1
    assert purgatory.count == 1
    closed.complete(None)
    assert (purgatory.count, purgatory.waits_on("a"), len(timers)) == (0, False, 0)
    add(False)
    assert purgatory.count == 0
    assert answers == ["answered"]


@pytest.mark.parametrize("ends", ["answered", "expired", "abandoned"])
def test_a_finished_request_is_no_work_for_the_garbage_collector(ends: str) -> None:
    timers, closed = Timers(), Pending[None]()
    request = Request(Purgatory(timers), "a")
    operation = request.operation = request.operation._purgatory.add(
        "b", attempt=request._attempt, expire=request._expire, deadline_ms=50, closed=closed
    )
    gone = weakref.ref(request)
    gc.disable()
    try:
        if ends == "answered":
            request.ready = True
            assert operation.try_now()
        elif ends == "expired":
            timers.run_due(50)
            assert request.expired == 1
        else:
            closed.complete(None)
        timers.run_due(100)
        assert operation.done
        del request
        assert gone() is None
    finally:
        gc.enable()
