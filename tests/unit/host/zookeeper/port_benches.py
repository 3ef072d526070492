"""The three back ends behind one interface, for `tests.metadata_port_checks`."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import count
from random import Random
from typing import TypeVar

from ottla.base.pending import Pending
from ottla.base.zookeeper import Session
from ottla.controller.metadata_port import Conflict, Unknown
from ottla.host.kraft.quorum_replay import load_image
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import PartitionChangeRecord
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.partition_state import decode_state
from ottla.testing.memory_store import Fault, MemoryMetadata
from tests.metadata_port_checks import broker_records

from ..harness import Harness as MachineRoom
from ..quorum_harness import Controller as QuorumController
from .harness import ZooKeeperHarness

T = TypeVar("T")


class StandingClock:
    """A clock that does not go."""

    def now_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> int:
        return 0


class MemoryBench:
    """Facts in memory."""

    has_other_writers = True

    def __init__(self, number: int = 0) -> None:
        self.clock = StandingClock()
        self.stored_facts = MemoryMetadata()
        self.port = self.stored_facts.elect(records_per_part_max=7)
        self.epoch = self.port.epoch
        self._epochs = count(1)
        self._random = Random(number)

    def wait(self, pending: Pending[T]) -> T:
        return pending.value

    def set_brokers(self, live: Collection[int]) -> None:
        epochs = self._epochs
        records = broker_records(self.stored_facts.image, live, lambda: next(epochs))
        self.stored_facts.observe(*records)

    def stored(self) -> ClusterImage:
        return self.stored_facts.image

    def depose(self) -> None:
        self.stored_facts.elect()

    def disturb(self, topic: str) -> None:
        found = self.port.image.topics.by_name(topic)
        assert found is not None
        elected = PartitionChangeRecord(
            partition_id=0, topic_id=found.id, leader=found.partitions[0].leader
        )
        conflict = Conflict(frozenset({paths.state(topic, 0)}))
        self.port.faults.append(Fault(answer=conflict, others=(elected,)))

    @contextmanager
    def losing_answers(self) -> Iterator[None]:
        for _ in range(20):
            self.port.faults.append(Fault(answer=Unknown(), parts=self._random.choice((0, 1, 9))))
        yield
        self.port.faults.clear()


class KraftBench:
    """One voter's metadata log, on a disk in memory."""

    has_other_writers = False

    def __init__(self, number: int = 0) -> None:
        self.room = MachineRoom()
        self.clock = self.room.clock
        self.controller = QuorumController(self.room)
        self.room.workers.run()
        self.port = self.controller.log
        self.epoch = self.controller.log.epoch
        self._is_deposed = False
        self._epochs = count(1)

    def wait(self, pending: Pending[T]) -> T:
        self.room.workers.run()
        return pending.value

    def set_brokers(self, live: Collection[int]) -> None:
        epochs = self._epochs
        records = broker_records(self.port.image, live, lambda: next(epochs))
        self.wait(self.controller.write(*records))

    def stored(self) -> ClusterImage:
        """Load the log, as a controller does that starts."""
        if self._is_deposed:
            return load_image(QuorumController(self.room, start=False).storage)
        return load_image(self.controller.storage)

    def depose(self) -> None:
        self.controller.log.stop()
        self._is_deposed = True

    def disturb(self, topic: str) -> None:
        raise AssertionError("nobody else writes the log")

    @contextmanager
    def losing_answers(self) -> Iterator[None]:
        yield  # A log that is this process's own loses none.


class ZooKeeperBench:
    """Znodes of a simulated ZooKeeper."""

    has_other_writers = True

    def __init__(self, number: int = 0) -> None:
        self.sim = ZooKeeperHarness(number)
        self.sim.make_cluster()
        self.client = self.sim.client("controller")
        self.controller = self.sim.elect(self.client).load()
        self.clock = self.client.clock
        self.port = self.controller.store
        self.epoch = self.controller.epoch
        self._sessions: dict[int, Session] = {}

    def wait(self, pending: Pending[T]) -> T:
        return self.sim.wait(pending)

    def set_brokers(self, live: Collection[int]) -> None:
        faults = self.sim.model.faults
        faults.broken, broken = 0.0, faults.broken
        for broker_id in sorted(set(self._sessions) - set(live)):
            self.sim.wait(self._sessions.pop(broker_id).close())
        for broker_id in sorted(set(live) - set(self._sessions)):
            self._sessions[broker_id] = self.sim.register(broker_id)
        faults.broken = broken
        self.sim.until(lambda: set(self.port.image.brokers) == set(live))

    def stored(self) -> ClusterImage:
        return self.sim.elect(self.sim.client("reader"), rules=False).load().store.image

    def depose(self) -> None:
        self.sim.elect(self.sim.client("newer")).load()

    def disturb(self, topic: str) -> None:
        data = self.sim.data(paths.state(topic, 0))
        assert data is not None
        state = decode_state(topic, 0, data)
        after = type(state)(
            leader=state.leader,
            leader_epoch=state.leader_epoch + 1,
            controller_epoch=state.controller_epoch,
            isr=state.isr,
        )
        self.sim.put_state(topic, 0, after)

    @contextmanager
    def losing_answers(self) -> Iterator[None]:
        self.sim.model.faults.broken = 0.2
        yield
        self.sim.model.faults.broken = 0.0
        self.sim.settle()
