"""AssignReplicasToDirs translates the decision.

Method: the real decider on an image in memory; every answer passes the codec.
"""

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.metadata.records import PartitionRecord, TopicRecord
from ottla.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)

from ..controller_harness import DIRECTORY, Controller

TOPIC, OTHER = Uuid(b"topic-----------"), Uuid(b"other-----------")


def harness() -> Controller:
    controller = Controller()
    partition = PartitionRecord(
        partition_id=0,
        topic_id=TOPIC,
        replicas=(1,),
        isr=(1,),
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
    )
    controller.write(TopicRecord(name="t", topic_id=TOPIC), partition)
    return controller


def request(epoch: int = 1) -> AssignReplicasToDirsRequest:
    one = (RequestPartitionData(partition_index=0),)
    topics = (
        RequestTopicData(topic_id=TOPIC, partitions=one),
        RequestTopicData(topic_id=OTHER, partitions=one),
    )
    return AssignReplicasToDirsRequest(
        broker_id=1,
        broker_epoch=epoch,
        directories=(RequestDirectoryData(id=DIRECTORY, topics=topics),),
    )


def test_each_replica_is_answered() -> None:
    controller = harness()
    answer = controller.ask(request(), 0)
    assert answer.error_code == Error.NONE
    [directory] = answer.directories
    assert directory.id == DIRECTORY
    assert [
        (topic.topic_id, [(each.partition_index, each.error_code) for each in topic.partitions])
        for topic in directory.topics
    ] == [(TOPIC, [(0, Error.NONE)]), (OTHER, [(0, Error.UNKNOWN_TOPIC_ID)])]
    found = controller.image.topics.by_id(TOPIC)
    assert found is not None
    assert found.partitions[0].directories == (DIRECTORY,)


def test_a_refusal_of_the_whole() -> None:
    answer = harness().ask(request(epoch=2), 0)
    assert (answer.error_code, answer.directories) == (Error.STALE_BROKER_EPOCH, ())
