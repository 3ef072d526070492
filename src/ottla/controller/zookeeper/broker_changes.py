"""Leader elections that follow when brokers appear, restart or disappear in ZooKeeper.

A broker that restarted, however quickly, has failed and started. Its epoch shows it, since the
set of broker ids does not change (KAFKA-7235).

All failures are applied before any election for new or restarted brokers: of two brokers that
failed together neither is in sync with the other's restarted process, but each keeps what it had.
The first of them that is back leads alone.
Source: KafkaController.{processBrokerChange, onBrokerStartup, onBrokerFailure,
onBrokerUpdate}, Kafka 3.9; KIP-380. In KRaft, `brokers` decides.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ottla.base.ids import NO_LEADER
from ottla.controller.elections.elections import Rules, RulesByLeader, partitions
from ottla.controller.elections.partition_change import PartitionTarget, build_change
from ottla.controller.step import Step
from ottla.metadata.brokers import BrokerImage
from ottla.metadata.delta import ClusterDelta, replay
from ottla.metadata.image import ClusterImage
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.records import PartitionChangeRecord, Record
from ottla.metadata.topics import DIRECTORY_LOST, DIRECTORY_MIGRATING, partition_record


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerChange:
    """The brokers that are new, that restarted, and that are gone; each in order."""

    new: tuple[int, ...] = ()
    bounced: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()


def difference(before: Mapping[int, BrokerImage], after: Mapping[int, BrokerImage]) -> BrokerChange:
    """Return how the brokers of a later image differ from those of an earlier one."""
    earlier, later = frozenset(before), frozenset(after)
    both = sorted(earlier & later)
    return BrokerChange(
        new=tuple(sorted(later - earlier)),
        bounced=tuple(each for each in both if after[each].epoch > before[each].epoch),
        dead=tuple(sorted(earlier - later)),
    )


def reset_lost_directories(image: ClusterImage, broker_ids: frozenset[int]) -> Iterator[Record]:
    """Yield partitions without the lost log directories of brokers that have just started.

    A started broker's directories count as working until it reports a failure. Observed with the
    registrations, so that these brokers get LeaderAndIsr for all that they host at once.
    """
    for topic in image.topics if broker_ids else ():
        for partition_id, partition in topic.in_order():
            if DIRECTORY_LOST not in partition.directories:
                continue
            directories = tuple(
                DIRECTORY_MIGRATING if replica in broker_ids and was == DIRECTORY_LOST else was
                for replica, was in zip(partition.replicas, partition.directories, strict=True)
            )
            if directories != partition.directories:
                reset = replace(partition, directories=directories)
                yield partition_record(topic.id, partition_id, reset)


def process_broker_change(image: ClusterImage, config: NodeConfig, delta: ClusterDelta) -> Step:
    """Return the elections that a change of the brokers requires, on the current image.

    The image may be newer than the change: a broker that failed in it has failed, even if it is
    registered again now.
    """
    change = difference(delta.before.brokers, delta.image.brokers)
    failed = frozenset(change.bounced + change.dead)
    started = frozenset(change.new + change.bounced) & frozenset(image.brokers)
    records = tuple(_fail(image, config, failed)) if failed else ()
    if started:
        offset, epoch = image.position
        after = replay(image, records, offset=offset, epoch=epoch).image
        records += tuple(_start(after, config, started))
    return Step(records, atomic=False)


def _fail(
    image: ClusterImage,
    config: NodeConfig,
    failed: frozenset[int],
    only: Container[tuple[str, int]] | None = None,
) -> Iterator[PartitionChangeRecord]:
    """Yield the changes by which brokers lead nothing and leave every ISR that has other members.

    `only`: the partitions that are looked at; None = all.
    """
    registered = image.brokers.items()
    without = replace(image, brokers=type(image.brokers)(_others(registered, failed)))
    rules = RulesByLeader(without, config)
    for topic, partition_id, partition in partitions(image):
        if failed.isdisjoint((partition.leader, *partition.isr)):
            continue
        if only is not None and (topic.name, partition_id) not in only:
            continue
        leader_rules = rules.of(partition.leader)
        target = PartitionTarget(
            isr=tuple(each for each in partition.isr if each not in failed),
            election=leader_rules.election(topic.name),
        )
        record = build_change(
            topic.id, partition_id, partition, target, leader_rules.change_context(topic.name)
        )
        if record is not None:
            yield record


def process_missed_restarts(
    image: ClusterImage,
    config: NodeConfig,
    restarted_replicas: Mapping[tuple[str, int], frozenset[int]],
) -> Step:
    """Return the elections for brokers that restarted while there was no controller.

    `restarted_replicas`: by partition, those of its leader and in-sync replicas that run as another
    process since the state was written. Each failed and started, as in `process_broker_change`;
    so did in-sync replicas that are not registered now.
    """
    by_failed: dict[frozenset[int], set[tuple[str, int]]] = {}
    for topic, partition_id, partition in partitions(image):
        key = (topic.name, partition_id)
        if key in restarted_replicas:
            unregistered = frozenset(each for each in partition.isr if each not in image.brokers)
            by_failed.setdefault(restarted_replicas[key] | unregistered, set()).add(key)
    records: tuple[Record, ...] = ()
    for failed in sorted(by_failed, key=sorted):
        records += tuple(_fail(image, config, failed, by_failed[failed]))
    if records:
        offset, epoch = image.position
        after = replay(image, records, offset=offset, epoch=epoch).image
        started = frozenset().union(*by_failed) & frozenset(after.brokers)
        records += tuple(_start(after, config, started))
    return Step(records, atomic=False)


def _others(
    brokers: Iterable[tuple[int, BrokerImage]], failed: frozenset[int]
) -> dict[int, BrokerImage]:
    return {broker_id: broker for broker_id, broker in brokers if broker_id not in failed}


def _start(
    image: ClusterImage, config: NodeConfig, started: frozenset[int]
) -> Iterator[PartitionChangeRecord]:
    """Yield the leaders that leaderless partitions get from started brokers."""
    rules = Rules(image, config)
    for topic, partition_id, partition in partitions(image):
        if partition.leader != NO_LEADER or started.isdisjoint(partition.replicas):
            continue
        target = PartitionTarget(election=rules.election(topic.name))
        record = build_change(
            topic.id, partition_id, partition, target, rules.change_context(topic.name)
        )
        if record is not None:
            yield record
