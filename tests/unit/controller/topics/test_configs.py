"""Configurations change as asked, or are refused by the right code, each resource by itself.

Method: tables of changes against one image; what is changed is replayed and looked at.
"""

from collections.abc import Callable, Iterator

import pytest

from ottla.base.errors import Error
from ottla.controller.elections.elections import ElectUncleanly
from ottla.controller.step import Decision
from ottla.controller.topics.configs import Alteration, AlteredResource, Operation, alter_configs
from ottla.controller.topics.create_topics import NewTopic, create_topics
from ottla.metadata.features import ELR_VERSION
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    Record,
)
from ottla.metadata.topics import TopicImage, TopicsImage

from ..builders import THREE, advance, after, context

SET, DELETE, APPEND, SUBTRACT = (int(each) for each in Operation)
TOPIC, BROKER = 2, 4
WANTED = [
    NewTopic(name="t", configs=(("retention.ms", "5"), ("cleanup.policy", "compact"))),
    NewTopic(name="u"),
]
IMAGE = after(THREE, create_topics(THREE, WANTED, validate_only=False, context=context()))
Change = tuple[str, int, str | None]


def alter(
    *wanted: Alteration,
    incremental: bool = True,
    validate_only: bool = False,
    image: ClusterImage = IMAGE,
) -> Decision[tuple[AlteredResource, ...]]:
    return alter_configs(
        image, wanted, incremental=incremental, validate_only=validate_only, context=context()
    )


def of_topic(*changes: Change, name: str = "t") -> Alteration:
    return Alteration((TOPIC, name), changes)


def of_broker(*changes: Change, name: str = "1") -> Alteration:
    return Alteration((BROKER, name), changes)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([("retention.ms", SET, "6")], {"retention.ms": "6", "cleanup.policy": "compact"}),
        ([("retention.ms", DELETE, None)], {"cleanup.policy": "compact"}),
        ([("retention.ms", DELETE, "what")], {"cleanup.policy": "compact"}),
        ([("segment.ms", DELETE, None)], {"retention.ms": "5", "cleanup.policy": "compact"}),
        (
            [("cleanup.policy", APPEND, "delete")],
            {"retention.ms": "5", "cleanup.policy": "compact,delete"},
        ),
        (
            [("cleanup.policy", APPEND, "compact")],
            {"retention.ms": "5", "cleanup.policy": "compact"},
        ),
        (
            [("cleanup.policy", SUBTRACT, "compact")],
            {"retention.ms": "5", "cleanup.policy": ""},
        ),
        (
            [("leader.replication.throttled.replicas", APPEND, "0:1, 1:2")],
            {
                "retention.ms": "5",
                "cleanup.policy": "compact",
                "leader.replication.throttled.replicas": "0:1,1:2",
            },
        ),
        (
            [("retention.ms", DELETE, None), ("segment.ms", SET, "9")],
            {"cleanup.policy": "compact", "segment.ms": "9"},
        ),
        ([], {"retention.ms": "5", "cleanup.policy": "compact"}),
    ],
)
def test_a_topic_changes_step_by_step(changes: list[Change], expected: dict[str, str]) -> None:
    decided = alter(of_topic(*changes))
    assert [each.error for each in decided.reply] == [Error.NONE]
    assert dict(after(IMAGE, decided).configs.of(TOPIC, "t")) == expected


def test_appending_to_a_default_keeps_the_default() -> None:
    decided = alter(of_topic(("cleanup.policy", APPEND, "compact"), name="u"))
    assert dict(after(IMAGE, decided).configs.of(TOPIC, "u")) == {
        "cleanup.policy": "delete,compact"
    }


def test_a_legacy_request_replaces_all() -> None:
    decided = alter(of_topic(("segment.ms", SET, "9")), incremental=False)
    assert dict(after(IMAGE, decided).configs.of(TOPIC, "t")) == {"segment.ms": "9"}
    decided = alter(of_topic(), incremental=False)
    assert not after(IMAGE, decided).configs.of(TOPIC, "t")


@pytest.mark.parametrize("name", ["", "1"])
@pytest.mark.parametrize(
    "changes",
    [
        # All clients and brokers would be shut out, with no connection to take it back over.
        [("max.connections.per.ip", SET, "0")],
        # All records of all topics without a limit of their own would be deleted.
        [("log.retention.ms", SET, "0")],
        # No topic could be created any more, __consumer_offsets neither.
        [
            ("log.cleaner.min.compaction.lag.ms", SET, "11"),
            ("log.cleaner.max.compaction.lag.ms", SET, "10"),
        ],
        [("log.cleaner.dedupe.buffer.size", SET, "9")],
    ],
)
def test_values_with_which_no_broker_starts_are_refused(changes: list[Change], name: str) -> None:
    decided = alter(of_broker(*changes, name=name))
    [result] = decided.reply
    assert result.error is Error.INVALID_REQUEST
    assert changes[0][0] in (result.message or "")
    assert decided.step.records == ()


def test_a_broker_s_value_is_checked_beside_the_defaults_and_the_file() -> None:
    least, most = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
    image = after(IMAGE, alter(of_broker((least, SET, "11"), name="")))
    [refused] = alter(of_broker((most, SET, "10")), image=image).reply
    assert refused.error is Error.INVALID_REQUEST
    [granted] = alter(of_broker((most, SET, "10"), (least, SET, "9")), image=image).reply
    assert granted.error is Error.NONE

    overrides = "max.connections.per.ip.overrides"
    image = after(
        IMAGE,
        alter(of_broker((overrides, SET, "127.0.0.1:9"), ("max.connections.per.ip", SET, "0"))),
    )
    [refused] = alter(of_broker((overrides, DELETE, None)), image=image).reply
    assert refused.error is Error.INVALID_REQUEST


def test_what_breaks_a_rule_already_does_not_hold_up_other_changes() -> None:
    stored = ConfigRecord(
        resource_type=BROKER, resource_name="1", name="max.connections.per.ip", value="0"
    )
    image = advance(IMAGE, [stored])
    [result] = alter(of_broker(("log.retention.ms", SET, "9")), image=image).reply
    assert result.error is Error.NONE


def test_what_stays_the_same_is_not_written_for_topics() -> None:
    assert alter(of_topic(("retention.ms", SET, "5"))).step.records == ()


def test_what_stays_the_same_is_written_for_brokers_so_that_they_read_it_again() -> None:
    image = after(IMAGE, alter(of_broker(("message.max.bytes", SET, "9"))))
    decided = alter(of_broker(("message.max.bytes", SET, "9")), image=image)
    assert decided.step.records == (
        ConfigRecord(resource_type=4, resource_name="1", name="message.max.bytes", value="9"),
    )


def test_validation_alone_changes_nothing() -> None:
    decided = alter(of_topic(("segment.ms", SET, "9")), validate_only=True)
    assert decided.reply[0].error is Error.NONE
    assert decided.step.records == ()


@pytest.mark.parametrize("name", ["", "1", "3"])
def test_brokers_and_the_default_of_all(name: str) -> None:
    decided = alter(of_broker(("log.retention.ms", SET, "9"), name=name))
    assert decided.reply == (AlteredResource((BROKER, name)),)
    assert dict(after(IMAGE, decided).configs.of(BROKER, name)) == {"log.retention.ms": "9"}


@pytest.mark.parametrize(
    ("alteration", "error", "text"),
    [
        (of_topic(("nobody.knows", SET, "1")), Error.INVALID_CONFIG, "Unknown topic config"),
        (of_topic(("segment.ms", SET, "x")), Error.INVALID_CONFIG, "segment.ms=x"),
        (of_topic(("remote.storage.enable", SET, "true")), Error.INVALID_CONFIG, "is disabled in"),
        (of_topic(("segment.ms", APPEND, "1")), Error.INVALID_CONFIG, "it is not a list"),
        (of_topic(("segment.ms", SUBTRACT, "1")), Error.INVALID_CONFIG, "it is not a list"),
        (of_topic(("nobody.knows", APPEND, "1")), Error.INVALID_CONFIG, "it is not a list"),
        (of_topic(("cleanup.policy", APPEND, "shrink")), Error.INVALID_CONFIG, "cleanup.policy"),
        (of_topic(("segment.ms", SET, None)), Error.INVALID_REQUEST, "Null value"),
        (of_topic(("cleanup.policy", APPEND, None)), Error.INVALID_REQUEST, "Null value"),
        (of_topic(("segment.ms", 4, "1")), Error.INVALID_REQUEST, "operation type 4"),
        (
            of_topic(("segment.ms", SET, "1"), ("segment.ms", DELETE, None)),
            Error.INVALID_REQUEST,
            "duplicate config keys",
        ),
        (of_topic(name="nobody"), Error.UNKNOWN_TOPIC_OR_PARTITION, "does not exist"),
        (of_topic(name=""), Error.INVALID_REQUEST, "Default topic"),
        (of_topic(name="a b"), Error.INVALID_TOPIC_EXCEPTION, "characters"),
        (of_broker(("num.partitions", SET, "2")), Error.INVALID_REQUEST, "num.partitions"),
        (of_broker(("listeners", SET, "A://b:1")), Error.INVALID_REQUEST, "listeners"),
        (of_broker(("log.retention.sm", SET, "2")), Error.INVALID_REQUEST, "log.retention.ms"),
        (
            of_broker(("leader.replication.throttled.rate", SET, "9")),
            Error.INVALID_REQUEST,
            "Ottla enforces no quotas",
        ),
        (of_broker(("message.max.bytes", SET, "x")), Error.INVALID_REQUEST, "message.max.bytes=x"),
        (of_broker(name="9"), Error.BROKER_ID_NOT_REGISTERED, "id 9"),
        (of_broker(name="-1"), Error.INVALID_REQUEST, "integer"),
        (of_broker(name="one"), Error.INVALID_REQUEST, "integer"),
        (of_broker(name="١"), Error.INVALID_REQUEST, "integer"),
        (Alteration((8, "1"), ()), Error.INVALID_REQUEST, "Log levels"),
        (Alteration((16, "x"), ()), Error.INVALID_REQUEST, "CLIENT_METRICS"),
        (Alteration((32, "x"), ()), Error.INVALID_REQUEST, "GROUP"),
        (Alteration((3, "x"), ()), Error.INVALID_REQUEST, "Unknown resource type 3"),
        (Alteration((0, "x"), ()), Error.INVALID_REQUEST, "Unknown resource type 0"),
    ],
)
def test_refusals(alteration: Alteration, error: Error, text: str) -> None:
    other = of_topic(("segment.ms", SET, "9"), name="u")
    decided = alter(alteration, other)
    assert [(each.resource, each.error) for each in decided.reply] == [
        (alteration.resource, error),
        (other.resource, Error.NONE),
    ]
    assert text in (decided.reply[0].message or "")
    assert len(decided.step.records) == 1


def test_a_legacy_request_takes_no_null() -> None:
    [result] = alter(of_topic(("segment.ms", SET, None)), incremental=False).reply
    assert result.error is Error.INVALID_REQUEST


def test_a_resource_twice_is_refused_both_times() -> None:
    decided = alter(of_topic(("segment.ms", SET, "9")), of_topic(("segment.ms", SET, "8")))
    assert [each.error for each in decided.reply] == [Error.INVALID_REQUEST] * 2
    assert decided.step.records == ()


def test_one_value_about_another_is_checked_on_the_whole_set() -> None:
    image = after(IMAGE, alter(of_topic(("max.compaction.lag.ms", SET, "10"))))
    [result] = alter(of_topic(("min.compaction.lag.ms", SET, "11")), image=image).reply
    assert result.error is Error.INVALID_CONFIG
    decided = alter(
        of_topic(("min.compaction.lag.ms", SET, "11"), ("max.compaction.lag.ms", SET, "12")),
        image=image,
    )
    assert decided.reply[0].error is Error.NONE


# -- what the controller itself heeds ---------------------------------------------------------

MIN_ISR = "min.insync.replicas"


def eligible(isr: tuple[int, ...], elr: tuple[int, ...]) -> ClusterImage:
    """Return a cluster that keeps eligible leader replicas: t and u have one partition each."""
    records: list[Record] = [
        FeatureLevelRecord(name=ELR_VERSION, feature_level=1),
        ConfigRecord(resource_type=BROKER, resource_name="", name=MIN_ISR, value="2"),
    ]
    records += [
        PartitionChangeRecord(
            partition_id=0, topic_id=topic.id, isr=isr, eligible_leader_replicas=elr
        )
        for topic in IMAGE.topics
    ]
    return advance(IMAGE, records)


ELIGIBLE = eligible((1,), (2,))


@pytest.mark.parametrize("operation", [(SET, "3"), (DELETE, None)])
def test_the_value_of_one_broker_is_refused_while_isrs_may_run_empty(
    operation: tuple[int, str | None],
) -> None:
    decided = alter(of_broker((MIN_ISR, *operation)), image=ELIGIBLE)
    assert decided.reply[0].error is Error.INVALID_CONFIG
    assert decided.reply[0].message == (
        "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
    )
    assert decided.step.records == ()
    assert alter(of_broker((MIN_ISR, SET, "3"))).reply[0].error is Error.NONE


def test_the_cluster_s_value_may_change_but_not_go() -> None:
    gone = alter(of_broker((MIN_ISR, DELETE, None), name=""), image=ELIGIBLE)
    legacy = alter(
        of_broker(("log.retention.ms", SET, "9"), name=""), incremental=False, image=ELIGIBLE
    )
    for decided in (gone, legacy):
        assert decided.reply[0].error is Error.INVALID_CONFIG
        assert decided.reply[0].message == (
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
        )
    changed = after(ELIGIBLE, alter(of_broker((MIN_ISR, SET, "1"), name=""), image=ELIGIBLE))
    assert changed.configs.of(BROKER, "")[MIN_ISR] == "1"


@pytest.mark.parametrize(
    ("alteration", "kept"),
    [
        (of_topic((MIN_ISR, SET, "1")), ["u"]),
        (of_topic((MIN_ISR, SET, "3"), ("retention.ms", SET, "7")), ["u"]),
        (of_broker((MIN_ISR, SET, "1"), name=""), []),
        (of_topic(("retention.ms", SET, "7")), ["t", "u"]),
    ],
)
def test_a_new_minimum_forgets_who_was_eligible_before_it_counts(
    alteration: Alteration, kept: list[str]
) -> None:
    decided = alter(alteration, image=ELIGIBLE)
    image = after(ELIGIBLE, decided)
    assert [topic.name for topic in image.topics if topic.partitions[0].elr] == kept
    kinds = [type(record) for record in decided.step.records]
    assert kinds == sorted(kinds, key=lambda each: each is ConfigRecord)
    assert decided.step.atomic == (len(kept) == 2)


def test_who_is_eligible_stays_it_while_too_few_are_in_sync_to_commit() -> None:
    """Else one loss of power takes what was acknowledged, although min.insync.replicas is 2.

    1. Replicas 1, 2 and 3 are in sync, min.insync.replicas is 3; then only 1 is left, and leads.
    2. min.insync.replicas becomes 2: 1 cannot commit alone, before or after.
    3. The machine of 1 loses power, and what it had not flushed: 2 or 3 must lead, not 1.
    """
    wanted = NewTopic(name="w", replication_factor=3, configs=((MIN_ISR, "3"),))
    made = after(
        ELIGIBLE, create_topics(ELIGIBLE, [wanted], validate_only=False, context=context())
    )
    topic = made.topics.by_name("w")
    assert topic is not None
    replicas = topic.partitions[0].replicas
    for change, in_sync, stays in (
        ((SET, "2"), 1, True),
        ((SET, "2"), 2, False),
        ((SET, "1"), 1, False),
        ((SET, "3"), 2, True),
        ((DELETE, None), 1, True),  # The cluster's value is 2.
        ((DELETE, None), 2, False),
    ):
        left = PartitionChangeRecord(
            partition_id=0,
            topic_id=topic.id,
            isr=replicas[:in_sync],
            eligible_leader_replicas=replicas[in_sync:],
        )
        image = advance(made, [left])
        changed = after(image, alter(of_topic((MIN_ISR, *change), name="w"), image=image))
        found = changed.topics.by_name("w")
        assert found is not None
        assert found.partitions[0].elr == (replicas[in_sync:] if stays else ())


@pytest.mark.parametrize("own", [None, "2"])
def test_the_cluster_s_new_minimum_counts_where_a_topic_has_none_of_its_own(
    own: str | None,
) -> None:
    """Also one that is written again, with the same value, and so are those of topics."""
    wanted = NewTopic(
        name="w", replication_factor=3, configs=() if own is None else ((MIN_ISR, own),)
    )
    image = after(
        ELIGIBLE, create_topics(ELIGIBLE, [wanted], validate_only=False, context=context())
    )
    topic = image.topics.by_name("w")
    assert topic is not None
    replicas = topic.partitions[0].replicas
    left = PartitionChangeRecord(
        partition_id=0,
        topic_id=topic.id,
        isr=replicas[:1],
        eligible_leader_replicas=replicas[1:],
    )
    image = advance(image, [left])
    for value in ("1", "2", "3"):
        changed = after(image, alter(of_broker((MIN_ISR, SET, value), name=""), image=image))
        found = changed.topics.by_name("w")
        assert found is not None
        commits = value == "1" and own is None
        assert found.partitions[0].elr == (() if commits else replicas[1:])


def test_a_topic_s_change_clears_no_other_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else ten thousand changes, each of one of ten thousand topics, take the square of that."""

    def every(_topics: TopicsImage) -> Iterator[TopicImage]:
        raise AssertionError("all topics are looked at")

    monkeypatch.setattr(TopicsImage, "__iter__", every)
    for change, forgotten in (("retention.ms", 0), (MIN_ISR, 1)):
        decided = alter(of_topic((change, SET, "1")), image=ELIGIBLE)
        assert decided.reply[0].error is Error.NONE
        assert len(decided.step.records) == 1 + forgotten


def test_where_nobody_is_in_sync_who_is_eligible_stays_it() -> None:
    image = eligible((), (1, 2))
    changed = after(image, alter(of_topic((MIN_ISR, SET, "1")), image=image))
    assert [topic.partitions[0].elr for topic in changed.topics] == [(1, 2), (1, 2)]


@pytest.mark.parametrize("alteration", [of_topic, of_broker])
def test_permission_for_unclean_elections_has_its_effect_at_once(
    alteration: Callable[..., Alteration],
) -> None:
    decided = alter(alteration(("unclean.leader.election.enable", SET, "true")))
    assert decided.reply[0].error is Error.NONE
    assert decided.step.effects == (ElectUncleanly(),)
    assert alter(alteration(("retention.ms", SET, "7"))).step.effects == ()
