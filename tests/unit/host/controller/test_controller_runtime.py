"""Decisions are made one after another, retried after conflicts, and answered when committed.

Method: the runtime over a back end in memory that gives each of the four answers on request, and
holds answers back. Deciders are written out; the image shows their results. What holds over every
back end is in `tests.metadata_port_checks`.
"""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending
from ottla.controller.metadata_port import Conflict, Fenced, Unknown
from ottla.controller.step import Decision, Step
from ottla.host.controller.controller_runtime import ControllerRuntime
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import ConfigRecord, ProducerIdsRecord
from ottla.testing.memory_store import Fault, MemoryMetadata


class FakeClock:
    """A manual clock."""

    def __init__(self) -> None:
        self.now = 0

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now


class Harness:
    """A runtime over memory, with all that it did in the order in which it did it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.stored = MemoryMetadata()
        self.store = self.stored.elect(records_per_part_max=1)
        self.seen: list[Any] = []
        self.runtime = ControllerRuntime(
            self.store,
            epoch=self.store.epoch,
            clock=self.clock,
            on_fenced=lambda: self.seen.append("fenced"),
            on_effect=self.seen.append,
        )
        self.runtime.subscribe(lambda delta: self.seen.append(ids(delta.image)))

    def run(self, decide: Callable[[ClusterImage], Decision[Any]], **how: Any) -> Pending[Any]:
        answer = self.runtime.run(decide, **how)
        answer.then(lambda reply: self.seen.append(("answer", text(reply))))
        return answer


def text(reply: Any) -> Any:
    return reply.error.name if isinstance(reply, ApiError) else reply


def ids(image: ClusterImage) -> int:
    return image.producer_ids.next_producer_id


def ids_record(number: int) -> ProducerIdsRecord:
    return ProducerIdsRecord(broker_id=1, next_producer_id=number)


def take_ten(image: ClusterImage) -> Decision[int]:
    """Move the producer ids on by ten; the reply is where they began."""
    first = ids(image)
    return Decision(Step((ids_record(first + 10),), ("effect",)), first)


def two_parts(image: ClusterImage) -> Decision[str]:
    """Move the producer ids on by one, twice, in parts."""
    first = ids(image)
    step = Step((ids_record(first + 1), ids_record(first + 2)), atomic=False)
    return Decision(step, f"from {first}")


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_listeners_are_called_before_effects_and_before_the_answer(harness: Harness) -> None:
    harness.run(take_ten)
    assert harness.seen == [10, "effect", ("answer", 0)]
    assert harness.runtime.metrics.records_appended == 1


def test_the_next_decision_rests_on_what_the_one_before_wrote(harness: Harness) -> None:
    harness.store.hold()
    answers = [harness.run(take_ten) for _ in range(3)]
    assert len(harness.store.steps) == 1  # The others wait for their image.
    harness.store.release()
    assert [answer.value for answer in answers] == [0, 10, 20]
    assert ids(harness.stored.image) == 30


def test_a_step_that_goes_first_is_decided_before_what_is_queued(harness: Harness) -> None:
    """Also before what a conflict has put back, which was decided on an older image."""

    def to(number: int) -> Callable[[ClusterImage], Step]:
        return lambda image: Step((ids_record(ids(image) * 10 + number),))

    conflict = Conflict(frozenset({"ids"}))
    harness.store.faults.append(Fault(answer=conflict, others=(ids_record(1),)))
    harness.store.hold()
    harness.run(lambda image: Decision(to(4)(image), "under way"))
    harness.run(lambda image: Decision(to(5)(image), "queued"))
    for number in (2, 3):
        harness.runtime.run_step(to(number), first=True)
    assert harness.runtime.queue_size == 3
    harness.store.release()
    assert ids(harness.stored.image) == 12345
    assert harness.runtime.idle


def test_a_conflict_is_decided_again_on_what_is_stored(harness: Harness) -> None:
    conflict = Fault(answer=Conflict(frozenset({"ids"})), others=(ids_record(500),))
    harness.store.faults += [conflict] * 25
    harness.run(take_ten)
    assert harness.seen[-3:] == [510, "effect", ("answer", 500)]
    assert harness.seen.count("effect") == 1
    assert ids(harness.stored.image) == 510


def test_parts_that_a_conflict_left_behind_are_seen(harness: Harness) -> None:
    harness.store.faults.append(Fault(answer=Conflict(frozenset({"ids"})), parts=1))
    harness.run(two_parts)
    assert harness.seen == [1, 2, 3, ("answer", "from 1")]


@pytest.mark.parametrize("parts", [0, 1, 2])
def test_an_unknown_outcome_is_decided_again_whatever_was_written(
    harness: Harness, parts: int
) -> None:
    harness.store.faults.append(Fault(answer=Unknown(), parts=parts))
    harness.run(two_parts)
    assert harness.seen[-1] == ("answer", f"from {parts}")
    assert ids(harness.stored.image) == parts + 2 == ids(harness.runtime.image)


def test_a_fenced_controller_answers_queued_decisions_and_stops(harness: Harness) -> None:
    harness.store.hold()
    harness.store.faults.append(Fault(answer=Fenced()))
    harness.run(take_ten)
    harness.run(take_ten)
    harness.store.release()
    assert harness.seen == [("answer", "NOT_CONTROLLER")] * 2 + ["fenced"]
    harness.run(take_ten)
    assert harness.seen[-1] == ("answer", "NOT_CONTROLLER")
    assert not harness.runtime.active
    assert ids(harness.stored.image) == 0


def test_kafka_1096_a_controller_that_was_paused_over_an_election_writes_nothing(
    harness: Harness,
) -> None:
    newer = harness.stored.elect()
    ControllerRuntime(newer, epoch=newer.epoch, clock=harness.clock).run(take_ten)
    answer = harness.run(take_ten)
    assert answer.value.error is Error.NOT_CONTROLLER
    assert "fenced" in harness.seen
    assert ids(harness.stored.image) == 10


def test_a_step_that_goes_first_is_not_decided_after_the_term(harness: Harness) -> None:
    harness.store.hold()
    harness.run(take_ten)
    answer = harness.runtime.run_step(lambda image: pytest.fail("decided"), first=True)
    harness.runtime.resign()
    assert text(answer.value) == "NOT_CONTROLLER"
    assert harness.runtime.idle


def test_the_queue_is_answered_at_once_on_resign(harness: Harness) -> None:
    harness.store.hold()
    harness.run(take_ten)
    harness.run(take_ten)
    harness.runtime.resign()
    assert harness.seen == [("answer", "NOT_CONTROLLER")] * 2
    harness.store.release()  # The append under way is committed; its caller does not learn of it.
    assert "effect" not in harness.seen
    harness.runtime.resign()
    assert harness.runtime.idle


def test_a_deadline_counts_when_the_turn_comes(harness: Harness) -> None:
    harness.store.hold()
    harness.run(take_ten)
    late = harness.run(take_ten, deadline_ms=5)
    in_time = harness.run(take_ten, deadline_ms=11)
    harness.clock.now = 10
    harness.store.release()
    assert late.value.error is Error.REQUEST_TIMED_OUT
    assert in_time.value == 10


def test_a_caller_that_gave_up_is_removed_from_the_queue(harness: Harness) -> None:
    """Clients that ask again and again while nothing can be written would fill the memory."""
    harness.store.hold()
    harness.run(take_ten)
    given_up = [harness.run(take_ten, deadline_ms=5) for _ in range(3)]
    stays = harness.run(take_ten)
    for each in given_up:
        each.complete(ApiError(Error.REQUEST_TIMED_OUT))
    assert harness.runtime.queue_size == 1
    harness.store.release()
    assert stays.value == 10
    assert ids(harness.stored.image) == 20


def test_a_write_of_unknown_outcome_is_not_retried_for_a_caller_that_gave_up(
    harness: Harness,
) -> None:
    harness.store.faults.append(Fault(answer=Unknown()))
    harness.store.hold()
    given_up = harness.run(take_ten, deadline_ms=5)
    given_up.complete(ApiError(Error.REQUEST_TIMED_OUT))
    harness.clock.now = 5
    harness.store.release()
    assert harness.runtime.idle
    assert len(harness.store.steps) == 1
    assert harness.run(take_ten).value == ids(harness.stored.image) - 10


def test_a_listeners_decision_is_made_once_all_listeners_were_called(harness: Harness) -> None:
    calls: list[tuple[str, int]] = []

    def first(delta: ClusterDelta) -> None:
        calls.append(("first", ids(delta.image)))
        if ids(delta.image) < 30:
            harness.runtime.run(take_ten)

    harness.runtime.subscribe(first)
    harness.runtime.subscribe(lambda delta: calls.append(("second", ids(delta.image))))
    harness.run(take_ten)
    assert calls == [(who, count) for count in (10, 20, 30) for who in ("first", "second")]


def test_changes_of_others_are_published_and_decided_on(harness: Harness) -> None:
    def drive(delta: ClusterDelta) -> None:
        if delta.changed_configs:
            harness.run(take_ten)

    harness.runtime.subscribe(drive)
    topic_config = ConfigRecord(resource_type=2, resource_name="t", name="a", value="b")
    harness.stored.observe(topic_config)
    assert harness.seen == [0, 10, "effect", ("answer", 0)]


def test_an_exception_of_a_listener_does_not_affect_others(harness: Harness) -> None:
    harness.runtime.subscribe(lambda delta: 1 // 0)
    calls: list[ClusterDelta] = []
    harness.runtime.subscribe(calls.append)
    assert harness.run(take_ten).value == 0
    assert len(calls) == 1
    harness.runtime.unsubscribe(calls.append)
    harness.run(take_ten)
    assert len(calls) == 1


def test_run_step_answers_none(harness: Harness) -> None:
    assert harness.runtime.run_step(lambda image: take_ten(image).step).value is None


def test_a_failed_background_step_is_logged(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(image: ClusterImage) -> Step:
        raise ApiError(Error.POLICY_VIOLATION, "too large")

    assert text(harness.runtime.run_step(fail).value) == "POLICY_VIOLATION"
    assert "too large" in caplog.text
    caplog.clear()
    harness.runtime.resign()
    assert text(harness.runtime.run_step(fail).value) == "NOT_CONTROLLER"
    assert caplog.text == ""


def test_the_wait_for_the_turn_is_measured_once_a_decision(harness: Harness) -> None:
    harness.store.hold()
    harness.store.faults.append(Fault(answer=Unknown(), parts=0))
    for _ in range(3):
        harness.run(take_ten)
    assert harness.runtime.queue_size == 2
    harness.clock.now = 40
    harness.store.release()
    waited = harness.runtime.metrics.queue_time
    assert (waited.count, waited.total) == (3, 80)
    assert harness.runtime.queue_size == 0
