"""Decisions are made one after another, again where they must be, and answered when they are facts.

Method: the runtime over a back end in memory that gives each of the four answers when told, and
holds answers back. Deciders are written out; the image says what became of them.
"""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending
from ottla.controller.metadata_port import Conflict, Fenced, Unknown
from ottla.controller.step import Decision, Step, refused
from ottla.host.zookeeper.runtime import DecisionRuntime
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import ConfigRecord, ProducerIdsRecord
from ottla.testing.memory_store import Fault, MemoryMetadata


class FakeClock:
    """A clock that stands still until told."""

    def __init__(self) -> None:
        self.now = 0

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now


class World:
    """A runtime over memory, with all that it did in the order in which it did it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.stored = MemoryMetadata()
        self.store = self.stored.elect(records_per_part_max=1)
        self.seen: list[Any] = []
        self.runtime = DecisionRuntime(
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
def world() -> World:
    return World()


def test_listeners_hear_before_effects_run_and_before_the_answer(world: World) -> None:
    world.run(take_ten)
    assert world.seen == [10, "effect", ("answer", 0)]
    assert world.runtime.metrics.records_appended == 1


def test_a_decision_that_writes_nothing_is_answered_at_once(world: World) -> None:
    world.run(lambda image: refused(ids(image)))
    assert world.seen == [("answer", 0)]
    assert world.store.steps == []


def test_the_next_decision_rests_on_what_the_one_before_wrote(world: World) -> None:
    world.store.hold()
    answers = [world.run(take_ten) for _ in range(3)]
    assert len(world.store.steps) == 1  # The others wait for their image.
    world.store.release()
    assert [answer.value for answer in answers] == [0, 10, 20]
    assert ids(world.stored.image) == 30


def test_a_refusal_is_the_answer(world: World) -> None:
    def refuse(image: ClusterImage) -> Decision[None]:
        raise ApiError(Error.INVALID_REQUEST, "no")

    world.run(refuse)
    world.run(take_ten)
    assert world.seen == [("answer", "INVALID_REQUEST"), 10, "effect", ("answer", 0)]


def test_a_deciders_mistake_harms_nobody_else(world: World) -> None:
    world.run(lambda image: 1 // 0)  # type: ignore[arg-type, return-value]
    assert world.run(take_ten).value == 0
    assert world.seen[0] == ("answer", "UNKNOWN_SERVER_ERROR")


def test_a_conflict_is_decided_again_on_what_is_stored(world: World) -> None:
    conflict = Fault(answer=Conflict(frozenset({"ids"})), others=(ids_record(500),))
    world.store.faults += [conflict] * 25
    world.run(take_ten)
    assert world.seen[-3:] == [510, "effect", ("answer", 500)]
    assert world.seen.count("effect") == 1
    assert ids(world.stored.image) == 510


def test_parts_that_a_conflict_left_behind_are_seen(world: World) -> None:
    world.store.faults.append(Fault(answer=Conflict(frozenset({"ids"})), parts=1))
    world.run(two_parts)
    assert world.seen == [1, 2, 3, ("answer", "from 1")]


@pytest.mark.parametrize("parts", [0, 1, 2])
def test_an_unknown_outcome_is_decided_again_whatever_was_written(world: World, parts: int) -> None:
    world.store.faults.append(Fault(answer=Unknown(), parts=parts))
    world.run(two_parts)
    assert world.seen[-1] == ("answer", f"from {parts}")
    assert ids(world.stored.image) == parts + 2 == ids(world.runtime.image)


def test_a_fenced_controller_tells_all_who_wait_and_stops(world: World) -> None:
    world.store.hold()
    world.store.faults.append(Fault(answer=Fenced()))
    world.run(take_ten)
    world.run(take_ten)
    world.store.release()
    assert world.seen == [("answer", "NOT_CONTROLLER")] * 2 + ["fenced"]
    world.run(take_ten)
    assert world.seen[-1] == ("answer", "NOT_CONTROLLER")
    assert not world.runtime.active
    assert ids(world.stored.image) == 0


def test_kafka_1096_a_controller_that_slept_through_an_election_writes_nothing(
    world: World,
) -> None:
    newer = world.stored.elect()
    DecisionRuntime(newer, epoch=newer.epoch, clock=world.clock).run(take_ten)
    answer = world.run(take_ten)
    assert answer.value.error is Error.NOT_CONTROLLER
    assert "fenced" in world.seen
    assert ids(world.stored.image) == 10


def test_a_pre_empted_queue_is_answered_at_once(world: World) -> None:
    world.store.hold()
    world.run(take_ten)
    world.run(take_ten)
    world.runtime.pre_empt()
    assert world.seen == [("answer", "NOT_CONTROLLER")] * 2
    world.store.release()  # What was under way became a fact; nobody is told that it did.
    assert "effect" not in world.seen
    world.runtime.pre_empt()
    assert world.runtime.idle


def test_a_deadline_counts_when_the_turn_comes(world: World) -> None:
    world.store.hold()
    world.run(take_ten)
    late = world.run(take_ten, deadline_ms=5)
    in_time = world.run(take_ten, deadline_ms=11)
    world.clock.now = 10
    world.store.release()
    assert late.value.error is Error.REQUEST_TIMED_OUT
    assert in_time.value == 10


def test_who_gave_up_waits_in_the_queue_no_more(world: World) -> None:
    """Clients that ask again and again while nothing can be written would fill the memory."""
    world.store.hold()
    world.run(take_ten)
    given_up = [world.run(take_ten, deadline_ms=5) for _ in range(3)]
    stays = world.run(take_ten)
    for each in given_up:
        each.complete(ApiError(Error.REQUEST_TIMED_OUT))
    assert world.runtime.queue_size == 1
    world.store.release()
    assert stays.value == 10
    assert ids(world.stored.image) == 20


def test_who_gave_up_on_a_write_of_unknown_outcome_is_not_decided_for_again(world: World) -> None:
    world.store.faults.append(Fault(answer=Unknown()))
    world.store.hold()
    given_up = world.run(take_ten, deadline_ms=5)
    given_up.complete(ApiError(Error.REQUEST_TIMED_OUT))
    world.clock.now = 5
    world.store.release()
    assert world.runtime.idle
    assert len(world.store.steps) == 1
    assert world.run(take_ten).value == ids(world.stored.image) - 10


def test_what_a_listener_asks_for_is_decided_once_all_have_heard(world: World) -> None:
    heard: list[tuple[str, int]] = []

    def first(delta: ClusterDelta) -> None:
        heard.append(("first", ids(delta.image)))
        if ids(delta.image) < 30:
            world.runtime.run(take_ten)

    world.runtime.subscribe(first)
    world.runtime.subscribe(lambda delta: heard.append(("second", ids(delta.image))))
    world.run(take_ten)
    assert heard == [(who, count) for count in (10, 20, 30) for who in ("first", "second")]


def test_what_others_wrote_is_heard_and_decided_on(world: World) -> None:
    def follow(delta: ClusterDelta) -> None:
        if delta.changed_configs:
            world.run(take_ten)

    world.runtime.subscribe(follow)
    topic_config = ConfigRecord(resource_type=2, resource_name="t", name="a", value="b")
    world.stored.observe(topic_config)
    assert world.seen == [0, 10, "effect", ("answer", 0)]


def test_a_listeners_mistake_harms_nobody_else(world: World) -> None:
    world.runtime.subscribe(lambda delta: 1 // 0)
    heard: list[ClusterDelta] = []
    world.runtime.subscribe(heard.append)
    assert world.run(take_ten).value == 0
    assert len(heard) == 1
    world.runtime.unsubscribe(heard.append)
    world.run(take_ten)
    assert len(heard) == 1


def test_run_step_answers_none(world: World) -> None:
    assert world.runtime.run_step(lambda image: take_ten(image).step).value is None


def test_a_step_that_nobody_asked_for_and_that_fails_is_told_to_the_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(image: ClusterImage) -> Step:
        raise ApiError(Error.POLICY_VIOLATION, "too large")

    assert text(world.runtime.run_step(fail).value) == "POLICY_VIOLATION"
    assert "too large" in caplog.text
    caplog.clear()
    world.runtime.pre_empt()
    assert text(world.runtime.run_step(fail).value) == "NOT_CONTROLLER"
    assert caplog.text == ""


def test_the_wait_for_the_turn_is_measured_once_a_decision(world: World) -> None:
    world.store.hold()
    world.store.faults.append(Fault(answer=Unknown(), parts=0))
    for _ in range(3):
        world.run(take_ten)
    assert world.runtime.queue_size == 2
    world.clock.now = 40
    world.store.release()
    waited = world.runtime.metrics.queue_time
    assert (waited.count, waited.total) == (3, 80)
    assert world.runtime.queue_size == 0
