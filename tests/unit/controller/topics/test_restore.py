"""A restored topic has the id, epochs and offsets that the store says, or is refused."""

from dataclasses import replace
from typing import Any

import pytest

from ottla.base.errors import ApiError, Error
from ottla.controller.topics.create_topics import NewTopic, create_topics
from ottla.controller.topics.restore import RestoredTopic, restore_topic
from ottla.metadata.deletions import DeletionImage, Policy, deletion_records
from ottla.metadata.features import OTTLA_VERSION, OTTLA_VERSION_LEVEL, TIERING
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.records import FeatureLevelRecord
from ottla.metadata.tiering import RestoredPartition, TieringState

from ..builders import THREE, advance, after, context, uuid

LEVEL = FeatureLevelRecord(name=OTTLA_VERSION, feature_level=OTTLA_VERSION_LEVEL)
IMAGE = advance(THREE, [LEVEL])
ID = uuid("restored")
GIVEN = {
    "remote.log.storage.system.enable": "true",
    "ottla.remote.storage.uri": "file:///store",
}
FIRST = RestoredPartition(
    partition=0, leader_epoch=7, log_start_offset=10, end_offset=30, epochs=((1, 10), (6, 20))
)
SECOND = RestoredPartition(partition=1, leader_epoch=0, log_start_offset=0, end_offset=0)
TOPIC = RestoredTopic(
    name="t",
    topic_id=ID,
    tiered_epoch=4,
    floor=2,
    configs={"remote.storage.enable": "true", "retention.ms": "5"},
    partitions=(FIRST, SECOND),
    replication_factor=2,
)


def restored(image: ClusterImage = IMAGE, **changes: Any) -> ClusterImage:
    wanted = replace(TOPIC, **changes)
    decided = restore_topic(image, wanted, validate_only=False, context=context(GIVEN))
    return after(image, decided)


def refusal(image: ClusterImage = IMAGE, **changes: Any) -> ApiError:
    with pytest.raises(ApiError) as refused:
        restored(image, **changes)
    return refused.value


def test_the_topic_has_id_epochs_offsets_and_configuration() -> None:
    image = restored()
    topic = image.topics.by_id(ID)
    assert topic is not None
    assert topic.name == "t"
    assert [each.leader_epoch for _, each in topic.in_order()] == [7, 0]
    assert all(len(each.isr) == len(each.replicas) == 2 for _, each in topic.in_order())
    assert dict(image.configs.of(2, "t")) == dict(TOPIC.configs)
    tiering = image.tiering[ID]
    assert (tiering.state, tiering.tiered_epoch, tiering.remote_floor_epoch) == (
        TieringState.ENABLED,
        4,
        2,
    )
    assert tiering.restored_partition(0) == FIRST
    assert tiering.restored_partition(1) == SECOND
    assert tiering.restored_partition(2) is None
    # A snapshot keeps it.
    assert advance(EMPTY, image.to_records()).tiering == image.tiering


def test_nothing_is_written_where_it_is_only_validated() -> None:
    decided = restore_topic(IMAGE, TOPIC, validate_only=True, context=context(GIVEN))
    assert decided.step.records == ()


def test_a_topic_of_the_name_or_the_id_refuses_it() -> None:
    same_name = after(
        IMAGE,
        create_topics(
            IMAGE,
            [NewTopic(name="t", partition_count=1, replication_factor=1)],
            validate_only=False,
            context=context(),
        ),
    )
    assert refusal(same_name).error is Error.TOPIC_ALREADY_EXISTS
    again = refusal(restored())
    assert again.error is Error.TOPIC_ALREADY_EXISTS
    assert "exists with the topic id" in str(again.message)
    assert refusal(restored(), name="other").error is Error.TOPIC_ALREADY_EXISTS


def test_the_ledger_refuses_it_also_with_a_receipt() -> None:
    deletion = DeletionImage(topic_id=ID, name="t", policy=Policy.AT_ONCE, asked_ms=1)
    for entry in (deletion, replace(deletion, finished_ms=5)):
        image = advance(IMAGE, deletion_records(entry))
        refused = refusal(image)
        assert refused.error is Error.TOPIC_ALREADY_EXISTS
        assert "deletion ledger" in str(refused.message)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"partitions": ()}, Error.INVALID_REQUEST),
        ({"partitions": (SECOND,)}, Error.INVALID_REQUEST),
        ({"partitions": (FIRST, FIRST)}, Error.INVALID_REQUEST),
        ({"partitions": (replace(FIRST, end_offset=9), SECOND)}, Error.INVALID_REQUEST),
        ({"partitions": (replace(FIRST, leader_epoch=-1), SECOND)}, Error.INVALID_REQUEST),
        ({"floor": 4}, Error.INVALID_REQUEST),
        ({"floor": -1}, Error.INVALID_REQUEST),
        ({"configs": {}}, Error.INVALID_CONFIG),
        ({"configs": {"remote.storage.enable": "true", "no.such": "1"}}, Error.INVALID_CONFIG),
        ({"name": "a/b"}, Error.INVALID_TOPIC_EXCEPTION),
        ({"replication_factor": 0}, Error.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 4}, Error.INVALID_REPLICATION_FACTOR),
    ],
)
def test_what_is_refused(changes: dict[str, Any], error: Error) -> None:
    assert refusal(**changes).error is error


def test_a_cluster_below_the_level_refuses_it() -> None:
    low = FeatureLevelRecord(name=OTTLA_VERSION, feature_level=TIERING - 1)
    assert refusal(advance(THREE, [low])).error is Error.UNSUPPORTED_VERSION


def test_a_former_topic_s_epochs_are_not_used_again() -> None:
    former = DeletionImage(
        topic_id=uuid("former"), name="t", policy=Policy.AT_ONCE, asked_ms=1, leader_epoch=20
    )
    image = restored(advance(IMAGE, deletion_records(former)))
    topic = image.topics.by_id(ID)
    assert topic is not None
    assert [each.leader_epoch for _, each in topic.in_order()] == [21, 21]
