"""The offsets of one log that are not in its files, but for checkpoints.

    log start <= local log start <= high watermark <= log end

What is between the first two is in remote storage only: the log has a *remote prefix*
(`remote_prefix`). All are kept in memory, and are durable with the next checkpoint.
"""

from ottla.log.dirs.checkpoint_limits import CheckpointLimits


class LogOffsets:
    """See the module.

    Fields: `log_start_offset`: of the partition, over both tiers; `local_log_start_offset`: where
            the local log starts; `highest_remote_offset`: the last offset known to be in remote
            storage, -1 = none; `clean_offset`: below it, compaction left no key twice;
            `is_log_start_stored`: the log start checkpoint has a value of this log, where its
            remote prefix may begin (kept only while it has one); `had_remote_prefix`: a checkpoint
            may have a local log start of this log.
    """

    __slots__ = (
        "clean_offset",
        "had_remote_prefix",
        "high_watermark",
        "highest_remote_offset",
        "is_log_start_stored",
        "local_log_start_offset",
        "log_start_offset",
    )

    def __init__(
        self,
        *,
        log_start_offset: int,
        local_log_start_offset: int,
        high_watermark: int,
        clean_offset: int,
        had_remote_prefix: bool,
    ) -> None:
        self.log_start_offset = log_start_offset
        self.local_log_start_offset = local_log_start_offset
        # What is in remote storage only was committed, however old the checkpoint is (KAFKA-16452).
        self.high_watermark = max(local_log_start_offset, high_watermark)
        self.clean_offset = clean_offset
        self.highest_remote_offset = -1
        self.had_remote_prefix = had_remote_prefix
        self.is_log_start_stored = self.has_remote_prefix

    @property
    def has_remote_prefix(self) -> bool:
        """Whether records are in remote storage only."""
        return self.local_log_start_offset > self.log_start_offset

    def checkpoint_entries(self, recovery_point: int) -> CheckpointLimits:
        """Return what checkpoints written now would have."""
        return CheckpointLimits(
            recovery_point=recovery_point,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            clean_offset=self.clean_offset,
            local_log_start_offset=self.local_log_start_offset if self.has_remote_prefix else 0,
        )

    def possible_entries(self, recovery_point: int) -> CheckpointLimits:
        """Return the largest entries that checkpoints written so far may have."""
        return self.checkpoint_entries(recovery_point)._replace(
            local_log_start_offset=self.local_log_start_offset if self.had_remote_prefix else 0
        )

    def advance_log_start(self, offset: int) -> bool:
        """Move the log start forward; return whether it moved."""
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.local_log_start_offset = max(self.local_log_start_offset, offset)
        return True

    def expire_locally(self, offset: int) -> None:
        """Move the local log start forward, and leave the log start."""
        self.local_log_start_offset = offset
        self.had_remote_prefix = True

    def lower_local_start(self, first_base_offset: int) -> None:
        """Move the local log start back to the first local record.

        What is known to be remote was counted from the later one on.
        """
        first = max(first_base_offset, self.log_start_offset)
        if first < self.local_log_start_offset:
            self.local_log_start_offset = first
            self.highest_remote_offset = -1

    def remote_copied_to(self, offset: int) -> None:
        """Note that everything up to `offset`, inclusive, is in remote storage."""
        self.highest_remote_offset = max(self.highest_remote_offset, offset)

    def start_at(self, offset: int) -> None:
        """Begin anew with an empty log at `offset`, without a remote prefix."""
        self.log_start_offset = self.local_log_start_offset = self.high_watermark = offset
        self.highest_remote_offset = min(self.highest_remote_offset, offset - 1)
        self.clean_offset = min(self.clean_offset, offset)

    def cut(self, end: int) -> None:
        """Lower what a truncation to `end` leaves above the log's end."""
        self.clean_offset = min(self.clean_offset, end)
        self.high_watermark = min(self.high_watermark, end)
        self.log_start_offset = min(self.log_start_offset, end)
        self.local_log_start_offset = min(self.local_log_start_offset, end)
        # What comes next may differ from what is in remote storage (KAFKA-15241).
        self.highest_remote_offset = min(self.highest_remote_offset, end - 1)
