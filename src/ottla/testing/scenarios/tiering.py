"""Topics of a seed that have remote storage, the faults of the object store, and the changes made.

Some topics are tiered from their creation, some during the history; some lose records to retention
and DeleteRecords, some are deleted and created again, some allow unclean elections. Segments are
tiny, and local disks keep one or two of them.
"""

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from ottla.records.compression import Codec
from ottla.testing.history.history import ACKS_ALL
from ottla.testing.history.topics import Promise
from ottla.testing.scenarios.backfills import (
    Backfill,
    backfill_config,
    begin_backfill,
    draw_backfills,
)
from ottla.testing.scenarios.storage import DAY_MS, trim
from ottla.testing.scenarios.tiering_off import draw_switched, keep_switching
from ottla.testing.sim import StoreFaults
from ottla.testing.sim.layout import SELECTOR, rack_of
from ottla.testing.sim_clients import Consumer, Dialogue, TopicSpec

if TYPE_CHECKING:
    from ottla.testing.scenarios.scenario import Story

ONE_IN = 12
"""One of so many seeds has remote storage: it takes twice the time of another one."""

AGED_ONE_IN = 16
"""Of the others one of so many has a topic whose remote segments expire all the time."""

KINDS = ("kept", "kept", "trimmed", "trimmed", "late", "passing", "unclean")
AGED = "aged"
TRIMMED_KINDS = ("trimmed", AGED)
TRANSACTIONAL_KINDS = ("kept", "trimmed", "late")
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
ENABLE = {"remote.storage.enable": "true"}
LATE_MS_MAX = 60_000
"""Until when a topic that was created without remote storage gets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredTopic:
    """One of these topics.

    Fields: `kind`: one of KINDS, or AGED: it loses records to retention alone, which is short.
            `acks`: of a second producer, None = there is none. `rack`: of the consumer that reads
            from the start, empty = it reads from leaders. `read_bytes`: what it fetches at once.
            `transactional`: a producer writes transactions, and a read_committed consumer reads.
    """

    kind: str
    spec: TopicSpec
    codec: Codec
    acks: int | None
    interval_ms: int
    rack: str = ""
    read_bytes: int = 1 << 20
    transactional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TieringWorkload:
    """What a seed draws. `change_ms`: the mean time between changes of one of the topics.
    `switched`: the topics whose tiered storage is turned off and on. `backfills`: of some."""

    topics: tuple[TieredTopic, ...] = ()
    switched: tuple[str, ...] = ()
    backfills: tuple[Backfill, ...] = ()
    change_ms: int = 5_000
    config: tuple[tuple[str, str], ...] = ()
    faults: StoreFaults = StoreFaults.NONE

    def story(self, story: "Story") -> Dialogue[None]:
        """Create the topics, start clients, and change the topics until the end."""
        consumers = {}
        for topic in self.topics:
            spec, steady = topic.spec, topic.kind != "passing"
            yield from story.create(spec)
            story.produce(spec, interval_ms=topic.interval_ms, codec=topic.codec, steady=steady)
            if topic.acks is not None:
                story.produce(
                    spec,
                    interval_ms=2 * topic.interval_ms,
                    idempotent=False,
                    acks=topic.acks,
                    codec=topic.codec,
                    steady=steady,
                )
            consumers[spec.name] = story.consume(spec, interval_ms=900, resets=True, steady=steady)
            story.read_tiers(spec, rack=topic.rack, max_bytes=topic.read_bytes, steady=steady)
            if topic.transactional:
                story.write_transactions(spec, interval_ms=2 * topic.interval_ms)
                story.read_tiers(spec, rack=topic.rack, committed_only=True, steady=steady)
            if topic.kind == "late":
                story.run(_enable_later(story, spec))
            if spec.name in self.switched:
                story.run(keep_switching(story, spec))
            for each in self.backfills:
                if each.topic == spec.name:
                    story.run(begin_backfill(story, spec, each))
        yield from self._keep_changing(story, consumers)

    def _keep_changing(self, story: "Story", consumers: dict[str, Consumer]) -> Dialogue[None]:
        random = Random(f"{story.sim.seed}/tiering at work")
        while not story.is_over:
            yield 1 + random.randrange(2 * self.change_ms)
            topic = random.choice(self.topics)
            name, number = topic.spec.name, random.randrange(topic.spec.partitions)
            match random.randrange(6):
                case 0 | 1 if topic.kind == "trimmed":
                    yield from trim(story, random, name, number, consumers[name])
                case 0 if topic.kind == "passing":
                    yield from _replace(story, random, topic.spec)
                case 2:
                    yield from story.admin.configure(name, dict(_local_retention(random)))
                case 3:
                    yield from story.admin.elect(name, number)
                case 4:
                    copies = random.sample(story.broker_ids, topic.spec.replication_factor)
                    yield from story.admin.reassign(name, number, tuple(copies))
                case _:
                    pass


NO_TIERING = TieringWorkload()


def _enable_later(story: "Story", spec: TopicSpec) -> Dialogue[None]:
    random = Random(f"{story.sim.seed}/{spec.name} gets remote storage")
    yield 1 + random.randrange(LATE_MS_MAX)
    if not story.is_over:
        yield from story.admin.configure(spec.name, ENABLE)


def _replace(story: "Story", random: Random, spec: TopicSpec) -> Dialogue[None]:
    """Delete a topic, and create it again with another number of partitions."""
    yield story.admin.client.refresh()
    yield from story.admin.delete(spec.name)
    yield from story.admin.create_anew(replace(spec, partitions=random.choice((1, 2))))


# -- what a seed draws -------------------------------------------------------------------------


def draw_tiering(seed: int, *, faultless: bool = False) -> TieringWorkload:
    """Return the tiered topics of a seed; most seeds have none. `faultless`: of the store, too."""
    of_all_kinds = Random(f"{seed}/both tiers").randrange(ONE_IN) == 0
    if not of_all_kinds and Random(f"{seed}/remote retention").randrange(AGED_ONE_IN):
        return NO_TIERING
    random = Random(f"{seed}/tiering")
    with_racks = random.random() < 0.4
    kinds = [AGED]
    if of_all_kinds:
        kinds = [random.choice(KINDS) for _ in range(random.choice((1, 1, 2)))]
    topics = tuple(
        _draw_topic(random, kind, number, with_racks) for number, kind in enumerate(kinds, 1)
    )
    backfills = draw_backfills(seed, [each.spec.name for each in topics])
    return TieringWorkload(
        topics=_with_transactions(topics, Random(f"{seed}/tiered transactions")),
        switched=draw_switched(seed, [each.spec.name for each in topics]),
        backfills=backfills,
        change_ms=random.choice((3_000, 6_000)),
        config=_config(random, with_racks) + backfill_config(seed, backfills),
        faults=StoreFaults.NONE if faultless else StoreFaults.ROUGH,
    )


def _with_transactions(topics: tuple[TieredTopic, ...], random: Random) -> tuple[TieredTopic, ...]:
    """Let some topics have transactions; not those that may lose a marker, or are deleted."""
    return tuple(
        replace(each, transactional=random.random() < 0.5 and each.kind in TRANSACTIONAL_KINDS)
        for each in topics
    )


def _draw_topic(random: Random, kind: str, number: int, with_racks: bool) -> TieredTopic:
    configs = {
        "internal.segment.bytes": str(random.choice((800, 2_000, 5_000))),
        "segment.ms": str(random.choice((3_000, 15_000, DAY_MS))),
        "index.interval.bytes": str(random.choice((0, 300, 4_096))),
        "file.delete.delay.ms": str(random.choice((200, 5_000))),
        "min.insync.replicas": "2",
    }
    configs |= dict(_local_retention(random))
    if kind != "late":
        configs |= ENABLE
    promise = Promise()
    if kind in TRIMMED_KINDS:
        configs["retention.bytes"] = str(random.choice((-1, 6_000, 20_000)))
        configs["retention.ms"] = str(random.choice((-1, 30_000, 60_000)))
        promise = Promise(trimmed=True)
    if kind == AGED:
        configs["internal.segment.bytes"] = "800"
        configs["retention.bytes"] = str(random.choice((6_000, 8_000)))
        configs["retention.ms"] = str(random.choice((20_000, 30_000)))
    elif kind == "unclean":
        configs["unclean.leader.election.enable"] = "true"
        configs["min.insync.replicas"] = "1"
        promise = Promise(weak=True, unclean=True)
    return TieredTopic(
        kind=kind,
        spec=TopicSpec(
            name=f"tiered-{number}",
            partitions=random.choice((1, 1, 2)),
            replication_factor=3,
            configs=configs,
            promise=promise,
        ),
        codec=random.choice((Codec.NONE, Codec.NONE, Codec.LZ4)),
        acks=random.choice((None, None, ACKS_ALL, 1)),
        interval_ms=random.choice((200, 400)),
        rack=rack_of(random.randrange(1, 4)) if with_racks else "",
        read_bytes=random.choice((400, 1 << 20, 1 << 20)),
    )


def _local_retention(random: Random) -> tuple[tuple[str, str], ...]:
    """Return how much local disks keep: nothing but the active segment, or some."""
    return (
        ("local.retention.bytes", str(random.choice((1, 1_500, 5_000)))),
        ("local.retention.ms", str(random.choice((1_000, 8_000, 20_000)))),
    )


def _config(random: Random, with_racks: bool) -> tuple[tuple[str, str], ...]:
    drawn = {
        "remote.log.storage.system.enable": "true",
        "ottla.remote.storage.uri": "memory://simulated",
        "remote.log.manager.task.interval.ms": random.choice((1_000, 5_000, 30_000)),
        "remote.log.manager.task.retry.backoff.ms": random.choice((100, 500)),
        "remote.log.manager.task.retry.backoff.max.ms": random.choice((1_000, 5_000)),
        "remote.fetch.max.wait.ms": random.choice((100, 500)),
        "ottla.remote.chunk.cache.size.bytes": random.choice((0, 1 << 20)),
        "rlmm.config.remote.log.metadata.topic.num.partitions": random.choice((1, 2, 3)),
        "log.retention.check.interval.ms": random.choice((1_000, 5_000)),
    }
    if with_racks:
        drawn[SELECTOR] = RACK_AWARE
    return tuple((name, str(value)) for name, value in drawn.items())
