"""Who has lost what was committed does not lead, and who has not may: by what each can prove.

Method: simulated clusters of three brokers that are written to with acks=all and
min.insync.replicas=2, then end together. Which of them is damaged, or killed between its
registration and its note of that, is up to each story; everything that was acknowledged must be
there in the end, on all replicas.
"""

import json
from collections.abc import Callable

import pytest

from ottla.host.kraft.broker_mode import KRaftBroker
from ottla.log import names
from ottla.metadata.topics import PartitionImage
from ottla.testing.sim import Sim
from ottla.testing.sim.node import SimNode
from ottla.testing.sim.watch.observations import Acknowledged
from tests.drawn import drawn_seeds
from tests.unit.testing.sim.requests import TOPIC, Writer

pytestmark = pytest.mark.drawn(2)

CONFIG = {"min.insync.replicas": "2"}


class Story:
    """A cluster, what it has acknowledged, and what is asked of it in the end."""

    def __init__(self, seed: int, **options: object) -> None:
        self.sim = Sim(seed, config=CONFIG, **options)  # type: ignore[arg-type]
        self.acknowledged: dict[tuple[int, int], int] = {}
        self.sim.observe(self._note)
        self.writer = Writer(self.sim, copies=3, partitions=1, pause_ms=50)
        # Longer than from one checkpoint of the high watermarks to the next.
        self.sim.run(ms=20_000)
        assert len(self.acknowledged) > 100
        self.brokers = [each for each in self.sim.nodes.values() if each.is_broker]

    def _note(self, seen: object) -> None:
        if isinstance(seen, Acknowledged):
            self.acknowledged[seen.partition, seen.offset] = seen.crc

    def until(self, holds: Callable[[], bool]) -> None:
        self.sim.run_until(holds, limit_ms=60_000)
        assert holds()

    def partition(self) -> PartitionImage:
        topic = self.sim.image.topics.by_name(TOPIC)
        assert topic is not None
        return topic.partitions[0]

    def all_die(self) -> SimNode:
        """Kill all brokers, wait until all are fenced; return one that may lead when it is back."""
        for node in self.brokers:
            node.crash(lose_unflushed=False)
        self.sim.run(ms=15_000)
        assert all(self.sim.image.brokers[each.id].fenced for each in self.brokers)
        return self.sim.nodes[self.eligible()[0]]

    def eligible(self) -> tuple[int, ...]:
        return (*self.partition().isr, *self.partition().elr)

    def check(self) -> None:
        """Nothing that was acknowledged is missing anywhere."""
        self.until(lambda: len(self.partition().isr) == 3)
        count = len(self.acknowledged)
        self.until(lambda: len(self.acknowledged) > count + 20)
        for node in self.brokers:
            assert node.broker is not None
            log = node.broker.replicas.partition(TOPIC, 0).log
            assert log is not None
            for (_, offset), crc in list(self.acknowledged.items())[:count]:
                found = log.read(
                    offset, max_bytes=1, upper_bound=log.log_end_offset, at_least_one=True
                )
                data = b"".join(piece.read() for piece in found.slices)
                for piece in found.slices:
                    piece.release()
                assert int.from_bytes(data[17:21], "big") == crc, f"node {node.id}, {offset}"
        assert self.sim.problems == []


def is_active(node: SimNode) -> bool:
    return node.runtime is not None and node.runtime.active


def damage(node: SimNode) -> None:
    """Flip a byte in the first half of the written partition's log."""
    (log_dir,) = node.config.log_dirs
    path = f"{log_dir}/{TOPIC}-0/{names.segment_name(0, names.LOG)}"
    file = node.disk.open(path)
    at = file.size() // 2
    file.write_at(at, bytes([file.read_at(at, 1)[0] ^ 0x55]))
    file.sync()
    file.close()


@pytest.mark.parametrize("seed", drawn_seeds(1, of=3))
def test_a_replica_whose_recovery_cut_what_was_committed_does_not_lead(seed: int) -> None:
    """It comes back first and alone: with its short log it would have the others cut theirs."""
    story = Story(seed, brokers=3, controllers=1, combined=False)
    node = story.all_die()
    damage(node)
    node.restart()
    story.until(lambda: node.broker is not None)
    story.sim.run(ms=15_000)
    state = story.partition()
    assert node.id not in (*state.isr, *state.elr)
    assert state.leader < 0
    for each in story.brokers:
        if each is not node:
            each.restart()
    story.check()


@pytest.mark.parametrize("seed", drawn_seeds(1, of=3))
def test_one_that_dies_before_it_reports_its_loss_does_not_lead_either(seed: int) -> None:
    story = Story(seed, brokers=3, controllers=1, combined=False)
    node = story.all_die()
    damage(node)
    epoch = story.sim.image.brokers[node.id].epoch
    node.restart()
    # Registered as clean; what its logs lack it learns after that.
    story.until(lambda: story.sim.image.brokers[node.id].epoch > epoch)
    node.crash(lose_unflushed=False)
    story.sim.run(ms=500)
    node.restart()
    story.until(lambda: node.broker is not None)
    story.sim.run(ms=15_000)
    state = story.partition()
    assert node.id not in (*state.isr, *state.elr)
    for each in story.brokers:
        if each is not node:
            each.restart()
    story.check()


@pytest.mark.parametrize("seed", drawn_seeds(1, of=3))
def test_killed_between_registration_and_note_while_the_quorum_fails_over(seed: int) -> None:
    """Its copy of the metadata does not know that registration, nor may the new controller yet."""
    story = Story(seed, brokers=3, controllers=3, combined=False)
    sim = story.sim
    node = story.sim.nodes[story.partition().leader]
    epoch = sim.image.brokers[node.id].epoch
    node.crash(lose_unflushed=False)
    note = f"{node.config.log_dirs[0]}/{names.RUNNING}"
    noted = node.disk.read_bytes(note)
    assert json.loads(noted)["brokerEpoch"] == epoch
    node.restart()
    story.until(lambda: sim.image.brokers[node.id].epoch > epoch)
    node.crash(lose_unflushed=False)
    node.disk.write_atomic(note, noted)
    controller = next(each for each in sim.nodes.values() if is_active(each))
    controller.crash(lose_unflushed=False)
    node.restart()
    story.until(lambda: node.broker is not None)
    assert last_epoch_sent(node) > epoch
    controller.restart()
    story.check()


@pytest.mark.parametrize("seed", drawn_seeds(1, of=3))
def test_a_dead_process_registers_after_the_next_one_has_looked(seed: int) -> None:
    """Its request waits at a controller that hangs; it has proved nothing lost, and is dead."""
    story = Story(seed, brokers=3, controllers=1, combined=False)
    sim = story.sim
    (controller,) = (each for each in sim.nodes.values() if not each.is_broker)
    node, eligible = story.all_die(), story.eligible()
    epoch = sim.image.brokers[node.id].epoch
    node.restart()
    story.until(lambda: asks_to_register(node))
    controller.pause()
    sim.run(ms=1_000)
    node.crash(lose_unflushed=False)
    assert sim.image.brokers[node.id].epoch == epoch
    node.restart()
    sim.run(ms=1_000)
    controller.resume()
    story.until(lambda: node.broker is not None)
    epoch_sent = last_epoch_sent(node)
    assert epoch < epoch_sent < sim.image.brokers[node.id].epoch, "the dead one was registered, too"
    assert eligible == story.eligible(), "it has lost nothing"
    for each in story.brokers:
        if each is not node:
            each.restart()
    story.check()


def last_epoch_sent(node: SimNode) -> int:
    """Return since when a broker has lost nothing, as it said when it registered."""
    kraft = kraft_of(node)
    assert kraft is not None
    return kraft.lifecycle.config.previous_broker_epoch


def asks_to_register(node: SimNode) -> bool:
    kraft = kraft_of(node)
    return kraft is not None and kraft.lifecycle._in_flight


def kraft_of(node: SimNode) -> KRaftBroker | None:
    broker = None if node.core is None else node.core.broker
    return broker.mode if broker is not None and isinstance(broker.mode, KRaftBroker) else None
