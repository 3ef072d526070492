"""Moving a log's two starts, and deleting the local segments below.

`retention` decides what expires. Here the log start moves, or with remote storage the local log
start, in memory: readers see nothing below it any more. The files are deleted once the start is
durable, in a checkpoint or as a metadata snapshot (`expired_segments`).

What a cleaning reads is deleted after it, as in Kafka: otherwise a log whose segments expire faster
than it is cleaned would never be cleaned.

A replica whose leader has given up remote storage moves its local log start back instead: see
`earlier_segments`.

Source: UnifiedLog.{deleteOldSegments, maybeIncrementLogStartOffset}, KIP-107, KIP-405.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_OFFSET
from ottla.base.ports import Disk
from ottla.log.earlier_segments import EarlierSegment, EarlierSegments
from ottla.log.epoch_cache import EpochCache
from ottla.log.flushing import Flushed, LogFlusher
from ottla.log.local_log import LocalLog
from ottla.log.log_offsets import LogOffsets
from ottla.log.producers.producer_state_manager import ProducerStateManager
from ottla.log.retention import ExpiredSegment, Reason, expired, expired_locally
from ottla.log.segment import Segment


class RetentionOwner(Protocol):
    """What retention asks of its log. Passed with each call, so that a log is no reference
    cycle."""

    def roll(self, now_ms: int) -> None:
        """Seal the active segment. Raises: OSError."""
        ...

    def flush(self, *, include_active: bool = True) -> Flushed:
        """Make the log durable."""
        ...

    def delete_segments(self, segments: Iterable[Segment]) -> None:
        """Delete the files of segments. Raises: OSError."""
        ...


class LogRetention:
    """See the module.

    Fields: `prepends`: segments below the local log start are to stay, or it has moved back to them
            and is not checkpointed yet; `cleaned_from`: the base offset of the first segment that
            the cleaning in progress reads, None = there is no cleaning.
    """

    __slots__ = (
        "_disk",
        "_epochs",
        "_flusher",
        "_local",
        "_offsets",
        "_producers",
        "cleaned_from",
        "prepends",
    )

    def __init__(
        self,
        disk: Disk,
        *,
        local: LocalLog,
        offsets: LogOffsets,
        epochs: EpochCache,
        producers: ProducerStateManager,
        flusher: LogFlusher,
    ) -> None:
        self._disk = disk
        self._local = local
        self._offsets = offsets
        self._epochs = epochs
        self._producers = producers
        self._flusher = flusher
        self.prepends = False
        self.cleaned_from: int | None = None

    # --- the log start -------------------------------------------------------------------

    def delete_records(self, offset: int) -> int:
        """Do as `PartitionLog.delete_records`."""
        target = self._offsets.high_watermark if offset == NO_OFFSET else offset
        if target < 0:
            raise self._out_of_range(target)
        self.advance_log_start(target)
        return self._offsets.log_start_offset

    def advance_log_start(self, offset: int) -> bool:
        """Do as `PartitionLog.advance_log_start`."""
        if offset > self._offsets.high_watermark:
            raise self._out_of_range(offset)
        return self._advance(offset)

    def _advance(self, offset: int) -> bool:
        had_prefix = self._offsets.has_remote_prefix
        if not self._offsets.advance_log_start(offset):
            return False
        self._epochs.truncate_from_start(offset, keep_in_file=had_prefix)
        self._producers.state.replicated_to(offset)
        return True

    def _out_of_range(self, offset: int) -> ApiError:
        return ApiError(
            Error.OFFSET_OUT_OF_RANGE,
            f"Cannot move the log start of {self._local.name} to {offset}: the high watermark "
            f"is {self._offsets.high_watermark}.",
        )

    # --- expiration ----------------------------------------------------------------------

    def expire_segments(self, owner: RetentionOwner, now_ms: int) -> list[ExpiredSegment]:
        """Do as `PartitionLog.expire_segments`."""
        local, offsets = self._local, self._offsets
        if local.config.remote_storage or offsets.has_remote_prefix:
            return self._expire_locally(owner, now_ms)
        reasons = expired(
            local.segment_facts(now_ms, offsets.high_watermark),
            local.config,
            now_ms=now_ms,
            log_start_offset=offsets.log_start_offset,
            high_watermark=offsets.high_watermark,
        )
        count = len(reasons)
        if not count:
            return []
        if count == len(local.segments):
            owner.roll(now_ms)
        self._advance(local.segments[count].base_offset)
        return self._expired_segments(reasons)

    def _expire_locally(self, owner: RetentionOwner, now_ms: int) -> list[ExpiredSegment]:
        """Move the local log start behind the copied segments that local retention expires."""
        local, offsets = self._local, self._offsets
        expiry = expired_locally(
            local.segment_facts(now_ms, offsets.high_watermark),
            local.config,
            now_ms=now_ms,
            log_start_offset=offsets.log_start_offset,
            local_log_start_offset=offsets.local_log_start_offset,
            high_watermark=offsets.high_watermark,
            copied_to=offsets.highest_remote_offset + 1,
        )
        reasons = expiry.reasons
        start = local.segments[len(reasons)].base_offset
        if start > offsets.local_log_start_offset:
            if start <= self._flusher.recovery_point:
                offsets.expire_locally(start)
            else:
                # The leader epochs of what is deleted must be durable in their file. As sealed
                # segments are flushed at once, this is only so after an unclean shutdown.
                reasons = reasons[: self._count_below(offsets.local_log_start_offset)]
                owner.flush(include_active=False)
        if expiry.rolls:
            owner.roll(now_ms)
        return self._expired_segments(reasons)

    def _expired_segments(self, reasons: Iterable[Reason]) -> list[ExpiredSegment]:
        segments = self._local.segments
        return [
            ExpiredSegment(segments[index].base_offset, segments[index].size, reason)
            for index, reason in enumerate(reasons)
        ]

    @property
    def has_expired_segments(self) -> bool:
        """Whether segments lie wholly below the local log start, as DeleteRecords leaves them,
        too."""
        return self._count_below(self._offsets.local_log_start_offset) > 0

    def delete_expired_segments(self, owner: RetentionOwner, durable_start: int) -> int:
        """Do as `PartitionLog.delete_expired_segments`."""
        start = min(durable_start, self._offsets.local_log_start_offset)
        count = self._count_below(start)
        if not count:
            return 0
        owner.delete_segments(self._local.take_first(count))
        self._producers.remove_snapshots_below(self._local.segments.first.base_offset)
        return count

    def _count_below(self, offset: int) -> int:
        """Return how many segments to delete are wholly below an offset."""
        if self.cleaned_from is not None:
            offset = min(offset, self.cleaned_from)
        return 0 if self.prepends else self._local.count_below(offset)

    # --- the local log start, backward ---------------------------------------------------

    def earlier_segments(self) -> EarlierSegments | None:
        """Return the writer of the records that are in remote storage only, from the log start on.

        None = the local files have them: they are expired by the local retention, not deleted yet.
        Raises: ApiError.
        """
        local = self._local
        local.check_usable()
        start, end = self._offsets.log_start_offset, local.segments.first.base_offset
        if start >= end:
            return None
        return EarlierSegments(
            self._disk,
            local.directory,
            local.name,
            local.config,
            start=start,
            end=end,
            epochs=self._epochs.entries,
        )

    def prepend_segments(self, earlier: Sequence[EarlierSegment]) -> None:
        """Take over what `earlier_segments` wrote, below the local log start. Nothing below it is
        deleted from now on, until `lower_local_start`. Raises: ApiError, OSError.
        """
        self._local.check_usable()
        made = self._local.name_earlier(earlier)
        self.prepends = True
        self._local.put_first(made)

    def lower_local_start(self, truncation_count: int) -> bool:
        """Move the local log start back to the first segment, whose name is durable; return whether
        that was possible. `truncation_count`: the log's when the segments were prepended.

        `prepends` stays until `local_start_stored`: the checkpoint has to be written.
        """
        if self._local.failed or self._flusher.truncation_count != truncation_count:
            self.prepends = False
            return False
        self._offsets.lower_local_start(self._local.segments.first.base_offset)
        return True

    def local_start_stored(self) -> None:
        """Note that the checkpoint has the local log start."""
        self.prepends = False
