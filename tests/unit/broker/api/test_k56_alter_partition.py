"""AlterPartition translates the decision into both versions.

Method: the real decider on an image in memory; every answer passes the codec of its version.
"""

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.metadata.records import PartitionRecord, TopicRecord
from ottla.metadata.topics import DIRECTORY_UNASSIGNED
from ottla.wire.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)

from ..controller_harness import Controller, versions_of

TOPIC, OTHER = Uuid(b"topic-----------"), Uuid(b"other-----------")


def harness() -> Controller:
    controller = Controller()
    partition = PartitionRecord(
        partition_id=0,
        topic_id=TOPIC,
        replicas=(1, 2),
        isr=(1, 2),
        leader=1,
        leader_epoch=3,
        partition_epoch=4,
        directories=(DIRECTORY_UNASSIGNED,) * 2,
    )
    controller.write(TopicRecord(name="t", topic_id=TOPIC), partition)
    return controller


def request(version: int, epoch: int = 1) -> AlterPartitionRequest:
    members = (
        {"new_isr": (1,)}
        if version < 3
        else {"new_isr_with_epochs": (BrokerState(broker_id=1, broker_epoch=1),)}
    )
    partition = RequestPartitionData(
        partition_index=0,
        leader_epoch=3,
        partition_epoch=4,
        **members,  # type: ignore[arg-type]
    )
    return AlterPartitionRequest(
        broker_id=1,
        broker_epoch=epoch,
        topics=(
            RequestTopicData(topic_id=TOPIC, partitions=(partition,)),
            RequestTopicData(topic_id=OTHER, partitions=(partition,)),
        ),
    )


@pytest.mark.parametrize("version", versions_of(56))
def test_every_version(version: int) -> None:
    answer = harness().ask(request(version), version)
    assert answer.error_code == Error.NONE
    assert [each.topic_id for each in answer.topics] == [TOPIC, OTHER]
    [good], [bad] = (each.partitions for each in answer.topics)
    assert (good.error_code, good.isr, good.leader_id) == (Error.NONE, (1,), 1)
    assert (good.leader_epoch, good.partition_epoch, good.leader_recovery_state) == (3, 5, 0)
    assert (bad.error_code, bad.isr) == (Error.UNKNOWN_TOPIC_ID, ())


@pytest.mark.parametrize("version", versions_of(56))
def test_a_refusal_of_the_whole(version: int) -> None:
    answer = harness().ask(request(version, epoch=2), version)
    assert (answer.error_code, answer.topics) == (Error.STALE_BROKER_EPOCH, ())


def test_without_a_controller() -> None:
    controller = harness()
    controller.refusal = Error.NOT_CONTROLLER
    assert controller.ask(request(3), 3).error_code == Error.NOT_CONTROLLER
