"""Topics of a seed that do not promise to keep everything, and the changes made to them.

Some are compacted, some lose records to retention and DeleteRecords; some have one replica, a
changing `min.insync.replicas`, or elections outside the in-sync replicas. Their segments are tiny,
their batches compressed, and some of their producers use acks=1 or acks=0. Checkers go by the
`Promise` of each topic.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_LEADER
from ottla.records.compression import Codec
from ottla.testing.history.history import ACKS_ALL
from ottla.testing.history.topics import Promise, TopicPartition, Trim
from ottla.testing.scenarios.settling import brokers_of, log_of
from ottla.testing.sim_clients import Consumer, Dialogue, TopicSpec
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

if TYPE_CHECKING:
    from ottla.testing.scenarios.scenario import Story

KINDS = ("compacted", "compacted", "trimmed", "trimmed", "single", "minimum", "unclean")
NONE_ONE_IN = 5
"""One of so many seeds has no such topic."""
DELETE_RECORDS_VERSION = 2
TO_THE_HIGH_WATERMARK = -1
TRIM_TIMEOUT_MS = 4_000
REQUEST_TIMEOUT_MS = 6_000
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageTopic:
    """One of these topics. `acks`: of a second producer, None = there is none. `keys`: how many."""

    kind: str
    spec: TopicSpec
    codec: Codec
    acks: int | None
    interval_ms: int
    keys: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageWorkload:
    """What a seed draws. `change_ms`: the mean time between changes of one of the topics."""

    topics: tuple[StorageTopic, ...] = ()
    change_ms: int = 4_000
    config: tuple[tuple[str, str], ...] = ()

    def story(self, story: "Story") -> Dialogue[None]:
        """Create the topics, start clients, and change the topics until the end."""
        consumers = {}
        for topic in self.topics:
            yield from story.create(topic.spec)
            story.produce(
                topic.spec, interval_ms=topic.interval_ms, keys=topic.keys, codec=topic.codec
            )
            if topic.acks is not None:
                story.produce(
                    topic.spec,
                    interval_ms=2 * topic.interval_ms,
                    idempotent=False,
                    acks=topic.acks,
                    keys=topic.keys,
                    codec=topic.codec,
                )
            consumers[topic.spec.name] = story.consume(topic.spec, interval_ms=700, resets=True)
        yield from self._keep_changing(story, consumers)

    def _keep_changing(self, story: "Story", consumers: dict[str, Consumer]) -> Dialogue[None]:
        random = Random(f"{story.sim.seed}/storage at work")
        while not story.is_over:
            yield 1 + random.randrange(2 * self.change_ms)
            topic = random.choice(self.topics)
            name, number = topic.spec.name, random.randrange(topic.spec.partitions)
            match random.randrange(6):
                case 0 | 1 if topic.kind == "minimum":
                    minimum = {"min.insync.replicas": str(random.choice((1, 2)))}
                    yield from story.admin.configure(name, minimum)
                case 0 | 1 | 2 if topic.kind == "trimmed":
                    yield from trim(story, random, name, number, consumers[name])
                case 3:
                    yield from story.admin.elect(name, number)
                case 4 if topic.spec.replication_factor > 1:
                    copies = random.sample(story.broker_ids, topic.spec.replication_factor)
                    yield from story.admin.reassign(name, number, tuple(copies))
                case _:
                    pass


NO_STORAGE = StorageWorkload()


def trim(
    story: "Story", random: Random, name: str, number: int, consumer: Consumer
) -> Dialogue[None]:
    """Delete records of a partition up to an offset below its high watermark, or up to it."""
    client = story.admin.client
    key = next((each for each in client.partitions_of(name) if each[1] == number), None)
    if key is None or client.leaders[key].node == NO_LEADER:
        yield client.refresh()
        return
    wanted = TO_THE_HIGH_WATERMARK
    if random.random() < 0.7:  # A consumer's position is below the high watermark.
        wanted = random.randrange(consumer.positions.get(key, 0) + 1)
    leader = client.leaders[key].node
    members = _members(story, key, led_by=leader)
    partition = DeleteRecordsPartition(partition_index=number, offset=wanted)
    request = DeleteRecordsRequest(
        topics=(DeleteRecordsTopic(name=name, partitions=(partition,)),),
        timeout_ms=TRIM_TIMEOUT_MS,
    )
    answer = yield from story.admin.send(
        leader, request, DELETE_RECORDS_VERSION, REQUEST_TIMEOUT_MS
    )
    if isinstance(answer, ApiError):
        yield client.refresh()
        return
    result: DeleteRecordsPartitionResult = answer.topics[0].partitions[0]
    if result.error_code != Error.NONE:
        yield client.refresh()
        return
    story.sim.mark("records-deleted")
    now = _members(story, key)
    starts = tuple(
        (node, start)
        for (node, incarnation), start in now.items()
        if (node, incarnation) in members
    )
    story.history.trims.append(Trim(key, wanted, result.low_watermark, starts, story.now_ms))


def _members(
    story: "Story", key: TopicPartition, *, led_by: int | None = None
) -> dict[tuple[int, int], int]:
    """Return the log starts of a partition's in-sync replicas, by node and life.

    `led_by`: nothing is returned where another node leads; None = whoever leads. A leader that was
    paused through the election of the next answers by the ISR that it knew.
    Over ZooKeeper a leader may take a member for dead that has just got a new session.
    """
    sim = story.sim
    topic = sim.image.topics.by_id(key[0])
    state = None if topic is None else topic.partitions.get(key[1])
    if state is None or sim.zookeeper is not None or led_by not in (None, state.leader):
        return {}
    logs = {node_id: log_of(broker, key) for node_id, broker in brokers_of(sim)}
    return {
        (node_id, sim.nodes[node_id].incarnation): log.log_start_offset
        for node_id in state.isr
        if (log := logs.get(node_id)) is not None and not log.failed
    }


# -- what a seed draws -------------------------------------------------------------------------


def draw_storage(seed: int) -> StorageWorkload:
    """Return the topics of a seed."""
    random = Random(f"{seed}/storage")
    if random.randrange(NONE_ONE_IN) == 0:
        return NO_STORAGE
    kinds = [random.choice(KINDS) for _ in range(random.choice((1, 2, 2)))]
    return StorageWorkload(
        topics=tuple(_draw_topic(random, kind, number) for number, kind in enumerate(kinds, 1)),
        change_ms=random.choice((2_000, 5_000)),
        config=(
            ("log.cleaner.backoff.ms", str(random.choice((1_000, 4_000)))),
            ("log.retention.check.interval.ms", str(random.choice((1_000, 5_000)))),
        ),
    )


def _draw_topic(random: Random, kind: str, number: int) -> StorageTopic:
    configs = dict(_segments(random))
    configs["compression.type"] = random.choice(("producer", "producer", "lz4", "uncompressed"))
    copies, keys, promise = 3, 0, Promise()
    match kind:
        case "compacted":
            configs |= dict(_compaction(random))
            keys = random.choice((4, 12))
            promise = Promise(
                compacted=configs["min.compaction.lag.ms"] != str(DAY_MS),
                keeps_tombstones=configs["delete.retention.ms"] == str(DAY_MS),
                trimmed="delete" in configs["cleanup.policy"],
            )
        case "trimmed":
            configs["retention.bytes"] = str(random.choice((-1, 2_000, 12_000)))
            configs["retention.ms"] = str(random.choice((-1, 10_000, 40_000)))
            promise = Promise(trimmed=True)
        case "single" | "minimum":
            copies = 1 if kind == "single" else 3
            flushes = random.random() < 0.6
            if flushes:
                configs["flush.messages"] = "1"
            promise = Promise(weak=not flushes)
        case _:
            configs["unclean.leader.election.enable"] = "true"
            copies = random.choice((2, 3))
            promise = Promise(weak=True, unclean=True)
    strict = kind in ("compacted", "trimmed")
    configs["min.insync.replicas"] = "2" if strict else "1"
    return StorageTopic(
        kind=kind,
        spec=TopicSpec(
            name=f"storage-{number}",
            partitions=random.choice((1, 1, 2)),
            replication_factor=copies,
            configs=configs,
            promise=promise,
        ),
        codec=random.choice((Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4)),
        acks=random.choice((None, None, ACKS_ALL, 1, 0)),
        interval_ms=random.choice((150, 300)),
        keys=keys,
    )


def _segments(random: Random) -> Iterator[tuple[str, str]]:
    yield "internal.segment.bytes", str(random.choice((600, 3_000, 20_000)))
    yield "segment.ms", str(random.choice((2_000, 10_000, DAY_MS)))
    yield "index.interval.bytes", str(random.choice((0, 300, 4_096)))
    yield "file.delete.delay.ms", str(random.choice((200, 5_000)))


def _compaction(random: Random) -> Iterator[tuple[str, str]]:
    policy = random.choice(("compact", "compact", "compact,delete"))
    yield "cleanup.policy", policy
    if policy != "compact":
        yield "retention.bytes", str(random.choice((-1, 8_000)))
        yield "retention.ms", str(random.choice((20_000, 60_000)))
    yield "min.cleanable.dirty.ratio", random.choice(("0.01", "0.3"))
    yield "delete.retention.ms", str(random.choice((0, 4_000, DAY_MS)))
    yield "min.compaction.lag.ms", str(random.choice((0, 0, 2_000, DAY_MS)))
