"""A disk of a broker is replaced by an empty one, and later that fails, too: no record is lost.

Method: simulated clusters of three brokers, all partitions on all of them, written to with acks=all
and min.insync.replicas=2, unless a test says otherwise. `log.dirs` is /data,/more; what is mounted
at /more comes and goes while the broker is down. Formatting it by hand is not needed, as in Kafka:
the start does it.
"""

from functools import partial

import pytest

from ottla.base.ids import Uuid
from ottla.log.dirs.log_dir import LogDir
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.topics import PartitionImage
from ottla.testing.sim import Sim
from ottla.testing.sim.node import SimNode
from ottla.wire.messages import elect_leaders as elect_wire
from tests.drawn import drawn_seeds
from tests.unit.testing.sim.requests import TOPIC, Writer

pytestmark = pytest.mark.drawn(2)

PARTITIONS = 6
MORE = "/more"
CONFIG = {
    "log.dirs": f"/data,{MORE}",
    "min.insync.replicas": "2",
    "leader.imbalance.check.interval.seconds": "5",
}


def is_down(node: SimNode) -> bool:
    return not node.alive


class Story:
    """A cluster of which broker 1 gets another disk at /more."""

    def __init__(self, seed: int, *, zookeeper: bool = False, in_sync: int = 2) -> None:
        config = CONFIG | {"min.insync.replicas": str(in_sync)}
        self.sim = sim = Sim(seed, controllers=1, zookeeper=zookeeper, config=config)
        self.node: SimNode = sim.nodes[1]
        self.writer = Writer(sim, copies=3, partitions=PARTITIONS, pause_ms=50)

    def partitions(self) -> dict[int, PartitionImage]:
        topic = self.sim.image.topics.by_name(TOPIC)
        return {} if topic is None else dict(topic.partitions)

    def all_in_sync(self) -> bool:
        states = self.partitions().values()
        return bool(states) and all(len(each.isr) == 3 for each in states)

    def led_by_the_node(self) -> set[int]:
        return {number for number, each in self.partitions().items() if each.leader == self.node.id}

    def until_in_sync(self) -> None:
        self.sim.run_until(self.all_in_sync, limit_ms=120_000)
        self.sim.run(ms=5_000)

    def come_back_with_an_empty_disk(self) -> None:
        self.node.crash(lose_unflushed=False)
        self.node.disk.rmtree(MORE)
        self.node.disk.mkdir(MORE)
        self.sim.run(ms=2_000)
        self.node.restart()
        self.sim.run_until(lambda: self.node.serves, limit_ms=60_000)

    def come_back_without_the_directory(self) -> None:
        """As of an operator who removes it from log.dirs: the other one had a clean shutdown."""
        self.node.config = NodeConfig.parse({**self.node.config.given, "log.dirs": "/data"})
        self.node.restart()

    def more(self) -> LogDir:
        assert self.node.broker is not None
        [found] = [each for each in self.node.broker.log_dirs.dirs if each.path == MORE]
        return found

    def logs_in_more(self) -> set[int]:
        return {partition for topic, partition in self.more().logs if topic == TOPIC}

    def directory_id(self) -> Uuid:
        """The id of what is at /more, which the broker has registered."""
        directory_id = self.more().directory_id
        assert directory_id in self.sim.image.brokers[self.node.id].log_dirs
        return directory_id

    def alone_in_sync(self) -> bool:
        return all(each.isr == (self.node.id,) for each in self.partitions().values())

    def elected_uncleanly(self) -> bool:
        """Ask for leaders where there are none; return whether all partitions have one."""
        wanted = elect_wire.ElectLeadersRequest(
            election_type=1, topic_partitions=None, timeout_ms=5_000
        )
        self.sim.client_port("admin").send(2, wanted, 2, 5_000)
        self.sim.run(ms=2_000)
        return all(each.leader > 0 for each in self.partitions().values())

    def ends(self, node_id: int, partitions: set[int]) -> list[int]:
        """The log end offsets of these partitions on a node."""
        broker = self.sim.nodes[node_id].broker
        assert broker is not None
        found = {each.partition: each.log_end_offset for each in broker.log_dirs.logs()}
        return [found[each] for each in sorted(partitions)]

    def all_are_written(self) -> None:
        count = self.writer.acknowledged
        self.sim.run_until(lambda: self.writer.acknowledged > count + 50, limit_ms=60_000)

    def end_offsets(self) -> int:
        """The sum of the log end offsets on the node, of the directories that are online."""
        assert self.node.broker is not None
        logs = self.node.broker.log_dirs.logs()
        return sum(each.log_end_offset for each in logs if each.topic == TOPIC)

    def all_stop(self) -> None:
        """Stop all brokers in order, the one with the two disks last."""
        for node_id in (2, 3, 1):
            node = self.sim.nodes[node_id]
            node.stop()
            self.sim.run_until(partial(is_down, node), limit_ms=60_000)
        self.sim.run(ms=5_000)

    def fail(self, held: set[int]) -> None:
        """Once the node leads again from /more, that fails: others lead, and all are written."""
        self.sim.run_until(lambda: bool(self.led_by_the_node() & held), limit_ms=60_000)
        self.node.disk.fail(path=f"{MORE}/", times=None)
        self.sim.run_until(lambda: not self.led_by_the_node() & held, limit_ms=30_000)
        assert self.node.serves
        self.all_are_written()
        assert self.sim.problems == []


@pytest.mark.parametrize("zookeeper", [False, True], ids=["kraft", "zookeeper"])
@pytest.mark.parametrize("seed", drawn_seeds(1, of=3))
def test_an_empty_disk_is_filled_from_the_leaders_and_may_fail_again(
    seed: int, zookeeper: bool
) -> None:
    story = Story(seed, zookeeper=zookeeper)
    story.until_in_sync()
    acknowledged = story.writer.acknowledged
    assert acknowledged > 50
    story.come_back_with_an_empty_disk()
    story.until_in_sync()
    held = story.logs_in_more()
    assert held
    assert story.end_offsets() >= acknowledged
    story.fail(held)


@pytest.mark.parametrize("seed", drawn_seeds(1, of=3))
def test_the_controller_learns_of_the_new_directory_id(seed: int) -> None:
    story = Story(seed)
    story.until_in_sync()
    former = story.directory_id()
    story.come_back_with_an_empty_disk()
    story.until_in_sync()
    given = story.directory_id()
    assert given != former
    states = story.partitions()
    assert {states[each].directory(story.node.id) for each in story.logs_in_more()} == {given}


@pytest.mark.parametrize("change", ["replaced", "removed"])
@pytest.mark.parametrize("seed", drawn_seeds(1, of=3))
def test_the_replica_that_was_in_sync_last_does_not_lead_without_its_disk(
    seed: int, change: str
) -> None:
    """After a stop of the whole cluster it starts first, and alone."""
    story = Story(seed)
    story.until_in_sync()
    held = story.logs_in_more()
    acknowledged = story.writer.acknowledged
    story.all_stop()
    states = story.partitions()
    assert any(story.node.id in (*states[each].isr, *states[each].elr) for each in held)
    if change == "replaced":
        story.come_back_with_an_empty_disk()
    else:
        story.come_back_without_the_directory()
    story.sim.run(ms=30_000)
    assert story.node.serves
    assert not story.led_by_the_node() & held
    for node_id in (2, 3):
        story.sim.nodes[node_id].restart()
    story.until_in_sync()
    assert story.end_offsets() >= acknowledged
    story.all_are_written()


@pytest.mark.parametrize("seed", drawn_seeds(1, of=3))
def test_the_only_replica_in_sync_does_not_have_the_others_truncate_theirs(seed: int) -> None:
    """With min.insync.replicas=1; then the operator gives up what only the lost disk had."""
    story = Story(seed, in_sync=1)
    story.until_in_sync()
    held = story.logs_in_more()
    others = [story.sim.nodes[node_id] for node_id in (2, 3)]
    ends = story.ends(2, held)
    assert sum(ends) > 20
    for node in others:
        node.crash(lose_unflushed=False)
    story.sim.run_until(story.alone_in_sync, limit_ms=60_000)
    story.come_back_with_an_empty_disk()
    for node in others:
        node.restart()
    story.sim.run(ms=30_000)
    assert {story.partitions()[each].leader for each in held} == {-1}
    assert all(now >= was for now, was in zip(story.ends(2, held), ends, strict=True))
    story.node.stop()
    story.sim.run_until(partial(is_down, story.node), limit_ms=60_000)
    story.sim.run_until(story.elected_uncleanly, limit_ms=60_000)
    story.node.restart()
    story.until_in_sync()
    assert all(now >= was for now, was in zip(story.ends(1, held), ends, strict=True))
    story.all_are_written()
