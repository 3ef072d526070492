"""Consumer groups and readers of a scenario: what a seed draws, and the faults they meet.

Members join, leave, crash, and come back as zombies. Their coordinators fail at critical moments:
right after a commit or an assignment was acknowledged, cut off from their followers before that,
and again just after a failover. Others move, while their processes go on: a preferred election
makes another replica the coordinator, which is asked while it loads. After healing all members must
be in stable groups that commit up to the end.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from ottla.base.ids import NO_LEADER, OFFSETS_TOPIC
from ottla.broker.groups.group_service import positive_hash
from ottla.testing.history.history import History
from ottla.testing.history.topics import Outcome
from ottla.testing.scenarios.scenario import Story
from ottla.testing.sim.layout import rack_of
from ottla.testing.sim_clients import Dialogue, TopicSpec
from ottla.testing.sim_clients.group_member import (
    GroupMember,
    MemberConfig,
    end_committed,
    is_served,
)
from ottla.testing.sim_clients.offset_auditor import OffsetAuditor
from ottla.testing.sim_clients.offset_queries import EARLIEST, LATEST
from ottla.testing.sim_clients.offset_seeker import OffsetSeeker

if TYPE_CHECKING:
    from ottla.testing.sim.node import SimNode

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
WAYS = ("crash", "crash", "power", "power", "stop", "pause")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    """One group: its name and each member's settings."""

    name: str
    members: tuple[MemberConfig, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsWorkload:
    """What a seed draws. `change_ms`, `strike_ms`, `move_ms`: the mean time between changes of
    members, faults of coordinators, or their moves; 0 = none.
    """

    groups: tuple[GroupSpec, ...] = ()
    seekers: tuple[str, ...] = ()
    """The rack of each, empty = none."""
    change_ms: int = 6_000
    strike_ms: int = 15_000
    move_ms: int = 0
    audit_ms: int = 2_500
    config: tuple[tuple[str, str], ...] = ()

    def begin(self, story: Story, topic: TopicSpec) -> "Groups":
        """Start all clients; besides their own topics they read `topic`."""
        return Groups(story, self, topic)


NO_GROUPS = GroupsWorkload()


def draw_groups(seed: int, *, faultless: bool = False) -> GroupsWorkload:
    """Return the groups of a seed; one in four has no groups and readers.

    `faultless`: no faults of members and coordinators.
    """
    random = Random(f"{seed}/groups")
    if random.random() < 0.25:
        return NO_GROUPS
    with_racks = random.random() < 0.5
    groups = tuple(
        GroupSpec(name=f"group-{number}", members=tuple(_members(random, with_racks)))
        for number in range(1, random.choice((2, 2, 3)))
    )
    return GroupsWorkload(
        groups=groups,
        seekers=tuple(_rack(random, with_racks) for _ in range(random.choice((0, 1, 1)))),
        change_ms=0 if faultless else random.choice((4_000, 8_000, 20_000)),
        strike_ms=0 if faultless else random.choice((0, 12_000, 25_000)),
        move_ms=0 if faultless else Random(f"{seed}/coordinators").choice((0, 0, 6_000)),
        config=tuple(_config(random, with_racks)),
    )


def _members(random: Random, with_racks: bool) -> Iterator[MemberConfig]:
    count = random.randrange(2, 5 if random.random() < 0.5 else 4)
    topics = random.choice((("steady",), ("steady",), ("passing", "steady")))
    versions = (10,) if len(topics) > 1 else (8, 9, 10)
    statics = random.choice((0, 0, 1, count))
    settings = MemberConfig(
        topics=topics,
        reset=random.choice((EARLIEST, EARLIEST, LATEST)),
        session_ms=random.choice((3_000, 6_000)),
        rebalance_ms=random.choice((4_000, 8_000)),
    )
    for number in range(count):
        yield replace(
            settings,
            instance=f"instance-{number + 1}" if number < statics else None,
            rack=_rack(random, with_racks),
            commit_version=random.choice(versions),
        )


def _rack(random: Random, with_racks: bool) -> str:
    return rack_of(random.randrange(1, 4)) if with_racks and random.random() < 0.7 else ""


def _config(random: Random, with_racks: bool) -> Iterator[tuple[str, str]]:
    yield "group.min.session.timeout.ms", "1000"
    yield "offsets.topic.num.partitions", str(random.choice((1, 2, 3)))
    if with_racks:
        yield "replica.selector.class", SELECTOR
    # Small buffers make loading take several reads; compaction changes the log.
    yield "offsets.load.buffer.size", str(random.choice((600, 4_000, 5_242_880)))
    if random.random() < 0.5:
        yield "log.roll.ms", str(random.choice((5_000, 15_000)))
        yield "log.cleaner.backoff.ms", "4000"
        yield "log.cleaner.min.cleanable.ratio", "0.2"
    if random.random() < 0.5:
        # Longer than any group is empty, with all clock errors.
        yield "offsets.retention.minutes", "2"
        yield "offsets.retention.check.interval.ms", "3000"


def figures_of(history: History) -> dict[str, int]:
    """Return counts of what groups and readers did, by name; empty = there were none."""
    seen = history.groups
    outcomes = Counter(each.outcome for each in seen.commits)
    figures = {
        "groups": len({each.group for each in seen.joins}),
        "generations": len({(each.group, each.generation) for each in seen.received}),
        "commits": outcomes[Outcome.ACKNOWLEDGED],
        "commits refused": outcomes[Outcome.FAILED],
        "commits unknown": outcomes[Outcome.UNKNOWN],
        "offset fetches": len(seen.fetches),
        "timestamp lookups": len(seen.lookups),
        "follower reads": len(seen.follower_reads),
    }
    return figures if any(figures.values()) else {}


class Groups:
    """The clients of a run. `is_done`: all members have left, and the last fetches are done."""

    def __init__(self, story: Story, workload: GroupsWorkload, topic: TopicSpec) -> None:
        self._story = story
        self._workload = workload
        self._random = random = Random(f"{story.sim.seed}/groups at work")
        self.members: list[GroupMember] = []
        self.auditors: list[OffsetAuditor] = []
        self.seekers: list[OffsetSeeker] = []
        self._armed: dict[str, str] = {}
        """By group: after which acknowledgement its coordinator fails."""
        for group in workload.groups:
            for number, config in enumerate(group.members, 1):
                self._add_member(group.name, number, config)
            auditor = OffsetAuditor(
                story.client(f"{group.name}-auditor", random),
                story.sim.client_port(f"{group.name}-auditor-coordinator"),
                group.name,
                topic.name,
                interval_ms=workload.audit_ms,
            )
            self.auditors.append(auditor)
            auditor.begin()
            story.expect(
                end_committed(group.name, topic.name, each) for each in range(topic.partitions)
            )
        for number, rack in enumerate(workload.seekers, 1):
            client = story.client(f"seeker-{number}", random)
            seeker = OffsetSeeker(client, topic.name, rack=rack, interval_ms=1_500)
            self.seekers.append(seeker)
            seeker.begin()
        if workload.groups and workload.strike_ms:
            story.run(self._strike())
        if workload.groups and workload.move_ms:
            story.run(self._move())

    def _add_member(self, group: str, number: int, config: MemberConfig) -> None:
        story = self._story
        name = f"{group}-member-{number}"
        member = GroupMember(
            story.client(name, self._random),
            story.sim.client_port(f"{name}-coordinator"),
            group,
            config,
        )
        member.on_answer = lambda what, node: self._answered(group, what, node)
        self.members.append(member)
        story.run(self._run_member(member))
        story.expect([is_served(name, group)])

    def stop(self) -> None:
        """Let all members commit and leave, then fetch each group's offsets."""
        for seeker in self.seekers:
            seeker.stop()
        for member in self.members:
            member.stop()
        self._story.run(self._close())

    def _note_offsets_partitions(self) -> None:
        """Record which partition of __consumer_offsets each group has."""
        topic = self._story.sim.image.topics.by_name(OFFSETS_TOPIC)
        if topic is not None:
            self._story.history.groups.offsets_partitions = {
                group.name: (topic.id, positive_hash(group.name) % len(topic.partitions))
                for group in self._workload.groups
            }

    def _close(self) -> Dialogue[None]:
        self._note_offsets_partitions()
        while not all(member.is_done for member in self.members):
            yield 100
        for auditor in self.auditors:
            auditor.stop()

    @property
    def is_done(self) -> bool:
        """Tell whether all members and auditors are done."""
        return all(member.is_done for member in self.members) and all(
            auditor.is_done for auditor in self.auditors
        )

    @property
    def _is_healed(self) -> bool:
        return self._story.history.healed_ms is not None

    # -- members -------------------------------------------------------------------------------

    def _run_member(self, member: GroupMember) -> Dialogue[None]:
        """Run a member: it joins, and sometimes leaves, crashes or pauses."""
        random, sim, workload = self._random, self._story.sim, self._workload
        yield random.randrange(1, 3_000)
        member.begin()
        session_ms = member.config.session_ms
        while workload.change_ms and not self._is_healed:
            yield random.randrange(1_000, 2 * workload.change_ms * len(self.members))
            if self._is_healed:
                return
            match random.randrange(4):
                case 0:
                    sim.mark("member-left")
                    member.leave()
                    yield random.randrange(500, 4_000)
                    member.die()  # If it has not left by now, it crashes.
                    member.begin()
                case 1 | 2:
                    sim.mark("member-died")
                    member.die()
                    yield random.randrange(100, session_ms + 3_000)
                    member.begin()
                case _:
                    sim.mark("member-paused")
                    member.pause(random.randrange(session_ms // 2, 2 * session_ms + 4_000))

    # -- coordinators --------------------------------------------------------------------------

    def _coordinator_of(self, group: str) -> "SimNode | None":
        sim = self._story.sim
        topic = sim.image.topics.by_name(OFFSETS_TOPIC)
        if topic is None:
            return None
        number = positive_hash(group) % len(topic.partitions)
        node = sim.nodes.get(self._story.leader_of(OFFSETS_TOPIC, number))
        return node if node is not None and node.alive and not node.paused else None

    def _move(self) -> Dialogue[None]:
        """Elect other coordinators; ask them, and the ones before, from the first moment on."""
        story, workload = self._story, self._workload
        random = Random(f"{story.sim.seed}/coordinators move")
        while not self._is_healed:
            yield random.randrange(workload.move_ms // 2, 2 * workload.move_ms)
            group = random.choice(workload.groups).name
            topic = story.sim.image.topics.by_name(OFFSETS_TOPIC)
            if topic is None or self._is_healed:
                continue
            number = positive_hash(group) % len(topic.partitions)
            state = topic.partitions[number]
            in_sync = [each for each in state.isr if each != state.leader]
            if not in_sync or state.is_reassigning:
                continue
            target = random.choice(in_sync)
            others = [each for each in state.replicas if each != target]
            if state.replicas[0] != target:
                yield from story.admin.reassign(OFFSETS_TOPIC, number, (target, *others))
            self._commit_now(group)
            yield random.randrange(20)
            yield from story.admin.elect(OFFSETS_TOPIC, number)
            story.sim.mark("coordinator-moved")
            for _look in range(random.randrange(5, 30)):
                self._ask_now(group, random.choice((target, target, state.leader)))
                yield random.randrange(1, 8)

    def _strike(self) -> Dialogue[None]:
        random, workload = self._random, self._workload
        while not self._is_healed:
            yield random.randrange(2_000, 2 * workload.strike_ms)
            if self._is_healed:
                return
            group = random.choice(workload.groups).name
            match random.randrange(5):
                case 0:
                    self._armed[group] = "commit"
                case 1:
                    self._armed[group] = "assignment"
                case 2:
                    yield from self._strike_apart(group)
                case 3:
                    yield from self._strike_in_turn(group)
                case _:
                    self._hit(self._coordinator_of(group))
                    yield from self._strike_successor(group)

    def _answered(self, group: str, what: str, node_id: int) -> None:
        """Let a coordinator fail right after an acknowledgement that was chosen for its group."""
        if self._armed.get(group) == what and not self._is_healed:
            del self._armed[group]
            node = self._story.sim.nodes.get(node_id)
            if node is not None and node.alive and not node.paused:
                self._hit(node)

    def _hit(self, node: "SimNode | None", way: str = "") -> None:
        fault_injector = self._story.sim.fault_injector
        if node is None or fault_injector is None or self._is_healed:
            return
        way = way or self._random.choice(WAYS)
        self._story.sim.mark(f"coordinator-{way}")
        fault_injector.strike(node, way)

    def _strike_apart(self, group: str) -> Dialogue[None]:
        """Cut a coordinator off from its followers during a commit, then let it fail."""
        net, node = self._story.sim.net, self._coordinator_of(group)
        if node is None:
            return
        links = {(other, node.id) for other in self._story.broker_ids if other != node.id}
        links -= net.cut
        net.cut |= links
        yield self._random.randrange(50, 500)
        self._commit_now(group)
        yield self._random.randrange(20, 200)
        self._ask_now(group)
        yield self._random.randrange(50, 2_000)
        if node.alive and not node.paused:
            self._hit(node, self._random.choice(("crash", "power")))
        net.cut -= links

    def _commit_now(self, group: str) -> None:
        for member in self.members:
            if member.group == group:
                member.commit_now()

    def _ask_now(self, group: str, node: int = NO_LEADER) -> None:
        for auditor in self.auditors:
            if auditor.group == group:
                auditor.ask_now(node)

    def _strike_in_turn(self, group: str) -> Dialogue[None]:
        """Let a commit reach one of two followers; fail over to that one, then to the other.

        The second coordinator must not return the commit before the third replica has it, too.
        """
        net, node, random = self._story.sim.net, self._coordinator_of(group), self._random
        if node is None:
            return
        last = random.choice([each for each in self._story.broker_ids if each != node.id])
        links = {(last, other) for other in self._story.broker_ids if other != last} - net.cut
        net.cut |= links
        yield random.randrange(20, 200)
        self._commit_now(group)
        yield random.randrange(20, 150)
        self._hit(node, "stop")
        for _look in range(20):
            yield 100
            self._ask_now(group)
            now = self._coordinator_of(group)
            if now is not None and now is not node:
                yield random.randrange(50, 300)
                self._ask_now(group)
                yield random.randrange(5, 60)
                self._hit(now, "stop")
                break
        yield random.randrange(500, 2_000)
        net.cut -= links

    def _strike_successor(self, group: str) -> Dialogue[None]:
        """Let the next coordinator fail, while it loads or soon after."""
        before = self._coordinator_of(group)
        for _look in range(self._random.choice((0, 40))):
            yield 100
            now = self._coordinator_of(group)
            if now is not None and now is not before:
                yield self._random.randrange(600)
                self._hit(now)
                return
