"""Markers queue what may be deleted, once, and nothing else, and call it off by going.

Method: a small image with an internal topic, markers by name, then the answer and the ledger.
"""

import pytest

from ottla.base.errors import Error
from ottla.base.ids import OFFSETS_TOPIC
from ottla.controller.deletion.delete_topics import MarkedTopics, mark_topics
from ottla.controller.deletion.deletion_policy import DeletionWork, decide
from ottla.controller.step import Decision
from ottla.metadata.deletions import STARTED, Policy, replicas_record
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import ForgetDeletionRecord, TopicRecord
from tests.unit.controller.builders import THREE, advance, after, uuid

IMAGE = advance(
    THREE, [TopicRecord(name=each, topic_id=uuid(each)) for each in ("a", "b", OFFSETS_TOPIC)]
)


def mark(image: ClusterImage, *names: str, enabled: bool = True) -> Decision[MarkedTopics]:
    return mark_topics(image, {each: uuid(each) for each in names}, enabled=enabled, wall_ms=77)


def test_a_marked_topic_is_queued_and_still_served() -> None:
    decided = mark(IMAGE, "a")
    assert decided.reply == MarkedTopics(queued=("a",))
    image = after(IMAGE, decided)
    [entry] = image.deletions.pending()
    assert (entry.name, entry.policy, entry.asked_ms) == ("a", Policy.CLASSIC, 77)
    assert image.is_queued_for_deletion("a")
    assert not image.is_being_deleted("a")


@pytest.mark.parametrize(
    ("name", "enabled", "error"),
    [
        ("unknown", True, Error.UNKNOWN_TOPIC_OR_PARTITION),
        ("unknown", False, Error.UNKNOWN_TOPIC_OR_PARTITION),
        (OFFSETS_TOPIC, True, Error.INVALID_REQUEST),
        ("__cluster_metadata", True, Error.UNKNOWN_TOPIC_OR_PARTITION),
        ("a", False, Error.TOPIC_DELETION_DISABLED),
    ],
)
def test_what_is_refused_has_a_reason_and_writes_nothing(
    name: str, enabled: bool, error: Error
) -> None:
    decided = mark(IMAGE, name, enabled=enabled)
    assert decided.reply.refused == {name: error}
    assert not decided.step.records


def test_one_refusal_refuses_no_other() -> None:
    decided = mark(IMAGE, "unknown", "b", "a", "a")
    assert decided.reply.queued == ("a", "b")
    assert len(decided.step.records) == 2


def test_kafka_13572_a_second_marker_is_no_second_deletion() -> None:
    image = after(IMAGE, mark(IMAGE, "a"))
    decided = mark(image, "a")
    assert decided.reply == MarkedTopics(queued=("a",))
    assert not decided.step.records
    # Nor is it refused, which would erase the marker of what is under way.
    assert mark(image, "a", enabled=False).reply == MarkedTopics(queued=("a",))


def test_a_marker_of_a_topic_that_went_does_not_hit_the_next_one() -> None:
    decided = mark_topics(IMAGE, {"a": uuid("a before")}, enabled=True, wall_ms=77)
    assert decided.reply.refused == {"a": Error.UNKNOWN_TOPIC_OR_PARTITION}
    assert not decided.step.records


WISH = DeletionWork(topics=frozenset({uuid("a"), uuid("b")}))


def test_a_deletion_that_waits_is_called_off_with_its_marker() -> None:
    image = after(IMAGE, mark(IMAGE, "a", "b"))
    decided = decide(image, WISH, wall_ms=78, marked={"b"})
    assert ForgetDeletionRecord(topic_id=uuid("a")) in decided.step.records
    assert ForgetDeletionRecord(topic_id=uuid("b")) not in decided.step.records


def test_a_deletion_that_has_begun_goes_on_without_its_marker() -> None:
    image = after(IMAGE, mark(IMAGE, "a"))
    image = advance(image, [replicas_record(uuid("a"), 1, STARTED, [0])])
    assert not decide(image, WISH, wall_ms=78, marked=set()).step.records
