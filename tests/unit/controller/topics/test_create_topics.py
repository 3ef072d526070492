"""Topics are created as asked, or refused by the right code, each by itself.

Method: one request for each rule of a table; what is created is replayed and looked at.
"""

from collections.abc import Sequence

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.base.limits import PARTITIONS_PER_REQUEST_MAX
from ottla.controller.step import Decision
from ottla.controller.topics import create_topics as topics
from ottla.controller.topics.create_topics import CreatedTopic, NewTopic, create_topics
from ottla.metadata.config_describe import Source
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import ConfigRecord, PartitionRecord, TopicRecord
from ottla.metadata.topics import DIRECTORY_UNASSIGNED

from ..builders import THREE, CountingDice, after, broker, cluster, context, uuid

Decided = Decision[tuple[CreatedTopic, ...]]


def create(
    *wanted: NewTopic,
    image: ClusterImage = THREE,
    given: dict[str, str] | None = None,
    validate_only: bool = False,
) -> Decided:
    return create_topics(image, wanted, validate_only=validate_only, context=context(given))


def errors(decided: Decided) -> list[tuple[str, Error]]:
    return [(topic.name, topic.error) for topic in decided.reply]


def test_a_topic_comes_with_its_partitions_and_configs() -> None:
    wanted = NewTopic(
        name="t",
        partition_count=4,
        replication_factor=1,
        configs=(("retention.ms", "5"), ("cleanup.policy", "compact")),
    )
    decided = create(wanted)
    image = after(THREE, decided)
    made = image.topics.by_name("t")
    assert made is not None
    assert [part.leader for _, part in made.in_order()] == [1, 2, 3, 1]
    for _, part in made.in_order():
        assert part.replicas == part.isr == (part.leader,)
        assert part.directories == (uuid(f"dir-{part.leader}"),)
        assert (part.leader_epoch, part.partition_epoch) == (0, 0)
    assert dict(image.configs.of(2, "t")) == {"retention.ms": "5", "cleanup.policy": "compact"}
    [result] = decided.reply
    assert result.error is Error.NONE
    assert (result.topic_id, result.partition_count, result.replication_factor) == (made.id, 4, 1)
    by_name = {entry.name: entry for entry in result.configs}
    assert (by_name["retention.ms"].value, by_name["retention.ms"].source) == ("5", Source.TOPIC)
    assert by_name["segment.ms"].source is Source.DEFAULT


def test_the_topic_s_record_comes_first_then_configs_then_partitions() -> None:
    decided = create(NewTopic(name="t", partition_count=2, configs=(("retention.ms", "5"),)))
    kinds = [type(record) for record in decided.step.records]
    assert kinds == [TopicRecord, ConfigRecord, PartitionRecord, PartitionRecord]
    assert decided.step.atomic


def test_the_node_s_defaults_stand_in() -> None:
    decided = create(NewTopic(name="t"), given={"num.partitions": "5"})
    assert (decided.reply[0].partition_count, decided.reply[0].replication_factor) == (5, 1)


def test_validation_alone_changes_nothing_and_gives_no_id() -> None:
    decided = create(
        NewTopic(name="t", partition_count=2), NewTopic(name="a b"), validate_only=True
    )
    assert decided.step.records == ()
    assert errors(decided) == [("t", Error.NONE), ("a b", Error.INVALID_TOPIC_EXCEPTION)]
    assert decided.reply[0].topic_id == NO_UUID
    assert decided.reply[0].partition_count == 2


def test_manual_assignments_in_any_order() -> None:
    decided = create(NewTopic(name="t", assignments=((1, (3,)), (0, (2,)))))
    made = after(THREE, decided).topics.by_name("t")
    assert made is not None
    assert [part.replicas for _, part in made.in_order()] == [(2,), (3,)]


def test_a_broker_with_several_log_dirs_chooses_itself() -> None:
    image = cluster(broker(1, log_dirs=(uuid("x"), uuid("y"))))
    made = after(image, create(NewTopic(name="t"), image=image)).topics.by_name("t")
    assert made is not None
    assert made.partitions[0].directories == (DIRECTORY_UNASSIGNED,)


@pytest.mark.parametrize(
    ("topic", "error", "text"),
    [
        (NewTopic(name=""), Error.INVALID_TOPIC_EXCEPTION, "empty"),
        (NewTopic(name=".."), Error.INVALID_TOPIC_EXCEPTION, "cannot be named"),
        (NewTopic(name="a b"), Error.INVALID_TOPIC_EXCEPTION, "characters"),
        (NewTopic(name="x" * 250), Error.INVALID_TOPIC_EXCEPTION, "249"),
        (NewTopic(name="__cluster_metadata"), Error.INVALID_REQUEST, "prohibited"),
        (NewTopic(name="old.topic"), Error.TOPIC_ALREADY_EXISTS, "already exists"),
        (NewTopic(name="old_topic"), Error.INVALID_TOPIC_EXCEPTION, "collides"),
        (NewTopic(name="t", partition_count=0), Error.INVALID_PARTITIONS, "partitions"),
        (NewTopic(name="t", partition_count=-2), Error.INVALID_PARTITIONS, "partitions"),
        (NewTopic(name="t", replication_factor=0), Error.INVALID_REPLICATION_FACTOR, "larger"),
        (NewTopic(name="t", replication_factor=-2), Error.INVALID_REPLICATION_FACTOR, "larger"),
        (
            NewTopic(name="t", replication_factor=5),
            Error.INVALID_REPLICATION_FACTOR,
            "only 4 broker(s)",
        ),
        (
            NewTopic(name="t", configs=(("retention.ms", None),)),
            Error.INVALID_CONFIG,
            "Null value not supported for topic configs: retention.ms",
        ),
        (
            NewTopic(name="t", configs=(("retention.mss", "1"),)),
            Error.INVALID_CONFIG,
            "Unknown topic config name",
        ),
        (NewTopic(name="t", configs=(("segment.bytes", "x"),)), Error.INVALID_CONFIG, "x"),
        (
            NewTopic(name="t", configs=(("remote.storage.enable", "true"),)),
            Error.INVALID_CONFIG,
            "Tiered Storage functionality is disabled in the broker.",
        ),
        (
            NewTopic(name="t", replication_factor=1, assignments=((0, (1,)),)),
            Error.INVALID_REQUEST,
            "replication factor was not set to -1",
        ),
        (
            NewTopic(name="t", partition_count=1, assignments=((0, (1,)),)),
            Error.INVALID_REQUEST,
            "number of partitions was not set to -1",
        ),
        (
            NewTopic(name="t", assignments=((0, (1,)), (0, (2,)))),
            Error.INVALID_REPLICA_ASSIGNMENT,
            "more than one",
        ),
        (
            NewTopic(name="t", assignments=((1, (1,)), (2, (2,)))),
            Error.INVALID_REPLICA_ASSIGNMENT,
            "consecutive",
        ),
        (
            NewTopic(name="t", assignments=((0, ()),)),
            Error.INVALID_REPLICA_ASSIGNMENT,
            "empty",
        ),
        (
            NewTopic(name="t", assignments=((0, (9,)),)),
            Error.INVALID_REPLICA_ASSIGNMENT,
            "broker 9, but no such broker",
        ),
        (
            NewTopic(name="t", assignments=((0, (1, 1)),)),
            Error.INVALID_REPLICA_ASSIGNMENT,
            "more than once",
        ),
        (
            NewTopic(name="t", assignments=((0, (1,)), (1, (1, 2)))),
            Error.INVALID_REPLICA_ASSIGNMENT,
            "2 replica(s), where others have 1",
        ),
        (
            NewTopic(name="t", assignments=((0, (4,)),)),
            Error.INVALID_REPLICA_ASSIGNMENT,
            "fenced or shutting down",
        ),
    ],
)
def test_refusals(topic: NewTopic, error: Error, text: str) -> None:
    base = cluster(broker(1), broker(2), broker(3), broker(4, fenced=True))
    image = after(base, create(NewTopic(name="old.topic"), image=base))
    decided = create(topic, NewTopic(name="other"), image=image)
    assert errors(decided) == [(topic.name, error), ("other", Error.NONE)]
    assert text in (decided.reply[0].message or "")
    assert after(image, decided).topics.names() == ["old.topic", "other"]


@pytest.mark.parametrize(
    ("brokers", "text"),
    [
        ([broker(1, fenced=True)], "fenced"),
        ([broker(1, in_controlled_shutdown=True)], "only 0 broker"),
        ([], "only 0 broker"),
    ],
)
def test_no_broker_to_hold_it(brokers: Sequence[object], text: str) -> None:
    image = cluster(*brokers)  # type: ignore[arg-type]
    decided = create(NewTopic(name="t"), image=image)
    assert errors(decided) == [("t", Error.INVALID_REPLICATION_FACTOR)]
    assert text in (decided.reply[0].message or "")


def test_replicas_need_brokers_of_which_one_is_active() -> None:
    decided = create(NewTopic(name="t", replication_factor=3), NewTopic(name="u"))
    made = after(THREE, decided).topics.by_name("t")
    assert made is not None
    assert sorted(made.partitions[0].isr) == [1, 2, 3]
    image = cluster(broker(1), broker(2, fenced=True))
    decided = create(NewTopic(name="t", replication_factor=3), image=image)
    assert errors(decided) == [("t", Error.INVALID_REPLICATION_FACTOR)]
    decided = create(NewTopic(name="t", replication_factor=2), image=image)
    made = after(image, decided).topics.by_name("t")
    assert made is not None
    assert (made.partitions[0].replicas, made.partitions[0].isr) == ((1, 2), (1,))


def test_a_name_twice_is_refused_once() -> None:
    decided = create(NewTopic(name="t"), NewTopic(name="u"), NewTopic(name="t"))
    assert errors(decided) == [("t", Error.INVALID_REQUEST), ("u", Error.NONE)]


def test_names_of_one_request_collide_too() -> None:
    decided = create(NewTopic(name="a.b"), NewTopic(name="a_b"), NewTopic(name="ab"))
    assert errors(decided) == [
        ("a.b", Error.NONE),
        ("a_b", Error.INVALID_TOPIC_EXCEPTION),
        ("ab", Error.NONE),
    ]


@pytest.mark.parametrize(
    "wanted",
    [
        [NewTopic(name="t", partition_count=PARTITIONS_PER_REQUEST_MAX + 1)],
        [NewTopic(name="t", partition_count=PARTITIONS_PER_REQUEST_MAX), NewTopic(name="u")],
        [
            NewTopic(
                name="t",
                assignments=tuple((n, (1,)) for n in range(PARTITIONS_PER_REQUEST_MAX + 1)),
            )
        ],
    ],
)
def test_too_many_partitions_at_once(wanted: list[NewTopic]) -> None:
    with pytest.raises(ApiError) as caught:
        create(*wanted)
    assert caught.value.error is Error.POLICY_VIOLATION


def test_ids_are_random_uuids_of_version_4_and_never_repeat() -> None:
    first = topics.new_topic_id(THREE, context())
    assert first[6] >> 4 == 4
    assert first[8] >> 6 == 2
    image = after(THREE, create(NewTopic(name="t")))
    # The same dice again: the id is taken, so the next throw counts.
    assert topics.new_topic_id(image, context()) != first


def test_an_id_that_tools_would_take_for_an_option_is_thrown_again() -> None:
    class Dashes(CountingDice):
        def random_bytes(self, count: int) -> bytes:
            self.drawn += 1
            return bytes((0xF8 if self.drawn < 3 else 1,)) * count

    made = topics.new_topic_id(THREE, context(dice=Dashes()))
    assert made[0] == 1


def test_an_empty_request() -> None:
    assert create() == Decision(create().step, ())
    assert Uuid(bytes(16)) == NO_UUID
