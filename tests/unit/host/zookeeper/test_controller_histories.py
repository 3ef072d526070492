"""Whatever happens to brokers, sessions and the ensemble, a cluster without faults converges.

Method: random histories of kills, expiries, cuts, pauses, outages and broken connections, with
tools that create and delete topics and move partitions meanwhile. No znode is ever written by a
controller whose epoch is over, and no process gets a leadership of its previous process. Once the
faults have stopped: there is one controller, its image is what is stored, and every broker was sent
exactly that; marked topics are deleted.
"""

from collections.abc import Callable
from random import Random

import pytest

from ottla.base.ids import NO_EPOCH, NO_LEADER
from ottla.base.zookeeper import Check
from ottla.controller.elections.elections import Rules, partitions
from ottla.controller.elections.partition_change import PartitionTarget, build_change
from ottla.controller.step import Decision, Step
from ottla.metadata.image import ClusterImage
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.admin import encode_reassignment
from ottla.metadata.znodes.partition_state import decode_state
from ottla.testing.sim.zookeeper.zookeeper import Written

from .controller_harness import ControllerHarness, Node

BROKERS = (1, 2, 3, 4)
STEPS = 25


class History:
    """One cluster's random history."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.sim = ControllerHarness(seed)
        self.made = 0
        self.marked: set[str] = set()
        self.zombies: list[Written] = []
        self.sim.model.observe(self._check_author)
        self.sim.start(*BROKERS)
        self.make_topic()
        self.sim.model.faults.broken = self.random.choice((0.0, 0.002, 0.02))
        self.sim.model.faults.slow = self.random.choice((0.0, 0.01))

    def _check_author(self, written: Written) -> None:
        """Note what a deposed controller wrote: its check must have been the present epoch's."""
        below = [op for op in written.operations if op.path.startswith(paths.TOPICS)]
        if not below or written.client == "tool" or isinstance(below[0], Check):
            return
        first = written.operations[0]
        assert isinstance(first, Check), "a controller's write without a check"
        if first.version != self.sim.version(paths.CONTROLLER_EPOCH):
            self.zombies.append(written)

    # -- what happens --------------------------------------------------------------------------

    def play(self) -> None:
        acts = (
            self.make_topic,
            self.mark_topic,
            self.reassign,
            self.kill,
            self.restart,
            self.expire,
            self.cut,
            self.heal,
            self.pause,
            self.resume,
            self.catch_up,
            self.outage,
        )
        for _ in range(STEPS):
            self.random.choice(acts)()
            self.sim.run(self.random.choice((1, 5, 40, 300, 3_000)))

    def some(self, alive: bool = True) -> Node | None:
        found = [each for each in self.sim.nodes.values() if each.alive == alive]
        return self.random.choice(found) if found else None

    def topics(self) -> list[str]:
        names = self.sim.names(paths.TOPICS)
        return [each for each in names if each not in self.marked]

    def make_topic(self) -> None:
        self.made += 1
        factor = self.random.choice((1, 2, 3))
        replicas = [tuple(self.random.sample(BROKERS, factor)) for _ in range(2)]
        self.tool(lambda: self.sim.put_topic(f"t{self.made}", replicas))

    def mark_topic(self) -> None:
        names = self.topics()
        if names:
            name = self.random.choice(names)
            self.marked.add(name)
            self.tool(lambda: self.sim.write_marker(name))

    def reassign(self) -> None:
        if self.topics() and self.sim.data(paths.REASSIGN_PARTITIONS) is None:
            target = tuple(self.random.sample(BROKERS, 2))
            wanted = {(self.random.choice(self.topics()), 0): target}
            data = encode_reassignment(wanted)
            self.tool(lambda: self.sim.put(paths.REASSIGN_PARTITIONS, data))

    def tool(self, act: Callable[[], None]) -> None:
        """Let a tool act; its own connection holds."""
        faults = self.sim.model.faults
        broken, faults.broken = faults.broken, 0.0
        act()
        faults.broken = broken

    def kill(self) -> None:
        alive = [each for each in self.sim.nodes.values() if each.alive]
        if len(alive) > 1:
            self.random.choice(alive).kill()

    def restart(self) -> None:
        node = self.some(alive=False)
        if node is not None and self.sim.model.is_up and not self.is_registered(node):
            self.sim.revive(node.id)

    def is_registered(self, node: Node) -> bool:
        return self.sim.data(paths.broker(node.id)) is not None

    def expire(self) -> None:
        node = self.some()
        if node is not None and node.client.keeper.session is not None:
            node.expire()

    def cut(self) -> None:
        node = self.some()
        if node is not None:
            self.sim.model.cut(node.client.name)

    def heal(self) -> None:
        self.sim.model.heal_all()

    def pause(self) -> None:
        node = self.some()
        if node is not None:
            node.client.process.paused = True

    def resume(self) -> None:
        for node in self.sim.nodes.values():
            if node.client.process.paused:
                self.sim.scheduler.resume(node.client.process)

    def catch_up(self) -> None:
        """Let all followers that live catch up, and their leaders report it."""
        active_controllers = self.sim.active_controllers()
        if active_controllers:
            config = active_controllers[0].controller.context.config
            active_controllers[0].controller.run(lambda image: all_in_sync(image, config))

    def outage(self) -> None:
        self.sim.model.down()
        self.sim.run(self.random.choice((50, 2_000, 8_000)))
        self.sim.model.up()
        self.sim.run(500)

    # -- the end -------------------------------------------------------------------------------

    def end(self) -> None:
        """Stop the faults; bring all back; wait until it is quiet."""
        self.heal()
        self.resume()
        self.sim.model.faults.broken = self.sim.model.faults.slow = 0.0
        for node in list(self.sim.nodes.values()):
            if not node.alive:
                self.sim.until(lambda node=node: not self.is_registered(node))
                self.sim.revive(node.id)
        self.sim.run(30_000)
        self.sim.until(lambda: len(self.sim.active_controllers()) == 1)
        self.catch_up()
        self.sim.until(lambda: not self.sim.names(paths.DELETE_TOPICS), limit_ms=200_000)
        self.sim.run(10_000)

    def check(self) -> None:
        sim = self.sim
        assert self.zombies == []
        assert sim.leader_epochs.sent_too_early == []
        assert sorted(sim.image.brokers) == list(BROKERS)
        for node in sim.nodes.values():
            assert node.knows_brokers() == list(BROKERS)
            assert node.controller.election.controller_id == sim.controller.id
            assert node.failures == []
        assert {each.name for each in sim.image.topics} == set(sim.names(paths.TOPICS))
        for topic in sim.image.topics:
            assert topic.name not in self.marked
            for number in topic.partitions:
                self._check_partition(topic.name, number)

    def _check_partition(self, name: str, number: int) -> None:
        sim, held = self.sim, self.sim.partition(name, number)
        assert held.leader_epoch != NO_EPOCH
        assert held.leader != NO_LEADER, f"{name}-{number} has no leader"
        assert held.leader in held.isr
        path = paths.state(name, number)
        state = decode_state(name, number, sim.data(path) or b"")
        assert (state.leader, state.isr) == (held.leader, held.isr)
        assert state.leader_epoch == held.leader_epoch
        assert sim.version(path) == held.partition_epoch
        for node in sim.nodes.values():
            known = node.knows(name, number)
            requests = (known.leader, known.leader_epoch, known.isr, known.zk_version)
            assert requests == (held.leader, held.leader_epoch, held.isr, held.partition_epoch)
            if node.id in held.replicas:
                assert node.led(name, number).leader_epoch == held.leader_epoch


def all_in_sync(image: ClusterImage, config: NodeConfig) -> Decision[None]:
    """Return what AlterPartition makes of the reports of all leaders."""
    rules = Rules(image, config)
    records = []
    for topic, number, partition in partitions(image):
        if partition.leader == NO_LEADER:
            continue
        live = tuple(each for each in partition.replicas if image.is_active(each))
        around = rules.change_context(topic.name)
        record = build_change(topic.id, number, partition, PartitionTarget(isr=live), around)
        if record is not None:
            records.append(record)
    return Decision(Step(tuple(records), atomic=False), None)


@pytest.mark.drawn(8, of="every step")
@pytest.mark.parametrize("seed", range(30))
def test_a_cluster_that_is_left_alone_settles(seed: int) -> None:
    history = History(seed)
    history.play()
    history.end()
    history.check()
