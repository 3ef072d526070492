"""Images are compared part by part, and what was equal before only where it has changed since.

Method: images made of records, each replayed twice.
"""

from ottla.base.ids import Uuid
from ottla.metadata.delta import replay
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.records import Record, RemoveTopicRecord, TopicRecord
from ottla.testing.scenarios.node_watch import different_parts

TOPIC = Uuid(bytes(15) + b"\x09")
CREATED = TopicRecord(name="t", topic_id=TOPIC)
REMOVED = RemoveTopicRecord(topic_id=TOPIC)


def image(before: ClusterImage, *records: Record, offset: int = 9) -> ClusterImage:
    return replay(before, list(records), offset=offset, epoch=1).image


def test_the_parts_that_differ_are_named() -> None:
    assert different_parts(image(EMPTY, CREATED), image(EMPTY, CREATED)) == ()
    assert different_parts(image(EMPTY, CREATED), image(EMPTY)) == ("topics",)


def test_a_part_that_has_changed_since_is_compared_again() -> None:
    one, other = image(EMPTY, CREATED), image(EMPTY, CREATED)
    before = (one, other)
    assert different_parts(one, other, before) == ()
    # In one of them, in the other, and in both.
    removed = image(one, REMOVED)
    assert different_parts(removed, other, before) == ("topics",)
    assert different_parts(one, image(other, REMOVED), before) == ("topics",)
    assert different_parts(removed, image(other, REMOVED), before) == ()
