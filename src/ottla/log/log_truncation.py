"""Truncating a log, in an order that survives a power loss:

1. Limits for the log's checkpoint entries are made durable (`checkpoint_limits`). From the base
   offset of the cut segment on nothing is trusted: until step 3 has ended the disk may have that
   segment's old pages, its new ones, or a mix.
2. The segments above are deleted and the last one is cut. This need not be durable, since recovery
   reads all of it.
3. A flush makes the truncated log durable. Nothing is appended before: old pages between new ones,
   or an old segment behind them, could look like a log that never existed.

`truncate_to` and `start_at` do steps 1 and 2 on the caller's thread and leave 3 to a flush in a
worker; an append before its end flushes first itself. In the background step 1 runs in a worker,
too.

Source: UnifiedLog.{truncateTo, truncateFullyAndStartAt}, LogManager.truncateTo.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from ottla.base.errors import ApiError
from ottla.base.pending import Pending
from ottla.base.ports import as_failure, is_shortage
from ottla.log.dirs.checkpoint_limits import (
    CheckpointLimits,
    LimitFiles,
    limits_of_cut,
    limits_of_start,
    write_limits,
)
from ottla.log.disk_ports import DiskPorts
from ottla.log.epoch_cache import EpochCache
from ottla.log.file_cache import OutOfDescriptors
from ottla.log.flushing import Flushed, LogFlusher
from ottla.log.local_log import LocalLog
from ottla.log.log_offsets import LogOffsets
from ottla.log.producers.producer_state_manager import ProducerStateManager
from ottla.log.remote_prefix import PrefixBeginning, RemotePrefix, Truncated
from ottla.log.segment import Segment


class TruncationOwner(Protocol):
    """What a truncation asks of its log. Passed with each, so that a log is no reference cycle."""

    def flush(self) -> Flushed:
        """Make the truncated log durable."""
        ...

    def delete_segments(self, segments: Iterable[Segment]) -> None:
        """Delete the files of segments. Raises: OSError."""
        ...

    def disk_failed(self, error: OSError) -> None:
        """Take the log offline, and report why."""
        ...

    def request_checkpoints(self) -> None:
        """Have the log's checkpoints rewritten soon."""
        ...


@contextmanager
def _at_once() -> Iterator[None]:
    """Have a step that changes several files fail as a whole: what it leaves is no log any more.

    A shortage of descriptors is a failure then, too: after a start recovery goes on from here.
    """
    try:
        yield
    except OutOfDescriptors as shortage:
        raise as_failure(shortage) from shortage
    except OSError as error:
        if is_shortage(error):
            raise as_failure(error) from error
        raise


class LogTruncation:
    """The truncations of one log, and what must be checkpointed before it is complete.

    Fields: `limit_files`: upper bounds for the log's checkpoint entries, until the checkpoints are
            written again; `beginning`: of a log that begins with a remote prefix.
    """

    __slots__ = (
        "_epochs",
        "_flusher",
        "_limits_in_write",
        "_local",
        "_offsets",
        "_ports",
        "_producers",
        "beginning",
        "limit_files",
    )

    def __init__(
        self,
        ports: DiskPorts,
        *,
        local: LocalLog,
        offsets: LogOffsets,
        epochs: EpochCache,
        producers: ProducerStateManager,
        flusher: LogFlusher,
        limits: Mapping[int, CheckpointLimits],
    ) -> None:
        self._ports = ports
        self._local = local
        self._offsets = offsets
        self._epochs = epochs
        self._producers = producers
        self._flusher = flusher
        self.limit_files = LimitFiles(ports.disk, limits)
        self._limits_in_write = 0
        self.beginning = PrefixBeginning(ports.disk)

    @property
    def awaits_checkpoints(self) -> bool:
        """Whether limits are to be removed, or a remote prefix is to become durable."""
        awaits = self.limit_files.limits or self.beginning.awaits_checkpoints
        return bool(awaits) and not self.beginning.is_installing

    @property
    def may_be_limited(self) -> bool:
        """Whether a start may find limits, which lower the checkpointed log start."""
        return bool(self.limit_files.limits) or self._limits_in_write > 0

    # --- on the caller's thread ----------------------------------------------------------

    def truncate_to(self, owner: TruncationOwner, offset: int) -> bool:
        """Do as `PartitionLog.truncate_to`."""
        local, offsets = self._local, self._offsets
        if offset >= local.log_end_offset:
            # An epoch that begins at the end is one in which this replica was the leader and wrote
            # nothing. If it stayed it would be compared with the leader's again and again.
            self._epochs.truncate_from_end(local.log_end_offset)
            return self._drop_deleted(owner)
        if offset < local.segments.first.base_offset:
            own_prefix = RemotePrefix(log_start_offset=min(offsets.log_start_offset, offset))
            self.start_at(owner, offset, own_prefix)
            return True
        local.check_cut(offset)
        limits = self._limits_of_cut(offset)
        self._store_limits(limits)
        self._begin(owner, limits)
        with _at_once():
            gone = local.take_above(offset)
            if gone:
                owner.delete_segments(gone)
            local.cut(offset, offsets.log_start_offset)
            self._apply_new_end()
            is_dropped = self._drop_deleted(owner)
        if not is_dropped:
            owner.flush()
        return True

    def _drop_deleted(self, owner: TruncationOwner) -> bool:
        """Start an empty log if all remaining records are below the log start; return whether.

        The epoch cache has no entries for records below the log start. So records that come next
        may be of older epochs than these, and recovery would refuse them as decreasing.
        """
        local = self._local
        has_records = local.log_end_offset > self._offsets.log_start_offset
        if has_records or not local.size_bytes or self._epochs.entries:
            return False
        self.start_at(owner, local.log_end_offset)
        return True

    def _apply_new_end(self) -> None:
        end = self._local.log_end_offset
        self._epochs.truncate_from_end(end)
        self._offsets.cut(end)
        self._producers.rebuild(self._offsets.high_watermark)

    def start_at(
        self, owner: TruncationOwner, offset: int, prefix: RemotePrefix | None = None
    ) -> None:
        """Do as `PartitionLog.truncate_fully_and_start_at`."""
        prefix = prefix or RemotePrefix(log_start_offset=offset)
        prefix.producer_entries()  # Refuses a damaged snapshot now.
        limits = self._limits_of_start(offset)
        self._store_limits(limits)
        self._begin(owner, limits)
        with _at_once():
            self._replace_all(owner, limits, offset, prefix)
        owner.flush()

    def _replace_all(
        self, owner: TruncationOwner, limits: CheckpointLimits, offset: int, prefix: RemotePrefix
    ) -> None:
        producers = prefix.producer_entries()
        local, directory, disk = self._local, self._local.directory, self._ports.disk
        if prefix.epochs is not None and not self.beginning.is_marked:
            self.beginning.write_marker(directory)
            self.beginning.marked()
        # The newest one last: a process that is killed while their files go must not leave a log
        # that ends before this one. Where it leaves none, the next start takes note. Of a log
        # without checkpoints a snapshot has all: what is left must end before that.
        segments = list(local.segments)
        owner.delete_segments(segments if self._ports.has_checkpoints else reversed(segments))
        self._producers.remove_all_snapshots()
        # Before the new segment is created: a power loss might keep its name and bring an old
        # segment, or the producers of an old snapshot, back beside it.
        disk.sync_dir(directory)
        self._limit_starts(owner, limits, offset, prefix)
        now_ms = self._ports.clock.now_ms()
        local.start_at(offset, now_ms)
        self._offsets.start_at(offset)
        self._producers.start_with(producers)
        if prefix.log_start_offset >= offset:
            self._epochs.clear()
            self.beginning.is_installing = self._offsets.is_log_start_stored = False
        else:
            self._begin_with(prefix, offset, now_ms)

    def _begin_with(self, prefix: RemotePrefix, offset: int, now_ms: int) -> None:
        """Take over a remote prefix that ends at `offset`, of an empty log. Raises: OSError."""
        assert self._ports.has_checkpoints
        offsets, epochs = self._offsets, self._epochs
        offsets.had_remote_prefix = True
        offsets.log_start_offset = prefix.log_start_offset
        if prefix.epochs is not None:
            epochs.clear()
            epochs.prepend(prefix.epochs)
            self.beginning.is_installing, offsets.is_log_start_stored = True, False
        epochs.truncate_from_end(offset)
        epochs.truncate_from_start(prefix.log_start_offset)
        if prefix.producers is not None:
            self._producers.state.fill_append_times(lambda _: now_ms)
            self._producers.take_snapshot(offset)

    def _begin(self, owner: TruncationOwner, limits: CheckpointLimits) -> None:
        """End swaps, flushes and cleanings of the log's old content. Raises: OSError."""
        self._local.settle_swaps()
        self._flusher.truncated(limits.recovery_point)
        if self.limit_files.limits or self.beginning.awaits_checkpoints:
            owner.request_checkpoints()

    # --- in the background ---------------------------------------------------------------

    def truncate_in_background(
        self, owner: TruncationOwner, offset: int, is_wanted: Callable[[], bool]
    ) -> Truncated:
        """Do as `PartitionLog.truncate_in_background`."""
        limits: CheckpointLimits | None = None
        if offset < self._local.segments.first.base_offset:
            limits = self._limits_of_start(offset)
        elif offset < self._local.log_end_offset:
            limits = self._limits_of_cut(offset)
        shorten = partial(self.truncate_to, owner, offset)
        return self._in_background(owner, limits, shorten, is_wanted)

    def start_in_background(
        self,
        owner: TruncationOwner,
        offset: int,
        is_wanted: Callable[[], bool],
        prefix: RemotePrefix | None,
    ) -> Truncated:
        """Do as `PartitionLog.truncate_fully_in_background`."""
        if prefix is not None:
            prefix.producer_entries()  # Refuses a damaged snapshot now.
        limits = self._limits_of_start(offset)
        shorten = partial(self.start_at, owner, offset, prefix)
        marks = prefix is not None and prefix.epochs is not None
        return self._in_background(owner, limits, shorten, is_wanted, marks=marks)

    def _in_background(
        self,
        owner: TruncationOwner,
        limits: CheckpointLimits | None,
        shorten: Callable[[], object],
        is_wanted: Callable[[], bool],
        *,
        marks: bool = False,
    ) -> Truncated:
        """Write the limits in a worker, truncate the log on the loop, flush it in a worker.

        `marks`: the worker writes the marker of an incomplete log, too. `is_wanted` is called
        before the second step: the truncation may be obsolete by then. The promise completes when
        the truncated log is durable, or will not be truncated. A disk error takes the log offline.
        """
        done: Truncated = Pending()

        def limited(result: BaseException | None) -> None:
            if isinstance(result, OSError):
                if not self._local.failed:  # Else its directory may be another log's, or deleted.
                    owner.disk_failed(result)
                done.complete(result)
            elif result is not None:
                raise result
            else:
                if marks:
                    self.beginning.marked()
                proceed()

        def proceed() -> None:
            if self._local.failed:
                done.complete(None)
                return
            if not is_wanted():
                # To remove the limits, and the marker, which are not needed.
                owner.request_checkpoints()
                done.complete(None)
                return
            try:
                shorten()
            except (OSError, ApiError) as error:
                done.complete(error)
                return
            if self.beginning.is_incomplete:
                self.beginning.wait(done)
            if self._flusher.truncation_unflushed:
                owner.flush().then(flushed)
            else:
                flushed(None)

        def flushed(error: OSError | None) -> None:
            if error is not None or not self.beginning.is_awaited_by(done):
                done.complete(error)  # Else it completes with the checkpoints.

        new = None if limits is None or self._is_limited(limits) else limits
        marks = marks and not self.beginning.is_marked
        if new is None and not marks:
            proceed()
            return done
        if marks:
            self.beginning.marking()
        self._limit(new, marks, limited)
        return done

    def _limit(
        self,
        limits: CheckpointLimits | None,
        marks: bool,
        limited: Callable[[BaseException | None], None],
    ) -> None:
        """Write what must be durable before a truncation, in a worker."""
        number = self.limit_files.next_number()
        self._limits_in_write += 1

        def written(result: BaseException | None) -> None:
            self._limits_in_write -= 1
            if result is None and limits is not None:
                self.limit_files.limits[number] = limits
            limited(result)

        self._ports.workers.submit(partial(self._write_limits, number, limits, marks), written)

    def _write_limits(self, number: int, limits: CheckpointLimits | None, marks: bool) -> None:
        """Blocks. Raises: OSError."""
        if limits is not None:
            write_limits(self._ports.disk, self._local.directory, number, limits)
        if marks:
            self.beginning.write_marker(self._local.directory)

    # --- limits --------------------------------------------------------------------------

    def _limits_of_cut(self, offset: int) -> CheckpointLimits:
        segments = self._local.segments
        entries = self._offsets.checkpoint_entries(self._flusher.recovery_point)
        return limits_of_cut(entries, offset, segments[segments.floor(offset)].base_offset)

    def _limits_of_start(self, offset: int) -> CheckpointLimits:
        entries = self._offsets.checkpoint_entries(self._flusher.recovery_point)
        return limits_of_start(entries, offset, self._local.segments.first.base_offset)

    def _limit_starts(
        self, owner: TruncationOwner, limits: CheckpointLimits, offset: int, prefix: RemotePrefix
    ) -> None:
        """Limit both starts for a new beginning at `offset`: no old segment can come back.

        Raises: OSError.
        """
        offsets = self._offsets
        is_own = prefix.epochs is None and prefix.log_start_offset < offset
        keeps_prefix = offsets.has_remote_prefix and is_own
        limits = limits._replace(
            log_start_offset=min(offsets.log_start_offset, prefix.log_start_offset, offset),
            local_log_start_offset=(
                min(offsets.local_log_start_offset, offset) if keeps_prefix else 0
            ),
        )
        if not self._is_limited(limits):
            self._store_limits(limits)
            owner.request_checkpoints()

    def _is_limited(self, limits: CheckpointLimits) -> bool:
        """Return whether no checkpoint entry, however old, exceeds the limits."""
        if not self._ports.has_checkpoints:
            return True
        entries = self._offsets.possible_entries(self._flusher.recovery_point)
        return self.limit_files.are_enough(entries, limits)

    def _store_limits(self, limits: CheckpointLimits) -> None:
        if not self._is_limited(limits):
            self.limit_files.store(self._local.directory, limits)

    # --- checkpoints ---------------------------------------------------------------------

    def flushed(self, owner: TruncationOwner) -> None:
        """Note that the log is durable as it was after its last truncation."""
        if self.beginning.is_installing:
            self.beginning.is_installing = False
            owner.request_checkpoints()

    def checkpointed(self, numbers: Iterable[int], truncation_count: int) -> None:
        """Remove limits that were known when the checkpoints, now durable, were written.

        `truncation_count`: the log's at that time. Raises: OSError.
        """
        # A truncation since may rely on them, and has checkpoints written itself.
        if self._flusher.truncation_count == truncation_count:
            self.limit_files.remove(self._local.directory, numbers)

    def checkpoints_durable(self, truncation_count: int) -> bool:
        """Complete what waited for durable checkpoints, and for the durable end of the limits.

        Return whether the caller has to sync the directory, and to call `beginning_durable`: the
        log was incomplete. `truncation_count`: the log's when they were written. Raises: OSError.
        """
        if self._flusher.truncation_count != truncation_count or self.beginning.is_installing:
            return False
        if self.limit_files.limits:
            return False  # They deny the log its remote prefix until they are gone for good.
        return self.beginning.checkpoints_durable(self._local.directory)

    def beginning_durable(self, truncation_count: int) -> None:
        """Note that the log is complete, durably. `truncation_count`: as `checkpoints_durable`."""
        if self._flusher.truncation_count == truncation_count:
            self.beginning.durable()
