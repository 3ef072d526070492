"""Reads the replicas of __consumer_offsets at the end of a history, and replays them."""

from collections.abc import Iterator

from ottla.base.ids import OFFSETS_TOPIC
from ottla.coordinator.records import GroupFact, OffsetFact, decode_fact, decode_key
from ottla.log.partition_log import PartitionLog
from ottla.testing.history.groups import OffsetsLogSeen
from ottla.testing.history.topics import TopicPartition
from ottla.testing.scenarios.settling import brokers_of, log_of, records_of_log
from ottla.testing.sim import Sim


def read_offsets_logs(sim: Sim) -> Iterator[OffsetsLogSeen]:
    """Yield the content of every replica of __consumer_offsets."""
    topic = sim.image.topics.by_name(OFFSETS_TOPIC)
    if topic is None:
        return
    brokers = dict(brokers_of(sim))
    for number, state in topic.in_order():
        for node_id in state.replicas:
            log = log_of(brokers[node_id], (topic.id, number)) if node_id in brokers else None
            if log is not None:
                yield _seen(node_id, number, log)


def _seen(node_id: int, number: int, log: PartitionLog) -> OffsetsLogSeen:
    records: dict[int, tuple[bytes, bytes | None]] = {}
    offsets: dict[tuple[str, TopicPartition], tuple[int, str, int]] = {}
    generations: dict[str, int] = {}
    current: dict[tuple[str, str, int], tuple[str, TopicPartition]] = {}
    """The key of the newest offset, by topic name: a name may have had several ids."""
    for record in records_of_log(log):
        assert record.key is not None
        records[record.offset] = (record.key, record.value)
        key = decode_key(record.key)
        fact = None if key is None else decode_fact(key, record.value)
        match fact:
            case OffsetFact(group, topic, partition, value):
                former = current.pop((group, topic, partition), None)
                if former is not None:
                    del offsets[former]
                if value is not None:
                    place = current[group, topic, partition] = group, (value.topic_id, partition)
                    offsets[place] = value.offset, value.metadata, value.leader_epoch
            case GroupFact(group, metadata):
                generations.pop(group, None)
                if metadata is not None:
                    generations[group] = metadata.generation
    return OffsetsLogSeen(
        node=node_id,
        partition=number,
        start=log.log_start_offset,
        end=log.log_end_offset,
        records=records,
        offsets=offsets,
        generations=generations,
    )
