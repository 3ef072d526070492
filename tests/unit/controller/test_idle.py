"""Idle topics are deleted by two reports of all of their witnesses, and by nothing less.

Method: an image of three brokers, a topic on 1 and 2, the offsets topic on 2 and 3; reports are
made by hand. That nothing in use goes, whatever the clocks do, is in
`tests/unit/broker/test_idle_histories.py`, with brokers that really count.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import ApiError, Error
from ottla.base.ids import OFFSETS_TOPIC, Uuid
from ottla.controller.idle import (
    NO_TOKEN,
    PARTITIONS_MAX,
    REPORT_INTERVALS_MAX,
    IdleReason,
    IdleReport,
    IdleReports,
    IdleRow,
    IdleStatus,
    check_ttl,
    describe_idle,
    due_topics,
)
from ottla.controller.mode_policy import KRAFT_MODE
from ottla.controller.topics.configs import Alteration, Operation, alter_configs
from ottla.controller.topics.create_topics import NewTopic, create_topics
from ottla.metadata.configs import ResourceType
from ottla.metadata.deletions import DeletionImage, Policy, header_record
from ottla.metadata.features import OTTLA_VERSION
from ottla.metadata.image import ClusterImage
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.metadata.topic_config import TTL

from .builders import THREE, advance, broker, cluster, context, uuid

TTL_MS = 60_000
INTERVAL_MS = 1_000
TOPIC = uuid("topic")
OFFSETS = uuid("offsets")
REPLICAS = (1, 2)
COORDINATORS = (2, 3)


def topic_records(
    name: str, topic_id: Uuid, replicas: tuple[int, ...], ttl_ms: int | None = TTL_MS
) -> list[Record]:
    records: list[Record] = [TopicRecord(name=name, topic_id=topic_id)]
    records.append(
        PartitionRecord(
            partition_id=0,
            topic_id=topic_id,
            replicas=replicas,
            isr=replicas,
            leader=replicas[0],
            leader_epoch=0,
            partition_epoch=0,
        )
    )
    if ttl_ms is not None:
        records.append(limit(name, ttl_ms))
    return records


def limit(name: str, ttl_ms: int) -> ConfigRecord:
    return ConfigRecord(
        resource_type=ResourceType.TOPIC, resource_name=name, name=TTL, value=str(ttl_ms)
    )


IMAGE_RECORDS = [
    *topic_records("t", TOPIC, REPLICAS),
    *topic_records(OFFSETS_TOPIC, OFFSETS, COORDINATORS, None),
]
IMAGE = advance(THREE, IMAGE_RECORDS)


def configured(**given: str) -> NodeConfig:
    """Return a controller's properties; names have _ for their dots."""
    usual = {"ottla.topic.idle.check.interval.ms": str(INTERVAL_MS)}
    return context(usual | {key.replace("_", "."): value for key, value in given.items()}).config


CONFIG = configured()


@dataclass
class Town:
    """A controller that gets reports. `tokens`: of the last response to each broker."""

    image: ClusterImage = IMAGE
    board: IdleReports = field(default_factory=IdleReports)
    now_ms: int = 0
    tokens: dict[int, int] = field(default_factory=dict)
    config: NodeConfig = field(default_factory=lambda: CONFIG)

    def say(
        self,
        broker_id: int,
        idle_ms: int = TTL_MS,
        *,
        replicas: tuple[int, ...] = REPLICAS,
        coordinators: tuple[int, ...] = COORDINATORS,
        epoch: int | None = None,
        token: int | None = None,
    ) -> list[str]:
        """Report as a broker; return the names of the topics that go."""
        report = IdleReport(
            broker_id=broker_id,
            broker_epoch=100 + broker_id if epoch is None else epoch,
            coordinators=coordinators,
            rows=(IdleRow(TOPIC, replicas, idle_ms),),
            token=self.tokens.get(broker_id, NO_TOKEN) if token is None else token,
        )
        going, answer = due_topics(self.image, self.board, report, self.config, now_ms=self.now_ms)
        self.tokens[broker_id] = answer
        return [each.name for each in going]

    def round(self, idle_ms: int = TTL_MS, brokers: Iterable[int] = (1, 2, 3)) -> list[str]:
        """Let brokers report one after the other, until a topic goes."""
        self.now_ms += INTERVAL_MS
        for each in brokers:
            if going := self.say(each, idle_ms):
                return going
        return []

    def status(self, name: str = "t") -> IdleStatus:
        [status] = describe_idle(self.image, self.board, self.config, [name], now_ms=self.now_ms)
        return status


def due() -> Town:
    """Return a town whose topic goes with the first look of broker 1, the last that is missing.

    Broker 3 made it a candidate; the others reported without its token, then with it.
    """
    town = Town()
    assert town.round() == []
    assert town.status().reason is IdleReason.DUE
    assert town.round() == []
    assert town.round(brokers=(2, 3)) == []
    return town


def test_a_topic_is_deleted_once_all_its_witnesses_have_checked_again() -> None:
    assert due().say(1) == ["t"]


def test_a_look_from_before_the_topic_was_a_candidate_is_none_since() -> None:
    """Such as one that lay in the network, or that was sent before its answer came."""
    town = due()
    first = 1 << 32
    assert town.say(1, token=first + 1) == []
    assert town.say(1, token=NO_TOKEN) == []
    assert town.say(1) == ["t"]


def test_a_use_since_removes_the_candidate() -> None:
    for witness in (1, 2, 3):
        town = due()
        assert town.say(witness, 0) == []
        assert town.say(1, 0 if witness == 1 else TTL_MS) == []
        assert (town.status().reason, town.status().brokers) == (IdleReason.TOO_YOUNG, (witness,))
        # It begins from the first look again.
        assert town.say(witness) == []
        assert town.round() == []
        assert town.round() == ["t"]


def test_a_broker_that_is_no_witness_does_not_matter() -> None:
    town = due()
    town.image = advance(cluster(*map(broker, (1, 2, 3, 4))), IMAGE_RECORDS)
    assert town.say(4, 0) == []
    assert town.say(1) == ["t"]


def test_without_offsets_the_replicas_alone_are_witnesses() -> None:
    town = Town(advance(THREE, topic_records("t", TOPIC, REPLICAS)))
    for each in (1, 2, 1, 2):
        assert town.say(each, coordinators=()) == []
    assert town.say(1, coordinators=()) == ["t"]


def test_one_witness_that_is_silent_or_down_keeps_a_topic() -> None:
    town = Town()
    for _ in range(5):
        assert town.round(brokers=(1, 2)) == []
    assert (town.status().reason, town.status().brokers) == (IdleReason.NOT_HEARD, (3,))
    town.image = advance(cluster(broker(1), broker(2), broker(3, fenced=True)), IMAGE_RECORDS)
    assert (town.status().reason, town.status().brokers) == (IdleReason.BROKER_DOWN, (3,))
    town.image = advance(cluster(broker(1), broker(2)), IMAGE_RECORDS)
    assert (town.status().reason, town.status().brokers) == (IdleReason.BROKER_DOWN, (3,))


def test_old_reports_do_not_count() -> None:
    town = Town()
    town.round()
    town.now_ms += REPORT_INTERVALS_MAX * INTERVAL_MS + 1
    assert (town.status().reason, town.status().idle_ms) == (IdleReason.NOT_HEARD, -1)
    # A candidate of long ago begins again.
    assert [town.round() for _ in range(3)] == [[], [], ["t"]]


def test_reports_of_a_previous_process_do_not_count() -> None:
    town = Town()
    town.round()
    records = IMAGE_RECORDS
    town.image = advance(cluster(broker(1), broker(2), broker(3, epoch=200)), records)
    town.image = replace(town.image, position=(2_000, 1))
    assert town.status().reason is IdleReason.NOT_HEARD
    with pytest.raises(ApiError) as refused:
        town.say(3)
    assert refused.value.error is Error.STALE_BROKER_EPOCH
    with pytest.raises(ApiError):
        town.say(7)


def test_reports_for_other_witnesses_do_not_count() -> None:
    """It leaves out what a broker saw that has lost its replica since."""
    town = Town()
    town.round()
    for _ in range(3):
        town.now_ms += INTERVAL_MS
        assert town.say(1) == town.say(2) == town.say(3, replicas=(1, 3)) == []
    assert (town.status().reason, town.status().brokers) == (IdleReason.NOT_HEARD, (3,))
    assert town.say(3, coordinators=(3,)) == []
    assert (town.status().reason, town.status().brokers) == (IdleReason.NOT_HEARD, (3,))


def test_a_new_controller_has_no_reports() -> None:
    """Not even itself, as the one that was before the last."""
    town = Town()
    town.round()
    town.image = replace(town.image, position=(2_000, 2))
    assert town.say(1) == []
    assert (town.status().reason, town.status().brokers) == (IdleReason.NOT_HEARD, (2, 3))
    # Their tokens are of the other one's.
    assert town.say(2) == town.say(3) == []
    assert town.round() == []
    assert town.round() == ["t"]


def test_tokens_of_a_later_controller_are_larger() -> None:
    early, late = Town(), Town(replace(IMAGE, position=(2_000, 2)))
    for _ in range(100):
        early.say(1)
    late.say(1)
    assert late.tokens[1] > early.tokens[1] > 0


def test_deciding_twice_on_one_report_is_deciding_once() -> None:
    """As where the first decision met another writer's."""
    town = due()
    token = town.tokens[1]
    assert town.say(1, token=token) == town.say(1, token=token) == ["t"]


def without_leader(topic: str) -> ClusterImage:
    records = [
        replace(each, leader=-1)
        if isinstance(each, PartitionRecord) and each.topic_id == topic_id_of(topic)
        else each
        for each in IMAGE_RECORDS
    ]
    return advance(THREE, records)


def topic_id_of(name: str) -> Uuid:
    return TOPIC if name == "t" else OFFSETS


@pytest.mark.parametrize("topic", ["t", OFFSETS_TOPIC])
def test_a_topic_that_nobody_can_use_is_not_idle(topic: str) -> None:
    town = Town(without_leader(topic))
    for _ in range(5):
        assert town.round() == []
    assert town.status().reason is IdleReason.NO_LEADER


def test_why_others_stay() -> None:
    town = Town()
    assert town.round(TTL_MS - 1) == []
    assert (town.status().reason, town.status().idle_ms) == (IdleReason.TOO_YOUNG, TTL_MS - 1)
    assert town.status(OFFSETS_TOPIC).reason is IdleReason.INTERNAL
    town.image = advance(IMAGE, [limit(OFFSETS_TOPIC, TTL_MS)])
    assert town.status(OFFSETS_TOPIC).reason is IdleReason.INTERNAL
    town.image = advance(IMAGE, [limit("t", -1)])
    assert not any(town.round() for _ in range(5))
    assert town.status().reason is IdleReason.NO_TTL
    queued = DeletionImage(topic_id=TOPIC, name="t", policy=Policy.CLASSIC, asked_ms=0)
    town.image = advance(IMAGE, [header_record(queued)])
    assert not any(town.round() for _ in range(5))
    assert town.status().reason is IdleReason.BEING_DELETED
    town = Town(config=configured(delete_topic_enable="false"))
    assert not any(town.round() for _ in range(5))
    assert town.status().reason is IdleReason.DISABLED


def test_a_report_of_a_topic_that_is_gone_is_passed_over() -> None:
    town = Town(advance(THREE, topic_records(OFFSETS_TOPIC, OFFSETS, COORDINATORS, None)))
    assert not any(town.round() for _ in range(5))


def test_a_new_topic_of_the_name_is_another_one() -> None:
    town = Town()
    town.round()
    other = uuid("another")
    town.image = advance(
        THREE,
        [
            *topic_records("t", other, REPLICAS),
            *topic_records(OFFSETS_TOPIC, OFFSETS, COORDINATORS, None),
        ],
    )
    assert town.round() == []
    assert (town.status().reason, town.status().topic_id) == (IdleReason.NOT_HEARD, other)


def test_the_view_is_of_topics_with_a_limit_or_of_those_named() -> None:
    town = Town(advance(IMAGE, topic_records("a", uuid("a"), (1,), None)))
    view = describe_idle(town.image, town.board, town.config, None, now_ms=0)
    assert [each.name for each in view] == ["t"]
    named = ["t", "a", "missing", "a"]
    view = describe_idle(town.image, town.board, town.config, named, now_ms=0)
    assert [(each.name, each.reason) for each in view] == [
        ("a", IdleReason.NO_TTL),
        ("t", IdleReason.NOT_HEARD),
    ]


@settings(deadline=None)
@given(
    reported=st.dictionaries(st.sampled_from((1, 2, 3)), st.integers(0, 2 * TTL_MS)),
)
def test_the_least_reported_idle_time_counts(reported: dict[int, int]) -> None:
    town = Town()
    for broker_id, idle_ms in reported.items():
        town.say(broker_id, idle_ms)
    status = town.status()
    assert status.idle_ms == min(reported.values(), default=-1)
    assert (status.reason is IdleReason.DUE) == (
        len(reported) == 3 and min(reported.values()) >= TTL_MS
    )


def test_a_limit_that_would_not_be_kept_is_refused() -> None:
    led = advance(IMAGE, [FeatureLevelRecord(name=OTTLA_VERSION, feature_level=1)])
    check_ttl(led, KRAFT_MODE, "t", {TTL: "5000"})
    check_ttl(IMAGE, KRAFT_MODE, "t", {TTL: "-1"})
    check_ttl(IMAGE, KRAFT_MODE, OFFSETS_TOPIC, {})
    for image, topic in ((IMAGE, "t"), (led, OFFSETS_TOPIC)):
        with pytest.raises(ApiError) as refused:
            check_ttl(image, KRAFT_MODE, topic, {TTL: "5000"})
        assert refused.value.error is Error.INVALID_CONFIG
        assert TTL in (refused.value.message or "")


def test_many_topics_that_are_due_go_by_and_by() -> None:
    """The first goes whatever its size, or a large one never would."""
    size = PARTITIONS_MAX // 2
    sizes = {uuid("a"): 3 * PARTITIONS_MAX, uuid("b"): size, uuid("c"): size, uuid("d"): 1}
    records: list[Record] = []
    for topic_id, count in sizes.items():
        first, partition, ttl = topic_records(topic_id.decode().rstrip("."), topic_id, (1,))
        assert isinstance(partition, PartitionRecord)
        records += [first, ttl]
        records += [replace(partition, partition_id=number) for number in range(count)]
    image, board, config = advance(THREE, records), IdleReports(), CONFIG
    gone, token = [], NO_TOKEN
    for _ in range(6):
        report = IdleReport(
            broker_id=1,
            broker_epoch=101,
            coordinators=(),
            rows=tuple(IdleRow(each, (1,), TTL_MS) for each in sizes if image.topics.by_id(each)),
            token=token,
        )
        going, token = due_topics(image, board, report, config, now_ms=0)
        gone.append([each.name for each in going])
        image = advance(image, [RemoveTopicRecord(topic_id=each.topic_id) for each in going])
    assert gone == [[], ["a"], ["b", "c"], ["d"], [], []]


def test_limits_are_checked_where_topics_are_made_and_changed() -> None:
    around = context()
    for level, error in ((0, Error.INVALID_CONFIG), (1, Error.NONE)):
        image = advance(IMAGE, [FeatureLevelRecord(name=OTTLA_VERSION, feature_level=level)])
        made = create_topics(
            image,
            [
                NewTopic(
                    name="new",
                    partition_count=1,
                    replication_factor=1,
                    configs=((TTL, "5000"),),
                )
            ],
            validate_only=False,
            context=around,
        )
        assert [each.error for each in made.reply] == [error]
        altered = alter_configs(
            image,
            [Alteration((ResourceType.TOPIC, "t"), ((TTL, Operation.SET, "5000"),))],
            incremental=True,
            validate_only=False,
            context=around,
        )
        assert [each.error for each in altered.reply] == [error]
