"""DeleteReplicas deletes what its topic id names, fenced by both epochs, and by the ledger.

Method: a broker with logs on a disk in memory; requests through the codec.
"""

import errno
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.base.pending import Pending
from ottla.broker.api.k1002_delete_replicas import METADATA_WAIT_MS
from ottla.broker.dispatch import advertised, load_apis
from ottla.broker.ports import CloseConnection, Listener
from ottla.controller.retry_queue import RETRY_MS_MAX
from ottla.log.dirs.log_dir import CHECKPOINTS
from ottla.metadata.deletions import DeletionImage, Policy, header_record
from ottla.metadata.records import (
    DeletionRecord,
    ForgetDeletionRecord,
    PartitionChangeRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.wire.messages import delete_replicas as wire

from ..harness import TOPIC_ID, BrokerHarness

OTHER_ID = Uuid(b"o" * 16)
BROKER_EPOCH = 40


def harness(**how: Any) -> BrokerHarness:
    made = BrokerHarness(**how)
    made.broker.epoch = BROKER_EPOCH
    made.log_dirs.acquire(node_id=1, cluster_id=None)
    made.load(made.broker.image)
    made.add_broker()
    made.add_topic(partitions=2)
    return made


def delete(
    made: BrokerHarness,
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
    pending = made.begin(request, 0)
    made.clock.advance(1)  # It is answered once the checkpoints are written.
    response: wire.DeleteReplicasResponse = pending.value
    return response


def entry(topic_id: Uuid = TOPIC_ID) -> DeletionRecord:
    """Return the beginning of a deletion's entry in the ledger."""
    return header_record(
        DeletionImage(topic_id=topic_id, name="t", policy=Policy.AT_ONCE, asked_ms=1)
    )


def deletion(topic_id: Uuid = TOPIC_ID) -> tuple[Record, ...]:
    """Return what a deletion begins with."""
    return RemoveTopicRecord(topic_id=topic_id), entry(topic_id)


def order(made: BrokerHarness, *partitions: int, topic_id: Uuid = TOPIC_ID) -> Pending[Any]:
    """Send an order that may have to wait."""
    topic = wire.DeleteReplicasTopic(topic_id=topic_id, partitions=partitions or (0,))
    request = wire.DeleteReplicasRequest(
        controller_id=3, controller_epoch=7, broker_epoch=BROKER_EPOCH, topics=(topic,)
    )
    return made.begin(request, 0)


def late(made: BrokerHarness, *partitions: int, topic_id: Uuid = TOPIC_ID) -> dict[int, Error]:
    """Request a deletion that never reaches this broker's metadata, and wait for its timeout."""
    answer = order(made, *partitions, topic_id=topic_id)
    assert not answer.done
    made.clock.advance(METADATA_WAIT_MS)
    return codes(answer.value)


def codes(response: wire.DeleteReplicasResponse) -> dict[int, Error]:
    assert response.error_code == Error.NONE
    [topic] = response.topics
    return {each.partition_index: Error(each.error_code) for each in topic.partitions}


def test_a_deleted_topic_s_replica_is_gone_by_the_time_it_is_confirmed() -> None:
    made = harness()
    made.commit(*deletion())
    response = delete(made, 0, 1)
    assert codes(response) == {0: Error.NONE, 1: Error.NONE}
    assert response.topics[0].topic_id == TOPIC_ID
    made.disk.crash()
    assert [name for name in made.disk.listdir("/logs") if name in ("t-0", "t-1")] == []


def test_by_the_answer_no_checkpoint_speaks_of_the_replica() -> None:
    """A topic has the name already, maybe: it could begin where this one ended."""
    made = harness()
    made.log_dirs.checkpoint()
    checkpoint = "/logs/recovery-point-offset-checkpoint"
    assert b"t 0 " in made.disk.read_bytes(checkpoint)
    made.commit(*deletion())
    answer = order(made, 0, 1)
    found: list[bytes] = []
    answer.then(lambda _: found.append(made.disk.read_bytes(checkpoint)))
    made.clock.advance(1)
    assert found == [b"0\n0\n"]


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_that_cannot_be_written_neither_holds_up_nor_belies_the_answer(
    name: str,
) -> None:
    """The directory is offline then, but the replica is gone from it: nothing is left to wait for.

    An error would be repeated until that disk is back, and the deletion be under way until then.
    """
    made = harness(properties={"log.dirs": "/logs,/more"})
    made.commit(*deletion())
    made.fail_disk("write_atomic", f"/logs/{name}")
    assert codes(delete(made, 0, 1)) == {0: Error.NONE, 1: Error.NONE}
    assert [each.path for each in made.log_dirs.offline_dirs] == ["/logs"]
    made.disk.crash()
    left = [*made.disk.listdir("/logs"), *made.disk.listdir("/more")]
    assert [each for each in left if each in ("t-0", "t-1")] == []


def test_what_is_not_here_counts_as_deleted() -> None:
    made = harness()
    made.commit(*deletion(), entry(OTHER_ID))
    assert codes(delete(made, 5, topic_id=OTHER_ID)) == {5: Error.NONE}
    assert codes(delete(made, 9)) == {9: Error.NONE}


def test_a_request_waits_for_the_metadata_with_the_deletion() -> None:
    made = harness()
    answer = order(made, 0, 1)
    assert not answer.done
    assert made.log_dirs.get("t", 0) is not None
    made.commit(*deletion())
    made.clock.advance(1)
    assert codes(answer.value) == {0: Error.NONE, 1: Error.NONE}
    assert made.broker.topic_deletion_purgatory.count == 0


def test_an_order_for_a_topic_that_came_and_went_in_one_change_is_not_kept_waiting() -> None:
    made = harness()
    answer = order(made, 0, topic_id=OTHER_ID)
    made.commit(TopicRecord(name="x", topic_id=OTHER_ID), *deletion(OTHER_ID))
    assert codes(answer.value) == {0: Error.NONE}
    assert made.broker.topic_deletion_purgatory.count == 0


def test_an_order_is_put_off_where_its_topic_is_not_known_to_be_deleted() -> None:
    """It may be made yet, by older records that this broker has still to replay."""
    made = harness()
    assert late(made, 0, topic_id=OTHER_ID) == {0: Error.OPERATION_NOT_ATTEMPTED}
    made.commit(RemoveTopicRecord(topic_id=TOPIC_ID), entry(OTHER_ID))
    assert late(made, 0) == {0: Error.OPERATION_NOT_ATTEMPTED}, "there is no entry of it"
    assert codes(delete(made, topic_id=OTHER_ID)) == {0: Error.NONE}
    made.commit(ForgetDeletionRecord(topic_id=OTHER_ID))
    assert late(made, 0, topic_id=OTHER_ID) == {0: Error.OPERATION_NOT_ATTEMPTED}


def test_an_existing_topic_is_kept_whatever_the_ledger_has() -> None:
    made = harness()
    made.commit(entry())
    assert late(made, 0) == {0: Error.OPERATION_NOT_ATTEMPTED}
    assert made.log_dirs.get("t", 0) is not None


def test_a_request_is_dropped_when_the_controller_disconnects() -> None:
    made = harness()
    answer = order(made, 0)
    assert made.broker.topic_deletion_purgatory.count == 1
    made.connection.closed.complete(None)
    assert made.broker.topic_deletion_purgatory.count == 0
    made.clock.advance(METADATA_WAIT_MS)
    assert not answer.done


def test_of_several_topics_those_that_are_known_go_when_the_wait_is_over() -> None:
    made = harness()
    made.commit(*deletion())
    topics = tuple(
        wire.DeleteReplicasTopic(topic_id=each, partitions=(0,)) for each in (TOPIC_ID, OTHER_ID)
    )
    answer = made.begin(
        wire.DeleteReplicasRequest(controller_id=3, controller_epoch=7, topics=topics), 0
    )
    made.clock.advance(METADATA_WAIT_MS)
    assert [
        (each.topic_id, Error(each.partitions[0].error_code)) for each in answer.value.topics
    ] == [(TOPIC_ID, Error.NONE), (OTHER_ID, Error.OPERATION_NOT_ATTEMPTED)]


def test_latent_l6_a_deletion_may_be_repeated() -> None:
    made = harness()
    made.commit(*deletion())
    assert {codes(delete(made))[0] for _ in range(3)} == {Error.NONE}


def test_kafka_9539_a_late_request_does_not_delete_a_replica_of_a_live_topic() -> None:
    """Whatever is assigned to whom: the deletion of a replica that moved is not ordered so."""
    made = harness()
    assert late(made, 0, 1) == dict.fromkeys((0, 1), Error.OPERATION_NOT_ATTEMPTED)
    assert made.log_dirs.get("t", 0) is not None
    moved = PartitionChangeRecord(
        partition_id=0, topic_id=TOPIC_ID, replicas=(2,), isr=(2,), leader=2
    )
    made.commit(moved)
    assert late(made, 0, 1) == dict.fromkeys((0, 1), Error.OPERATION_NOT_ATTEMPTED)


def test_a_topic_of_the_old_name_is_another_one() -> None:
    made = harness()
    made.commit(*deletion())
    made.add_topic(topic_id=OTHER_ID)
    assert codes(delete(made)) == {0: Error.NONE}
    log = made.log_dirs.get("t", 0)
    assert log is not None
    assert log.topic_id == OTHER_ID


def test_the_zero_id_names_nothing() -> None:
    assert late(harness(), topic_id=NO_UUID) == {0: Error.OPERATION_NOT_ATTEMPTED}


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
    made = harness()
    made.commit(*deletion())
    response = delete(made, 9, broker_epoch=broker_epoch)
    assert response.error_code == error
    assert len(response.topics) == (error is Error.NONE)


def test_kafka_6082_an_older_controller_is_refused_once_a_newer_one_has_spoken() -> None:
    made = harness()
    made.commit(*deletion())
    assert delete(made, 9, controller_epoch=7).error_code == Error.NONE
    assert delete(made, 9, controller_epoch=9).error_code == Error.NONE
    assert delete(made, 9, controller_epoch=8).error_code == Error.STALE_CONTROLLER_EPOCH
    assert delete(made, 9, controller_epoch=9).error_code == Error.NONE


def test_a_controller_older_than_the_metadata_is_refused() -> None:
    """The harness's records bear epoch 1."""
    assert delete(harness(), 9, controller_epoch=0).error_code == Error.STALE_CONTROLLER_EPOCH


def test_a_stale_request_deletes_nothing() -> None:
    made = harness()
    made.broker.controller_epoch = 100
    made.commit(*deletion())
    made.disk.crash()
    assert delete(made, 0).topics == ()


def test_an_unreadable_partition_dir_delays_the_receipt_of_its_own_topic_alone() -> None:
    """A link to a disk that was not mounted held up those of all topics."""
    made = harness()
    made.commit(*deletion())
    made.disk.link("/logs/foo-0", "/not-mounted/foo-0")
    assert codes(delete(made)) == {0: Error.NONE}
    made.clock.advance(60_000)
    assert codes(delete(made)) == {0: Error.NONE}
    made.disk.link("/logs/t-0", "/not-mounted/t-0")
    assert codes(delete(made)) == {0: Error.KAFKA_STORAGE_ERROR}


def test_a_partition_dir_that_cannot_be_renamed_affects_its_replica_alone() -> None:
    """A mount point in the only log directory ended the broker when its topic was deleted."""
    made = harness()
    alarms: list[None] = []
    made.broker.replicas.on_log_dir_failed = made.broker.replicas.on_all_log_dirs_failed = lambda: (
        alarms.append(None)
    )
    made.disk.fail("rename", errno.EBUSY, path="/logs/t-0", times=None)
    made.commit(*deletion())
    for _ in range(2):
        assert codes(delete(made, 0, 1)) == {0: Error.KAFKA_STORAGE_ERROR, 1: Error.NONE}
        made.clock.advance(60_000)
    assert (made.log_dirs.offline_dirs, alarms) == ((), [])
    made.disk.faults.clear()
    assert codes(delete(made, 0, 1)) == {0: Error.NONE, 1: Error.NONE}


def test_kafka_7313_an_offline_log_dir_has_the_same_error_every_time() -> None:
    made = harness(properties={"log.dirs": "/logs,/more"})
    log = made.log_dirs.get("t", 0)
    assert log is not None
    made.log_dirs.fail(log, OSError(5, "broken"))
    made.commit(*deletion())
    for _ in range(3):
        assert codes(delete(made)) == {0: Error.KAFKA_STORAGE_ERROR}


def test_deletions_delayed_by_an_offline_log_dir_are_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An operator must find the other lines of a broker whose disk is to be mended next week."""
    made = harness(properties={"log.dirs": "/logs,/more"})
    log = made.log_dirs.get("t", 0)
    assert log is not None
    made.log_dirs.fail(log, OSError(5, "broken"))
    made.commit(*deletion())
    caplog.clear()
    for _ in range(5):
        assert codes(delete(made, 0, 8, 9)) == dict.fromkeys((0, 8, 9), Error.KAFKA_STORAGE_ERROR)
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("ERROR", "cannot delete 1 replicas (t-0): it is offline: /logs; the controller retries"),
        ("ERROR", "cannot delete 2 replicas (t-8, t-9): broken; the controller retries"),
    ]
    made.clock.advance(RETRY_MS_MAX)
    delete(made, 0, 8, 9)
    delete(made, 0, 8, 9)
    assert len(caplog.records) == 4


def test_the_api_is_for_nodes_only() -> None:
    apis = load_apis()
    for listener in Listener:
        assert 1002 not in advertised(apis, listener)
    made = BrokerHarness(
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
