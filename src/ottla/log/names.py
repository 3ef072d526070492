"""Names of a log's files and directories, as Kafka writes them.

Source: LogFileUtils, LocalLog.{logDirName, logDeleteDirName, logStrayDirName,
parseTopicPartitionName}.
"""

import re
from enum import Enum
from typing import Final, NamedTuple

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
TEMPORARY: Final = ".tmp"

INDEX_SUFFIXES: Final = (OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)
SEGMENT_SUFFIXES: Final = (LOG, *INDEX_SUFFIXES)

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
META_PROPERTIES: Final = "meta.properties"
LOCK: Final = ".lock"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
RUNNING: Final = ".ottla_running"
"""In a log directory: broker epoch and boot id of its last user; Kafka ignores it."""
STALE_CHECKPOINTS: Final = ".ottla_untold"
"""In a partition directory: the checkpoints' entries are a former log's; Kafka ignores it."""
TRUNCATION: Final = ".ottla_truncation"
"""In a partition directory, with a number: bounds for the checkpoints' entries
(`checkpoint_limits`); Kafka ignores it."""
INCOMPLETE: Final = ".ottla_incomplete"
"""In a partition directory: the log was to begin with a remote prefix, which was not durable yet
(`remote_prefix`); Kafka ignores it."""
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
LOCAL_LOG_STARTS: Final = "local-log-start-offset-checkpoint"
"""Of the logs with a remote prefix (`remote_prefix`); Kafka ignores it."""
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"

DIR_NAME_BYTES_MAX: Final = 255
"""What file systems allow; in a longer name the topic is cut."""

_OFFSET_NAME = re.compile(r"(\d{20})(\.[a-z]+)")
PARTITION_MAX: Final = 2**31 - 1

_DIR_NAME = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>\d{1,10})")
_WITH_SUFFIX = re.compile(r"(?P<what>.+)\.(?P<token>[0-9a-f]{32})-(?P<kind>delete|stray|future)")


class PartitionDirKind(Enum):
    """The kind of a partition directory, by its name's suffix."""

    LIVE = "live"
    DELETE = "delete"
    STRAY = "stray"
    FUTURE = "future"


class PartitionDirName(NamedTuple):
    """The parsed name of a partition directory. With a suffix the topic may be cut."""

    topic: str
    partition: int
    kind: PartitionDirKind


def segment_name(base_offset: int, suffix: str) -> str:
    """Return the name of one file of a segment (or of a snapshot at this offset)."""
    return f"{base_offset:020d}{suffix}"


def parse_segment_name(name: str) -> tuple[int, str] | None:
    """Return offset and suffix of a file named by an offset; None for any other file."""
    found = _OFFSET_NAME.fullmatch(name)
    return (int(found[1]), found[2]) if found else None


def partition_dir_name(topic: str, partition: int) -> str:
    """Return the name of a partition's directory."""
    return f"{topic}-{partition}"


def partition_dir_name_with_suffix(
    topic: str, partition: int, token: str, kind: PartitionDirKind
) -> str:
    """Return a partition directory's `-delete` or `-stray` name; `token`: 32 hex digits."""
    assert kind is not PartitionDirKind.LIVE
    assert len(token) == 32
    return topic_in_name(topic, partition, kind) + f"-{partition}.{token}-{kind.value}"


def topic_in_name(topic: str, partition: int, kind: PartitionDirKind) -> str:
    """Return the topic's name as a partition directory's name of this kind contains it."""
    if kind is PartitionDirKind.LIVE:
        return topic
    end = f"-{partition}.{'0' * 32}-{kind.value}"
    return topic[: DIR_NAME_BYTES_MAX - len(end)]


def parse_partition_dir_name(name: str) -> PartitionDirName | None:
    """Return what a directory's name says; None where it is no partition directory's.

    A name that Kafka would not write, as t-00, is none: beside t-0 it would be a second directory
    of the same partition.
    """
    kind = PartitionDirKind.LIVE
    marked = _WITH_SUFFIX.fullmatch(name)
    if marked:
        kind = PartitionDirKind(marked["kind"])
        name = marked["what"]
    found = _DIR_NAME.fullmatch(name)
    if not found:
        return None
    topic, partition = found["topic"], int(found["partition"])
    if partition > PARTITION_MAX or partition_dir_name(topic, partition) != name:
        return None
    return PartitionDirName(topic, partition, kind)
