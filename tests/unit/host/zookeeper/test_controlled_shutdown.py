"""A broker requests a controlled shutdown, retries after a backoff, and stops in any case.

Method: a controller whose answers are listed, and a manual clock.
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


class Shutdown:
    """Broker 1, epoch 40, on its way out."""

    def __init__(self, *answers: Any, **properties: str) -> None:
        self.answers = list(answers)
        self.epoch = 40
        self.requests: list[wire.ControlledShutdownRequest] = []
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
            request_controlled_shutdown(
                config, self, lambda: self.epoch, clock=self, timers=self.timers
            ),
            self.ended.append,
        )

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now

    def call(self, request: Any, *, timeout_ms: int) -> Pending[Any]:
        assert timeout_ms > 0
        self.requests.append(request)
        if self.answers:
            return completed(self.answers.pop(0))
        # As the channel does without a response.
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
    shutdown = Shutdown(FREE)
    assert shutdown.ended == [True]
    [request] = shutdown.requests
    assert (request.broker_id, request.broker_epoch) == (1, 40)


def test_it_retries_after_a_backoff() -> None:
    shutdown = Shutdown(BUSY, SILENT, FREE)
    shutdown.wait(699)
    assert len(shutdown.requests) == 1
    shutdown.wait(1)
    assert len(shutdown.requests) == 2
    shutdown.wait(700)
    assert shutdown.ended == [True]


def test_a_retry_names_the_registration_of_now() -> None:
    """A session that expired meanwhile: another broker epoch would be stale."""
    shutdown = Shutdown(STALE, FREE)
    shutdown.epoch = 41
    shutdown.wait(700)
    assert [each.broker_epoch for each in shutdown.requests] == [40, 41]
    assert shutdown.ended == [True]


def test_it_stops_anyway_after_the_last_attempt() -> None:
    shutdown = Shutdown(BUSY, STALE, BUSY)
    shutdown.wait(700)
    shutdown.wait(700)
    assert shutdown.ended == [False]
    assert len(shutdown.requests) == 3


@pytest.mark.parametrize("retries", ["1", "3", "50"])
def test_without_a_controller_it_stops_within_its_own_limit(retries: str) -> None:
    shutdown = Shutdown(controlled_shutdown_max_retries=retries)
    shutdown.wait(UNANSWERED_MS_MAX - 1)
    assert shutdown.ended == []
    shutdown.wait(1)
    assert shutdown.ended == [False]


def test_unanswered_times_add_up() -> None:
    """Its controller may die again and again under the question."""
    shutdown = Shutdown(BUSY, controlled_shutdown_max_retries="50")
    shutdown.wait(700)
    assert len(shutdown.requests) == 2
    shutdown.wait(UNANSWERED_MS_MAX)
    assert shutdown.ended == [False]


@pytest.mark.parametrize(
    ("pause_ms", "retries", "requests", "took_ms"),
    [(5_000, 3, 3, 10_000), (5_000, 9, 3, 10_000), (10_000, 9, 2, 10_000), (60_000, 3, 1, 0)],
)
def test_the_time_is_limited_whatever_the_properties(
    pause_ms: int, retries: int, requests: int, took_ms: int
) -> None:
    shutdown = Shutdown(
        *[BUSY] * 9,
        controlled_shutdown_max_retries=str(retries),
        controlled_shutdown_retry_backoff_ms=str(pause_ms),
    )
    assert took_ms <= SHUTDOWN_MS_MAX
    shutdown.wait(took_ms)
    assert shutdown.ended == [False]
    assert len(shutdown.requests) == requests
