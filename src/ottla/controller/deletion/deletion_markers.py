"""Markers of topics to be deleted, under /admin/delete_topics (ZooKeeper).

API handlers and other tools write markers; all are checked here. A topic that must not or
cannot be deleted is refused, and the caller removes its marker: one that stayed would delete a
topic that is created later, or once deletions are enabled (KAFKA-3175, KAFKA-5975).
Source: KafkaController.processTopicDeletion, Kafka 3.9; KAFKA-13572: marking twice is marking once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.base.errors import Error
from ottla.base.ids import INTERNAL_TOPICS, METADATA_TOPIC, Uuid
from ottla.controller.deletion.deletion_policy import new_entry
from ottla.controller.step import Decision, Step
from ottla.metadata.deletions import Policy, header_record
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedTopics:
    """The results of markers.

    Fields: `queued`: topics that are queued now, or were before; `refused`: the others, whose
            markers are to be removed, each with the reason.
    """

    queued: tuple[str, ...] = ()
    refused: Mapping[str, Error] = field(default_factory=dict)


def mark_topics(
    image: ClusterImage, marked: Mapping[str, Uuid], *, enabled: bool, wall_ms: int
) -> Decision[MarkedTopics]:
    """Queue topics for deletion. `enabled`: delete.topic.enable.

    `marked`: the ids of the topics that the markers are for, by name; another topic of the name
    is not touched.
    """
    queued: list[str] = []
    refused: dict[str, Error] = {}
    records: list[Record] = []
    for name, topic_id in sorted(marked.items()):
        topic = image.topics.by_name(name)
        if topic is None or topic.id != topic_id:
            refused[name] = Error.UNKNOWN_TOPIC_OR_PARTITION
        elif name in INTERNAL_TOPICS or name == METADATA_TOPIC:
            refused[name] = Error.INVALID_REQUEST
        elif image.deletions.is_queued(topic_id):
            queued.append(name)
        elif not enabled:
            refused[name] = Error.TOPIC_DELETION_DISABLED
        else:
            queued.append(name)
            records.append(header_record(new_entry(topic, Policy.CLASSIC, wall_ms=wall_ms)))
    return Decision(
        Step(tuple(records), atomic=False), MarkedTopics(queued=tuple(queued), refused=refused)
    )
