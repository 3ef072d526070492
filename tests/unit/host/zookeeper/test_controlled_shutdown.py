"""A broker asks to be let go, again after a pause, and goes in the end in any case.

Method: a controller whose answers are listed, and a clock that moves by hand.
"""

from typing import Any

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending, completed
from ottla.base.timers import Timers
from ottla.host.steps import drive
from ottla.host.zookeeper.controlled_shutdown import (
    SHUTDOWN_MS_MAX,
    UNANSWERED_MS_MAX,
    request_controlled_shutdown,
)
from ottla.metadata.node_config import NodeConfig
from ottla.wire.messages import controlled_shutdown as wire

FREE = wire.ControlledShutdownResponse(error_code=0, remaining_partitions=())
BUSY = wire.ControlledShutdownResponse(
    error_code=0,
    remaining_partitions=(wire.RemainingPartition(topic_name="t", partition_index=3),),
)
STALE = wire.ControlledShutdownResponse(
    error_code=Error.STALE_BROKER_EPOCH, remaining_partitions=()
)
SILENT = ApiError(Error.REQUEST_TIMED_OUT)


class Leaving:
    """Broker 1, epoch 40, on its way out."""

    def __init__(self, *answers: Any, **properties: str) -> None:
        self.answers = list(answers)
        self.asked: list[wire.ControlledShutdownRequest] = []
        self.now = 0
        self.timers = Timers()
        self.ended: list[object] = []
        config = NodeConfig.parse(
            {
                "broker.id": "1",
                "zookeeper.connect": "zk:1",
                "controlled.shutdown.retry.backoff.ms": "700",
                **{name.replace("_", "."): value for name, value in properties.items()},
            }
        )
        drive(
            request_controlled_shutdown(config, self, 40, clock=self, timers=self.timers),
            self.ended.append,
        )

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now

    def call(self, request: Any, *, timeout_ms: int) -> Pending[Any]:
        assert timeout_ms > 0
        self.asked.append(request)
        if self.answers:
            return completed(self.answers.pop(0))
        # As the channel does where nobody answers.
        unheard: Pending[Any] = Pending()
        self.timers.at(self.now + timeout_ms, lambda: unheard.complete(SILENT) and None)
        return unheard

    def wait(self, ms: int) -> None:
        end = self.now + ms
        while (due := self.timers.next_ms()) is not None and due <= end:
            self.now = due
            self.timers.run_due(self.now)
        self.now = end


def test_it_stops_at_once_where_nothing_is_left_to_move() -> None:
    leaving = Leaving(FREE)
    assert leaving.ended == [True]
    [request] = leaving.asked
    assert (request.broker_id, request.broker_epoch) == (1, 40)


def test_it_retries_after_a_backoff() -> None:
    leaving = Leaving(BUSY, SILENT, FREE)
    leaving.wait(699)
    assert len(leaving.asked) == 1
    leaving.wait(1)
    assert len(leaving.asked) == 2
    leaving.wait(700)
    assert leaving.ended == [True]


def test_it_stops_anyway_after_the_last_attempt() -> None:
    leaving = Leaving(BUSY, STALE, BUSY)
    leaving.wait(700)
    leaving.wait(700)
    assert leaving.ended == [False]
    assert len(leaving.asked) == 3


@pytest.mark.parametrize("retries", ["1", "3", "50"])
def test_without_a_controller_it_stops_within_its_own_limit(retries: str) -> None:
    leaving = Leaving(controlled_shutdown_max_retries=retries)
    leaving.wait(UNANSWERED_MS_MAX - 1)
    assert leaving.ended == []
    leaving.wait(1)
    assert leaving.ended == [False]


def test_unanswered_times_add_up() -> None:
    """Its controller may die again and again under the question."""
    leaving = Leaving(BUSY, controlled_shutdown_max_retries="50")
    leaving.wait(700)
    assert len(leaving.asked) == 2
    leaving.wait(UNANSWERED_MS_MAX)
    assert leaving.ended == [False]


@pytest.mark.parametrize(
    ("pause_ms", "retries", "asked", "took_ms"),
    [(5_000, 3, 3, 10_000), (5_000, 9, 3, 10_000), (10_000, 9, 2, 10_000), (60_000, 3, 1, 0)],
)
def test_the_time_is_limited_whatever_the_properties(
    pause_ms: int, retries: int, asked: int, took_ms: int
) -> None:
    leaving = Leaving(
        *[BUSY] * 9,
        controlled_shutdown_max_retries=str(retries),
        controlled_shutdown_retry_backoff_ms=str(pause_ms),
    )
    assert took_ms <= SHUTDOWN_MS_MAX
    leaving.wait(took_ms)
    assert leaving.ended == [False]
    assert len(leaving.asked) == asked
