"""Directed faults that are more than one crash: scripts around one partition or one disk.

- Short leaderships (KIP-279): a leader is cut off from its followers, appends a few records alone
  and crashes; the next leader does the same in another epoch; then the first comes back.
- AlterPartition: the response is delayed, or lost and the request repeated, while a follower is cut
  off from its leader, perhaps also the leader from the controllers; then the leader crashes, alone
  or with all other brokers.
- A failed fsync: its dirty pages are dropped, as Linux does.
"""

from collections.abc import Callable

from ottla.base.ids import NO_LEADER, Uuid
from ottla.metadata.image import PartitionImage
from ottla.testing.sim.faults.directed_faults import DirectedFaults, Part, links_between
from ottla.testing.sim.net import MS, RedeliveredRequest
from ottla.testing.sim.ports import SimulatedNode
from ottla.wire.codec import decode
from ottla.wire.frames import decode_request_header
from ottla.wire.messages.alter_partition import AlterPartitionRequest

ALTER_PARTITION = 56
LEADERSHIPS = (2, 3, 4)
ALONE_MS = (30, 150, 700)
"""How long a leader may write alone."""
ELECTION_MAX_MS = 12_000
BACK_MS = (100, 3_000, 12_000)
"""When a crashed leader restarts: before it is fenced, soon after, or after the next elections."""
LOOK_MS = 50
HOLD_MS = (200, 3_000)
ALL_DIE_SHARE = 0.5
CONTROLLERS_CUT_SHARE = 0.5
ALL_DEAD_MS = (1_000, 8_000)
SYNC_MENDED_MS = (500, 4_000)


class ShortLeaderships(Part):
    """See the module."""

    def __init__(self, faults: DirectedFaults) -> None:
        self._faults = faults
        self._busy = False

    def begin(self) -> None:
        """Run the script at random intervals."""
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

    def _next(self, key: tuple[Uuid, int], before: int, left: int, left_ms: int) -> None:
        """Wait for another leader; end the script if there is none."""
        faults, state = self._faults, self._state(key)
        if state is None or left == 0 or left_ms <= 0:
            self._busy = False
            return
        leader = faults.sim.nodes.get(state.leader)
        if leader is None or state.leader == before or not leader.alive or leader.paused:
            faults.later(LOOK_MS * MS, lambda: self._next(key, before, left, left_ms - LOOK_MS))
            return
        others = [each for each in state.replicas if each != leader.id]
        links = links_between(leader.id, others) - faults.sim.net.cut
        faults.sim.net.cut |= links
        alone_us = faults.random.randrange(10, faults.random.choice(ALONE_MS)) * MS
        incarnation = leader.incarnation

        def die() -> None:
            faults.sim.net.cut -= links
            if leader.alive and leader.incarnation == incarnation:
                faults.sim.mark("short-leadership")
                self._take_down(leader)
            self._next(key, leader.id, left - 1, ELECTION_MAX_MS)

        faults.later(alone_us, die)

    def _take_down(self, leader: SimulatedNode) -> None:
        faults = self._faults
        random = faults.random
        back_ms = random.randrange(5, random.choice(BACK_MS))
        if random.random() < 0.5:
            leader.stop(
                back_after_ms=back_ms
            )  # A controlled shutdown: the next leader is elected at once.
        else:
            leader.crash(lose_unflushed=False)
            faults.later(back_ms * MS, leader.restart)


class AlterPartitionFaults(Part):
    """See the module."""

    def __init__(self, faults: DirectedFaults) -> None:
        self._faults = faults
        self._quiet_until_us = 0

    def request(self, key: int, source: int, target: int, frame: bytes) -> None:
        """Disturb some of the AlterPartition requests."""
        if key != ALTER_PARTITION:
            return
        faults = self._faults
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
            # The request is processed and its response lost: the leader repeats it.
            sim.scheduler.after(random.randrange(20 * MS), pipe.break_off)
        else:
            redelivered = RedeliveredRequest(sim.net, pipe.listener, pipe.info, frame)
            faults.later(random.randrange(2_000) * MS, redelivered.deliver)
        self._isolate(source, self._concerned(source, frame))

    def _concerned(self, leader_id: int, frame: bytes) -> list[int]:
        """Return the followers that the request adds to or removes from the ISR; all if none."""
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
        """Cut a follower off from its leader, then perhaps crash the leader."""
        faults = self._faults
        random, sim = faults.random, faults.sim
        follower = random.choice(followers)
        apart = [follower]
        if random.random() < CONTROLLERS_CUT_SHARE:
            # Then the leader does not learn the outcome from the metadata either.
            apart += [each.id for each in sim.nodes.values() if each.is_controller]
        links = links_between(leader_id, apart) - sim.net.cut
        sim.net.cut |= links

        def heal() -> None:
            sim.net.cut -= links

        faults.later(random.randrange(500, 6_000) * MS, heal)
        leader = sim.nodes[leader_id]
        incarnation = leader.incarnation

        # With all other brokers, so that the follower leads next, or alone.
        others = [each.id for each in sim.nodes.values() if each.is_broker and each.id != follower]
        dying = others if random.random() < ALL_DIE_SHARE else [leader_id]

        def die() -> None:
            if leader.alive and not leader.paused and leader.incarnation == incarnation:
                faults.crash(leader)
                for each in dying:
                    self._crash_for_a_while(sim.nodes[each])

        if random.random() < 0.6:
            faults.later(faults.moment_us(), die)

    def _crash_for_a_while(self, node: SimulatedNode) -> None:
        """Crash a node for long enough that another one is elected."""
        faults = self._faults
        if node.alive and not node.is_controller:
            node.crash(lose_unflushed=False)
            faults.later(faults.random.randrange(*ALL_DEAD_MS) * MS, node.restart)


class SyncErrors(Part):
    """See the module."""

    def __init__(self, faults: DirectedFaults) -> None:
        self._faults = faults

    def begin(self) -> None:
        """Let an fsync fail at random intervals."""
        self._faults.every_so_often(self._faults.rates.sync_errors, self._fail)

    def _fail(self) -> None:
        faults = self._faults
        fault_injector, random, sim = faults.fault_injector, faults.random, faults.sim
        if sim.zookeeper is not None:
            return  # There a failed log directory may take the last in-sync replica with it.
        nodes = [each for each in sim.nodes.values() if each.alive]
        if not nodes or fault_injector is None:
            return
        node = random.choice(nodes)
        if not fault_injector.may_refuse_writes(node):
            return
        sim.mark("sync-failed")
        log_dir = random.choice((*node.config.log_dirs, node.config.metadata_log_dir))
        fault = node.disk.fail("sync", path=f"{log_dir}/", times=1)
        restart: Callable[[], None] = lambda: node.stop(back_after_ms=random.randrange(20, 2_000))  # noqa: E731

        def mended() -> None:
            if fault in node.disk.faults:
                node.disk.faults.remove(fault)
            fault_injector.writes_again(node)
            if fault.hits:
                restart()

        faults.later(random.randrange(*SYNC_MENDED_MS) * MS, mended)
