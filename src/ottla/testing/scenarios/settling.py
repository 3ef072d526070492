"""Tells when a healed cluster has settled, and reads its logs then.

Settled means: every partition has a leader, every assigned replica is in sync, no reassignment is
under way, and all replicas have the same log end and high watermark. Over ZooKeeper also that every
broker has the topics' configurations as their znodes are; in KRaft mode images are compared anyway.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache

from ottla.base.errors import ApiError
from ottla.base.ids import INTERNAL_TOPICS
from ottla.broker.core import Broker
from ottla.log.partition_log import PartitionLog
from ottla.metadata.configs import ResourceType
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.config import decode_config
from ottla.records.batch import iter_headers
from ottla.records.errors import RecordsError
from ottla.records.record import Record, iter_records
from ottla.testing.history.history import LogSeen
from ottla.testing.history.identity import identity
from ottla.testing.history.topics import TopicPartition
from ottla.testing.sim import Sim

READ_BYTES_MAX = 1 << 24

RemoteValues = Callable[[TopicPartition, PartitionLog], dict[int, bytes]]


def unsettled(sim: Sim) -> list[str]:
    """Return what has not settled yet, in words; empty = everything has."""
    found = [
        f"node {node_id} is down" for node_id, node in sorted(sim.nodes.items()) if not node.alive
    ]
    image = sim.image
    brokers = dict(brokers_of(sim))
    behind = [
        f"node {node_id} has metadata up to {broker.image.position[0]}"
        for node_id, broker in brokers.items()
        if broker.image.topics != image.topics
    ]
    found += behind
    found += _configs_apart(sim, brokers)
    for topic in image.topics:
        for number, state in topic.in_order():
            name = f"{topic.name}-{number}"
            if state.leader < 0:
                found.append(f"{name} has no leader: in sync {state.isr}, eligible {state.elr}")
            if set(state.isr) != set(state.replicas):
                found.append(f"{name} has replicas {state.replicas}, in sync {state.isr}")
            if state.is_reassigning:
                found.append(f"{name} is being reassigned")
            found += _apart(name, (topic.id, number), state.replicas, brokers)
    return found


def _configs_apart(sim: Sim, brokers: dict[int, Broker]) -> Iterator[str]:
    if sim.zookeeper is None:
        return
    for topic in sim.image.topics:
        resource = (ResourceType.TOPIC, topic.name)
        znode = sim.zookeeper.model.tree.nodes.get(paths.config(resource))
        values = decode_config(resource, b"" if znode is None else znode.data).values
        for node_id, broker in brokers.items():
            taken = broker.image.configs.of(*resource)
            if taken != values:
                yield f"node {node_id} has {dict(taken)} for {topic.name}, set to {dict(values)}"


def _apart(
    name: str, key: TopicPartition, replicas: tuple[int, ...], brokers: dict[int, Broker]
) -> list[str]:
    ends = {}
    for node_id in replicas:
        log = None if node_id not in brokers else log_of(brokers[node_id], key)
        if log is None:
            return [f"{name} has no log on node {node_id}"]
        ends[node_id] = (log.log_end_offset, log.high_watermark)
    if len({each for pair in ends.values() for each in pair}) > 1:
        return [f"{name} ends at {ends} (log end, high watermark)"]
    return []


def brokers_of(sim: Sim) -> Iterator[tuple[int, Broker]]:
    """Yield the running brokers, by node id."""
    for node_id, node in sorted(sim.nodes.items()):
        if node.alive and node.broker is not None:
            yield node_id, node.broker


def log_of(broker: Broker, key: TopicPartition) -> PartitionLog | None:
    """Return a broker's log of a partition, or None where it has none."""
    for partition in broker.replicas.hosted():
        if (partition.topic_id, partition.partition_id) == key:
            return partition.log
    return None


def read_logs(sim: Sim, remote: RemoteValues) -> Iterator[LogSeen]:
    """Yield the content of every replica's log that is assigned, in both tiers.

    `remote`: returns what a log has in the remote tier only. Internal topics are left out.
    """
    brokers = dict(brokers_of(sim))
    for topic in sim.image.topics:
        if topic.name in INTERNAL_TOPICS:
            continue
        for number, state in topic.in_order():
            for node_id in state.replicas:
                key = (topic.id, number)
                log = log_of(brokers[node_id], key) if node_id in brokers else None
                if log is None:
                    continue
                # A log with remote storage whose prefix is lost must not look as if it began later.
                start, values = log.log_start_offset, _values(log)
                if start < log.local_log_start_offset:
                    values = remote(key, log) | values
                yield LogSeen(node_id, key, start, log.high_watermark, values)


def _values(log: PartitionLog) -> dict[int, bytes]:
    return {record.offset: identity(record) for record in records_of_log(log)}


def records_of_log(log: PartitionLog) -> Iterator[Record]:
    """Yield the records that a consumer would read from the local log; stop at an error.

    A checker finds damage in the files, see `log_files`.
    """
    offset, end = log.local_log_start_offset, log.log_end_offset
    while offset < end:
        before = offset
        try:
            found = log.read(offset, max_bytes=READ_BYTES_MAX, upper_bound=end, at_least_one=True)
            data = b"".join(piece.read() for piece in found.slices)
            for piece in found.slices:
                piece.release()
            records, error = _records_in(data)
            for record in records:
                if record.offset >= before:
                    yield record
            if error is not None:
                return
            for _, header in iter_headers(data):  # Compaction may have left empty batches.
                offset = max(offset, header.last_offset + 1)
        except (ApiError, OSError, RecordsError):
            return
        if offset == before:
            return


@lru_cache(maxsize=4)
def _records_in(data: bytes) -> tuple[tuple[Record, ...], RecordsError | None]:
    """Return the records up to the first error. The replicas of a log hold the same bytes."""
    found: list[Record] = []
    try:
        for record in iter_records(data):
            found.append(record)  # noqa: PERF402  Those before an error count, too.
    except RecordsError as error:
        return tuple(found), error
    return tuple(found), None
