"""Operations are tried again while that may help and time is left, and are cancelled for good."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from ottla.base.object_store import Failure, Pool, SettableCall, StoreError
from ottla.base.timers import Timers
from ottla.broker.remote.dialogue import Dialogue, Task
from ottla.broker.remote.store_calls import (
    ATTEMPT_MS_MAX,
    StoreCalls,
    transfer_ms_max,
)
from tests.unit.log.support import FakeClock


class FixedDice:
    def random_bytes(self, count: int) -> bytes:
        return bytes(count)

    def below(self, bound: int) -> int:
        return bound // 2


class ScriptedStore:
    """Keeps the operations; a test sets their results."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any], SettableCall[Any]]] = []

    def __getattr__(self, operation: str) -> Callable[..., SettableCall[Any]]:
        def begin(*args: Any, **options: Any) -> SettableCall[Any]:
            call: SettableCall[Any] = SettableCall()
            self.calls.append((operation, {"args": args, **options}, call))
            return call

        return begin


class Harness:
    def __init__(self) -> None:
        self.clock = FakeClock(0)
        self.timers = Timers()
        self.store = ScriptedStore()
        self.calls = StoreCalls(self.store, self.clock, FixedDice())
        self.results: list[Any] = []
        self.unknown = 0

    def run(self, dialogue: Dialogue[Any]) -> Task:
        def whole() -> Dialogue[None]:
            self.results.append((yield from dialogue))

        task = Task(whole(), self.timers, self.clock)
        task.start()
        return task

    def put(self, until_ms: int = 100_000) -> Task:
        return self.run(
            self.calls.put("name", b"data", 4, until_ms=until_ms, on_unknown=self.count_unknown)
        )

    def count_unknown(self) -> None:
        self.unknown += 1

    def answer(self, result: Any) -> None:
        self.store.calls[-1][2].result.complete(result)

    def pass_ms(self, ms: int) -> None:
        self.clock.ms += ms
        self.timers.run_due(self.clock.ms)


def failed(failure: Failure) -> StoreError:
    return StoreError(failure, "because")


@pytest.mark.parametrize("failure", [Failure.UNAVAILABLE, Failure.TIMED_OUT, Failure.BUSY])
def test_what_may_succeed_later_is_tried_again_after_a_backoff(failure: Failure) -> None:
    harness = Harness()
    harness.put()
    for count, pause_ms in enumerate((500, 1_000, 2_000), 1):
        assert len(harness.store.calls) == count
        harness.answer(failed(failure))
        harness.pass_ms(pause_ms - 1)
        assert len(harness.store.calls) == count
        harness.pass_ms(1)
    harness.answer(None)
    assert harness.results == [None]
    assert harness.unknown == (0 if failure is Failure.BUSY else 3)


@pytest.mark.parametrize("failure", [Failure.DENIED, Failure.INVALID, Failure.SOURCE])
def test_what_cannot_succeed_is_not(failure: Failure) -> None:
    harness = Harness()
    harness.put()
    harness.answer(failed(failure))
    assert harness.results == [failed(failure)]
    assert harness.unknown == 0


def test_no_attempt_goes_beyond_the_time_of_the_whole() -> None:
    harness = Harness()
    harness.put(until_ms=1_200)
    _, options, _ = harness.store.calls[0]
    assert (options["deadline_ms"], options["pool"]) == (1_200, Pool.COPIER)
    harness.answer(failed(Failure.UNAVAILABLE))
    harness.pass_ms(500)
    harness.answer(failed(Failure.UNAVAILABLE))
    assert harness.results == [failed(Failure.UNAVAILABLE)]
    harness.results.clear()
    harness.put(until_ms=harness.clock.ms)
    assert harness.results[0].failure is Failure.TIMED_OUT
    assert len(harness.store.calls) == 2


def test_a_deadline_allows_for_the_size() -> None:
    harness = Harness()
    size = 100 << 20
    harness.run(
        harness.calls.put("name", b"", size, until_ms=1 << 40, on_unknown=harness.count_unknown)
    )
    _, options, _ = harness.store.calls[0]
    assert options["deadline_ms"] == transfer_ms_max(size) > ATTEMPT_MS_MAX


def test_a_cancelled_dialogue_cancels_its_operation() -> None:
    harness = Harness()
    cancelled: list[int] = []
    task = harness.put()
    harness.store.calls[0][2].on_cancel(lambda: cancelled.append(1))
    task.cancel()
    assert cancelled == [1]
    harness.pass_ms(1_000_000)
    assert len(harness.store.calls) == 1
    assert not harness.results


def test_many_names_are_deleted_in_parts_and_failures_are_returned() -> None:
    harness = Harness()
    names = [f"name-{number}" for number in range(2_500)]
    harness.run(harness.calls.delete(names))
    harness.answer({})
    harness.answer(failed(Failure.UNAVAILABLE))
    harness.answer({"name-2400": failed(Failure.DENIED)})
    left: Mapping[str, StoreError] = harness.results[0]
    assert set(left) == {*names[1_000:2_000], "name-2400"}
    parts: list[Sequence[str]] = [options["args"][0] for _, options, _ in harness.store.calls]
    assert [len(each) for each in parts] == [1_000, 1_000, 500]
    assert {options["pool"] for _, options, _ in harness.store.calls} == {Pool.EXPIRATION}
