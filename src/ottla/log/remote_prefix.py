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

from ottla.log.epoch_cache import EpochEntry


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
