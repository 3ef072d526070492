"""Every producer gets an id of its own, and none waits longer than it must.

Method: a controller that answers by hand; blocks of ten ids.
"""

from ottla.base.errors import ApiError, Error
from ottla.base.limits import PRODUCER_ID_WAITERS_MAX
from ottla.base.pending import Pending
from ottla.base.timers import Timers
from ottla.broker.produce.producer_ids import RETRY_BACKOFF_MS, Granted, ProducerIds
from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsResponse
from tests.unit.broker.harness import FakeClock, FakeForwarder


class BrokerHarness:
    """Producer ids over a controller whose responses the test gives."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.clock = FakeClock(self.timers)
        self.controller = FakeForwarder()
        self.epoch = 7
        self.ids = ProducerIds(
            node_id=3,
            broker_epoch=lambda: self.epoch,
            forwarder=self.controller,
            timers=self.timers,
            monotonic_ms=self.clock.monotonic_ms,
        )

    def grant(self, timeout_ms: int = 1_000) -> Pending[Granted]:
        return self.ids.grant(timeout_ms=timeout_ms)

    def give_block(self, first: int, size: int = 10) -> None:
        request = self.controller.answer(
            AllocateProducerIdsResponse(
                error_code=Error.NONE, producer_id_start=first, producer_id_len=size
            )
        )
        assert (request.broker_id, request.broker_epoch) == (3, self.epoch)


def test_producers_wait_for_the_first_block_in_order() -> None:
    harness = BrokerHarness()
    granted = [harness.grant() for _ in range(3)]
    assert not any(one.done for one in granted)
    assert len(harness.controller.calls) == 1
    harness.give_block(100)
    assert [one.value for one in granted] == [100, 101, 102]


def test_the_next_block_is_requested_before_the_last_id_is_used() -> None:
    harness = BrokerHarness()
    harness.grant()
    harness.give_block(0)
    for _ in range(8):
        assert harness.grant().done
    assert not harness.controller.calls
    assert harness.grant().value == 9
    assert len(harness.controller.calls) == 1
    waiting = harness.grant()
    harness.give_block(500)
    assert waiting.value == 500


def test_more_producers_than_a_block_holds_are_served_by_the_next() -> None:
    harness = BrokerHarness()
    granted = [harness.grant() for _ in range(12)]
    harness.give_block(0)
    harness.give_block(50)
    assert [one.value for one in granted] == [*range(10), 50, 51]


def test_a_refused_allocation_is_tried_again_while_somebody_waits() -> None:
    harness = BrokerHarness()
    granted = harness.grant()
    harness.controller.answer(
        AllocateProducerIdsResponse(
            error_code=Error.STALE_BROKER_EPOCH, producer_id_start=0, producer_id_len=0
        )
    )
    assert not harness.controller.calls
    harness.epoch = 8
    harness.clock.advance(RETRY_BACKOFF_MS)
    harness.give_block(0)
    assert granted.value == 0


def test_a_producer_that_waited_too_long_gets_a_retriable_error() -> None:
    harness = BrokerHarness()
    late = harness.grant(timeout_ms=20)
    harness.controller.answer(ApiError(Error.NOT_CONTROLLER))
    harness.clock.advance(RETRY_BACKOFF_MS)
    assert late.value is Error.COORDINATOR_LOAD_IN_PROGRESS
    assert not harness.controller.calls  # No producer waits: the next one sends the request.
    patient = harness.grant()
    harness.give_block(5)
    assert patient.value == 5  # The one that left took none with it.


def test_a_block_that_was_given_before_is_not_used_again() -> None:
    harness = BrokerHarness()
    harness.grant()
    harness.give_block(100)
    for _ in range(9):
        harness.grant()
    waiting = harness.grant()
    harness.give_block(95)
    assert not waiting.done
    harness.clock.advance(RETRY_BACKOFF_MS)
    harness.give_block(110)
    assert waiting.value == 110


def test_the_queue_is_bounded() -> None:
    harness = BrokerHarness()
    for _ in range(PRODUCER_ID_WAITERS_MAX):
        harness.grant()
    assert harness.grant().value is Error.COORDINATOR_LOAD_IN_PROGRESS
