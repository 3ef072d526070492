"""Watches remote storage while a history runs; input of `checkers.tiers`.

- The records of `__remote_log_metadata` are read from their leaders' files as they are committed,
  and replayed by `SegmentLedger`: that is what the cluster's remote segments are.
- When a segment becomes unreadable, when an object of one is deleted, and when a local log start
  moves: no in-sync replica may lose an offset from its log start on.
- The manifests in the store must never send a reader to an object that is not there.

Nothing here changes the history: a seed has the same one without it.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.base.ids import REMOTE_LOG_METADATA_TOPIC, Uuid
from ottla.log import names
from ottla.log.partition_log import PartitionLog
from ottla.records.batch import parse_header
from ottla.records.record import read_records
from ottla.testing.history.tiers import (
    ImageUnlike,
    ListedAndGone,
    LocalStartMoved,
    ObjectReplaced,
    TierEvent,
    Unreadable,
)
from ottla.testing.history.topics import TopicPartition
from ottla.testing.sim.net import MS
from ottla.testing.sim.watch import observations as seen
from ottla.testing.sim.watch.log_watch import Epochs, LogWatch
from ottla.testing.sim.watch.segment_ledger import SegmentLedger, first_uncovered
from ottla.tiered.lineage import Lineage, visible_segments
from ottla.tiered.manifest import Manifest, ManifestState, follow
from ottla.tiered.manifest_codec import decode_manifest
from ottla.tiered.metadata_records import decode
from ottla.tiered.object_names import (
    ObjectKind,
    object_name,
    parse_manifest_name,
    parse_object_name,
)
from ottla.tiered.segment_metadata import (
    NO_FLOOR,
    Fence,
    RestoreStarted,
    SegmentMetadata,
    SegmentState,
    SegmentUpdate,
)

if TYPE_CHECKING:
    from ottla.testing.sim.sim import Sim

LOOK_MS = 500
States = tuple[tuple[Uuid, str], ...]


class TierWatch:
    """Reports events to checkers. `ledgers`: the remote segments of each partition."""

    def __init__(
        self, sim: "Sim", report: Callable[[TierEvent], None], log_watch: LogWatch
    ) -> None:
        self.sim = sim
        self.report = report
        self.ledgers: defaultdict[TopicPartition, SegmentLedger] = defaultdict(SegmentLedger)
        self.manifests: defaultdict[str, dict[int, Manifest | None]] = defaultdict(dict)
        """By directory and number; None = damaged."""
        self.log_watch = log_watch
        self._read: dict[int, int] = {}
        """The next offset of each metadata partition."""
        self._logs: dict[tuple[int, TopicPartition], tuple[PartitionLog, int, int]] = {}
        """With the incarnation, and when it was opened."""
        self._known: defaultdict[TopicPartition, set[States]] = defaultdict(lambda: {()})
        """The states of a partition's segments after each committed record."""
        self._ends: dict[Uuid, int] = {}
        """The last offset of each segment."""
        self.given_up: dict[TopicPartition, int] = {}
        """Up to where leaders have moved log starts as segments were given up."""
        self._is_looking = False
        self._unlike: set[tuple[TopicPartition, int]] = set()
        sim.observe(self._observe)
        log_watch.why_not_expired = self._why_not_expired
        sim.object_store.on_change = self._store_changed

    def _observe(self, observation: seen.Observation) -> None:
        match observation:
            case seen.LogOpened():
                self._opened(observation)
            case seen.HighWatermarkMoved(leads=True):
                topic = self.sim.image.topics.by_name(REMOTE_LOG_METADATA_TOPIC)
                if topic is not None and topic.id == observation.topic_id:
                    self._committed(observation)

    # -- logs ----------------------------------------------------------------------------------

    def _opened(self, observation: seen.LogOpened) -> None:
        key, node, log = (
            (observation.topic_id, observation.partition),
            observation.node,
            observation.log,
        )
        self._logs[node, key] = log, observation.incarnation, observation.at_ms
        plain: Callable[..., Any] = log.expire_segments

        def watched(now_ms: int) -> Any:
            before = log.local_log_start_offset
            try:
                return plain(now_ms)
            finally:
                if log.local_log_start_offset > before:
                    self._local_start_moved(node, key, log, before)

        setattr(log, "expire_segments", watched)  # noqa: B010  It is a method.

    def _local_start_moved(
        self, node: int, key: TopicPartition, log: PartitionLog, before: int
    ) -> None:
        self.sim.mark("tier-local-start-moved")
        if self.sim.image.topics.by_id(key[0]) is None:
            return  # The topic is deleted, and its remote segments may be purged by now.
        start = log.local_log_start_offset
        begin = max(log.log_start_offset, self.log_watch.start_of(key))
        gap = self._gap(key, log, begin, start, self._not_learned(node, key))
        if gap is not None:
            self.report(LocalStartMoved(key, node, before, start, gap[0], self.sim.now_ms))

    def _gap(
        self,
        key: TopicPartition,
        log: PartitionLog,
        begin: int,
        end: int,
        dead: Sequence[SegmentMetadata] = (),
    ) -> tuple[int, int] | None:
        """Return the first offsets that are not in remote storage. `dead`: counted as if alive."""
        if begin >= end:
            return None
        segments = [*self.ledgers[key].readable(), *dead]
        return first_uncovered(segments, log.epochs.entries, (begin, end))

    def _not_learned(self, node_id: int, key: TopicPartition) -> list[SegmentMetadata]:
        """Return the segments that were given up a moment ago, and on which a follower counts.

        It copies the records from its leader once it has learned of it.
        """
        floor, broker = self._floor(node_id, key), self.sim.nodes[node_id].broker
        if floor == NO_FLOOR or self.leads(node_id, key) or broker is None or broker.remote is None:
            return []
        known = broker.remote.metadata.remote_log(*key)
        finished = [] if known is None else known.finished()
        return [each for each in finished if each.tiered_epoch <= floor]

    def _look_at_replicas(self, key: TopicPartition, cause: str) -> None:
        """Check that no in-sync replica has lost a record from its log start on."""
        topic = self.sim.image.topics.by_id(key[0])
        state = None if topic is None else topic.partitions.get(key[1])
        for node_id in () if state is None else state.isr:
            log = self.registered_log(node_id, key)
            if log is None:
                continue
            # Followers may lack what the leader alone has locally, until they have fetched it.
            if self._floor(node_id, key) > NO_FLOOR and not self.leads(node_id, key):
                continue
            gap = self._gap(key, log, log.log_start_offset, log.local_log_start_offset)
            if gap is not None and not self._is_new(node_id, key, gap[0]):
                self.report(Unreadable(key, node_id, *gap, cause, self.sim.now_ms))

    def opened_ms(self, node_id: int, key: TopicPartition) -> int:
        """Return when a node has opened its log of a partition."""
        return self._logs[node_id, key][2]

    def leads(self, node_id: int, key: TopicPartition) -> bool:
        """Tell whether a broker takes itself for the leader, in the cluster's leader epoch, and
        knows where its log starts over both tiers."""
        broker, topic = self.sim.nodes[node_id].broker, self.sim.image.topics.by_id(key[0])
        hosted = () if broker is None else broker.replicas.hosted()
        found = [each for each in hosted if (each.topic_id, each.partition_id) == key]
        if broker is None or topic is None or not found or not found[0].is_leader:
            return False
        is_current = found[0].leader_epoch == topic.partitions[key[1]].leader_epoch
        return is_current and (broker.remote is None or broker.remote.manager.knows_log_start(*key))

    def registered_log(self, node_id: int, key: TopicPartition) -> PartitionLog | None:
        """Return a replica's log, if its broker's current incarnation is registered and active."""
        node, known = self.sim.nodes[node_id], self.sim.image.brokers.get(node_id)
        log, incarnation, _ = self._logs.get((node_id, key), (None, 0, 0))
        if log is None or log.failed or incarnation != node.incarnation or node.broker is None:
            return None
        is_registered = known is not None and known.active and known.epoch == node.broker.epoch
        return log if is_registered else None

    def _is_new(self, node_id: int, key: TopicPartition, offset: int) -> bool:
        """Tell whether a replica's log was opened after a leader had moved its log start past an
        offset: it has the one of its last checkpoint until it fetches, or leads."""
        opened_ms, starts = self.opened_ms(node_id, key), self.log_watch.starts.get(key, ())
        return any(start > offset and at_ms <= opened_ms for start, at_ms in starts)

    def _why_not_expired(
        self, node: int, key: TopicPartition, log: PartitionLog, before: int, epochs: Epochs
    ) -> str | None:
        """Return why what is between `before` and the log start is not expired; None = it is, or
        it was given up, which nothing else is: neither live segments nor the local log."""
        start, config = log.log_start_offset, log.config
        floor, given_up = self._floor(node, key), -1
        now_ms = self.sim.nodes[node].clock.now_ms()
        lineage = Lineage(epochs, log.log_end_offset)
        readable = [each for each in self.ledgers[key].readable() if each.tiered_epoch > floor]
        visible = visible_segments(readable, lineage)
        copied = max((end for _, end in visible), default=-1)
        left = sum(each.size_bytes for each, _ in visible)
        left += sum(each.size_bytes for each in log.local_segments() if each.base_offset > copied)
        at = before
        for segment, end in visible:
            left -= segment.size_bytes
            if end < before:
                continue
            # Neighbours may overlap: what the one before covers need not be expired.
            if at < segment.start_offset and floor > NO_FLOOR:
                at = given_up = min(start, segment.start_offset)
            if at >= start or segment.start_offset > at:
                break
            newest_ms = segment.max_timestamp_ms
            if newest_ms < 0:
                newest_ms = segment.event_timestamp_ms
            is_old = 0 <= config.retention_ms <= now_ms - newest_ms
            if not is_old and not 0 <= config.retention_bytes <= left:
                extent = f"{segment.start_offset}-{segment.end_offset}"
                return f"retention of segment {extent} within retention.ms and retention.bytes"
            at = end + 1
        if at < min(start, log.local_log_start_offset) and floor > NO_FLOOR:
            at = given_up = min(start, log.local_log_start_offset)
        if given_up > self.given_up.get(key, -1):
            self.given_up[key] = given_up
        return None if at >= start else f"no reason: {at} is not in remote storage"

    def _floor(self, node_id: int, key: TopicPartition) -> int:
        """Return the tiered epoch up to which segments are given up, by the committed metadata.

        A broker may see a commit a moment before the controllers do.
        """
        broker = self.sim.nodes[node_id].broker
        images = [self.sim.image] if broker is None else [self.sim.image, broker.image]
        found = [each.tiering.get(key[0]) for each in images]
        return max(
            (each.remote_floor_epoch for each in found if each is not None), default=NO_FLOOR
        )

    # -- the metadata --------------------------------------------------------------------------

    def _committed(self, observation: seen.HighWatermarkMoved) -> None:
        """Replay what was committed, from the leader's files."""
        number = observation.partition
        log, _, _ = self._logs[observation.node, (observation.topic_id, number)]
        disk = self.sim.nodes[observation.node].disk
        at, end = self._read.get(number, 0), observation.offset
        if at >= end:
            return
        for index in range(log.segments.floor(at), len(log.segments)):
            segment = log.segments[index]
            data = disk.data_of(segment.path(names.LOG))
            position = 0
            while position < segment.size:
                header = parse_header(data, position)
                if header.base_offset >= end:
                    break
                if header.base_offset >= at and not header.is_control:
                    for record in read_records(bytes(data), position, header):
                        self._replay(record.value)
                position += header.size_in_bytes
        self._read[number] = end

    def _replay(self, value: bytes | None) -> None:
        record = None if value is None else decode(value)
        if record is None:
            return
        key = (record.topic_id, record.partition)
        if isinstance(record, SegmentMetadata):
            self._ends[record.segment_id] = record.end_offset
        ledger = self.ledgers[key]
        finished = len(ledger.finished)
        unreadable = ledger.apply(record)
        if not self._is_looking:
            self._is_looking = True
            self._look_at_images()
        self._known[key].add(ledger.states())
        if len(ledger.finished) > finished:
            self.sim.mark("tier-segment-copied")
        if isinstance(record, Fence):
            self._fenced(record)
        elif not isinstance(record, RestoreStarted):
            self._changed(record, ledger)
        if isinstance(record, Fence) and record.floor > NO_FLOOR:
            self._look_at_replicas(key, f"the segments up to tiered epoch {record.floor} are dead")
        if unreadable is not None:
            self.sim.mark("tier-segment-expired")
            extent = f"{unreadable.start_offset}-{unreadable.end_offset}"
            self._look_at_replicas(key, f"the deletion of segment {extent} began")

    def _changed(self, record: SegmentMetadata | SegmentUpdate, ledger: SegmentLedger) -> None:
        """Report a record of a segment to those who follow the history."""
        known = ledger.segments.get(record.segment_id)
        is_copy = record.state in (SegmentState.COPY_STARTED, SegmentState.COPY_FINISHED)
        is_refused = is_copy and (known is None or known.state is not record.state)
        if is_refused:
            self.sim.mark("tier-record-refused")
        self.sim.notify(
            seen.RemoteSegmentChanged(
                self.sim.now_ms,
                record.broker_id,
                record.topic_id,
                record.partition,
                record.segment_id,
                record.state.name,
                is_refused,
                self._ends.get(record.segment_id, -1),
                record.segment_id in ledger.finished,
            )
        )

    def _fenced(self, fence: Fence) -> None:
        """Report a fence to those who follow the history."""
        self.sim.notify(
            seen.PartitionFenced(
                self.sim.now_ms,
                fence.broker_id,
                fence.topic_id,
                fence.partition,
                fence.tiered_epoch,
            )
        )

    def _look_at_images(self) -> None:
        """Check that each broker takes for the remote segments what they once were."""
        self.sim.scheduler.after(LOOK_MS * MS, self._look_at_images)
        for node_id, node in self.sim.nodes.items():
            if node.broker is None or node.broker.remote is None:
                continue
            metadata = node.broker.remote.metadata
            for key in self.ledgers:
                log = metadata.remote_log(*key)
                if log is None or (key, node_id) in self._unlike:
                    continue
                states = tuple(sorted((e.segment_id, e.state.name) for e in log.segments()))
                if states not in self._known[key]:
                    self._unlike.add((key, node_id))
                    expected = self.ledgers[key].states()
                    self.report(ImageUnlike(key, node_id, states, expected, self.sim.now_ms))

    # -- the store -----------------------------------------------------------------------------

    def _store_changed(self, name: str, before: bytes | None, after: bytes | None) -> None:
        if before is not None and after is not None and before != after:
            self.report(ObjectReplaced(name, self.sim.now_ms))
        sequence = parse_manifest_name(name)
        if sequence is not None:
            if after is not None:
                self._manifest_written(name, sequence, after)
            else:
                self.manifests[name.rpartition("/manifest/")[0]].pop(sequence, None)
            return
        found = parse_object_name(name)
        if after is not None or found is None or found.kind is not ObjectKind.LOG:
            return
        key = (found.topic_id, found.partition)
        segment = self.ledgers[key].segments.get(found.segment_id)
        if segment is not None and segment in self.ledgers[key].readable():
            text = "deleted while it was COPY_FINISHED"
            self.report(ListedAndGone(key, name, text, self.sim.now_ms))
        self._look_at_replicas(key, f"{name} was deleted")
        state = self.manifest_state(name.rpartition("/")[0])
        if state is not None and found.segment_id in state.segments:
            self.report(ListedAndGone(key, name, "deleted", self.sim.now_ms))

    def _manifest_written(self, name: str, sequence: int, data: bytes) -> None:
        directory = name.rpartition("/manifest/")[0]
        try:
            manifest = decode_manifest(data)
        except ValueError:
            self.manifests[directory][sequence] = None
            return
        self.manifests[directory][sequence] = manifest
        ledger = self.ledgers[manifest.topic_id, manifest.partition]
        for each in manifest.added:
            if each.segment_id not in ledger.finished:
                self._listed(name, each, "which never was COPY_FINISHED")
        state = self.manifest_state(directory)
        for each in () if state is None else state.segments.values():
            if object_name(each, ObjectKind.LOG) not in self.sim.object_store:
                self._listed(name, each, "whose object does not exist")

    def _listed(self, name: str, segment: SegmentMetadata, what: str) -> None:
        text = f"listed by {name}, {what}"
        key = (segment.topic_id, segment.partition)
        self.report(ListedAndGone(key, object_name(segment, ObjectKind.LOG), text, self.sim.now_ms))

    def manifest_state(self, directory: str) -> ManifestState | None:
        """Return what a reader of the store alone finds for a partition."""
        return follow(each for each in self.manifests[directory].values() if each is not None)

    # -- for the end of a history --------------------------------------------------------------

    def readable(self, key: TopicPartition) -> list[SegmentMetadata]:
        """Return the readable segments of a partition."""
        return self.ledgers[key].readable()

    def is_known(self, topic_id: Uuid) -> bool:
        """Tell whether a topic ever had remote segments, or a fence."""
        return any(key[0] == topic_id for key in self.ledgers)
