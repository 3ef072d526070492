"""A stream's position as its checkpoint keeps it: JSON of our own, with topic ids. Pure.

    {"v": 1, "t": {"orders": {"id": "jWq0…", "p": {"0": 123, "1": 5}, "b": {"1": 5}}}}

`v`  the version of this format.
`t`  by topic: `id`, its topic id; `p`, by partition the offset of the next record to read; `b`, by
     partition the offset where the batch that ends here begins, where it is the first.

Spark keeps the end of each batch only; a batch begins where the one before it ends. There is none
before the first batch of a query, of a new partition, or of a topic that was re-created. What Spark
passes instead, or what a cluster answers, may be another offset when the batch is replayed: `b` is
then where the batch began. It is repeated until something of the partition was read.

Spark compares positions by their text, so equal ones are printed alike.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.base.ids import NO_UUID, Uuid, parse_uuid, uuid_text
from ottla.client.partitions import TopicPartition
from ottla.spark.errors import StreamOffsetError

VERSION: Final = 1
_SHAPE: Final = '{"v":1,"t":{"orders":{"id":"<topic id>","p":{"0":123}}}}'


@dataclass(frozen=True, slots=True)
class TopicPosition:
    """A position in one incarnation of a topic.

    Fields: `next_offsets`: by partition, the offset of the next record to read.
            `begins`: where the batch that ends here begins, where it is a partition's first.
    """

    topic_id: Uuid
    next_offsets: Mapping[int, int]
    begins: Mapping[int, int] = field(default_factory=dict)

    def begins_anew(self, partition: int) -> bool:
        """Tell whether a batch that begins here has to repeat where it begins."""
        return self.begins.get(partition) == self.next_offsets[partition]


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """A position in all topics of a stream, by name."""

    topics: Mapping[str, TopicPosition]

    def __iter__(self) -> Iterator[tuple[TopicPartition, int]]:
        """Yield partitions and their next offsets, in order."""
        for topic, position in sorted(self.topics.items()):
            for partition, offset in sorted(position.next_offsets.items()):
                yield (topic, partition), offset

    def position_of(self, key: TopicPartition, topic_id: Uuid) -> int | None:
        """Return the next offset of a partition; None = it is not known, or of another topic."""
        position = self.topics.get(key[0])
        if position is None or not is_same_id(position.topic_id, topic_id):
            return None
        return position.next_offsets.get(key[1])

    def to_json(self) -> dict[str, Any]:
        """Return the document that Spark's checkpoint keeps."""
        topics: dict[str, Any] = {}
        for name, position in sorted(self.topics.items()):
            topics[name] = {
                "id": uuid_text(position.topic_id),
                "p": _printed(position.next_offsets),
            }
            if position.begins:
                topics[name]["b"] = _printed(position.begins)
        return {"v": VERSION, "t": topics}

    @staticmethod
    def of(document: object) -> "StreamOffset":
        """Return the position of a document. Raises: StreamOffsetError."""
        if not isinstance(document, dict):
            raise _unexpected(document, f"expected {_SHAPE}")
        version = document.get("v")
        if not _is_offset(version) or "t" not in document:
            raise _unexpected(document, _other_format(document))
        if version != VERSION:
            raise _unexpected(
                document, f"it has the version {version}, this Ottla reads version {VERSION}"
            )
        if set(document) != {"v", "t"} or not isinstance(document["t"], dict):
            raise _unexpected(document, f"expected {_SHAPE}")
        return StreamOffset({name: _topic(document, name) for name in document["t"]})


def is_same_id(one: Uuid, other: Uuid) -> bool:
    """Tell whether ids may be of one topic: clusters without topic ids have none to compare."""
    return one == other or NO_UUID in (one, other)


def _topic(document: dict[str, Any], name: str) -> TopicPosition:
    topic = document["t"][name]
    if not isinstance(topic, dict) or not {"id", "p"} <= set(topic) <= {"id", "p", "b"}:
        raise _unexpected(document, f"expected id and p for topic {name}, as in {_SHAPE}")
    try:
        topic_id = parse_uuid(topic["id"])
    except (TypeError, ValueError):
        raise _unexpected(
            document, f"expected an id of 22 characters for topic {name}, found {topic['id']!r}"
        ) from None
    found = TopicPosition(
        topic_id,
        _offsets(document, name, topic["p"]),
        _offsets(document, name, topic.get("b", {})),
    )
    for partition, begin in found.begins.items():
        if begin > found.next_offsets.get(partition, -1):
            raise _unexpected(document, f"{name}-{partition} begins at {begin}, behind its end")
    return found


def _offsets(document: dict[str, Any], topic: str, offsets: object) -> dict[int, int]:
    if not isinstance(offsets, dict):
        raise _unexpected(document, f"expected offsets by partition for topic {topic}")
    for partition, offset in offsets.items():
        if not (partition.isascii() and partition.isdecimal() and _is_offset(offset)):
            raise _unexpected(document, f"{topic}-{partition} is at {offset}: expected an offset")
    return {int(partition): offset for partition, offset in offsets.items()}


def _is_offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _printed(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}


def _other_format(document: dict[str, Any]) -> str:
    if document and all(isinstance(each, dict) for each in document.values()):
        return (
            "it looks like an offset of Spark's Kafka connector, which has no topic ids; pass it "
            "in the option startingOffsets, with a new checkpoint"
        )
    return f"expected {_SHAPE}"


def _unexpected(document: object, what: str) -> StreamOffsetError:
    shown = str(document)
    shown = shown if len(shown) <= 200 else f"{shown[:200]}…"
    return StreamOffsetError(f"the checkpoint's offset {shown} cannot be read: {what}")
