"""The driver of deletions: one decision at a time, orders after commits, a reliable timer.

Method: the real manager, a controller that decides at once or on request, manual time. Decisions
are tested with the policy; the drivers' owners in the two modes have tests of their own.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.controller.deletion.deletion_events import DeletionsAnswered
from ottla.controller.deletion.deletion_manager import FULL_CHECK_MS, DeletionManager
from ottla.controller.deletion.deletion_orders import DeletionOrder
from ottla.controller.deletion.deletion_policy import Replica
from ottla.controller.retry_queue import RETRY_FIRST_MS, RETRY_MS_MAX, TAKEN_MAX
from ottla.controller.step import Decision
from ottla.host.controller.deletions import DeletionDriver
from ottla.host.controller.manager_runner import RETRY_AFTER_FAILURE_MS
from ottla.metadata.brokers import BrokerImage, record_of
from ottla.metadata.deletions import STARTED, DeletionImage, Policy, deletion_records
from ottla.metadata.delta import replay
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.records import Record

from ..harness import Harness

TOPICS = tuple(Uuid(bytes([number]) * 16) for number in range(1, 4))
RETENTION_MS = 120_000


def entry(topic_id: Uuid) -> DeletionImage:
    """Return a deletion whose one replica broker 1 is to delete."""
    begun = DeletionImage(topic_id=topic_id, name="t", policy=Policy.AT_ONCE, asked_ms=1)
    return begun.with_status(1, STARTED, [0])


class Controller:
    """Decides on what is written; `waiting`: answers that `commit` gives, in order."""

    def __init__(self, *topics: Uuid) -> None:
        self.harness = Harness()
        broker = BrokerImage(
            id=1, epoch=10, incarnation_id=Uuid(bytes(16)), endpoints=(), fenced=False
        )
        self.image = EMPTY
        self.offset = 0
        self.appended(
            record_of(broker), *(r for each in topics for r in deletion_records(entry(each)))
        )
        self.waiting: deque[tuple[Pending[Any], Decision[Any]]] = deque()
        self.refusal: ApiError | None = None
        self.refused = set(TOPICS)
        """What cannot be written while there is a refusal."""
        self.orders: list[tuple[ClusterImage, DeletionOrder]] = []
        self.broken = False
        self.driver = DeletionDriver(
            DeletionManager(enabled=True, retention_ms=RETENTION_MS),
            self,
            self.send,
            clock=self.harness.clock,
            timers=self.harness.timers,
        )
        self.driver.start(self.image)
        self.commit()

    def run(self, decide: Callable[[ClusterImage], Decision[Any]]) -> Pending[Any]:
        """Decide now; the answer waits for `commit`."""
        answer: Pending[Any] = Pending()
        decision = decide(self.image)
        touched = {getattr(each, "topic_id", None) for each in decision.step.records}
        if self.refusal is not None and touched & self.refused:
            answer.complete(self.refusal)
        else:
            self.waiting.append((answer, decision))
        return answer

    def appended(self, *records: Record) -> Any:
        """Have records be facts; return the change."""
        self.offset += len(records)
        delta = replay(self.image, records, offset=self.offset, epoch=1)
        self.image = delta.image
        return delta

    def commit(self) -> None:
        """Let everything be a fact that was decided, and what follows from it."""
        while self.waiting:
            answer, decision = self.waiting.popleft()
            if decision.step.records:
                self.driver.changed(self.appended(*decision.step.records))
            answer.complete(decision.reply)
            self.harness.advance(0)

    def send(self, image: ClusterImage, orders: Iterable[DeletionOrder]) -> None:
        """Take orders, unless broken."""
        if self.broken:
            raise RuntimeError("broken")
        self.orders += ((image, each) for each in orders)

    def answer(self, topic_id: Uuid) -> None:
        """Have the broker confirm a replica."""
        self.driver.step(DeletionsAnswered(1, 10, {Replica(1, topic_id, 0): Error.NONE}))

    def finished(self) -> set[Uuid]:
        """Return the topics that have receipts."""
        return {each.topic_id for each in self.image.deletions.receipts()}


def test_events_during_a_decision_are_decided_at_once_after_it() -> None:
    controller = Controller(*TOPICS)
    for topic_id in TOPICS:
        controller.answer(topic_id)
    assert len(controller.waiting) == 1
    answer, decision = controller.waiting.popleft()
    controller.driver.changed(controller.appended(*decision.step.records))
    answer.complete(decision.reply)
    assert controller.finished() == {TOPICS[0]}
    assert len(controller.waiting) == 1, "both others in one decision"
    controller.commit()
    assert controller.finished() == set(TOPICS)


def test_orders_are_sent_with_the_change_that_they_rest_on() -> None:
    controller = Controller()
    delta = controller.appended(*deletion_records(entry(TOPICS[0])))
    controller.driver.changed(delta)
    [(image, order)] = controller.orders
    assert image is delta.image
    assert [each.topic_id for each in order.replicas()] == [TOPICS[0]]


def test_a_failed_write_is_logged_and_retried_after_a_backoff(
    caplog: pytest.LogCaptureFixture,
) -> None:
    controller = Controller(*TOPICS[:1])
    controller.refusal = ApiError(Error.UNKNOWN_SERVER_ERROR, "no")
    controller.answer(TOPICS[0])
    assert "writing the deletion of t failed" in caplog.text
    controller.refusal = None
    controller.harness.advance(RETRY_FIRST_MS - 1)
    assert not controller.waiting
    controller.harness.advance(1)
    controller.commit()
    assert controller.finished() == {TOPICS[0]}


def test_one_topic_that_cannot_be_written_does_not_block_others() -> None:
    controller = Controller(*TOPICS)
    controller.answer(TOPICS[0])
    for topic_id in TOPICS[1:]:
        controller.answer(topic_id)
    controller.refusal = ApiError(Error.UNKNOWN_SERVER_ERROR, "no")
    controller.refused = {TOPICS[1]}
    controller.commit()
    assert controller.finished() == {TOPICS[0], TOPICS[2]}
    controller.harness.advance(FULL_CHECK_MS)
    controller.commit()
    assert TOPICS[1] not in controller.finished()
    controller.refusal = None
    controller.harness.advance(RETRY_MS_MAX)
    controller.commit()
    assert TOPICS[1] in controller.finished()


def test_others_have_their_turn_between_decisions_that_write_nothing() -> None:
    topics = [Uuid(number.to_bytes(16)) for number in range(1, 2 * TAKEN_MAX + 2)]
    controller = Controller(*topics)
    controller.harness.clock.elapsed_ms = FULL_CHECK_MS
    turns = []
    for _ in range(5):
        controller.harness.timers.run_due(FULL_CHECK_MS)
        turns.append(len(controller.waiting))
        while controller.waiting:
            answer, decision = controller.waiting.popleft()
            answer.complete(decision.reply)
    assert turns == [1, 1, 1, 1, 0], "the last one is of receipts"


def test_not_controller_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    controller = Controller(TOPICS[0])
    controller.refusal = ApiError(Error.NOT_CONTROLLER)
    controller.answer(TOPICS[0])
    assert caplog.text == ""


def test_an_exception_in_the_timer_is_logged_and_the_timer_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    controller = Controller(TOPICS[0])
    controller.answer(TOPICS[0])
    controller.commit()
    controller.driver.changed(controller.appended(*deletion_records(entry(TOPICS[1]))))
    put_off = {Replica(1, TOPICS[1], 0): Error.OPERATION_NOT_ATTEMPTED}
    controller.driver.step(DeletionsAnswered(1, 10, put_off))
    controller.broken = True
    controller.harness.advance(1_000)
    assert "processing topic deletions failed; retrying" in caplog.text
    controller.broken = False
    controller.harness.advance(RETRY_AFTER_FAILURE_MS + FULL_CHECK_MS)
    controller.commit()
    assert TOPICS[0] not in controller.finished(), "its receipt was old enough to go"


def test_orders_that_cannot_be_sent_hold_up_no_decision() -> None:
    controller = Controller(*TOPICS[:1])
    controller.broken = True
    with pytest.raises(RuntimeError, match="broken"):
        controller.driver.changed(controller.appended(*deletion_records(entry(TOPICS[1]))))
    controller.answer(TOPICS[0])
    controller.commit()
    assert controller.finished() == {TOPICS[0]}


def test_after_the_end_nothing_is_decided_or_due() -> None:
    controller = Controller(TOPICS[0])
    controller.driver.stop()
    controller.answer(TOPICS[0])
    controller.harness.advance(2 * FULL_CHECK_MS)
    assert not controller.waiting
    assert len(controller.harness.timers) == 0
