"""The remote prefix of a log: the records from its log start to its local log start.

They are in remote storage only: their local files were deleted, or were never here. A log has a
remote prefix exactly while its local log start is above its log start. The local files are the log
from the local log start on.

Whether a log has one is not a matter of its configuration, which may have changed since. It is an
entry in the checkpoint of its log directory, `local-log-start-offset-checkpoint`. A start ignores
and removes segments below it, as those below the log start. The order of writes:

1. The log start is checkpointed, durably: with an older one, or none, the prefix would begin at
   offsets that were never in remote storage.
2. The local log start is checkpointed, durably.
3. The local files below it are deleted. A power loss may undo any of these renames.

A log that begins with a remote prefix (a new follower) gets the leader's log start, the leader
epochs of the prefix, and the producer state at its end. Each of them may be lost alone, and the log
would be wrong: without the checkpointed local log start it would begin there, and lack all records
before. So a file in its directory, `.ottla_incomplete`, says that it is being begun:

1. The file is written, durably, before the first of the old files is deleted.
2. The new log is written: the empty segment, the producer snapshot. A flush makes these and the
   leader epochs durable.
3. The log start is checkpointed, durably, then the local log start.
4. The file is removed, durably. Until then nothing is appended.

A start that finds the file removes the whole log, and its replica begins again, from offset 0.

Source: KIP-405 (log start and local log start); KAFKA-16146 (log starts are always checkpointed).
"""

from dataclasses import dataclass
from enum import Enum

from ottla.base.errors import ApiError
from ottla.base.pending import Pending
from ottla.base.ports import Disk
from ottla.log import names
from ottla.log.epoch_cache import EpochEntry
from ottla.log.producers.producer_snapshot import decode_snapshot
from ottla.log.producers.producer_state import ProducerEntry

Truncated = Pending[OSError | ApiError | None]
"""Completes when a truncation is durable, or was not done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePrefix:
    """What precedes the first local record of a log that begins with a remote prefix.

    Fields: `log_start_offset`: the log start over both tiers; `epochs`: the leader epochs up to the
            first local record, None = those that the log has are right; `producers`: the content
            of a producer snapshot at the first local record, None = no producers.
    """

    log_start_offset: int
    epochs: tuple[EpochEntry, ...] | None = None
    producers: bytes | None = None

    def producer_entries(self) -> list[ProducerEntry]:
        """Return the producers at the first local record. Raises: MalformedFile."""
        return [] if self.producers is None else decode_snapshot(self.producers)


class MarkerFile(Enum):
    """The file that says that a log is incomplete."""

    NONE = "the log is complete"
    WRITING = "a worker writes it"
    THERE = "it is durable"
    REMOVED = "it may come back after a power loss"


class PrefixBeginning:
    """How far the beginning of a log with a remote prefix is: see the module.

    Fields: `is_installing`: the leader epochs and the producers of the prefix are not durable yet.
    """

    __slots__ = ("_disk", "_marker", "_waiting", "is_installing")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._marker = MarkerFile.NONE
        self._waiting: list[Truncated] = []
        self.is_installing = False

    @property
    def is_incomplete(self) -> bool:
        """Whether the next start may remove the log."""
        return self._marker is not MarkerFile.NONE

    @property
    def awaits_checkpoints(self) -> bool:
        """Whether something is to be done once the checkpoints are durable."""
        return bool(self._waiting) or self.is_incomplete

    @property
    def is_marked(self) -> bool:
        """Whether the marker file is durable."""
        return self._marker is MarkerFile.THERE

    def write_marker(self, directory: str) -> None:
        """Have a start remove the log; `marked` follows. Blocks. Raises: OSError."""
        self._disk.write_atomic(f"{directory}/{names.INCOMPLETE}", b"")

    def marking(self) -> None:
        """Note that a worker is about to write the marker file."""
        self._marker = MarkerFile.WRITING

    def marked(self) -> None:
        """Note that the marker file is durable."""
        self._marker = MarkerFile.THERE

    def wait(self, done: Truncated) -> None:
        """Complete a promise when the log is complete, durably."""
        self._waiting.append(done)

    def is_awaited_by(self, done: Truncated) -> bool:
        """Return whether the promise is one of those to complete."""
        return done in self._waiting

    def checkpoints_durable(self, directory: str) -> bool:
        """Remove the marker file, or complete the promises; return whether it was removed.

        Then the caller syncs the directory and calls `durable`. Raises: OSError.
        """
        if self._marker is MarkerFile.NONE:
            self.complete(None)
            return False
        if self._marker is MarkerFile.WRITING:
            return False
        self._disk.remove(f"{directory}/{names.INCOMPLETE}")
        self._marker = MarkerFile.REMOVED
        return True

    def durable(self) -> None:
        """Note that the marker file is gone for good."""
        if self._marker is MarkerFile.REMOVED:
            self._marker = MarkerFile.NONE
            self.complete(None)

    def complete(self, error: OSError | None) -> None:
        """Complete the promises."""
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done.complete(error)
