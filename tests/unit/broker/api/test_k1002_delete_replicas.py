"""DeleteReplicas deletes what its topic id names, fenced by both epochs, and by the metadata.

Method: a broker with logs on a disk in memory; requests through the codec.
"""

from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.broker.api.base import CloseConnection, Listener
from ottla.broker.dispatch import advertised, load_apis
from ottla.metadata.records import PartitionChangeRecord, RemoveTopicRecord
from ottla.wire.messages import delete_replicas as wire

from ..world import TOPIC_ID, World

OTHER_ID = Uuid(b"o" * 16)
BROKER_EPOCH = 40


def world(**how: Any) -> World:
    made = World(**how)
    made.broker.epoch = BROKER_EPOCH
    made.log_dirs.acquire(node_id=1, cluster_id=None)
    made.load(made.broker.image)
    made.add_broker()
    made.add_topic(partitions=2)
    return made


def delete(
    made: World,
    *partitions: int,
    topic_id: Uuid = TOPIC_ID,
    controller_epoch: int = 7,
    broker_epoch: int = BROKER_EPOCH,
) -> wire.DeleteReplicasResponse:
    request = wire.DeleteReplicasRequest(
        controller_id=3,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        topics=(wire.DeleteReplicasTopic(topic_id=topic_id, partitions=partitions or (0,)),),
    )
    response: wire.DeleteReplicasResponse = made.ask(request, 0)
    return response


def codes(response: wire.DeleteReplicasResponse) -> dict[int, Error]:
    assert response.error_code == Error.NONE
    [topic] = response.topics
    return {each.partition_index: Error(each.error_code) for each in topic.partitions}


def test_a_deleted_topic_s_replica_is_gone_by_the_time_it_is_confirmed() -> None:
    made = world()
    made.commit(RemoveTopicRecord(topic_id=TOPIC_ID))
    response = delete(made, 0, 1)
    assert codes(response) == {0: Error.NONE, 1: Error.NONE}
    assert response.topics[0].topic_id == TOPIC_ID
    made.disk.crash()
    assert [name for name in made.disk.listdir("/logs") if name in ("t-0", "t-1")] == []


def test_what_is_not_here_counts_as_deleted() -> None:
    made = world()
    assert codes(delete(made, 5, topic_id=OTHER_ID)) == {5: Error.NONE}
    assert codes(delete(made, 9)) == {9: Error.NONE}


def test_latent_l6_a_deletion_may_be_asked_for_any_number_of_times() -> None:
    made = world()
    made.commit(RemoveTopicRecord(topic_id=TOPIC_ID))
    assert {codes(delete(made))[0] for _ in range(3)} == {Error.NONE}


def test_kafka_9539_a_late_command_does_not_kill_a_replica_that_the_metadata_wants() -> None:
    """The replica was taken from this broker and given back; the deletion comes after that."""
    made = world()
    assert codes(delete(made, 0, 1)) == dict.fromkeys((0, 1), Error.OPERATION_NOT_ATTEMPTED)
    assert made.log_dirs.get("t", 0) is not None
    moved = PartitionChangeRecord(
        partition_id=0, topic_id=TOPIC_ID, replicas=(2,), isr=(2,), leader=2
    )
    made.commit(moved)
    assert codes(delete(made, 0, 1)) == {0: Error.NONE, 1: Error.OPERATION_NOT_ATTEMPTED}


def test_a_topic_of_the_old_name_is_another_one() -> None:
    made = world()
    made.commit(RemoveTopicRecord(topic_id=TOPIC_ID))
    made.add_topic(topic_id=OTHER_ID)
    assert codes(delete(made)) == {0: Error.NONE}
    log = made.log_dirs.get("t", 0)
    assert log is not None
    assert log.topic_id == OTHER_ID


def test_the_zero_id_names_nothing() -> None:
    assert codes(delete(world(), topic_id=NO_UUID)) == {0: Error.OPERATION_NOT_ATTEMPTED}


@pytest.mark.parametrize(
    ("broker_epoch", "error"),
    [
        (BROKER_EPOCH - 1, Error.STALE_BROKER_EPOCH),
        (BROKER_EPOCH, Error.NONE),
        (-1, Error.NONE),
        (BROKER_EPOCH + 1, Error.NONE),
    ],
)
def test_kafka_9839_only_an_older_broker_epoch_is_refused(broker_epoch: int, error: Error) -> None:
    response = delete(world(), 9, broker_epoch=broker_epoch)
    assert response.error_code == error
    assert len(response.topics) == (error is Error.NONE)


def test_kafka_6082_an_older_controller_is_refused_once_a_newer_one_has_spoken() -> None:
    made = world()
    assert delete(made, 9, controller_epoch=7).error_code == Error.NONE
    assert delete(made, 9, controller_epoch=9).error_code == Error.NONE
    made.commit(RemoveTopicRecord(topic_id=TOPIC_ID))
    assert delete(made, 9, controller_epoch=8).error_code == Error.STALE_CONTROLLER_EPOCH
    assert delete(made, 9, controller_epoch=9).error_code == Error.NONE


def test_a_controller_older_than_the_metadata_is_refused() -> None:
    """The world's records bear epoch 1."""
    assert delete(world(), 9, controller_epoch=0).error_code == Error.STALE_CONTROLLER_EPOCH


def test_a_stale_request_deletes_nothing() -> None:
    made = world()
    made.broker.controller_epoch = 100
    made.commit(RemoveTopicRecord(topic_id=TOPIC_ID))
    made.disk.crash()
    assert delete(made, 0).topics == ()


def test_kafka_7313_an_offline_folder_gives_the_same_answer_every_time() -> None:
    made = world(properties={"log.dirs": "/logs,/more"})
    log = made.log_dirs.get("t", 0)
    assert log is not None
    made.log_dirs.fail(log, OSError(5, "broken"))
    made.commit(RemoveTopicRecord(topic_id=TOPIC_ID))
    for _ in range(3):
        assert codes(delete(made)) == {0: Error.KAFKA_STORAGE_ERROR}


def test_it_is_for_nodes_only() -> None:
    apis = load_apis()
    for listener in Listener:
        assert 1002 not in advertised(apis, listener)
    made = World(
        {
            "listeners": "PLAINTEXT://localhost:9092,INTERNAL://localhost:9094,"
            "CONTROLLER://localhost:9093",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,"
            "CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
        }
    )
    with pytest.raises(CloseConnection, match="between nodes"):
        delete(made, 0)
