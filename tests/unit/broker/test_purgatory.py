"""Parked requests end exactly once: by an attempt, at their deadline, or abandoned.

Method: requests that note their own attempts and ends; timers are run by hand.
"""

from ottla.base.pending import Pending
from ottla.base.timers import Timers
from ottla.broker.purgatory import DelayedOperation, Purgatory


class Request:
    """A request that answers once `ready`."""

    def __init__(self, lot: Purgatory, keys: str, deadline_ms: int = 100, wanted: int = 0) -> None:
        self.ready = False
        self.attempts = 0
        self.expired = 0
        self.parked: DelayedOperation = lot.park(
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
    lot = Purgatory(timers)
    order: list[int] = []
    for number in range(3):
        lot.park(
            "a",
            attempt=lambda n=number: order.append(n) or True,  # type: ignore[misc]
            expire=lambda: None,
            deadline_ms=1,
        )
    assert lot.wake("a") == 3
    assert order == [0, 1, 2]
    assert lot.count == 0
    assert len(timers) == 0  # Their deadlines are cancelled, too.


def test_an_answered_request_is_gone_from_all_its_keys() -> None:
    lot = Purgatory(Timers())
    request = Request(lot, "ab")
    request.ready = True
    assert lot.wake("b") == 1
    assert lot.wake("a") == 0
    assert not lot.waits_on("a")
    assert request.attempts == 1


def test_a_failed_attempt_leaves_the_request_parked() -> None:
    lot = Purgatory(Timers())
    request = Request(lot, "a")
    assert lot.wake("a") == 0
    assert lot.waits_on("a")
    request.ready = True
    assert lot.wake("a") == 1
    assert request.attempts == 2


def test_the_deadline_ends_a_request_once() -> None:
    timers = Timers()
    lot = Purgatory(timers)
    request = Request(lot, "a", deadline_ms=50)
    timers.run_due(49)
    assert request.expired == 0
    timers.run_due(50)
    request.ready = True
    assert (request.expired, lot.wake("a"), request.attempts) == (1, 0, 0)
    assert lot.count == 0


def test_few_bytes_do_not_cost_an_attempt() -> None:
    lot = Purgatory(Timers())
    request = Request(lot, "ab", wanted=100)
    request.ready = True
    lot.wake("a", 60)
    assert request.attempts == 0
    lot.wake("b", 40)  # All its keys count towards what it wants.
    assert request.attempts == 1


def test_another_change_than_growth_is_always_looked_at() -> None:
    lot = Purgatory(Timers())
    request = Request(lot, "a", wanted=100)
    lot.wake("a")
    assert request.attempts == 1


def test_an_abandoned_request_neither_answers_nor_expires() -> None:
    timers = Timers()
    lot = Purgatory(timers)
    request = Request(lot, "a")
    request.ready = True
    request.parked.abandon()
    timers.run_due(1_000)
    assert (lot.wake("a"), request.attempts, request.expired) == (0, 0, 0)


def test_a_request_may_park_another_while_it_is_answered() -> None:
    lot = Purgatory(Timers())
    later: list[Request] = []

    def answer() -> bool:
        later.append(Request(lot, "a"))
        return True

    lot.park("a", attempt=answer, expire=lambda: None, deadline_ms=1)
    assert lot.wake("a") == 1
    # The new one was not there when the wake began.
    assert later[0].attempts == 0
    assert lot.count == 1


def test_a_request_under_many_changed_keys_is_tried_once() -> None:
    lot = Purgatory(Timers())
    many, few = Request(lot, "abcdef"), Request(lot, "fx")
    few.ready = True
    lot.wake_each("abcdefg")
    assert (many.attempts, few.attempts) == (1, 1)
    assert not many.parked.done
    assert few.parked.done
    assert lot.count == 1


def test_an_answer_that_wakes_its_own_request_counts_once() -> None:
    """The next request of a connection is handled within the answer to the one before.

    Counted twice, the lot took itself for empty while a request waited in it, and nobody woke
    that one: producers waited for their time-out.
    """
    lot = Purgatory(Timers())
    attempts = 0

    def answer() -> bool:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            lot.wake("a")
        return True

    lot.park("a", attempt=answer, expire=lambda: None, deadline_ms=100)
    other = Request(lot, "b")
    assert lot.wake("a") == 1
    assert (attempts, lot.count) == (1, 1)
    other.ready = True
    assert lot.wake("b") == 1
    assert lot.count == 0


def test_what_is_woken_while_it_fails_is_tried_again() -> None:
    lot = Purgatory(Timers())
    attempts = 0

    def attempt() -> bool:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            lot.wake("a")
        return attempts == 2

    lot.park("a", attempt=attempt, expire=lambda: None, deadline_ms=100)
    assert lot.wake("a") == 1
    assert (attempts, lot.count) == (2, 0)


def test_a_connection_that_ends_within_the_answer_is_no_second_end() -> None:
    lot = Purgatory(Timers())
    request = Request(lot, "a")
    lot.park(
        "b",
        attempt=lambda: parked.abandon() or True,  # type: ignore[func-returns-value]
        expire=lambda: None,
        deadline_ms=100,
    )
    (parked,) = lot._by_key["b"]
    assert lot.wake("b") == 1
    assert lot.count == 1
    request.ready = True
    assert lot.wake("a") == 1
    assert lot.count == 0


def test_a_request_whose_asker_is_gone_is_forgotten() -> None:
    timers = Timers()
    lot = Purgatory(timers)
    gone: Pending[None] = Pending()
    answers: list[str] = []

    def park(is_ready: bool) -> None:
        lot.park(
            "a",
            attempt=lambda: is_ready and (answers.append("answered") or True),  # type: ignore[func-returns-value]
            expire=lambda: answers.append("expired"),
            deadline_ms=100,
            gone=gone,
        )

    park(True)
    park(False)
    assert lot.wake("a") == 1
    assert lot.count == 1
    gone.complete(None)
    assert (lot.count, lot.waits_on("a"), len(timers)) == (0, False, 0)
    park(False)
    assert lot.count == 0
    assert answers == ["answered"]
