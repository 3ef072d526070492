"""Directed faults that are more than one crash: small stories around one partition or one disk.

- Short leaderships (KIP-279): a leader is cut off from its followers, appends a little alone and
  dies; the next one does, too, in another epoch; then the first is back.
- AlterPartition: the answer is held back, or lost and the question asked again, while a follower
  is cut off from its leader, perhaps the leader from the controllers, and the leader dies, alone or
  with all other brokers.
- A sync that fails: what it was to write is dropped, as Linux does with dirty pages.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.base.ids import NO_LEADER, Uuid
from ottla.metadata.image import PartitionImage
from ottla.testing.sim.directed_faults import DirectedFaults, Part
from ottla.testing.sim.net import MS
from ottla.testing.sim.pipes import RedeliveredRequest
from ottla.wire.codec import decode
from ottla.wire.frames import decode_request_header
from ottla.wire.messages.alter_partition import AlterPartitionRequest

if TYPE_CHECKING:
    from ottla.testing.sim.node import SimNode

ALTER_PARTITION = 56
LEADERSHIPS = (2, 3, 4)
ALONE_MS = (30, 150, 700)
"""How long a leader may write alone."""
ELECTION_MAX_MS = 12_000
BACK_MS = (100, 3_000, 12_000)
"""When a fallen leader is back: at once, fenced by its own registration, or after the next ones."""
LOOK_MS = 50
HOLD_MS = (200, 3_000)
ALL_DIE_SHARE = 0.5
UNTOLD_SHARE = 0.5
ALL_DEAD_MS = (1_000, 8_000)
SYNC_MENDED_MS = (500, 4_000)


class ShortLeaderships(Part):
    """See the module."""

    def __init__(self, faults: DirectedFaults) -> None:
        self._faults = faults
        self._busy = False

    def begin(self) -> None:
        """Begin a story every so often."""
        self._faults.every_so_often(self._faults.rates.short_leaderships, self._story)

    def _story(self) -> None:
        if self._busy:
            return
        faults = self._faults
        keys = [
            (topic.id, number)
            for topic in faults.sim.image.topics
            for number, state in topic.in_order()
            if len(state.isr) > 1
        ]
        if not keys:
            return
        self._busy = True
        faults.sim.mark("short-leaderships")
        key = faults.random.choice(keys)
        self._next(key, NO_LEADER, faults.random.choice(LEADERSHIPS), ELECTION_MAX_MS)

    def _state(self, key: tuple[Uuid, int]) -> PartitionImage | None:
        topic = self._faults.sim.image.topics.by_id(key[0])
        return None if topic is None else topic.partitions.get(key[1])

    def _next(self, key: tuple[Uuid, int], before: int, left: int, patience_ms: int) -> None:
        """Wait for another leader; end the story where there is none."""
        faults, state = self._faults, self._state(key)
        if state is None or left == 0 or patience_ms <= 0:
            self._busy = False
            return
        leader = faults.sim.nodes.get(state.leader)
        if leader is None or state.leader == before or not leader.alive or leader.paused:
            faults.later(LOOK_MS * MS, lambda: self._next(key, before, left, patience_ms - LOOK_MS))
            return
        others = [each for each in state.replicas if each != leader.id]
        links = {(leader.id, each) for each in others} | {(each, leader.id) for each in others}
        links -= faults.sim.net.cut
        faults.sim.net.cut |= links
        alone_us = faults.random.randrange(10, faults.random.choice(ALONE_MS)) * MS
        incarnation = leader.incarnation

        def die() -> None:
            faults.sim.net.cut -= links
            if leader.alive and leader.incarnation == incarnation:
                faults.sim.mark("short-leadership")
                self._fell(leader)
            self._next(key, leader.id, left - 1, ELECTION_MAX_MS)

        faults.later(alone_us, die)

    def _fell(self, leader: "SimNode") -> None:
        faults = self._faults
        random = faults.random
        back_ms = random.randrange(5, random.choice(BACK_MS))
        if random.random() < 0.5:
            leader.stop(back_after_ms=back_ms)  # As fast as a controller can elect the next one.
        else:
            leader.crash(lose_unflushed=False)
            faults.later(back_ms * MS, leader.restart)


class AlterPartitionFaults(Part):
    """See the module."""

    def __init__(self, faults: DirectedFaults) -> None:
        self._faults = faults
        self._quiet_until_us = 0

    def frame(self, what: str, source: int, target: int, frame: bytes) -> None:
        """Meddle with some of the requests that arrive."""
        faults = self._faults
        if what != "request" or int.from_bytes(frame[4:6], "big") != ALTER_PARTITION:
            return
        random, sim = faults.random, faults.sim
        if sim.scheduler.now_us < self._quiet_until_us or source < 0:
            return
        if random.random() >= faults.rates.alter_partition:
            return
        pipe = sim.net.pipe_between(source, target)
        if pipe is None:
            return
        self._quiet_until_us = sim.scheduler.now_us + random.randrange(3_000, 10_000) * MS
        sim.mark("alter-partition-troubled")
        way = random.randrange(4)
        if way < 2:
            pipe.hold_answers(random.randrange(*HOLD_MS) * MS)
        elif way == 2:
            # Done, and its leader does not know: it asks the same again.
            sim.scheduler.after(random.randrange(20 * MS), pipe.break_off)
        else:
            again = RedeliveredRequest(sim.net, pipe.listener, pipe.info, frame)
            faults.later(random.randrange(2_000) * MS, again.deliver)
        self._isolate(source, self._concerned(source, frame))

    def _concerned(self, leader_id: int, frame: bytes) -> list[int]:
        """Return the followers that the request takes in or leaves out; all, where it is none."""
        header, body_at = decode_request_header(memoryview(frame)[4:])
        body = memoryview(frame)[4 + body_at :]
        request = decode(AlterPartitionRequest, body, header.api_version, lenient=True)
        sim, found = self._faults.sim, set()
        for topic in request.topics:
            known = sim.image.topics.by_id(topic.topic_id)
            for each in topic.partitions:
                state = None if known is None else known.partitions.get(each.partition_index)
                if state is not None:
                    found |= {member.broker_id for member in each.new_isr_with_epochs} ^ {
                        *state.isr
                    }
        others = {each.id for each in sim.nodes.values() if each.is_broker} - {leader_id}
        return sorted(found & others or others)

    def _isolate(self, leader_id: int, followers: list[int]) -> None:
        """Cut a follower off from its leader, then let the leader die, or not."""
        faults = self._faults
        random, sim = faults.random, faults.sim
        follower = random.choice(followers)
        apart = [follower]
        if random.random() < UNTOLD_SHARE:
            # Then the metadata do not tell the leader either what became of its request.
            apart += [each.id for each in sim.nodes.values() if each.is_controller]
        links = {(leader_id, each) for each in apart} | {(each, leader_id) for each in apart}
        links -= sim.net.cut
        sim.net.cut |= links

        def heal() -> None:
            sim.net.cut -= links

        faults.later(random.randrange(500, 6_000) * MS, heal)
        leader = sim.nodes[leader_id]
        incarnation = leader.incarnation

        # With all others, so that the newcomer leads next, or with none of them.
        others = [each.id for each in sim.nodes.values() if each.is_broker and each.id != follower]
        dying = others if random.random() < ALL_DIE_SHARE else [leader_id]

        def die() -> None:
            if leader.alive and not leader.paused and leader.incarnation == incarnation:
                faults.crash(leader)
                for each in dying:
                    self._pass_out(sim.nodes[each])

        if random.random() < 0.6:
            faults.later(faults.moment_us(), die)

    def _pass_out(self, node: "SimNode") -> None:
        """Let a process end, for long enough that another one leads."""
        faults = self._faults
        if node.alive and not node.is_controller:
            node.crash(lose_unflushed=False)
            faults.later(faults.random.randrange(*ALL_DEAD_MS) * MS, node.restart)


class SyncErrors(Part):
    """See the module."""

    def __init__(self, faults: DirectedFaults) -> None:
        self._faults = faults

    def begin(self) -> None:
        """Let a sync fail every so often."""
        self._faults.every_so_often(self._faults.rates.sync_errors, self._fail)

    def _fail(self) -> None:
        faults = self._faults
        fault_injector, random, sim = faults.fault_injector, faults.random, faults.sim
        if sim.zookeeper is not None:
            return  # There a failed folder may take the last replica in sync with it.
        nodes = [each for each in sim.nodes.values() if each.alive]
        if not nodes or fault_injector is None:
            return
        node = random.choice(nodes)
        if not fault_injector.may_refuse_writes(node):
            return
        sim.mark("sync-failed")
        folder = random.choice((*node.config.log_dirs, node.config.metadata_log_dir))
        fault = node.disk.fail("sync", path=f"{folder}/", times=1)
        restart: Callable[[], None] = lambda: node.stop(back_after_ms=random.randrange(20, 2_000))  # noqa: E731

        def mended() -> None:
            if fault in node.disk.faults:
                node.disk.faults.remove(fault)
            fault_injector.writes_again(node)
            if fault.hits:
                restart()

        faults.later(random.randrange(*SYNC_MENDED_MS) * MS, mended)
