"""Topics grow, or are refused by the right code, each by itself.

Method: a table of requests against one image; the records are replayed.
"""

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import OFFSETS_TOPIC, REMOTE_LOG_METADATA_TOPIC
from ottla.base.limits import PARTITIONS_PER_REQUEST_MAX
from ottla.controller.step import Decision
from ottla.controller.topics.create_partitions import (
    CreatedPartitions,
    NewPartitions,
    create_partitions,
)
from ottla.controller.topics.create_topics import NewTopic, create_topics
from ottla.metadata.image import ClusterImage

from ..builders import THREE, after, broker, cluster, context

BASE = cluster(broker(1), broker(2), broker(3), broker(4, fenced=True))
IMAGE = after(
    BASE,
    create_topics(
        BASE,
        [NewTopic(name="t", partition_count=3), NewTopic(name="u")],
        validate_only=False,
        context=context(),
    ),
)


def grow(
    *wanted: NewPartitions, image: ClusterImage = IMAGE, validate_only: bool = False
) -> Decision[tuple[CreatedPartitions, ...]]:
    return create_partitions(image, wanted, validate_only=validate_only, context=context())


def replicas(image: ClusterImage, name: str) -> list[tuple[int, ...]]:
    topic = image.topics.by_name(name)
    assert topic is not None
    return [part.replicas for _, part in topic.in_order()]


def test_new_partitions_follow_the_old_ones() -> None:
    decided = grow(NewPartitions("t", 5), NewPartitions("u", 2))
    assert [each.error for each in decided.reply] == [Error.NONE, Error.NONE]
    image = after(IMAGE, decided)
    assert replicas(image, "t") == [(1,), (2,), (3,), (1,), (2,)]
    assert replicas(image, "u") == [(1,), (2,)]


def test_by_hand() -> None:
    image = after(IMAGE, grow(NewPartitions("t", 5, ((3,), (1,)))))
    assert replicas(image, "t")[3:] == [(3,), (1,)]


def test_validation_alone() -> None:
    decided = grow(NewPartitions("t", 5), NewPartitions("nobody", 5), validate_only=True)
    assert [each.error for each in decided.reply] == [Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION]
    assert decided.step.records == ()


@pytest.mark.parametrize(
    ("wanted", "error", "text"),
    [
        (NewPartitions("nobody", 2), Error.UNKNOWN_TOPIC_OR_PARTITION, ""),
        (NewPartitions("t", 3), Error.INVALID_PARTITIONS, "already has 3"),
        (NewPartitions("t", 2), Error.INVALID_PARTITIONS, "would not be an increase"),
        (NewPartitions("t", -1), Error.INVALID_PARTITIONS, "would not be an increase"),
        (NewPartitions("t", 5, ((1,),)), Error.INVALID_REPLICA_ASSIGNMENT, "only 1 assignment"),
        (NewPartitions("t", 4, ((),)), Error.INVALID_REPLICA_ASSIGNMENT, "empty"),
        (NewPartitions("t", 4, ((9,),)), Error.INVALID_REPLICA_ASSIGNMENT, "broker 9"),
        (NewPartitions("t", 4, ((1, 1),)), Error.INVALID_REPLICA_ASSIGNMENT, "more than once"),
        (NewPartitions("t", 4, ((1, 2),)), Error.INVALID_REPLICA_ASSIGNMENT, "others have 1"),
        (NewPartitions("t", 4, ((4,),)), Error.INVALID_REPLICA_ASSIGNMENT, "fenced"),
    ],
)
def test_refusals(wanted: NewPartitions, error: Error, text: str) -> None:
    decided = grow(wanted, NewPartitions("u", 2))
    assert [(each.name, each.error) for each in decided.reply] == [
        (wanted.name, error),
        ("u", Error.NONE),
    ]
    assert text in (decided.reply[0].message or "")
    assert len(decided.step.records) == 1


def test_a_name_twice_is_refused_once() -> None:
    decided = grow(NewPartitions("t", 4), NewPartitions("t", 5))
    assert decided.reply == (
        CreatedPartitions("t", Error.INVALID_REQUEST, "Duplicate topic name."),
    )
    assert decided.step.records == ()


def test_nobody_to_hold_it() -> None:
    wanted = [NewTopic(name="t", assignments=((0, (1,)),))]
    image = after(THREE, create_topics(THREE, wanted, validate_only=False, context=context()))
    alone = ClusterImage(topics=image.topics)
    [result] = grow(NewPartitions("t", 2), image=alone).reply
    assert result.error is Error.INVALID_REPLICATION_FACTOR


def test_too_many_at_once() -> None:
    with pytest.raises(ApiError) as caught:
        grow(NewPartitions("t", PARTITIONS_PER_REQUEST_MAX + 4))
    assert caught.value.error is Error.POLICY_VIOLATION


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (OFFSETS_TOPIC, "groups would not find the offsets"),
        (REMOTE_LOG_METADATA_TOPIC, "remote segments that are recorded in it would not be found"),
    ],
)
def test_a_topic_whose_partition_count_decides_what_is_where_keeps_it(
    name: str, reason: str
) -> None:
    """A group's offsets, or segments, that are in one partition would be looked for in another."""
    made = create_topics(
        BASE, [NewTopic(name=name, partition_count=3)], validate_only=False, context=context()
    )
    decided = grow(NewPartitions(name, 5), image=after(BASE, made))
    [refused] = decided.reply
    assert (refused.name, refused.error) == (name, Error.INVALID_REQUEST)
    assert f"partitions of {name} cannot be changed: " in (refused.message or "")
    assert reason in (refused.message or "")
    assert decided.step.records == ()
