"""Watches the logs of all replicas while a history runs: appends, truncations, high watermarks.

The methods of each log are wrapped; the product has no hook for it. After every append the headers
of the new batches are read from the segment files, without a counted disk operation. Batches that
a log already has when it is opened are not checked.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.base.ids import NO_LEADER, Uuid
from ottla.base.pending import nothing
from ottla.broker.partition import Partition
from ottla.log import names
from ottla.log.epoch_cache import EpochEntry
from ottla.log.partition_log import PartitionLog
from ottla.log.segment import Segment
from ottla.records.batch import BatchHeader, iter_headers, parse_header
from ottla.testing.history.log import (
    BatchTwice,
    ExpiredKept,
    LogCut,
    LogEvent,
    MemberPassed,
    StartMoved,
    WatermarkFell,
)
from ottla.testing.sim.watch import observations as seen

if TYPE_CHECKING:
    from ottla.testing.sim.sim import Sim

Key = tuple[Uuid, int]
Epochs = tuple[EpochEntry, ...]


def no_reason(node: int, key: Key, log: PartitionLog, before: int, epochs: Epochs) -> str | None:
    """Return None: nobody judges log starts of logs with remote storage."""
    return None


class LogWatch:
    """Reports events of the logs to checkers."""

    def __init__(self, sim: "Sim", report: Callable[[LogEvent], None]) -> None:
        self.sim = sim
        self.report = report
        self.batches: dict[Key, dict[tuple[int, int], tuple[int, int, int]]] = {}
        """By (base offset, epoch): CRC, last offset and the node that had it first."""
        self.starts: dict[Key, list[tuple[int, int]]] = {}
        """The log starts that leaders moved for a valid reason, rising, each with when."""
        self.why_not_expired: Callable[[int, Key, PartitionLog, int, Epochs], str | None]
        self.why_not_expired = no_reason
        """Returns why a leader may not move the start of a log with remote storage from an offset
        to where it is now; None = it may. The last argument: its leader epochs before that."""
        self.on_append: Callable[[int, PartitionLog], None] = lambda node, log: None
        """Called with a node and one of its logs before each append."""
        self._logs: dict[tuple[int, Key], WatchedLog] = {}
        sim.observe(self._observe)

    def _observe(self, observation: seen.Observation) -> None:
        match observation:
            case seen.LogOpened():
                key = (observation.topic_id, observation.partition)
                self._logs[observation.node, key] = WatchedLog(self, observation)
            case seen.HighWatermarkMoved():
                key = (observation.topic_id, observation.partition)
                watched = self._logs.get((observation.node, key))
                if watched is not None and watched.incarnation == observation.incarnation:
                    watched.high_watermark_moved(observation.epoch, observation.offset)
                if observation.leads:
                    self._look_at_members(key, observation.node, observation.epoch)
            case seen.PartitionSet():
                # A replica that has just joined the ISR must have the committed records, too.
                key, state = (observation.topic_id, observation.partition), observation.state
                self._look_at_members(key, state.leader, state.leader_epoch)

    def log_started(self, key: Key, start: int) -> None:
        """Note where a log starts, for a valid reason."""
        known = self.starts.setdefault(key, [])
        if not known or known[-1][0] < start:
            known.append((start, self.sim.now_ms))

    def start_of(self, key: Key, otherwise: int = 0) -> int:
        """Return the highest log start that a leader moved; `otherwise` where there is none."""
        known = self.starts.get(key)
        return known[-1][0] if known else otherwise

    def _look_at_members(self, key: Key, leader: int, epoch: int) -> None:
        """Check that all members of the ISR reach the leader's high watermark."""
        image = self.sim.image
        topic = image.topics.by_id(key[0])
        state = None if topic is None else topic.partitions.get(key[1])
        led = self._logs.get((leader, key))
        if state is None or state.leader != leader or state.leader_epoch != epoch or led is None:
            return
        high_watermark = led.committed_in(epoch)
        for node_id in state.isr:
            watched = self._logs.get((node_id, key))
            node = self.sim.nodes[node_id]
            if watched is None or watched.incarnation != node.incarnation or watched.log.failed:
                continue
            end = watched.log.log_end_offset
            if end >= high_watermark or node.broker is None:
                continue
            known = image.brokers.get(node_id)
            # Else its current incarnation is not registered: the ISR is about the previous one.
            if known is not None and known.epoch == node.broker.epoch:
                now_ms = self.sim.now_ms
                self.report(MemberPassed(key, leader, node_id, epoch, high_watermark, end, now_ms))


class WatchedLog:
    """One replica's log in one incarnation of its node."""

    def __init__(self, watch: LogWatch, observation: seen.LogOpened) -> None:
        self._watch = watch
        self._node = observation.node
        self.incarnation = observation.incarnation
        self._key = (observation.topic_id, observation.partition)
        self._partition: Partition = observation.hosted
        self.log: PartitionLog = observation.log
        self._disk = watch.sim.nodes[observation.node].disk
        log = self.log
        active = log.segments.active
        self._end = log.log_end_offset
        self._base, self._position = active.base_offset, active.size
        self._truncation_count = log.truncation_count
        self._start = log.log_start_offset
        self._watermark = log.high_watermark
        self._epoch = -1
        self._look_at_start()
        self._wrap("append_as_leader", self._appended, before=self._appends)
        self._wrap("append_as_follower", self._appended, before=self._appends)
        self._wrap("delete_records", self._records_deleted)
        self._wrap("advance_log_start", self._start_advanced, before=self._keep_epochs)
        self._wrap(
            "expire_segments", self._retained, before=self._keep_segments, done=self._look_at_first
        )
        self._segments: list[Segment] = []
        self._epochs: Epochs = ()
        self._had_prefix = False
        """As they were before the last change."""

    def _look_at_start(self) -> None:
        """Check where a log starts that was opened, and note it."""
        watch, key, start = self._watch, self._key, self._start
        known, is_remote = watch.start_of(key, start), self.log.config.remote_storage
        # Where tiered storage is disabled, a start gives up what a replica had in remote storage.
        is_judged = is_remote or watch.sim.image.tiering.get(key[0]) is None
        if start > known and is_judged:
            text = "a start beyond every leader's log start, when it was opened"
            moved = StartMoved(key, self._node, known, start, text, watch.sim.now_ms)
            watch.report(moved._replace(may_be_lost=not is_remote))
        else:
            watch.log_started(key, start)

    def _wrap(
        self,
        name: str,
        then: Callable[[], None],
        *,
        before: Callable[[], None] | None = None,
        done: Callable[[], None] = nothing,
    ) -> None:
        """Call `then` after a method of the log, and `done` unless it raised."""
        plain: Callable[..., Any] = getattr(self.log, name)
        before = before or self.look

        def watched(*given: Any, **named: Any) -> Any:
            before()
            try:
                result = plain(*given, **named)
            finally:
                then()
            done()
            return result

        setattr(self.log, name, watched)

    def committed_in(self, epoch: int) -> int:
        """Return the high watermark, if this replica leads in that epoch; else -1."""
        partition = self._partition
        leads = partition.is_leader and partition.leader_epoch == epoch
        is_there = (
            self.incarnation == self._watch.sim.nodes[self._node].incarnation
            and not self.log.failed
        )
        return self.log.high_watermark if leads and is_there else -1

    # -- truncations --------------------------------------------------------------------------

    def look(self) -> None:
        """Check what has changed since the last call, other than by appends."""
        log = self.log
        if log.truncation_count != self._truncation_count:
            self._cut()
        elif log.log_start_offset != self._start:
            self._moved("no request")
        self._watermark = max(self._watermark, log.high_watermark)

    def _cut(self, *, has_appended: bool = False) -> None:
        log, before, start = self.log, self._end, self._start
        self._truncation_count = log.truncation_count
        self._end = end = log.log_end_offset
        active = log.segments.active
        self._base, self._position = active.base_offset, active.size
        if log.log_start_offset > max(start, self._watch.start_of(self._key)):
            self._moved("a start beyond every leader's log start")
        self._start = log.log_start_offset
        # An append since then has moved the end that the truncation left.
        if not has_appended and log.high_watermark < min(self._watermark, end):
            self._watermark_fell(self._partition.leader_epoch, log.high_watermark)
        # An empty log begins with the whole batch that contains its leader's log start.
        if end < self._watermark and start < before:
            sim = self._watch.sim
            self._watch.report(
                LogCut(
                    self._key,
                    self._node,
                    self.incarnation,
                    before,
                    end,
                    self._watermark,
                    log.config.compacts and not self._is_member(),
                    sim.now_ms,
                )
            )
        self._watermark = log.high_watermark

    def _is_member(self) -> bool:
        topic = self._watch.sim.image.topics.by_id(self._key[0])
        state = None if topic is None else topic.partitions.get(self._key[1])
        return state is not None and self._node in (*state.isr, *state.elr)

    # -- appends ------------------------------------------------------------------------------

    def _appended(self) -> None:
        log = self.log
        end = log.log_end_offset
        if end <= self._end:
            return
        if log.truncation_count != self._truncation_count:  # A truncation came before the append.
            self._cut(has_appended=True)
        segments = log.segments
        index = segments.floor(self._end)
        known = self._watch.batches.setdefault(self._key, {})
        while index < len(segments):
            segment = segments[index]
            position = self._position if segment.base_offset == self._base else 0
            data = self._disk.data_of(segment.path(names.LOG))
            while position < segment.size:
                header = parse_header(data, position)
                position += header.size_in_bytes
                self._batch(header, known)
            self._base, self._position = segment.base_offset, position
            index += 1
        self._end = end

    def _batch(
        self, header: BatchHeader, known: dict[tuple[int, int], tuple[int, int, int]]
    ) -> None:
        place = header.base_offset, header.partition_leader_epoch
        if header.has_delete_horizon or header.record_count <= header.last_offset_delta:
            return  # Rewritten by the cleaner.
        crc, last, node = known.setdefault(place, (header.crc, header.last_offset, self._node))
        if crc != header.crc or last != header.last_offset:
            self._watch.report(
                BatchTwice(self._key, *place, node, self._node, self._watch.sim.now_ms)
            )

    # -- the log start -------------------------------------------------------------------------

    def _records_deleted(self) -> None:
        start = self.log.log_start_offset
        if start == self._start:
            return
        if self._partition.leader in (self._node, NO_LEADER):
            self._watch.log_started(self._key, start)
        elif start > self._watch.start_of(self._key):
            self._moved("no leader's log start")
        self._start = start

    def _start_advanced(self) -> None:
        """Follow a log start that came from the leader, or that a leader's remote tier expired."""
        start, known = self.log.log_start_offset, self._watch.start_of(self._key)
        is_tiered = self.log.config.remote_storage or self._had_prefix
        if is_tiered and self._partition.is_leader and start > known:
            log, epochs = self.log, self._epochs
            reason = self._watch.why_not_expired(self._node, self._key, log, known, epochs)
            if reason is not None:
                self._moved(reason)
        self._records_deleted()

    def _appends(self) -> None:
        self.look()
        self._watch.on_append(self._node, self.log)

    def _keep_epochs(self) -> None:
        self.look()
        self._epochs = tuple(self.log.epochs.entries)
        self._had_prefix = self.log.has_remote_prefix

    def _keep_segments(self) -> None:
        self.look()
        self._segments = list(self.log.segments)

    def _retained(self) -> None:
        log = self.log
        start = log.log_start_offset
        if start == self._start:
            return
        config = log.config
        if not config.deletes or (config.retention_bytes < 0 and config.retention_ms < 0):
            self._moved("a configuration without retention")
        elif start > log.high_watermark:
            self._moved("retention of uncommitted records")
        elif not self._are_expired(start):
            self._moved("retention of a segment within retention.ms and retention.bytes")
        self._watch.log_started(self._key, start)
        self._start = start

    def _are_expired(self, start: int) -> bool:
        """Tell whether all segments below a log start were beyond retention.bytes or -.ms."""
        config, segments = self.log.config, self._segments
        now_ms = self._watch.sim.nodes[self._node].clock.now_ms()
        left = sum(segment.size for segment in segments)
        for index, segment in enumerate(segments):
            last = index + 1 == len(segments)
            end = self.log.log_end_offset if last else segments[index + 1].base_offset
            if end > start:
                return True
            left -= segment.size
            if end <= self._start or (0 <= config.retention_bytes <= left):
                continue
            newest = self._newest_ms(segment)
            if config.retention_ms < 0 or (newest >= 0 and now_ms - newest <= config.retention_ms):
                return False
        return True

    def _look_at_first(self) -> None:
        """Look for an expired segment that a retention check has left at the log start."""
        log, config = self.log, self.log.config
        if not config.deletes or config.remote_storage or log.has_remote_prefix:
            return
        index = log.segments.floor(log.log_start_offset)
        first, kept = log.segments[index], list(log.segments)[index:]
        end = kept[1].base_offset if len(kept) > 1 else log.log_end_offset
        if end > log.high_watermark or not first.size:
            return
        if 0 <= config.retention_bytes <= sum(segment.size for segment in kept[1:]):
            self._kept(first, "retention.bytes")
        elif config.retention_ms >= 0 and self._is_old(first):
            self._kept(first, "retention.ms")

    def _is_old(self, segment: Segment) -> bool:
        """Tell whether all records of a segment are older than retention.ms."""
        oldest_ms = self._watch.sim.nodes[self._node].clock.now_ms() - self.log.config.retention_ms
        data = self._disk.data_of(segment.log.path)
        # The first batch alone is looked at where it is young: segments may be large.
        if parse_header(data).max_timestamp >= oldest_ms:
            return False
        return 0 <= self._newest_ms(segment) < oldest_ms

    def _kept(self, segment: Segment, limit: str) -> None:
        now_ms = self._watch.sim.now_ms
        kept = ExpiredKept(self._key, self._node, segment.base_offset, limit, now_ms)
        self._watch.report(kept)

    def _newest_ms(self, segment: Segment) -> int:
        data = self._disk.data_of(segment.log.path)[: segment.size]
        # Batches that compaction has emptied do not keep a segment.
        times = (each.max_timestamp for _, each in iter_headers(data) if each.record_count)
        return max(times, default=-1)

    def _moved(self, reason: str) -> None:
        start = self.log.log_start_offset
        now_ms = self._watch.sim.now_ms
        self._watch.report(StartMoved(self._key, self._node, self._start, start, reason, now_ms))
        self._start = start

    # -- the high watermark --------------------------------------------------------------------

    def high_watermark_moved(self, epoch: int, offset: int) -> None:
        """Check a moved high watermark of a leader or follower."""
        if self.log.truncation_count != self._truncation_count:
            self.look()
        elif epoch == self._epoch and offset < self._watermark:
            self._watermark_fell(epoch, offset)
        self._epoch, self._watermark = epoch, offset

    def _watermark_fell(self, epoch: int, offset: int) -> None:
        key, now_ms = self._key, self._watch.sim.now_ms
        self._watch.report(
            WatermarkFell(key, self._node, self.incarnation, epoch, self._watermark, offset, now_ms)
        )
