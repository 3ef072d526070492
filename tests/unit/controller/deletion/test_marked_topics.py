"""A topic that is marked for deletion takes no changes any more, and keeps its name until the end.

Method: the deciders of the APIs on an image in which one topic is queued (ZooKeeper's policy).
"""

import pytest

from ottla.base.errors import Error
from ottla.controller.partitions.reassignment import Target, alter_reassignments
from ottla.controller.topics.configs import Alteration, alter_configs
from ottla.controller.topics.create_partitions import NewPartitions, create_partitions
from ottla.controller.topics.create_topics import NewTopic, create_topics
from ottla.metadata.configs import ResourceType
from ottla.metadata.deletions import DeletionImage, Policy, header_record
from ottla.metadata.image import ClusterImage
from tests.unit.controller.builders import context
from tests.unit.controller.model_brokers import change, cluster_image, led, topic, topic_id

CONTEXT = context()


@pytest.fixture
def image() -> ClusterImage:
    before = cluster_image(
        [1, 2, 3], topic("t", led((1, 2))), topic("moves", led((1, 2), adding_replicas=(2,)))
    )
    records = [
        header_record(
            DeletionImage(topic_id=topic_id(name), name=name, policy=Policy.CLASSIC, asked_ms=1)
        )
        for name in ("t", "moves")
    ]
    return change(before, records).image


def test_its_name_is_taken(image: ClusterImage) -> None:
    wanted = NewTopic(name="t", partition_count=1, replication_factor=1)
    decision = create_topics(image, [wanted], validate_only=False, context=CONTEXT)
    [answer] = decision.reply
    assert answer.error is Error.TOPIC_ALREADY_EXISTS
    assert "marked for deletion" in (answer.message or "")
    assert decision.step.records == ()


def test_kafka_6612_it_does_not_grow(image: ClusterImage) -> None:
    wanted = NewPartitions(name="t", count=3, assignments=None)
    decision = create_partitions(image, [wanted], validate_only=False, context=CONTEXT)
    assert [each.error for each in decision.reply] == [Error.INVALID_TOPIC_EXCEPTION]
    assert decision.step.records == ()


def test_it_is_not_reassigned(image: ClusterImage) -> None:
    decision = alter_reassignments(
        image, [Target("t", 0, (2, 3))], may_change_factor=True, context=CONTEXT
    )
    assert [each.error for each in decision.reply] == [Error.UNKNOWN_TOPIC_OR_PARTITION]
    assert decision.step.records == ()


def test_a_reassignment_that_it_waits_for_can_be_cancelled(image: ClusterImage) -> None:
    decision = alter_reassignments(
        image, [Target("moves", 0, None)], may_change_factor=True, context=CONTEXT
    )
    assert [each.error for each in decision.reply] == [Error.NONE]
    assert len(decision.step.records) == 1


@pytest.mark.parametrize("incremental", [True, False])
def test_it_is_not_configured(image: ClusterImage, incremental: bool) -> None:
    wanted = Alteration((ResourceType.TOPIC, "t"), (("retention.ms", 0, "1"),))
    decision = alter_configs(
        image, [wanted], incremental=incremental, validate_only=False, context=CONTEXT
    )
    assert [each.error for each in decision.reply] == [Error.UNKNOWN_TOPIC_OR_PARTITION]
