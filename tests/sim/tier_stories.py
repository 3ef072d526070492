"""Short stories of one tiered topic, each built around one failure.

The standard mix meets such moments once in dozens of seeds. Here the moment is made: a leader loses
its leadership while it copies, a put is executed after its broker has died, a follower with an old
log start is read, a log is cut off by an unclean election. The judges are the checkers of the
standard mix. A story takes about three seconds.
"""

from collections.abc import Callable
from functools import partial
from types import MappingProxyType

from ottla.base.ids import REMOTE_LOG_METADATA_TOPIC
from ottla.log.partition_log import PartitionLog
from ottla.testing.history.topics import KEEPS_ALL, Promise, TopicPartition
from ottla.testing.scenarios.scenario import Scenario, Story
from ottla.testing.scenarios.settling import log_of
from ottla.testing.sim.net import MS
from ottla.testing.sim.node import SimNode
from ottla.testing.sim.object_store import ObjectStoreFaults
from ottla.testing.sim.watch.observations import RemoteSegmentChanged
from ottla.testing.sim_clients import Dialogue, TopicSpec
from ottla.testing.sim_clients.reader import Reader
from ottla.wire.registry import PRODUCE

CONFIG = MappingProxyType(
    {
        "remote.log.storage.system.enable": "true",
        "ottla.remote.storage.uri": "memory://simulated",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "remote.log.manager.task.interval.ms": "1000",
        "log.initial.task.delay.ms": "200",
        "log.retention.check.interval.ms": "500",
        "replica.lag.time.max.ms": "2000",
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "zookeeper.session.timeout.ms": "3000",
    }
)
TOPIC = "tiered"
SEGMENT_BYTES = 1_500
OVER = "story-over"
"""The mark of a story that came to its end."""

LOOK_MS = 20
RECORD_LATE_MS = 9_000


def spec(promise: Promise = KEEPS_ALL, replicas: int = 3, **configs: str) -> TopicSpec:
    """Return the topic: local disks keep its active segment only, unless `configs` says so."""
    given = {
        "remote.storage.enable": "true",
        "internal.segment.bytes": str(SEGMENT_BYTES),
        "local.retention.bytes": "1",
        "file.delete.delay.ms": "200",
        "min.insync.replicas": "2",
    }
    named = {name.replace("_", "."): value for name, value in configs.items()}
    return TopicSpec(
        name=TOPIC, replication_factor=replicas, configs=given | named, promise=promise
    )


class Stage:
    """What a story acts on. `changes`: the records of segments so far."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.sim = story.sim
        self.changes: list[RemoteSegmentChanged] = []
        self.slow_since: str | None = None
        self.sim.observe(self._observe)

    def _observe(self, observation: object) -> None:
        if isinstance(observation, RemoteSegmentChanged):
            self.changes.append(observation)
            if observation.state == self.slow_since:
                self.faults(slow=1.0)

    # -- what is -------------------------------------------------------------------------------

    @property
    def key(self) -> TopicPartition:
        topic = self.sim.image.topics.by_name(TOPIC)
        assert topic is not None
        return topic.id, 0

    @property
    def leader(self) -> SimNode:
        return self.sim.nodes[self.story.leader_of(TOPIC)]

    @property
    def metadata_leader(self) -> SimNode:
        return self.sim.nodes[self.story.leader_of(REMOTE_LOG_METADATA_TOPIC)]

    @property
    def replicas(self) -> tuple[int, ...]:
        """The topic's replicas, the preferred leader first."""
        topic = self.sim.image.topics.by_name(TOPIC)
        assert topic is not None
        return topic.partitions[0].replicas

    @property
    def isr(self) -> tuple[int, ...]:
        topic = self.sim.image.topics.by_name(TOPIC)
        return () if topic is None else topic.partitions[0].isr

    def log_on(self, node: SimNode) -> PartitionLog:
        assert node.broker is not None
        log = log_of(node.broker, self.key)
        assert log is not None
        return log

    def count(self, state: str) -> int:
        """Return how many segments have had a state."""
        found = [each for each in self.changes if each.state == state and not each.is_refused]
        return len({each.segment_id for each in found})

    # -- waiting -------------------------------------------------------------------------------

    def until(self, holds: Callable[[], bool], *, look_ms: int = LOOK_MS) -> Dialogue[None]:
        while not holds():
            yield look_ms

    def until_more(self, state: str, count: int = 1) -> Dialogue[None]:
        """Wait until so many more segments have a state."""
        wanted = self.count(state) + count
        yield from self.until(lambda: self.count(state) >= wanted)

    def until_slow_since(self, state: str) -> Dialogue[None]:
        """Wait until one more segment has a state; from that moment on the store is slow."""
        self.slow_since = state
        yield from self.until_more(state)
        self.slow_since = None

    def until_led(self, *, but: SimNode | None = None) -> Dialogue[None]:
        """Wait until the topic has a leader, and another one than `but`."""
        other = -1 if but is None else but.id
        yield from self.until(lambda: self.story.leader_of(TOPIC) not in (-1, other))

    def until_in_sync(self, count: int = 3) -> Dialogue[None]:
        """Wait until so many replicas are in sync."""
        yield from self.until(lambda: len(self.isr) >= count)

    def until_alone(self) -> Dialogue[None]:
        """Wait until the leader has no follower in sync."""
        yield from self.until(lambda: len(self.isr) == 1)

    # -- acting --------------------------------------------------------------------------------

    def begin(
        self, topic: TopicSpec, *, interval_ms: int = 60, reads_ms: int = 1_500
    ) -> Dialogue[None]:
        """Create the topic, produce and read; return when three segments are copied."""
        yield from self.story.create(topic)
        self.story.produce(topic, interval_ms=interval_ms)
        self.story.read_tiers(topic, interval_ms=reads_ms)
        yield from self.until_more("COPY_FINISHED", 3)
        yield from self.until_in_sync(topic.replication_factor)

    def lead_apart(self) -> Dialogue[None]:
        """Have another broker lead the topic than the metadata topic's partition; of two replicas
        none is on that broker."""
        while self.metadata_leader.id in self.replicas[:2]:
            others = [each for each in self.story.broker_ids if each != self.metadata_leader.id]
            order = (*others, self.metadata_leader.id)[: len(self.replicas)]
            yield from self.story.admin.reassign(TOPIC, 0, order)
            yield from self.until(partial(self._is_assigned, order))
            yield from self.until_in_sync(len(order))
            yield from self.story.admin.elect(TOPIC, 0)
            yield 200

    def _is_assigned(self, order: tuple[int, ...]) -> bool:
        return set(self.replicas) == set(order)

    def cut(self, one: int, *others: int) -> None:
        """Cut the links between a place and others, both ways."""
        for other in others:
            self.sim.net.cut |= {(one, other), (other, one)}

    def cut_off(self, node: SimNode) -> None:
        """Cut a broker off from the controllers, or from ZooKeeper."""
        if self.sim.zookeeper is not None:
            self.sim.zookeeper.model.cut(node.id)
        else:
            self.cut(node.id, *(each.id for each in self.sim.nodes.values() if not each.is_broker))

    def mend(self) -> None:
        """Heal all links."""
        self.sim.net.cut.clear()
        if self.sim.zookeeper is not None:
            self.sim.zookeeper.model.heal_all()

    def faults(self, **given: float) -> None:
        """Set the faults of the store; without any it is well."""
        self.sim.object_store.faults = ObjectStoreFaults(**given)  # type: ignore[arg-type]

    def over(self) -> None:
        self.sim.mark(OVER)


# -- restarts, retention, outages --------------------------------------------------------------


def restarts(story: Story) -> Dialogue[None]:
    """Each broker is killed when its local log has lost its beginning; then all at once."""
    stage = Stage(story)
    yield from stage.begin(spec())
    for number in story.broker_ids:
        node = stage.sim.nodes[number]
        node.crash(lose_unflushed=False)
        yield 300
        node.restart()
        yield from stage.until(lambda node=node: node.serves)  # type: ignore[misc]
        yield from stage.until_in_sync()
    for number in story.broker_ids:
        stage.sim.nodes[number].crash(lose_unflushed=False)
        story.run(_back(stage.sim.nodes[number]))
    yield 2_000
    stage.over()


def _back(node: SimNode, after_ms: int = 300) -> Dialogue[None]:
    yield after_ms
    node.restart()


def retention(story: Story) -> Dialogue[None]:
    """Remote segments expire while they are read; a part of what is copied is local, too."""
    stage = Stage(story)
    topic = spec(
        Promise(trimmed=True),
        retention_bytes=str(6 * SEGMENT_BYTES),
        local_retention_bytes=str(3 * SEGMENT_BYTES),
    )
    yield from stage.begin(topic, interval_ms=40, reads_ms=300)
    yield from stage.until_more("DELETE_STARTED", 4)
    stage.faults(slow=0.3)
    yield from stage.until_more("DELETE_STARTED", 3)
    stage.faults()
    stage.over()


def outages(story: Story) -> Dialogue[None]:
    """The store is down in the middle of a copy, and segments are sealed meanwhile; then it is well
    again, and another leader copies them."""
    stage = Stage(story)
    yield from stage.begin(spec())
    for number in range(2):
        yield from stage.until_slow_since("COPY_STARTED")
        stage.faults(is_down=True)
        yield 3_000
        if number:
            leader = stage.leader
            leader.crash(lose_unflushed=False)
            yield from stage.until_led(but=leader)
            leader.restart()
        stage.faults()
        yield from stage.until_more("COPY_FINISHED", 2)
    stage.over()


def lies(story: Story) -> Dialogue[None]:
    """The store reports puts for done that it has not stored."""
    stage = Stage(story)
    yield from stage.begin(spec())
    stage.faults(lies=0.2)
    yield 6_000
    stage.faults()
    stage.over()


def transactions(story: Story) -> Dialogue[None]:
    """Transactions whose markers are in later segments than their records are read in both tiers,
    under two leaders."""
    stage = Stage(story)
    topic = spec(local_retention_bytes=str(2 * SEGMENT_BYTES))
    yield from story.create(topic)
    for _ in range(2):
        story.write_transactions(topic, interval_ms=150)
    story.read_tiers(topic, interval_ms=700, committed_only=True)
    yield from stage.begin(topic)
    leader = stage.leader
    leader.crash(lose_unflushed=False)
    yield from stage.until_led(but=leader)
    leader.restart()
    yield from stage.until_more("COPY_FINISHED", 5)
    yield 2_000
    stage.over()


# -- former leaders ----------------------------------------------------------------------------


def late_put(story: Story) -> Dialogue[None]:
    """A leader dies while it copies; what it was putting arrives when the next leader has already
    deleted the objects of that copy."""
    stage = Stage(story)
    yield from stage.begin(spec())
    yield from stage.until_slow_since("COPY_STARTED")
    yield 30
    leader = stage.leader
    leader.crash(lose_unflushed=False)
    stage.faults()
    yield from stage.until_led(but=leader)
    leader.restart()
    yield 20_000
    stage.over()


def late_manifest(story: Story) -> Dialogue[None]:
    """A leader dies while it writes a manifest, which arrives after the next leader's."""
    stage = Stage(story)
    yield from stage.begin(spec())
    for _ in range(2):
        yield from stage.until_slow_since("COPY_FINISHED")
        yield 50
        leader = stage.leader
        leader.crash(lose_unflushed=False)
        stage.faults()
        yield from stage.until_led(but=leader)
        leader.restart()
        yield from stage.until_in_sync()
    yield 8_000
    stage.over()


def late_record(story: Story) -> Dialogue[None]:
    """A leader is cut off from the controllers while its COPY_STARTED is under way to the metadata
    topic, where it arrives after the fence of the next leader."""
    stage = Stage(story)
    yield from stage.begin(spec())
    yield from stage.lead_apart()
    former, net = stage.leader, stage.sim.net
    stage.cut_off(former)

    def late_us(source: int, target: int, frame: bytes) -> int:
        # A broker produces to nothing but the metadata topic.
        is_produce = frame[4:6] == PRODUCE.to_bytes(2, "big")
        return RECORD_LATE_MS * MS if is_produce and source == former.id else 0

    net.late_us = late_us
    yield from stage.until_led(but=former)
    yield 4_000
    net.late_us = None
    yield RECORD_LATE_MS
    stage.mend()
    yield 2_000
    stage.over()


# -- histories that differ ---------------------------------------------------------------------


def stale_follower(story: Story) -> Dialogue[None]:
    """A follower sleeps while segments expire. It wakes up, learns of their deletion, and is read
    at its own log start before it has its leader's."""
    stage = Stage(story)
    topic = spec(Promise(trimmed=True), retention_bytes=str(6 * SEGMENT_BYTES))
    yield from stage.begin(topic)
    yield from stage.lead_apart()
    yield from stage.until_more("DELETE_STARTED")
    apart = (stage.leader.id, stage.metadata_leader.id)
    asleep = next(stage.sim.nodes[each] for each in story.broker_ids if each not in apart)
    log = stage.log_on(asleep)
    asleep.pause()
    yield from stage.until_more("DELETE_STARTED")
    stage.cut(asleep.id, stage.leader.id)
    client = story.client("late reader")
    client.follow(TOPIC)
    yield client.refresh()
    asleep.resume()
    reader = Reader(client, resets=True)
    for _ in range(30):
        reader.lost.clear()
        reader.seek(stage.key, log.log_start_offset)
        reader.prefer(stage.key, asleep.id, until_ms=story.now_ms + 10_000)
        yield from reader.fetch((stage.key,))
        yield 50
    stage.mend()
    stage.over()


def unclean(story: Story) -> Dialogue[None]:
    """A leader without followers copies records; another replica, which lacks them, is elected,
    and other records get their offsets."""
    stage = Stage(story)
    topic = spec(
        Promise(unclean=True),
        replicas=2,
        unclean_leader_election_enable="true",
        min_insync_replicas="1",
    )
    yield from stage.begin(topic)
    yield from stage.lead_apart()
    alone = stage.leader
    [other] = (stage.sim.nodes[each] for each in stage.replicas if each != alone.id)
    other.crash(lose_unflushed=False)  # Not cut off: over ZooKeeper it may be the controller.
    yield from stage.until_alone()
    yield from stage.until_more("COPY_FINISHED", 3)
    alone.crash(lose_unflushed=False)
    other.restart()
    # The next leader rolls where its records begin: what it has before that is not copied again.
    yield from story.admin.configure(TOPIC, {"segment.ms": "1000"})
    yield from stage.until_led(but=alone)
    yield from stage.until_more("COPY_FINISHED", 2)
    alone.restart()
    yield from stage.until_more("COPY_FINISHED", 3)
    stage.over()


STORIES = {
    each.__name__: each
    for each in (
        restarts,
        retention,
        outages,
        lies,
        transactions,
        late_put,
        late_manifest,
        late_record,
        stale_follower,
        unclean,
    )
}


def scenario(name: str, *, zookeeper: bool = False) -> Scenario:
    """Return what plays a story."""
    return scenario_of(STORIES[name], zookeeper=zookeeper)


def scenario_of(story: Callable[[Story], Dialogue[None]], *, zookeeper: bool) -> Scenario:
    """Return what plays one of these stories, or of those that turn tiered storage off."""
    return Scenario(
        name=story.__name__,
        story=story,
        brokers=3,
        controllers=1,
        zookeeper=zookeeper,
        config=dict(CONFIG),
        seconds=45,
        ends_with_story=True,
        settle_seconds=45,
    )
