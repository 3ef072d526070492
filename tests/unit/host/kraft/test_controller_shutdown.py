"""A controller waits for the controlled shutdowns of other brokers, and not longer.

Method: an image that the test changes; manual time.
"""

from dataclasses import replace

from ottla.base.ids import Uuid
from ottla.host.kraft.controller_shutdown import (
    GRACE_MS,
    OTHER_SHUTDOWNS_MS_MAX,
    POLL_MS,
    STALLED_MS,
    others_shut_down,
)
from ottla.metadata.brokers import BrokerImage
from ottla.metadata.image import EMPTY, ClusterImage
from tests.unit.host.harness import Harness

OWN = 1


class Cluster:
    """Brokers by id, each staying, leaving or gone, and the promise under test."""

    def __init__(self, **states: str) -> None:
        self.harness = Harness()
        self.image: ClusterImage = EMPTY
        for name, state in states.items():
            self.become(int(name.removeprefix("broker_")), state)
        self.finished = others_shut_down(
            lambda: self.image, OWN, self.harness.clock, self.harness.timers
        )

    def commit(self) -> None:
        """Let the quorum show that it works."""
        self.image = replace(self.image, position=(self.image.position[0] + 1, 1))

    def work(self, for_ms: int) -> None:
        for _ in range(for_ms // 100):
            self.harness.advance(100)
            self.commit()

    def become(self, broker_id: int, state: str) -> None:
        broker = BrokerImage(
            id=broker_id,
            epoch=broker_id,
            incarnation_id=Uuid(bytes([broker_id]) * 16),
            endpoints=(),
            fenced=state == "gone",
            in_controlled_shutdown=state != "staying",
        )
        self.image = replace(self.image, brokers=self.image.brokers.set(broker_id, broker))


def test_a_single_controller_stops_at_once() -> None:
    assert Cluster().finished.done
    assert Cluster(broker_1="leaving").finished.done, "its own broker has left as well as it could"
    assert Cluster(broker_1="gone", broker_2="gone").finished.done


def test_one_of_several_waits_for_others_to_begin_their_controlled_shutdown() -> None:
    cluster = Cluster(broker_1="gone", broker_2="staying")
    cluster.harness.advance(GRACE_MS - 1)
    assert not cluster.finished.done
    cluster.harness.advance(POLL_MS + 1)
    assert cluster.finished.done


def test_a_controller_waits_for_controlled_shutdowns_of_others() -> None:
    cluster = Cluster(broker_1="gone", broker_2="staying", broker_3="staying")
    cluster.harness.advance(GRACE_MS // 2)
    cluster.become(2, "leaving")
    cluster.become(3, "gone")
    cluster.work(2 * STALLED_MS)
    assert not cluster.finished.done
    cluster.become(2, "gone")
    cluster.harness.advance(POLL_MS)
    assert cluster.finished.done


def test_the_wait_for_a_broker_that_dies_is_limited() -> None:
    cluster = Cluster(broker_1="gone", broker_2="leaving")
    cluster.work(OTHER_SHUTDOWNS_MS_MAX - 100)
    assert not cluster.finished.done
    cluster.work(200)
    assert cluster.finished.done


def test_there_is_no_wait_without_a_quorum() -> None:
    """A standby may not know of the last shutdown when that broker's vote is lost."""
    cluster = Cluster(broker_1="gone", broker_2="leaving")
    cluster.harness.advance(STALLED_MS - 1)
    assert not cluster.finished.done
    cluster.harness.advance(POLL_MS + 1)
    assert cluster.finished.done
