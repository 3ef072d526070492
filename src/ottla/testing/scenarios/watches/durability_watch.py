"""Watches the order of durability: what a power loss would leave at the moments that depend on it.

A loss of power shows a wrong order only if it strikes between two operations. These rules hold at
every moment, so that they need none; what is durable is read from the simulated disks, past the
nodes:

- The high watermark of the metadata log passes only a record of its leader's own epoch that a
  majority of the voters has on disk (Raft, 5.4.2; KIP-595), or below a snapshot: a former leader
  may learn so late of what it committed. They have the same records before it, too: a leader
  appends to no log that diverges from its own (Raft, 5.3).
- What is below a log's recovery point is on disk as it is in the log: a start does not read it.
  So are the indexes of the segments that end there: a start does not build them again.
- Nothing is appended below the recovery point: it is lowered before (LogManager.truncateTo).
- The deletion of a remote segment begins once the log start behind it is on the leader's disk: a
  start would bring the older one back (KAFKA-15352).
- A segment is deleted by retention once the log start behind it is on disk. Cleaned segments
  replace others in steps: each is on disk before the next one (LocalLog.replaceSegments).
- A cleaned segment leaves out only what has a newer record that is replicated and on disk.
- A segment, a snapshot of producers or of metadata gets its name once its content is on disk.
"""

from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import islice

from ottla.broker.partition import Partition
from ottla.host.kraft.quorum_storage import METADATA_DIR
from ottla.log import names
from ottla.log.dirs.checkpoint_limits import decode_limits, limits_number
from ottla.log.dirs.checkpoints import MalformedFile, TopicPartition, decode_offsets
from ottla.log.partition_log import PartitionLog
from ottla.raft.snapshots import SUFFIX as METADATA_SNAPSHOT
from ottla.raft.snapshots import parse_snapshot_name
from ottla.records.batch import BatchHeader, iter_headers
from ottla.records.errors import RecordsError
from ottla.testing.history.history import History
from ottla.testing.history.nodes import DURABILITY, RuleBroken
from ottla.testing.scenarios.watches.batch_reader import BatchReader, Extent, extent, segments_of
from ottla.testing.scenarios.watches.cleaned_records import CleanedRecords
from ottla.testing.sim import Sim
from ottla.testing.sim.disk import SimDisk
from ottla.testing.sim.watch import observations as seen
from ottla.testing.sim.watch.log_watch import LogWatch
from ottla.tiered.segment_metadata import SegmentState

NAMED_DURABLE = (names.LOG, names.LOG + names.SWAP, names.SNAPSHOT, METADATA_SNAPSHOT)
"""The ends of names that only files get whose content is on disk."""

COMPARED_BATCHES = 20
"""How many batches of the metadata log are compared at each commit: logs diverge at their ends."""


class DurableLog:
    """The batches of a voter's metadata log that a loss of power leaves for certain."""

    def __init__(self, disk: SimDisk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._reader = BatchReader(extent)

    def epoch_of(self, offset: int) -> int | None:
        """Return the epoch of the record at an offset; None = it is not durable."""
        batch = next(self._back_from(offset), None)
        return None if batch is None or batch.last_offset < offset else batch.epoch

    def is_behind_snapshot(self, offset: int) -> bool:
        """Tell whether a snapshot contains the record at an offset, and the log begins after it."""
        files = self._disk.durable_files_in(self._directory)
        snapshots = (parse_snapshot_name(each) for each in files)
        ends = (each[0].offset for each in snapshots if each and each[1] == METADATA_SNAPSHOT)
        return min(segments_of(files), default=0) > offset and max(ends, default=0) > offset

    def tail(self, offset: int) -> list[tuple[int, int]]:
        """Return the last offset and the epoch of batches up to an offset, the newest first.

        They are some of those in the newest segment.
        """
        newest = islice(self._back_from(offset), COMPARED_BATCHES)
        return [(each.last_offset, each.epoch) for each in newest]

    def _back_from(self, offset: int) -> Iterator[Extent]:
        """Yield the batches of an offset's segment, from that of the offset back."""
        segments = segments_of(self._disk.durable_files_in(self._directory))
        base = max((each for each in segments if each <= offset), default=None)
        if base is not None:
            name = names.segment_name(base, names.LOG)
            for _, batch in reversed(self._reader.batches(name, segments[base])):
                if batch.base_offset <= offset:
                    yield batch


class DurabilityWatch:
    """Writes the rules that were broken into a history."""

    def __init__(self, sim: Sim, history: History, logs: LogWatch) -> None:
        self._sim = sim
        self._history = history
        self._voters = {
            node.id: DurableLog(node.disk, f"{node.config.metadata_log_dir}/{METADATA_DIR}")
            for node in sim.nodes.values()
            if node.is_controller and sim.zookeeper is None
        }
        self._recovery_points: dict[tuple[int, str], dict[TopicPartition, int]] = {}
        """As they were written last, by node and log directory."""
        self._cleaned = {node.id: CleanedRecords(node.disk) for node in sim.nodes.values()}
        for node in sim.nodes.values():
            node.disk.on_named = partial(self._named, node.id, node.disk)
        logs.on_append = self._appends
        sim.observe(self._observe)

    def _observe(self, observation: seen.Observation) -> None:
        match observation:
            case seen.MetadataHighWatermarkMoved():
                self._committed(observation)
            case seen.RemoteSegmentChanged(state=SegmentState.DELETE_STARTED.name, was_copied=True):
                self._deletion_began(observation)

    def _broken(self, node: int, reason: str) -> None:
        self._history.rules_broken.append(
            RuleBroken(DURABILITY, None, node, reason, self._sim.now_ms)
        )

    # -- metadata ------------------------------------------------------------------------------

    def _committed(self, moved: seen.MetadataHighWatermarkMoved) -> None:
        last = moved.offset - 1
        holders = [node for node, log in self._voters.items() if log.epoch_of(last) == moved.epoch]
        behind = (log.is_behind_snapshot(last) for log in self._voters.values())
        half = len(self._voters) // 2
        if len(holders) <= half and len(holders) + sum(behind) <= half:
            self._broken(
                moved.node,
                f"committed metadata offset {last} in epoch {moved.epoch}, which of the voters "
                f"{sorted(self._voters)} only {holders} have in that epoch on disk",
            )
        tails = [self._voters[each].tail(last) for each in holders]
        for node, tail in zip(holders, tails, strict=True):
            unlike = [one for one, first in zip(tail, tails[0], strict=False) if one != first]
            if unlike:
                self._broken(
                    node,
                    f"has other metadata than node {holders[0]} below the committed offset {last}: "
                    f"up to offset {unlike[0][0]}, epoch {unlike[0][1]}",
                )

    # -- logs ----------------------------------------------------------------------------------

    def _appends(self, node: int, log: PartitionLog) -> None:
        end = log.log_end_offset
        point = _recovery_point(self._sim.nodes[node].disk, log.directory, end)
        if point > end:
            text = f"appends to {log.directory} at {end}, below its recovery point {point}"
            self._broken(node, text)

    def _deletion_began(self, began: seen.RemoteSegmentChanged) -> None:
        node = self._sim.nodes[began.node]
        key = (began.topic_id, began.partition)
        for partition, log in self._logs_of(began.node):
            if (partition.topic_id, partition.partition_id) != key or log.failed:
                continue
            if log.log_start_offset <= began.end_offset or not partition.is_leader:
                return  # It is deleted for another reason, or by a former leader.
            start = _log_start(node.disk, log)
            if start <= began.end_offset:
                self._broken(
                    node.id,
                    f"begins to delete the segment of {log.directory} up to offset "
                    f"{began.end_offset}, and a start would find the log start {start}",
                )

    def _named(self, node: int, disk: SimDisk, path: str, former: str) -> None:
        if path.endswith(NAMED_DURABLE) and not disk.is_durable(path):
            self._broken(node, f"named {path}, whose content is not on disk")
        directory, _, name = path.rpartition("/")
        if name.endswith(names.LOG + names.DELETED):
            self._segment_deleted(node, disk, directory, _base_offset(name))
        elif name.endswith(names.LOG + names.SWAP):
            self._cleaned_segment_written(node, directory, _base_offset(name))
        elif name.endswith(names.LOG) and former.endswith(names.SWAP):
            self._cleaned_segment_named(node, disk, directory, _base_offset(name))
        if name == names.RECOVERY_POINTS:
            self._recovery_points_written(node, disk, directory)

    def _segment_deleted(self, node: int, disk: SimDisk, directory: str, base: int) -> None:
        """Check that no loss of power leaves less than there was, or both, old and cleaned."""
        log = self._log_in(node, directory)
        if log is not None and log.segments.first.base_offset > base:
            self._expired(node, disk, log, base)
            return
        for name in _not_on_disk(disk, directory, names.LOG + names.SWAP):
            if _base_offset(name) <= base:
                reason = f"deletes segment {base} of {directory}, and {name} is not on disk"
                self._broken(node, reason)

    def _expired(self, node: int, disk: SimDisk, log: PartitionLog, base: int) -> None:
        """Look at the log start on disk as retention deletes a segment."""
        if log.config.remote_storage or log.has_remote_prefix:
            return  # What is deleted here is in remote storage, or is by another rule.
        first, start = log.segments.first.base_offset, _stored_log_start(disk, log)
        # A prefix that was given up a moment ago: its end is still there.
        local = _stored_start(disk, log, names.LOCAL_LOG_STARTS, "local_log_start_offset")
        if max(start, local) < first:
            self._broken(
                node,
                f"deletes segment {base} of {log.directory} by retention, and the log start on "
                f"disk is {start}, not {first}",
            )

    def _log_in(self, node: int, directory: str) -> PartitionLog | None:
        logs = (log for _, log in self._logs_of(node) if log.directory == directory)
        return next(logs, None)

    def _logs_of(self, node: int) -> Iterator[tuple[Partition, PartitionLog]]:
        """Yield the partitions that a broker hosts, with their logs."""
        broker = self._sim.nodes[node].broker
        for partition in () if broker is None else broker.replicas.hosted():
            if partition.log is not None:
                yield partition, partition.log

    def _cleaned_segment_written(self, node: int, directory: str, base: int) -> None:
        log = self._log_in(node, directory)
        lost = () if log is None else self._cleaned[node].left_out(log, base)
        for offset, key in lost:
            self._broken(
                node,
                f"cleans the record at offset {offset} of {directory} away, and no newer one of "
                f"its key {key!r} is replicated and on disk",
            )

    def _cleaned_segment_named(self, node: int, disk: SimDisk, directory: str, base: int) -> None:
        for name in _not_on_disk(disk, directory, names.LOG + names.DELETED):
            if _base_offset(name) >= base:
                reason = f"names segment {base} of {directory}, and {name} is not on disk"
                self._broken(node, reason)

    def _recovery_points_written(self, node: int, disk: SimDisk, log_dir: str) -> None:
        written = _offsets(bytes(disk.data_of(f"{log_dir}/{names.RECOVERY_POINTS}")))
        before = self._recovery_points.get((node, log_dir), {})
        self._recovery_points[node, log_dir] = dict(written)
        for key, point in written.items():
            if point > before.get(key, 0):
                directory = f"{log_dir}/{names.partition_dir_name(*key)}"
                point = _recovery_point(disk, directory, 0)
                for path in _unlike_on_disk(disk, directory, point):
                    self._broken(
                        node, f"has the recovery point {point} and not on disk what {path} holds"
                    )


def _recovery_point(disk: SimDisk, directory: str, least: int) -> int:
    """Return where a start would begin to read a log; any lower one where it is up to `least`."""
    log_dir, _, name = directory.rpartition("/")
    parsed = names.parse_partition_dir_name(name)
    if parsed is None or parsed.kind is not names.PartitionDirKind.LIVE:
        return 0
    written = _offsets(bytes(disk.data_of(f"{log_dir}/{names.RECOVERY_POINTS}")))
    point = written.get((parsed.topic, parsed.partition), 0)
    if point <= least:
        return point
    files = disk.durable_files_in(directory)
    # Without its id the directory is a stray, and no checkpoint entry is used for it.
    if names.STALE_CHECKPOINTS in files or names.PARTITION_METADATA not in files:
        return 0
    limits = (decode_limits(files[each]) for each in files if limits_number(each) is not None)
    return min((each.recovery_point for each in limits), default=point)


def _log_start(disk: SimDisk, log: PartitionLog) -> int:
    """Return the log start that a start of the broker would find."""
    start = _stored_log_start(disk, log)
    if log.has_remote_prefix:
        return start
    return max(start, min(segments_of(disk.durable_files_in(log.directory)), default=0))


def _stored_log_start(disk: SimDisk, log: PartitionLog) -> int:
    return _stored_start(disk, log, names.LOG_STARTS, "log_start_offset")


def _stored_start(disk: SimDisk, log: PartitionLog, checkpoint: str, limit: str) -> int:
    """Return what a checkpoint has for a log; 0 = nothing. `limit`: the field that lowers it."""
    log_dir = log.directory.rpartition("/")[0]
    files = disk.durable_files_in(log.directory)
    entries = _offsets(bytes(disk.data_of(f"{log_dir}/{checkpoint}")))
    start = 0 if names.STALE_CHECKPOINTS in files else entries.get((log.topic, log.partition), 0)
    limits = (decode_limits(files[each]) for each in files if limits_number(each) is not None)
    return min((getattr(each, limit) for each in limits), default=start)


def _not_on_disk(disk: SimDisk, directory: str, ending: str) -> Iterator[str]:
    """Yield the names with an ending that a loss of power may take."""
    for name in disk.files_in(directory):
        if name.endswith(ending) and not disk.is_named_durably(f"{directory}/{name}"):
            yield name


def _base_offset(name: str) -> int:
    """Return the base offset in the name of a segment's file, whatever its suffixes."""
    return int(name.partition(".")[0])


@lru_cache(maxsize=256)
def _offsets(data: bytes) -> dict[TopicPartition, int]:
    try:
        return decode_offsets(data)
    except MalformedFile:
        return {}


def _unlike_on_disk(disk: SimDisk, directory: str, point: int) -> Iterator[str]:
    """Yield the files that differ on disk from what the log has below its recovery point."""
    segments = segments_of(disk.files_in(directory))
    bases = sorted(segments)
    for base, next_base in zip(bases, (*bases, None)[1:], strict=True):
        if base >= point:
            return
        name = names.segment_name(base, names.LOG)
        data, on_disk = segments[base], disk.durable_data_of(f"{directory}/{name}")
        if next_base is None or next_base > point:
            size = max(
                (end for end, header in _headers(data) if header.base_offset < point), default=0
            )
            data, on_disk = data[:size], on_disk[:size]
        else:
            for suffix in names.INDEX_SUFFIXES:
                path = f"{directory}/{names.segment_name(base, suffix)}"
                if not disk.is_durable(path):
                    yield path
        if data != on_disk:
            yield f"{directory}/{name}"


def _headers(data: bytes, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the end and the header of each whole batch."""
    try:
        for at, header in iter_headers(data, position, allow_partial=True):
            yield at + header.size_in_bytes, header
    except RecordsError:
        return
