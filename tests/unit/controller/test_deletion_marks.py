"""Markers queue what may be deleted, once, and nothing else.

Method: a small image with an internal topic, markers by name, then the answer and the ledger.
"""

import pytest

from ottla.base.errors import Error
from ottla.base.ids import OFFSETS_TOPIC
from ottla.controller.deletion_marks import Marked, mark_topics
from ottla.controller.step import Decision
from ottla.metadata.deletions import STARTED, Policy, replicas_record
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import TopicRecord

from .world import THREE, advance, after, uuid

IMAGE = advance(
    THREE, [TopicRecord(name=each, topic_id=uuid(each)) for each in ("a", "b", OFFSETS_TOPIC)]
)


def mark(
    image: ClusterImage, *names: str, enabled: bool = True, are_all: bool = False
) -> Decision[Marked]:
    return mark_topics(image, names, enabled=enabled, wall_ms=77, are_all=are_all)


def test_a_marked_topic_is_queued_and_still_served() -> None:
    decided = mark(IMAGE, "a")
    assert decided.reply == Marked(queued=("a",))
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
    assert decided.reply == Marked(queued=("a",))
    assert not decided.step.records
    # Nor is it refused, which would erase the marker of what is under way.
    assert mark(image, "a", enabled=False).reply == Marked(queued=("a",))


def test_a_deletion_that_waits_is_called_off_with_its_marker() -> None:
    image = after(IMAGE, mark(IMAGE, "a", "b"))
    assert after(image, mark(image, "b")) == advance(image, [])  # One of several markers is seen.
    left = after(image, mark(image, "b", are_all=True))
    assert [each.name for each in left.deletions.pending()] == ["b"]


def test_a_deletion_that_has_begun_goes_on_without_its_marker() -> None:
    image = after(IMAGE, mark(IMAGE, "a"))
    image = advance(image, [replicas_record(uuid("a"), 1, STARTED, [0])])
    assert not mark(image, are_all=True).step.records
