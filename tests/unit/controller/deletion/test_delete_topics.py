"""Topics are deleted by name or id, or refused by the right code (facts: DeleteTopics).

Method: a table of references against one image; deletions are replayed.
"""

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.controller.deletion import delete_topics as deletion
from ottla.controller.deletion.delete_topics import (
    DeletedTopic,
    TopicReference,
    delete_first,
    delete_topics,
    find_topics,
)
from ottla.controller.step import Decision
from ottla.controller.topics.create_partitions import NewPartitions, create_partitions
from ottla.controller.topics.create_topics import NewTopic, create_topics
from ottla.metadata.deletions import Policy
from ottla.metadata.features import OTTLA_VERSION, OTTLA_VERSION_LEVEL
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.unit.controller.builders import THREE, advance, after, context, uuid

NOW_MS = 77

NAMES = ("a", "b", "__consumer_offsets", "__transaction_state")
IMAGE = advance(
    after(
        THREE,
        create_topics(
            THREE, [NewTopic(name=name) for name in NAMES], validate_only=False, context=context()
        ),
    ),
    [ConfigRecord(resource_type=2, resource_name="a", name="retention.ms", value="5")],
)


def id_of(name: str) -> Uuid:
    found = IMAGE.topics.id_of(name)
    assert found is not None
    return found


def delete(*wanted: TopicReference) -> Decision[tuple[DeletedTopic, ...]]:
    return delete_topics(IMAGE, wanted, context=context(), wall_ms=NOW_MS)


def by_name(name: str) -> TopicReference:
    return TopicReference(name)


def by_id(name: str) -> TopicReference:
    return TopicReference(None, id_of(name))


@pytest.mark.parametrize("reference", [by_name("a"), by_id("a")])
def test_a_topic_goes_and_the_answer_has_name_and_id(reference: TopicReference) -> None:
    decided = delete(reference)
    assert decided.reply == (DeletedTopic("a", id_of("a")),)
    image = after(IMAGE, decided)
    assert "a" not in image.topics
    assert image.topics.by_id(id_of("a")) is None
    assert not image.configs.of(2, "a")
    assert "b" in image.topics


def test_several_at_once() -> None:
    decided = delete(by_id("b"), by_name("a"), by_name("nobody"))
    assert [(each.name, each.error) for each in decided.reply] == [
        ("b", Error.NONE),
        ("a", Error.NONE),
        ("nobody", Error.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert len(decided.step.records) == 2


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ([by_name("nobody")], [("nobody", Error.UNKNOWN_TOPIC_OR_PARTITION)]),
        ([TopicReference(None, uuid("nobody"))], [(None, Error.UNKNOWN_TOPIC_ID)]),
        ([TopicReference(None, NO_UUID)], [(None, Error.INVALID_REQUEST)]),
        ([TopicReference("a", id_of("a"))], [("a", Error.INVALID_REQUEST)]),
        ([by_name("a"), by_name("a")], [("a", Error.INVALID_REQUEST)]),
        ([by_id("a"), by_id("a")], [(None, Error.INVALID_REQUEST)]),
        (
            [by_id("a"), by_name("a")],
            [(None, Error.INVALID_REQUEST), ("a", Error.INVALID_REQUEST)],
        ),
        (
            [by_name("a"), by_id("a"), by_id("a")],
            [("a", Error.INVALID_REQUEST), (None, Error.INVALID_REQUEST)],
        ),
        ([by_name("__consumer_offsets")], [("__consumer_offsets", Error.INVALID_REQUEST)]),
        ([by_name("__transaction_state")], [("__transaction_state", Error.INVALID_REQUEST)]),
        ([by_id("__consumer_offsets")], [(None, Error.INVALID_REQUEST)]),
        ([by_name("__cluster_metadata")], [("__cluster_metadata", Error.INVALID_REQUEST)]),
        ([], []),
    ],
)
def test_refusals_delete_nothing(
    wanted: list[TopicReference], expected: list[tuple[str | None, Error]]
) -> None:
    decided = delete(*wanted)
    assert [(each.name, each.error) for each in decided.reply] == expected
    assert decided.step.records == ()


def test_a_refusal_does_not_keep_the_others() -> None:
    decided = delete(by_name("a"), by_name("a"), by_name("b"))
    assert after(IMAGE, decided).topics.names() == [
        "__consumer_offsets",
        "__transaction_state",
        "a",
    ]


def test_kafka_5975_deletion_that_is_switched_off_is_refused() -> None:
    """Nothing is noted for a later controller to act upon either (KAFKA-3175)."""
    with pytest.raises(ApiError) as caught:
        delete_topics(
            IMAGE, [by_name("a")], context=context({"delete.topic.enable": "false"}), wall_ms=0
        )
    assert caught.value.error is Error.TOPIC_DELETION_DISABLED


def test_a_second_deletion_finds_nothing() -> None:
    image = after(IMAGE, delete(by_name("a")))
    [result] = delete_topics(image, [by_name("a")], context=context(), wall_ms=0).reply
    assert result.error is Error.UNKNOWN_TOPIC_OR_PARTITION
    [result] = delete_topics(image, [by_id("a")], context=context(), wall_ms=0).reply
    assert result.error is Error.UNKNOWN_TOPIC_ID


def test_kafka_14337_a_name_that_collided_with_a_deleted_one_is_free() -> None:
    wanted = [NewTopic(name="a.b")], [NewTopic(name="a_b")]
    image = IMAGE
    for topics in wanted:
        decided = create_topics(image, topics, validate_only=False, context=context())
        assert [each.error for each in decided.reply] == [Error.NONE]
        image = after(image, decided)
        gone = delete_topics(image, [by_name(topics[0].name)], context=context(), wall_ms=0)
        image = after(image, gone)
    assert [topic.name for topic in image.topics] == sorted(NAMES)


def test_kafka_6612_a_deleted_topic_gets_no_more_partitions() -> None:
    image = after(IMAGE, delete(by_name("a")))
    decided = create_partitions(
        image, [NewPartitions("a", 5)], validate_only=False, context=context()
    )
    assert [each.error for each in decided.reply] == [Error.UNKNOWN_TOPIC_OR_PARTITION]
    assert decided.step.records == ()


# -- the ledger --------------------------------------------------------------------------------


def test_without_the_feature_nothing_but_kafkas_record_is_written() -> None:
    assert delete(by_name("a")).step.records == (RemoveTopicRecord(topic_id=id_of("a")),)


def test_with_the_feature_the_entry_is_written_with_the_removal_as_a_whole() -> None:
    on = FeatureLevelRecord(name=OTTLA_VERSION, feature_level=OTTLA_VERSION_LEVEL)
    image = advance(IMAGE, [on])
    decided = delete_topics(image, [by_name("a")], context=context(), wall_ms=NOW_MS)
    assert decided.step.atomic
    gone = after(image, decided)
    assert "a" not in gone.topics
    [entry] = gone.deletions.pending()
    assert (entry.topic_id, entry.policy, entry.asked_ms) == (id_of("a"), Policy.AT_ONCE, NOW_MS)
    topic = image.topics.by_name("a")
    assert topic is not None
    assert {(broker_id, number) for broker_id, _, each in entry.rows() for number in each} == {
        (replica, number)
        for number, partition in topic.in_order()
        for replica in partition.replicas
    }


def test_the_entry_keeps_the_largest_leader_epoch_for_the_next_topic_of_the_name() -> None:
    on = FeatureLevelRecord(name=OTTLA_VERSION, feature_level=OTTLA_VERSION_LEVEL)
    elected = PartitionChangeRecord(partition_id=0, topic_id=id_of("a"), leader=2)
    image = advance(IMAGE, [on, elected, elected, elected])
    topic = image.topics.by_name("a")
    assert topic is not None
    assert topic.last_leader_epoch == 3
    for queue in (False, True):
        decided = delete_topics(
            image, [by_name("a")], context=context(), wall_ms=NOW_MS, queue=queue
        )
        [entry] = after(image, decided).deletions.pending()
        assert entry.leader_epoch == 3


def test_a_topic_that_is_queued_stays_and_is_queued_once() -> None:
    decided = delete_topics(IMAGE, [by_name("a")], context=context(), wall_ms=NOW_MS, queue=True)
    image = after(IMAGE, decided)
    assert image.is_queued_for_deletion("a")
    again = delete_topics(image, [by_name("a")], context=context(), wall_ms=NOW_MS, queue=True)
    assert again.reply == decided.reply
    assert not again.step.records


# -- many topics, in steps ---------------------------------------------------------------------


def found_of(*wanted: TopicReference) -> tuple[DeletedTopic, ...]:
    return find_topics(IMAGE, wanted, context=context())


def names_by_step(
    *wanted: TopicReference, queue: bool = False, image: ClusterImage = IMAGE
) -> list[list[str | None]]:
    """Delete all, step by step; return the names that each step answered for."""
    left, steps = found_of(*wanted), []
    while left:
        decided = delete_first(image, left, wall_ms=NOW_MS, queue=queue)
        image, left = after(image, decided), left[len(decided.reply) :]
        assert decided.step.atomic
        assert decided.step.records or not left
        steps.append([each.name for each in decided.reply])
    return steps


def test_a_step_deletes_so_many_topics_and_refusals_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deletion, "DELETIONS_PER_STEP_MAX", 1)
    monkeypatch.setattr(deletion, "DELETIONS_QUEUED_PER_STEP_MAX", 1)
    wanted = by_name("nobody"), by_name("none"), by_name("a"), by_name("no one"), by_name("b")
    expected = [["nobody", "none", "a"], ["no one", "b"]]
    assert names_by_step(*wanted) == names_by_step(*wanted, queue=True) == expected


def test_what_needs_no_record_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a list that is deleted already would be gone through in steps without an end."""
    monkeypatch.setattr(deletion, "DELETIONS_QUEUED_PER_STEP_MAX", 1)
    wanted = by_name("a"), by_name("b")
    queued = after(
        IMAGE, delete_topics(IMAGE, wanted, context=context(), wall_ms=NOW_MS, queue=True)
    )
    assert names_by_step(*wanted, queue=True, image=queued) == [["a", "b"]]


def test_a_step_ends_where_it_has_deleted_many_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last topic goes as a whole; over ZooKeeper nothing is written of replicas here."""
    monkeypatch.setattr(deletion, "DELETED_REPLICAS_PER_STEP_MAX", 2)
    wanted = [NewTopic(name=name, partition_count=3, replication_factor=1) for name in "xyz"]
    image = after(THREE, create_topics(THREE, wanted, validate_only=False, context=context()))
    found = find_topics(image, [by_name(name) for name in "xyz"], context=context())
    assert len(delete_first(image, found, wall_ms=NOW_MS).reply) == 1
    assert len(delete_first(image, found, wall_ms=NOW_MS, queue=True).reply) == 3
    monkeypatch.setattr(deletion, "DELETED_REPLICAS_PER_STEP_MAX", 4)
    assert len(delete_first(image, found, wall_ms=NOW_MS).reply) == 2


def test_names_are_resolved_when_the_request_is_first_processed() -> None:
    """A topic that was made meanwhile, by whoever deleted the other one, is not meant."""
    found = found_of(by_name("a"), by_id("b"))
    gone = after(IMAGE, delete(by_name("a"), by_name("b")))
    again = advance(gone, [TopicRecord(name="a", topic_id=uuid("another a"))])
    decided = delete_first(again, found, wall_ms=NOW_MS)
    assert decided.step.records == ()
    assert [(each.name, each.error) for each in decided.reply] == [
        ("a", Error.UNKNOWN_TOPIC_OR_PARTITION),
        (None, Error.UNKNOWN_TOPIC_ID),
    ]
