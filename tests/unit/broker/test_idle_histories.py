"""No topic goes that was used within its limit, whatever clocks, brokers and controllers do.

Method: brokers that really count and a controller's board that really decides, joined by a network
that loses and delays; time, uses, stops, crashes, moves of replicas and failovers are drawn. As in
a cluster, a replica that moves is used once it is in sync, and a leader that knew of it says so:
of those that see it come, one at least outlives its going, or begins again when it is back. What
the wall clocks say is drawn at each look at them. The law looks at true time: when a topic goes,
no use lies within its limit but in the last looks, which may come too late. And left in peace it
goes, or a broker that never says anything would keep the law.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_LEADER, OFFSETS_TOPIC, Uuid
from ottla.base.pending import Pending
from ottla.base.timers import Timers
from ottla.broker.idle import IdleTopics, SavedIdleTime
from ottla.broker.metrics import TopicMetrics
from ottla.controller.idle import (
    REPORT_INTERVALS_MAX,
    IdleReport,
    IdleReports,
    IdleRow,
    due_topics,
    replicas_of,
)
from ottla.metadata.configs import ResourceType
from ottla.metadata.delta import delta_between, replay
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    TopicRecord,
)
from ottla.metadata.topics import PartitionImage
from ottla.wire.messages.report_idle_topics import (
    ReportIdleTopicsRequest,
    ReportIdleTopicsResponse,
)
from tests.drawn import examples

from .harness import TOPIC_ID, node_config

INTERVAL_MS = 1_000
TTL_MS = 10_000
BLIND_MS = REPORT_INTERVALS_MAX * INTERVAL_MS
OFFSETS_ID = Uuid(b"o" * 16)
BROKERS = (1, 2, 3)
CONFIG = node_config({"ottla.topic.idle.check.interval.ms": str(INTERVAL_MS)})


def registration(broker_id: int, epoch: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=Uuid(epoch.to_bytes(16, "big")),
        broker_epoch=epoch,
        end_points=(),
        features=(),
        rack=None,
        fenced=False,
    )


def partition(topic_id: Uuid, replicas: tuple[int, ...]) -> PartitionRecord:
    return PartitionRecord(
        partition_id=0,
        topic_id=topic_id,
        replicas=replicas,
        isr=replicas,
        leader=replicas[0],
        leader_epoch=0,
        partition_epoch=0,
    )


def partition_of(image: ClusterImage) -> PartitionImage:
    topic = image.topics.by_name("t")
    assert topic is not None
    return topic.partitions[0]


@dataclass
class Machine:
    """A broker's process: a clock of its own, which runs on while it is stopped."""

    cluster: "Cluster"
    broker_id: int
    epoch: int
    offset_ms: int
    mark: TopicMetrics = field(default_factory=lambda: TopicMetrics("t"))
    timers: Timers = field(default_factory=Timers)
    image: ClusterImage = EMPTY
    is_stopped: bool = False
    idle: IdleTopics = field(init=False)

    def begin(self, saved: dict[Uuid, SavedIdleTime]) -> None:
        self.idle = IdleTopics(
            node_id=self.broker_id,
            broker_epoch=lambda: self.epoch,
            metrics=lambda: [self.mark],
            forwarder=self,  # type: ignore[arg-type]
            clock=self,
            timers=self.timers,
            interval_ms=INTERVAL_MS,
            saved=saved,
        )
        self.follow_metadata()
        self.idle.start()

    def follow_metadata(self) -> None:
        before, self.image = self.image, self.cluster.image
        self.idle.apply(delta_between(before, self.image))

    @property
    def partition(self) -> PartitionImage:
        """What it knows of the topic's only one."""
        return partition_of(self.image)

    def now_ms(self) -> int:
        return self.cluster.wall_ms

    def monotonic_ms(self) -> int:
        return self.cluster.now_ms + self.offset_ms

    def call(self, request: ReportIdleTopicsRequest, *, timeout_ms: int) -> Pending[object]:
        return self.cluster.received(request)


@dataclass
class Cluster:
    """A cluster; `uses` are true times, `gone_ms` is when the topic went."""

    image: ClusterImage = EMPTY
    board: IdleReports = field(default_factory=IdleReports)
    now_ms: int = 0
    wall_ms: int = 0
    epoch: int = 1
    broker_epoch: int = 100
    network: str = "works"
    uses: list[int] = field(default_factory=list)
    gone_ms: int | None = None
    up: dict[int, Machine] = field(default_factory=dict)
    target: tuple[int, ...] | None = None
    """Where the topic moves to."""
    saved: dict[int, dict[Uuid, SavedIdleTime]] = field(default_factory=dict)
    delayed: list[tuple[ReportIdleTopicsRequest, Pending[object]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.write(
            *(registration(each, 100) for each in BROKERS),
            TopicRecord(name=OFFSETS_TOPIC, topic_id=OFFSETS_ID),
            partition(OFFSETS_ID, (2, 3)),
            TopicRecord(name="t", topic_id=TOPIC_ID),
            partition(TOPIC_ID, (1, 2)),
            ConfigRecord(
                resource_type=ResourceType.TOPIC,
                resource_name="t",
                name="ottla.topic.ttl.ms",
                value=str(TTL_MS),
            ),
        )
        for each in BROKERS:
            self.start(each, epoch=100)
        self.uses.append(0)

    def write(self, *records: Record) -> None:
        offset = self.image.position[0] + len(records)
        self.image = replay(self.image, records, offset=offset, epoch=self.epoch).image

    # -- the controller ------------------------------------------------------------------------

    def received(self, request: ReportIdleTopicsRequest) -> Pending[object]:
        answer: Pending[object] = Pending()
        if self.network == "works":
            self.decide(request, answer)
        elif self.network == "delays":
            self.delayed.append((request, answer))
        else:
            answer.complete(ApiError(Error.REQUEST_TIMED_OUT))
        return answer

    def decide(self, request: ReportIdleTopicsRequest, answer: Pending[object]) -> None:
        report = IdleReport(
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            coordinators=request.coordinators,
            rows=tuple(
                IdleRow(each.topic_id, each.replicas, each.idle_ms) for each in request.topics
            ),
            token=request.token,
        )
        now_ms = self.now_ms + 7_777  # The controller's own clock.
        try:
            going, token = due_topics(self.image, self.board, report, CONFIG, now_ms=now_ms)
        except ApiError as refusal:
            answer.complete(refusal)
            return
        if going and self.gone_ms is None:
            self.gone_ms = self.now_ms
        answer.complete(ReportIdleTopicsResponse(error_code=0, token=token))

    # -- what is drawn -------------------------------------------------------------------------

    def advance(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while True:
            due = [
                (at_ms - each.offset_ms, each)
                for each in self.up.values()
                if not each.is_stopped and (at_ms := each.timers.next_ms()) is not None
            ]
            if not due or (first := min(due, key=lambda item: item[0]))[0] > end_ms:
                break
            self.now_ms = max(self.now_ms, first[0])
            first[1].timers.run_due(first[1].monotonic_ms())
        self.now_ms = end_ms

    def use(self, broker_id: int) -> None:
        machine = self.up.get(broker_id)
        if machine is None or machine.is_stopped:
            return
        if broker_id in self.partition.isr:
            machine.mark.is_used = True
        elif broker_id in replicas_of(self.image.topics.by_name(OFFSETS_TOPIC)):
            machine.idle.committed(TOPIC_ID)
        else:
            return
        self.uses.append(self.now_ms)

    def start(self, broker_id: int, *, epoch: int | None = None) -> None:
        if broker_id in self.up:
            return
        if epoch is None:
            self.broker_epoch = epoch = self.broker_epoch + 1
            self.write(registration(broker_id, epoch))
        machine = Machine(self, broker_id, epoch, offset_ms=1_000_000 * broker_id)
        self.up[broker_id] = machine
        machine.begin(self.saved.pop(broker_id, {}))
        self.elect()

    def end(self, broker_id: int, *, clean: bool) -> None:
        machine = self.up.get(broker_id)
        if machine is None or (clean and machine.is_stopped):
            return
        del self.up[broker_id]
        if clean:
            machine.idle.stop()
            self.saved[broker_id] = machine.idle.saved()
        self.write(
            BrokerRegistrationChangeRecord(
                broker_id=broker_id, broker_epoch=machine.epoch, fenced=1
            )
        )
        left = tuple(each for each in self.partition.isr if each != broker_id)
        if left and left != self.partition.isr:
            self.change(isr=left)
        self.elect()

    def change(self, **how: Any) -> None:
        self.write(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, **how))

    def elect(self) -> None:
        """Elect an in-sync replica that is up, or none."""
        led = self.partition.leader
        able = [each for each in self.partition.isr if each in self.up and each in self.replicas]
        leader = led if led in able else next(iter(able), NO_LEADER)
        if leader != led:
            self.change(leader=leader)

    def move(self, target: tuple[int, ...]) -> None:
        """Begin to move the topic; or to move it elsewhere, or back."""
        self.target = target
        replicas = (*target, *(each for each in self.replicas if each not in target))
        if replicas != self.replicas:
            self.change(replicas=replicas)

    def join(self, broker_id: int) -> None:
        """Let the leader say that a replica is in sync. It must know the partition as it is."""
        leader, joining = self.up.get(self.partition.leader), self.up.get(broker_id)
        isr = self.partition.isr
        if leader is None or joining is None or leader.is_stopped or joining.is_stopped:
            return
        known = {leader.partition, joining.partition}
        if known == {self.partition} and broker_id in {*self.replicas} - {*isr}:
            self.change(isr=(*isr, broker_id))

    def finish(self) -> None:
        """Let the move end where all that it goes to are in sync."""
        if self.target is not None and {*self.target} <= {*self.partition.isr}:
            if {*self.replicas} != {*self.target}:
                self.change(replicas=self.target, isr=self.target)
            self.target = None
            self.elect()

    @property
    def replicas(self) -> tuple[int, ...]:
        return self.partition.replicas

    @property
    def partition(self) -> PartitionImage:
        return partition_of(self.image)

    def follow_metadata(self, broker_id: int) -> None:
        if broker_id in self.up:
            self.up[broker_id].follow_metadata()

    def fail_over(self) -> None:
        self.epoch += 1
        self.write()
        if self.epoch % 2:
            self.board = IdleReports()

    def deliver(self) -> None:
        for request, answer in self.delayed:
            self.decide(request, answer)
        self.delayed.clear()


def act(cluster: Cluster, dice: Random) -> None:
    """Let some time pass, then let something happen, or nothing."""
    cluster.advance(dice.randrange(100, 1_500))
    cluster.wall_ms = dice.randrange(-(10**12), 10**12)
    broker_id = dice.choice(BROKERS)
    machine = cluster.up.get(broker_id)
    what = dice.choices(list(CHANCES), list(CHANCES.values()))[0]
    match what:
        case "use":
            cluster.use(broker_id)
        case "crash" | "leave":
            cluster.end(broker_id, clean=what == "leave")
        case "start":
            cluster.start(broker_id)
        case "stop" | "go on":
            if machine is not None:
                machine.is_stopped = what == "stop"
        case "follow_metadata":
            cluster.follow_metadata(broker_id)
        case "move":
            cluster.move(dice.choice([(1, 2), (1, 3), (2, 3), (3,)]))
        case "join":
            cluster.join(broker_id)
        case "finish":
            cluster.finish()
        case "delays" | "loses":
            cluster.network = what
        case "works":
            cluster.network = what
            cluster.deliver()
        case "fail over":
            cluster.fail_over()


CHANCES = {
    "nothing": 40,
    "use": 10,
    "follow_metadata": 15,
    "start": 20,
    "go on": 20,
    "works": 20,
    "delays": 8,
    "loses": 2,
    "leave": 3,
    "crash": 3,
    "stop": 3,
    "move": 4,
    "join": 15,
    "finish": 8,
    "fail over": 2,
}


@settings(max_examples=examples(300), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_topic_that_was_used_within_its_limit_stays(seed: int) -> None:
    cluster, dice = Cluster(), Random(seed)
    for _ in range(dice.randrange(200)):
        act(cluster, dice)
        if cluster.gone_ms is not None:
            break
    if cluster.gone_ms is None:
        left_in_peace(cluster)
    assert cluster.gone_ms is not None
    late = [at_ms for at_ms in cluster.uses if BLIND_MS < cluster.gone_ms - at_ms < TTL_MS]
    assert late == []


def left_in_peace(cluster: Cluster) -> None:
    cluster.network = "works"
    cluster.deliver()
    for each in BROKERS:
        if each in cluster.up:
            cluster.up[each].is_stopped = False
        cluster.start(each)
    for each in BROKERS:
        cluster.follow_metadata(each)
    cluster.advance(TTL_MS + 12 * INTERVAL_MS)


def restarted_in_turn(*, clean: bool) -> Cluster:
    """Return an unused cluster whose brokers restart one after the other, repeatedly."""
    cluster = Cluster()
    for turn in range(4 * TTL_MS // (4 * INTERVAL_MS)):
        broker_id = BROKERS[turn % len(BROKERS)]
        cluster.advance(3 * INTERVAL_MS)
        cluster.end(broker_id, clean=clean)
        cluster.advance(INTERVAL_MS // 2)
        cluster.start(broker_id)
        cluster.advance(INTERVAL_MS // 2)
    return cluster


def test_restarts_in_turn_do_not_keep_a_topic_for_ever() -> None:
    """Those of an upgrade, or of every night. A killed broker forgets what it saw, and does."""
    gone_ms = restarted_in_turn(clean=True).gone_ms
    assert gone_ms is not None
    assert gone_ms >= TTL_MS
    assert restarted_in_turn(clean=False).gone_ms is None


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("away", [(), (2,), (3,), (2, 3)])
def test_a_use_that_only_a_replica_saw_that_came_and_went_counts(
    away: tuple[int, ...], early: bool
) -> None:
    """Its broker dies with it. `away`: who is cleanly stopped while the replica goes, and learns of
    its coming only where it must; `early`: they stop before it is used, else after."""
    cluster = Cluster()
    cluster.move((2, 3))
    cluster.change(isr=(1, 2, 3))
    cluster.finish()
    follow_metadata(cluster)
    assert cluster.partition.leader == 2
    cluster.advance(TTL_MS // 2)
    cluster.move((1, 2))
    follow_metadata(cluster, 1, 2)
    cluster.join(1)
    assert 1 in cluster.partition.isr
    follow_metadata(cluster, 1)
    if early:
        stop(cluster, away)
    cluster.advance(INTERVAL_MS // 3)
    cluster.use(1)
    used_ms = cluster.uses[-1]
    assert used_ms == cluster.now_ms
    if not early:
        stop(cluster, away)
    if not {*cluster.partition.isr} & {2, 3}:
        cluster.start(2)
        follow_metadata(cluster, 1, 2)
        cluster.join(2)
    cluster.end(1, clean=False)
    cluster.move((2, 3))
    for each in away:
        cluster.start(each)
    for each in (2, 3):
        follow_metadata(cluster)
        cluster.join(each)
    cluster.finish()
    assert cluster.replicas == (2, 3)
    left_in_peace(cluster)
    assert cluster.gone_ms is not None
    assert cluster.gone_ms >= used_ms + TTL_MS


def follow_metadata(cluster: Cluster, *broker_ids: int) -> None:
    for each in broker_ids or BROKERS:
        cluster.follow_metadata(each)


def stop(cluster: Cluster, broker_ids: tuple[int, ...]) -> None:
    for each in broker_ids:
        cluster.end(each, clean=True)
