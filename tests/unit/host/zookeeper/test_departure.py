"""A broker asks to be let go, again after a pause, and goes in the end in any case.

Method: a controller whose answers are listed, and a clock that moves by hand.
"""

from typing import Any

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending, completed
from ottla.base.timers import Timers
from ottla.host.steps import follow
from ottla.host.zookeeper.departure import depart
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

    def __init__(self, *answers: Any) -> None:
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
            }
        )
        follow(depart(config, self, 40, clock=self, timers=self.timers), self.ended.append)

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now

    def call(self, request: Any, *, timeout_ms: int) -> Pending[Any]:
        assert timeout_ms > 0
        self.asked.append(request)
        return completed(self.answers.pop(0))

    def wait(self, ms: int) -> None:
        self.now += ms
        self.timers.run_due(self.now)


def test_it_goes_at_once_where_nothing_is_left_to_move() -> None:
    leaving = Leaving(FREE)
    assert leaving.ended == [True]
    [request] = leaving.asked
    assert (request.broker_id, request.broker_epoch) == (1, 40)


def test_it_asks_again_after_a_pause() -> None:
    leaving = Leaving(BUSY, SILENT, FREE)
    leaving.wait(699)
    assert len(leaving.asked) == 1
    leaving.wait(1)
    assert len(leaving.asked) == 2
    leaving.wait(700)
    assert leaving.ended == [True]


def test_it_goes_anyway_after_a_few_times() -> None:
    leaving = Leaving(BUSY, STALE, BUSY)
    leaving.wait(700)
    leaving.wait(700)
    assert leaving.ended == [False]
    assert len(leaving.asked) == 3
