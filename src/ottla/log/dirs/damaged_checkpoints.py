"""What a start does with a damaged checkpoint of a log directory.

Checkpoints are synced before they get their name, so no crash leaves a part of one: the disk has
damaged it, or somebody who edited it. A file that is missing or empty is not damaged: it is not
there before its first write, and Kafka creates it empty.

| the checkpoint of the | counts                                                               |
|-----------------------|----------------------------------------------------------------------|
| recovery points       | as empty: recovery reads more than it would have to                  |
| cleaner offsets       | as empty: the cleaner reads more than it would have to               |
| high watermarks       | as unknown: a log that was not closed cleanly, or that is truncated, |
|                       | may have lost committed records, and nothing else would show it      |
| log starts            | as a failure of the log directory: records that were deleted would   |
|                       | come back                                                            |
| local log starts      | likewise: a log would begin at its first local record, and the       |
|                       | records before would be deleted from remote storage as expired       |

Kafka takes the log directory offline for most damage of the first four, and has no other one.

Source: LogManager.loadLogs, CheckpointFileWithFailureHandler, LazyOffsetCheckpoints.
"""

import errno
import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.base.ports import Disk
from ottla.log import names
from ottla.log.dirs.checkpoints import MalformedFile, TopicPartition, read_offsets

logger = logging.getLogger(__name__)

_OFFLINE: Final = (
    "the log directory is offline, because {} without it; correct the file, or restore it, and "
    "restart the broker"
)

CONSEQUENCES: Final = {
    names.RECOVERY_POINTS: "after an unclean shutdown all segments are read again",
    names.LOG_STARTS: _OFFLINE.format("deleted records would come back"),
    names.HIGH_WATERMARKS: (
        "logs that were not closed cleanly, or that are truncated now, count as ending below "
        "their high watermark"
    ),
    names.CLEANER_OFFSETS: "compacted logs are cleaned from their start on",
    names.LOCAL_LOG_STARTS: _OFFLINE.format("records in remote storage would be given up"),
}
"""By checkpoint, in the order in which they are read."""

_NEEDED: Final = (names.LOG_STARTS, names.LOCAL_LOG_STARTS)


class Checkpoints(NamedTuple):
    """The checkpoints of a log directory: the entries of each, and why some did not decode."""

    entries: dict[str, dict[TopicPartition, int]]
    damaged: dict[str, str]


def read_checkpoints(disk: Disk, path: str) -> Checkpoints:
    """Read the checkpoints of a log directory; damaged ones have no entries. Raises: OSError."""
    found = Checkpoints({}, {})
    for name in CONSEQUENCES:
        try:
            found.entries[name] = read_offsets(disk, f"{path}/{name}")
        except MalformedFile as error:
            found.entries[name], found.damaged[name] = {}, str(error)
    return found


def failure_of(path: str, damaged: Mapping[str, str]) -> OSError | None:
    """Return why the log directory cannot be used; None = it can."""
    for name in _NEEDED:
        if name in damaged:
            return OSError(errno.EBADMSG, damaged[name], f"{path}/{name}")
    return None


def report(path: str, damaged: Mapping[str, str]) -> None:
    """Log the damage of each checkpoint, and what follows from it."""
    for name, reason in damaged.items():
        logger.error("%s/%s is damaged (%s): %s", path, name, reason, CONSEQUENCES[name])
