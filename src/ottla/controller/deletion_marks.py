"""Topics are marked to be deleted where their names are free only at the end (ZooKeeper).

Whoever writes a marker, an API's handler or another tool, it is looked at here. What must not or
cannot be deleted is refused, and whoever asks erases its marker: one that stayed would delete a
topic that is made later, or once deletions are switched on (KAFKA-3175, KAFKA-5975).
Source: KafkaController.processTopicDeletion, Kafka 3.9; KAFKA-13572: marking twice is marking once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ottla.base.errors import Error
from ottla.base.ids import INTERNAL_TOPICS, METADATA_TOPIC
from ottla.controller.step import Decision, Step
from ottla.metadata.deletions import DeletionImage, Policy, header_record
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import ForgetDeletionRecord, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """What came of markers.

    Fields: `queued`: topics that are to go now, or were to before; `refused`: the others, whose
            markers are to be erased, each with the reason.
    """

    queued: tuple[str, ...] = ()
    refused: Mapping[str, Error] = field(default_factory=dict)


def mark_topics(
    image: ClusterImage,
    names: Iterable[str],
    *,
    enabled: bool,
    wall_ms: int,
    are_all: bool = False,
) -> Decision[Marked]:
    """Queue topics for deletion. `enabled`: delete.topic.enable.

    `are_all`: these are all markers that there are, as a controller finds them when it begins: a
    deletion that waits without a marker has been called off by whoever took that away.
    """
    marked = frozenset(names)
    queued: list[str] = []
    refused: dict[str, Error] = {}
    records: list[Record] = []
    if are_all:
        records += (
            ForgetDeletionRecord(topic_id=each.topic_id)
            for each in image.deletions.pending()
            if each.policy is Policy.CLASSIC and not each.has_begun and each.name not in marked
        )
    for name in sorted(marked):
        topic_id = image.topics.id_of(name)
        if topic_id is None:
            refused[name] = Error.UNKNOWN_TOPIC_OR_PARTITION
        elif name in INTERNAL_TOPICS or name == METADATA_TOPIC:
            refused[name] = Error.INVALID_REQUEST
        elif image.deletions.is_queued(topic_id):
            queued.append(name)
        elif not enabled:
            refused[name] = Error.TOPIC_DELETION_DISABLED
        else:
            queued.append(name)
            deletion = DeletionImage(
                topic_id=topic_id, name=name, policy=Policy.CLASSIC, asked_ms=max(wall_ms, 0)
            )
            records.append(header_record(deletion))
    return Decision(
        Step(tuple(records), atomic=False), Marked(queued=tuple(queued), refused=refused)
    )
