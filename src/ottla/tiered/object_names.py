"""The names of a partition's objects, relative to the prefix of the store.

    <topic>-<topicId>/<partition>/<20-digit start offset>-<segmentId>.<kind>
    <topic>-<topicId>/<partition>/manifest/<20-digit sequence>

The topic id keeps a topic apart from an earlier one of its name, the segment id a copy from an
earlier attempt; no object is ever written again with other content. Names sort by offset.
"""

import re
from enum import Enum
from typing import Final, NamedTuple, Protocol

from ottla.base.ids import Uuid, parse_uuid, uuid_text

DIGITS: Final = 20
MANIFEST_DIRECTORY: Final = "manifest"
_BEHIND_ALL: Final = "~"
"""It sorts behind the characters of objects' names."""


class ObjectKind(Enum):
    """What an object of a segment holds; the value is the end of its name."""

    LOG = "log"
    OFFSET_INDEX = "index"
    TIME_INDEX = "timeindex"
    TXN_INDEX = "txnindex"
    """Only where a transaction was aborted."""
    PRODUCER_SNAPSHOT = "snapshot"
    """The producers' state behind the segment's end."""
    LEADER_EPOCHS = "epochs"
    """The leader epoch checkpoint, from the log's beginning to the segment's end."""


class ObjectName(NamedTuple):
    """What the name of a segment's object says."""

    topic: str
    topic_id: Uuid
    partition: int
    start_offset: int
    segment_id: Uuid
    kind: ObjectKind


class NamedSegment(Protocol):
    """What the names of a segment's objects are made of: `SegmentMetadata` has it."""

    @property
    def topic(self) -> str: ...
    @property
    def topic_id(self) -> Uuid: ...
    @property
    def partition(self) -> int: ...
    @property
    def segment_id(self) -> Uuid: ...
    @property
    def start_offset(self) -> int: ...


def partition_prefix(topic: str, topic_id: Uuid, partition: int) -> str:
    """Return the directory of a partition's objects, without a slash at its end."""
    return f"{topic}-{uuid_text(topic_id)}/{partition}"


def object_name(segment: NamedSegment, kind: ObjectKind) -> str:
    """Return the name of one of a segment's objects."""
    prefix = partition_prefix(segment.topic, segment.topic_id, segment.partition)
    return f"{prefix}/{segment.start_offset:0{DIGITS}}-{uuid_text(segment.segment_id)}.{kind.value}"


def object_names(segment: NamedSegment) -> tuple[str, ...]:
    """Return the names that a segment's objects may have, for their deletion.

    The transaction index is among them, even of a segment without one: deleting a missing object
    succeeds.
    """
    return tuple(object_name(segment, kind) for kind in ObjectKind)


def manifest_prefix(topic: str, topic_id: Uuid, partition: int) -> str:
    """Return the directory of a partition's manifests, without a slash at its end."""
    return f"{partition_prefix(topic, topic_id, partition)}/{MANIFEST_DIRECTORY}"


def manifest_name(topic: str, topic_id: Uuid, partition: int, sequence: int) -> str:
    """Return the name of a manifest."""
    assert sequence >= 0
    return f"{manifest_prefix(topic, topic_id, partition)}/{sequence:0{DIGITS}}"


_DIRECTORY: Final = re.compile(r"(?P<topic>.+)-(?P<topic_id>[A-Za-z0-9_-]{22})\Z")
_SEGMENT: Final = re.compile(
    rf"(?P<start>[0-9]{{{DIGITS}}})-(?P<id>[A-Za-z0-9_-]{{22}})\.(?P<kind>[a-z]+)\Z"
)
_NUMBER: Final = re.compile(r"(0|[1-9][0-9]{0,9})\Z")


def parse_object_name(name: str) -> ObjectName | None:
    """Return what the name of a segment's object says; None = another object's."""
    parts = name.split("/")
    if len(parts) != 3:
        return None
    directory, number = _DIRECTORY.match(parts[0]), _NUMBER.match(parts[1])
    segment = _SEGMENT.match(parts[2])
    if directory is None or number is None or segment is None:
        return None
    try:
        return ObjectName(
            topic=directory["topic"],
            topic_id=parse_uuid(directory["topic_id"]),
            partition=int(number[0]),
            start_offset=int(segment["start"]),
            segment_id=parse_uuid(segment["id"]),
            kind=ObjectKind(segment["kind"]),
        )
    except ValueError:
        return None


def parse_manifest_name(name: str) -> int | None:
    """Return the sequence of a manifest, from its name; None = another object's."""
    parts = name.split("/")
    if len(parts) != 4 or parts[2] != MANIFEST_DIRECTORY or len(parts[3]) != DIGITS:
        return None
    return int(parts[3]) if parts[3].isascii() and parts[3].isdigit() else None


def parse_directory_name(name: str) -> tuple[str, Uuid, int] | None:
    """Return topic, topic id and partition of an object's name; None = another object's."""
    parts = name.split("/")
    directory = _DIRECTORY.match(parts[0])
    number = _NUMBER.match(parts[1]) if len(parts) > 2 else None
    if directory is None or number is None:
        return None
    try:
        return directory["topic"], parse_uuid(directory["topic_id"]), int(number[0])
    except ValueError:
        return None


def behind_partition(name: str) -> str:
    """Return what sorts behind all objects of the partition that an object is of.

    To list after it skips the rest of that partition, which may be a hundred thousand objects.
    """
    return "/".join((*name.split("/")[:2], _BEHIND_ALL))
