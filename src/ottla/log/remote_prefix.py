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
epochs of the prefix, and the producer state at its end. The local log start is checkpointed when
these are durable; before, a start finds a log without a remote prefix.

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
