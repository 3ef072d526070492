"""Reads the remote tier at the end of a history, past all caches: see `history.tiers`.

Tells also when remote storage has settled: what can be copied is copied, all brokers have the same
segments, and the manifests list them.
"""

from collections.abc import Iterator, Mapping

from ottla.base.ids import Uuid, parse_uuid
from ottla.broker.core import Broker
from ottla.log.partition_log import PartitionLog
from ottla.metadata.tiering import TopicTiering
from ottla.records.batch import BatchHeader, check_crc, parse_header
from ottla.records.errors import RecordsError
from ottla.records.record import read_records
from ottla.testing.history.history import History
from ottla.testing.history.identity import identity
from ottla.testing.history.log import BatchSeen
from ottla.testing.history.tiers import (
    ManifestSeen,
    RemoteSegmentSeen,
    ReplicaTiers,
    SegmentsImage,
)
from ottla.testing.history.topics import TopicPartition
from ottla.testing.scenarios.settling import brokers_of, log_of
from ottla.testing.sim import Sim
from ottla.testing.sim.watch.tier_watch import TierWatch
from ottla.tiered.manifest import Manifest, first_kept
from ottla.tiered.object_names import (
    ObjectKind,
    object_name,
    parse_object_name,
    partition_prefix,
)
from ottla.tiered.segment_metadata import SegmentMetadata

UUID_LENGTH = 22
"""Of a topic id at the end of its directory's name."""


class TierLogs:
    """The remote tier of a history at its end."""

    def __init__(self, sim: Sim, watch: TierWatch) -> None:
        self._sim = sim
        self._watch = watch

    # -- settling ------------------------------------------------------------------------------

    def unsettled(self) -> list[str]:
        """Return what has not settled yet, in words; empty = everything has."""
        found: list[str] = []
        for name, key, tiering in self._partitions():
            expected = self._watch.ledgers[key].states()
            for node_id, _, _ in self._replicas(key):
                if self._states(node_id, key) != expected:
                    found.append(f"node {node_id} has other remote segments of {name}")
            found += self._not_copied(name, key, tiering)
            found += self._not_listed(name, key)
        return found

    def _not_copied(self, name: str, key: TopicPartition, tiering: TopicTiering) -> Iterator[str]:
        topic = self._sim.image.topics.by_id(key[0])
        leader = -1 if topic is None else topic.partitions[key[1]].leader
        for node_id, _, log in self._replicas(key):
            if node_id != leader or not tiering.copies:
                continue
            left = [
                each.base_offset
                for each in log.local_segments()
                if not each.is_active
                and log.highest_remote_offset + 1 < each.end_offset <= log.last_stable_offset
                and each.end_offset > log.log_start_offset
            ]
            if left:
                yield f"segments {left} of {name} are not copied by node {node_id}"

    def _not_listed(self, name: str, key: TopicPartition) -> Iterator[str]:
        readable = {each.segment_id for each in self._watch.readable(key)}
        state = self._watch.manifest_state(self._directory(key))
        listed = set() if state is None else set(state.segments)
        if listed != readable:
            yield f"the manifests of {name} list {len(listed)} of {len(readable)} segments"

    # -- reading -------------------------------------------------------------------------------

    def read_into(self, history: History) -> None:
        """Add everything to a history."""
        tiers = history.tiers
        for _, key, _ in self._partitions():
            ledger = self._watch.ledgers[key]
            tiers.segments += [self._segment(key, each) for each in ledger.segments.values()]
            tiers.manifests.append(self._manifests(key))
            for node_id, broker, log in self._replicas(key):
                tiers.replicas.append(_replica(key, node_id, log, self._sim.now_ms))
                if broker.remote is not None:
                    states = self._states(node_id, key)
                    tiers.images.append(SegmentsImage(key, node_id, states, ledger.states()))
        for name in self._sim.object_store.objects:
            directory, number, _ = name.split("/", 2)
            key = (parse_uuid(directory[-UUID_LENGTH:]), int(number))
            parsed = parse_object_name(name)
            tiers.objects.append((name, key, None if parsed is None else parsed.segment_id))

    def values(self, key: TopicPartition, log: PartitionLog) -> dict[int, bytes]:
        """Return the remote records of a log's lineage, from its log start to its local log."""
        objects = self._sim.object_store.objects
        found: dict[int, bytes] = {}
        for segment in self._watch.readable(key):
            data = objects.get(object_name(segment, ObjectKind.LOG), b"")
            for position, header in _batches(data):
                if header.is_control or header.base_offset >= log.local_log_start_offset:
                    continue
                for record in read_records(data, position, header):
                    is_own = log.epoch_of(record.offset) == header.partition_leader_epoch
                    if is_own and log.log_start_offset <= record.offset:
                        found[record.offset] = identity(record)
        return {
            offset: value for offset, value in found.items() if offset < log.local_log_start_offset
        }

    # -- parts ---------------------------------------------------------------------------------

    def _partitions(self) -> Iterator[tuple[str, TopicPartition, TopicTiering]]:
        image = self._sim.image
        for topic in image.topics:
            tiering = image.tiering.get(topic.id)
            if tiering is not None:
                for number, _ in topic.in_order():
                    yield f"{topic.name}-{number}", (topic.id, number), tiering

    def _replicas(self, key: TopicPartition) -> Iterator[tuple[int, Broker, PartitionLog]]:
        topic = self._sim.image.topics.by_id(key[0])
        replicas = () if topic is None else topic.partitions[key[1]].replicas
        for node_id, broker in brokers_of(self._sim):
            log = log_of(broker, key) if node_id in replicas else None
            if log is not None and not log.failed:
                yield node_id, broker, log

    def _states(self, node_id: int, key: TopicPartition) -> tuple[tuple[Uuid, str], ...]:
        broker = self._sim.nodes[node_id].broker
        remote = None
        if broker is not None and broker.remote is not None:
            remote = broker.remote.metadata.remote_log(*key)
        if remote is None:
            return ((Uuid(bytes(16)), "not ready"),)
        found = sorted((each.segment_id, each.state.name) for each in remote.segments())
        return tuple(found)

    def _directory(self, key: TopicPartition) -> str:
        topic = self._sim.image.topics.by_id(key[0])
        assert topic is not None
        return partition_prefix(topic.name, *key)

    def _segment(self, key: TopicPartition, segment: SegmentMetadata) -> RemoteSegmentSeen:
        objects = self._sim.object_store.objects
        missing: list[str] = []
        for kind in ObjectKind:
            name = object_name(segment, kind)
            if kind is ObjectKind.TXN_INDEX and segment.txn_index_empty:
                continue
            if name not in objects:
                missing.append(kind.value)
            elif kind is ObjectKind.LOG and len(objects[name]) != segment.size_bytes:
                missing.append(f"{segment.size_bytes - len(objects[name])} bytes of the log")
        data = objects.get(object_name(segment, ObjectKind.LOG), b"")
        batches: list[BatchSeen] = []
        damage = None
        try:
            for position, header in _batches(data):
                check_crc(data, position, header)
                batches.append(
                    BatchSeen(
                        header.base_offset,
                        header.last_offset,
                        header.partition_leader_epoch,
                        header.crc,
                        header.record_count,
                    )
                )
        except RecordsError as error:
            damage = str(error)
        return RemoteSegmentSeen(
            key,
            segment.segment_id,
            segment.start_offset,
            segment.end_offset,
            segment.state.name,
            tuple(missing),
            tuple(batches),
            damage,
        )

    def _manifests(self, key: TopicPartition) -> ManifestSeen:
        directory = self._directory(key)
        state = self._watch.manifest_state(directory)
        numbers = self._watch.manifests[directory]
        return ManifestSeen(
            key,
            () if state is None else tuple(sorted(state.segments)),
            holes_in(numbers),
            tuple(str(each) for each, found in sorted(numbers.items()) if found is None),
        )


def holes_in(manifests: Mapping[int, Manifest | None]) -> tuple[int, ...]:
    """Return which numbers are missing of those that brokers keep. None = cannot be decoded."""
    kept = range(first_kept(manifests), max(manifests, default=0))
    return tuple(each for each in kept if each not in manifests)


def _batches(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each batch. Raises: RecordsError."""
    position = 0
    while position < len(data):
        header = parse_header(data, position)
        yield position, header
        position += header.size_in_bytes


def _replica(key: TopicPartition, node_id: int, log: PartitionLog, at_ms: int) -> ReplicaTiers:
    return ReplicaTiers(
        key,
        node_id,
        log.log_start_offset,
        log.local_log_start_offset,
        log.high_watermark,
        tuple((entry.epoch, entry.start_offset) for entry in log.epochs.entries),
        at_ms,
    )
