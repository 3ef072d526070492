"""StopReplica stops fetching, or deletes replicas and confirms that only once it is done.

Method: a broker with logs on a disk in memory; requests through the codec.
"""

from dataclasses import replace
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.base.limits import LOGS_PER_STEP_MAX
from ottla.broker.zookeeper.zk_replica_drops import note_unconfirmed, unconfirmed_at_start
from ottla.controller.retry_queue import RETRY_MS_MAX
from ottla.log.config import LogConfig
from ottla.log.dirs.log_dir import CHECKPOINTS
from ottla.log.results import DamagedLog

from ..harness import TOPIC_ID
from .zk_metadata_harness import CONTROLLER_EPOCH, DYING, ZkMetadataHarness, known, partition_state

OTHER_ID = Uuid(b"z" * 16)


def hosting(**how: Any) -> ZkMetadataHarness:
    """Return a broker that leads partition 0 and follows partition 1, in epoch 4."""
    made = ZkMetadataHarness(**how)
    made.update_metadata()
    made.lead(
        partition_state(0, leader_epoch=4, partition_epoch=4),
        partition_state(1, leader=2, leader_epoch=4, partition_epoch=4),
    )
    return made


def fail_log_dir(made: ZkMetadataHarness) -> None:
    made.broker.replicas.storage_failed(made.broker.replicas.partition("t", 0), OSError(5, "io"))


# -- stopping ----------------------------------------------------------------------------------


def test_a_stopped_replica_is_followed_again_with_the_next_leader_and_isr() -> None:
    made = hosting()
    assert made.stop(1, delete=False, epoch=4) == {1: Error.NONE}
    assert len(made.broker.fetchers) == 0
    made.update_metadata(known(1, leader=2, leader_epoch=5, zk_version=5))
    assert len(made.broker.fetchers) == 0
    made.lead(partition_state(1, leader=2, leader_epoch=5, partition_epoch=5))
    assert len(made.broker.fetchers) == 1
    assert made.partition_dirs() == ["t-0", "t-1"]


def test_what_is_not_here_is_not_followed() -> None:
    assert hosting().stop(7, delete=False, epoch=4) == {7: Error.NONE}


@pytest.mark.parametrize(("epoch", "counts"), [(3, False), (4, True), (5, True), (-1, True)])
def test_kafka_9539_equal_epochs_count_older_ones_do_not(epoch: int, counts: bool) -> None:
    made = hosting()
    expected = Error.NONE if counts else Error.FENCED_LEADER_EPOCH
    assert made.stop(1, delete=False, epoch=epoch) == {1: expected}
    assert len(made.broker.fetchers) == (0 if counts else 1)


def test_a_late_stop_does_not_delete_a_live_replica() -> None:
    made = hosting()
    assert made.stop(0, 1, epoch=3) == {
        0: Error.FENCED_LEADER_EPOCH,
        1: Error.FENCED_LEADER_EPOCH,
    }
    assert made.partition_dirs() == ["t-0", "t-1"]


# -- deleting ----------------------------------------------------------------------------------


def test_a_deleted_topics_replicas_are_durably_gone_before_the_response() -> None:
    made = hosting()
    made.update_metadata(known(0, leader=DYING), known(1, leader=DYING))
    assert made.stop(0, 1) == {0: Error.NONE, 1: Error.NONE}
    made.disk.crash()
    assert made.partition_dirs() == []


def test_the_answer_waits_for_the_disk() -> None:
    made = hosting()
    made.update_metadata(known(0, leader=DYING), known(1, leader=DYING))
    made.workers.inline = False
    asked = made.begin_stop(0, 1)
    made.clock.advance(1)
    assert not asked.done
    made.workers.run()
    assert asked.done


def test_by_the_answer_no_checkpoint_speaks_of_the_replica() -> None:
    """The name is free with it: a topic that took it could begin where this one ended."""
    made = hosting()
    made.broker.log_dirs.checkpoint()
    checkpoint = "/logs/recovery-point-offset-checkpoint"
    assert b"t 0 " in made.disk.read_bytes(checkpoint)
    made.update_metadata(known(0, leader=DYING))
    asked = made.begin_stop(0)
    found: list[bool] = []
    asked.then(lambda _: found.append(b"t 0 " in made.disk.read_bytes(checkpoint)))
    made.clock.advance(1)
    assert found == [False]


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_that_cannot_be_written_neither_holds_up_nor_belies_the_answer(
    name: str,
) -> None:
    """The directory is offline then, but the replica is gone from it: nothing is left to wait for.

    An error would be repeated until that disk is back, and the topic's name be taken until then.
    """
    made = hosting(properties={"log.dirs": "/logs,/more"})
    made.update_metadata(known(0, leader=DYING), known(1, leader=DYING))
    made.fail_disk("write_atomic", f"/logs/{name}")
    for _ in range(2):
        assert made.stop(0, 1) == {0: Error.NONE, 1: Error.NONE}
    assert [each.path for each in made.broker.log_dirs.offline_dirs] == ["/logs"]
    made.disk.crash()
    assert made.partition_dirs() == []


def test_a_replica_that_left_the_assignment_is_deleted() -> None:
    made = hosting()
    made.update_metadata(known(1, leader=2, leader_epoch=5, zk_version=5, replicas=(2, 3)))
    assert made.stop(1, epoch=5) == {1: Error.NONE}
    assert made.partition_dirs() == ["t-0"]


def test_a_late_request_for_a_former_topic_of_that_name_deletes_nothing() -> None:
    """It has no topic id; UpdateMetadata has removed the topic before."""
    made = hosting()
    assert made.stop(0, 1) == {0: Error.FENCED_LEADER_EPOCH, 1: Error.FENCED_LEADER_EPOCH}
    assert made.partition_dirs() == ["t-0", "t-1"]


def test_kafka_1397_what_the_metadata_does_not_know_is_deleted_from_the_disk() -> None:
    made = hosting()
    made.broker.log_dirs.get_or_create("t", TOPIC_ID, 2, LogConfig())
    assert "t-2" in made.partition_dirs()
    assert made.stop(2) == {2: Error.NONE}
    assert "t-2" not in made.partition_dirs()


def test_latent_l6_a_deletion_may_be_repeated() -> None:
    """A new controller leads the topic on before it deletes it again."""
    made = hosting()
    made.update_metadata(known(0, leader=DYING))
    assert made.stop(0) == {0: Error.NONE}
    for epoch in (5, 6):
        term = {"controller_epoch": CONTROLLER_EPOCH + epoch}
        state = partition_state(0, leader_epoch=epoch, partition_epoch=epoch)
        assert made.lead(state, **term) == {0: Error.NONE}
        made.update_metadata(known(0, leader=DYING), **term)
        assert made.stop(0, **term) == {0: Error.NONE}
    assert made.partition_dirs() == []


def test_kafka_9946_a_replica_in_an_offline_log_dir_is_not_confirmed_as_deleted() -> None:
    """Nor later, when only the log directory has the topic."""
    made = hosting(properties={"log.dirs": "/logs,/more"})
    fail_log_dir(made)
    made.update_metadata(known(0, leader=DYING), known(1, leader=DYING))
    for _ in range(2):
        assert made.stop(0)[0] is Error.KAFKA_STORAGE_ERROR


def test_deletions_delayed_by_an_offline_log_dir_are_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An operator must find the other lines of a broker whose disk is to be mended next week."""
    made = hosting(properties={"log.dirs": "/logs,/more"})
    fail_log_dir(made)
    made.update_metadata(known(0, leader=DYING), known(1, leader=DYING))
    caplog.clear()
    for _ in range(5):
        made.stop(0, 1)
    lines = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert lines == ["cannot delete 1 replicas (t-0): it is offline: /logs; the controller retries"]
    made.clock.advance(RETRY_MS_MAX)
    made.stop(0, 1)
    assert len([each for each in caplog.records if each.levelname == "ERROR"]) == 2


@pytest.mark.parametrize(
    "by_update_metadata", [True, False], ids=["by UpdateMetadata", "by StopReplica"]
)
def test_kafka_9946_a_replica_whose_log_dir_fails_meanwhile_is_not_confirmed(
    by_update_metadata: bool,
) -> None:
    """It cannot be renamed; a replica in another log directory is deleted and confirmed."""
    made = hosting(properties={"log.dirs": "/logs,/more"})
    log = made.broker.replicas.partition("t", 0).log
    assert log is not None
    made.fail_disk("rename", log.directory)
    if by_update_metadata:
        made.update_metadata(known(0, leader=DYING), known(1, leader=DYING))
    for _ in range(2):
        answer = made.stop(0, 1) if by_update_metadata else made.stop(0, 1, epoch=4)
        assert answer == {0: Error.KAFKA_STORAGE_ERROR, 1: Error.NONE}


def test_kafka_9946_one_of_many_replicas_whose_log_dir_fails_a_step_later_is_not_confirmed() -> (
    None
):
    """One turn of the loop deletes a limited number; the rest is deleted in the next ones."""
    made = hosting(properties={"log.dirs": "/logs,/more"})
    many = LOGS_PER_STEP_MAX * 2 + 2
    states = [partition_state(each, leader_epoch=4, partition_epoch=4) for each in range(2, many)]
    made.lead(*states)
    path = made.broker.replicas.partition("t", many - 2).leader_log().directory
    made.update_metadata(*(known(each, leader=DYING) for each in range(many)))
    made.fail_disk("rename", path)
    asked = made.begin_stop(*range(many))
    assert not asked.done
    made.clock.advance(10)
    answers = {each.partition_index: each.error_code for each in asked.value.partition_errors}
    # The first has lost its name, but with the power that could come back.
    assert answers[0] == answers[many - 2] == Error.KAFKA_STORAGE_ERROR
    assert answers[1] == answers[many - 1] == Error.NONE
    assert made.stop(many - 2) == {many - 2: Error.KAFKA_STORAGE_ERROR}


def test_kafka_9946_nor_one_that_a_start_loaded_and_did_not_host_any_more() -> None:
    """Its deletion had begun before this process started; then its log directory failed."""
    made = hosting(properties={"log.dirs": "/logs,/more"})
    log = made.broker.log_dirs.get_or_create("gone", OTHER_ID, 0, LogConfig())
    made.broker.log_dirs.fail(log, OSError(5, "io"))
    for _ in range(2):
        assert made.stop(0, topic="gone") == {0: Error.KAFKA_STORAGE_ERROR}


def test_kafka_9946_nor_one_that_a_start_could_not_look_for() -> None:
    """The log directory was offline already; which replicas it has is unknown."""
    made = hosting(properties={"log.dirs": "/logs,/more"})
    log_dirs = made.broker.log_dirs
    stored = made.image
    going = replace(stored, topics=stored.topics.without(TOPIC_ID))
    assert list(unconfirmed_at_start(stored, going, 1, log_dirs)) == []
    fail_log_dir(made)
    found = list(unconfirmed_at_start(stored, going, 1, log_dirs))
    assert found == [(("t", 0), TOPIC_ID)], "the other one is in the directory that works"
    assert list(unconfirmed_at_start(stored, stored, 1, log_dirs)) == []
    assert list(unconfirmed_at_start(stored, going, 7, log_dirs)) == []
    note_unconfirmed(made.facts, found)
    made.update_metadata(known(0, leader=DYING), known(1, leader=DYING))
    assert made.stop(0, 1) == {0: Error.KAFKA_STORAGE_ERROR, 1: Error.NONE}


@pytest.mark.parametrize("has_ids", [True, False])
def test_the_next_topic_of_that_name_is_deleted_despite_an_offline_log_dir(
    has_ids: bool,
) -> None:
    """The former one lies there still, which is no reason to refuse this one until a restart."""
    made = hosting(properties={"log.dirs": "/logs,/more"})
    fail_log_dir(made)
    made.update_metadata(known(0, leader=DYING), known(1, leader=DYING))
    former: dict[str, Any] = {"topic_id": TOPIC_ID} if has_ids else {}
    assert made.stop(0, **former) == {0: Error.KAFKA_STORAGE_ERROR}
    made.lead(partition_state(0), topic_id=OTHER_ID)
    assert made.disk.exists("/more/t-0")
    made.update_metadata(known(0, leader=DYING), topic_id=OTHER_ID)
    for _ in range(2):
        later: dict[str, Any] = {"topic_id": OTHER_ID} if has_ids else {}
        assert made.stop(0, **later) == {0: Error.NONE}
    assert not made.disk.exists("/more/t-0")
    assert made.stop(0, topic_id=TOPIC_ID) == {0: Error.KAFKA_STORAGE_ERROR}


def test_a_stray_replica_is_deleted_with_its_topic() -> None:
    """The image does not have the topic, but the request has its id."""
    first = hosting()
    first.broker.shutdown()
    first.disk.kill()
    made = ZkMetadataHarness(disk=first.disk)
    strays = made.partition_dirs()
    assert [name.rpartition("-")[2] for name in strays] == ["stray", "stray"]
    assert made.stop(0, topic_id=OTHER_ID) == {0: Error.NONE}
    assert made.partition_dirs() == strays
    assert made.stop(0, topic_id=TOPIC_ID) == {0: Error.NONE}
    assert made.partition_dirs() == strays[1:]


@pytest.mark.parametrize("epoch", [-2, -1, 9])
def test_what_comes_late_hits_no_topic_that_has_the_name_since(epoch: int) -> None:
    """Whatever its epoch: those of a new topic start at zero (a move ends with a real epoch)."""
    made = hosting()
    log = made.broker.log_dirs.get_or_create("old", OTHER_ID, 0, LogConfig())
    assert made.stop(0, topic_id=OTHER_ID, epoch=epoch) == {0: Error.NONE}
    assert made.stop(1, topic_id=OTHER_ID, epoch=epoch, delete=False) == {1: Error.NONE}
    assert made.partition_dirs() == ["t-0", "t-1"]
    assert made.broker.replicas.partition("t", 0).log is not None
    # What is left of the topic that is meant has gone, under whatever name it lies.
    assert made.broker.log_dirs.get("old", 0) is None
    assert log.topic_id == OTHER_ID
    assert made.stop(0, topic_id=TOPIC_ID, epoch=9) == {0: Error.NONE}
    assert made.partition_dirs() == ["t-1"]


def test_an_offline_log_dir_does_not_delay_replicas_that_it_never_had() -> None:
    made = hosting(properties={"log.dirs": "/logs,/more"})
    fail_log_dir(made)
    assert made.broker.replicas.partition("t", 1).log is not None, "each directory has one of two"
    made.update_metadata(known(0, leader=DYING), known(1, leader=DYING))
    for _ in range(2):
        assert made.stop(1)[1] is Error.NONE
    assert made.stop(9, topic="unknown")[9] is Error.NONE


def damage(made: ZkMetadataHarness) -> None:
    """Take partition 1 offline, whose log directory is not."""
    made.broker.replicas.log_damaged(
        made.broker.replicas.partition("t", 1),
        DamagedLog("CRC mismatch", path="/logs/t-1/00000000000000000000.log", good_end=0),
        fetched=False,
    )


def test_a_damaged_replica_is_deleted_with_its_topic() -> None:
    """It was taken for one in an offline log directory: the deletion ended with the next start."""
    made = hosting()
    damage(made)
    assert made.broker.replicas.partition("t", 1).log is None
    made.update_metadata(known(0, leader=DYING), known(1, leader=DYING))
    assert made.stop(1, topic_id=TOPIC_ID) == {1: Error.NONE}
    assert made.partition_dirs() == []


def test_a_replica_whose_name_was_taken_is_deleted_once_it_is_free() -> None:
    made = ZkMetadataHarness()
    made.update_metadata()
    made.disk.open("/logs/t-1", create=True).close()
    assert made.lead(partition_state(1, leader=2)) == {1: Error.KAFKA_STORAGE_ERROR}
    made.update_metadata(known(1, leader=DYING))
    made.disk.remove("/logs/t-1")
    assert made.stop(1, topic_id=TOPIC_ID) == {1: Error.NONE}


def test_a_damaged_replica_whose_log_dir_fails_later_is_not_confirmed() -> None:
    made = hosting(properties={"log.dirs": "/logs,/more"})
    damage(made)
    made.update_metadata(known(0, leader=DYING), known(1, leader=DYING))
    directory = next(each for each in made.log_dirs.dirs if each.path == "/more")
    directory.fail(OSError(5, "io"))
    for _ in range(2):
        assert made.stop(1, topic_id=TOPIC_ID) == {1: Error.KAFKA_STORAGE_ERROR}


def test_an_unreadable_partition_dir_delays_its_own_topic_alone() -> None:
    """A link to a disk that was not mounted held up the names of all topics."""
    made = hosting()
    made.disk.link("/logs/foo-0", "/not-mounted/foo-0")
    for _ in range(2):
        assert made.stop(0, epoch=9, topic_id=TOPIC_ID) == {0: Error.NONE}
        made.clock.advance(60_000)
    assert made.stop(0, topic="bar", topic_id=OTHER_ID) == {0: Error.NONE}
    assert made.stop(0, topic="foo", topic_id=OTHER_ID) == {0: Error.KAFKA_STORAGE_ERROR}


def test_a_deletion_from_a_log_dir_whose_sync_failed_is_not_confirmed() -> None:
    """The same order was confirmed when it came again, and the topic back with a loss of power."""
    made = hosting(properties={"log.dirs": "/logs,/more"})
    log = made.broker.log_dirs.get("t", 0)
    assert log is not None
    log_dir = log.directory.rpartition("/")[0]
    made.disk.sync_dir(log_dir)
    made.disk.fail("sync_dir", path=log_dir, times=None)
    for _ in range(3):
        assert made.stop(0, epoch=9, topic_id=TOPIC_ID) == {0: Error.KAFKA_STORAGE_ERROR}
        made.clock.advance(60_000)
    assert [each.path for each in made.broker.log_dirs.offline_dirs] == [log_dir]
    assert made.stop(1, epoch=9, topic_id=TOPIC_ID) == {1: Error.NONE}
    made.disk.crash()
    assert made.disk.exists(f"{log_dir}/t-0")


def test_epochs() -> None:
    made = hosting()
    assert made.begin_stop(0, broker_epoch=1).value.error_code == Error.STALE_BROKER_EPOCH
    stale = made.begin_stop(0, controller_epoch=1).value
    assert (stale.error_code, stale.partition_errors) == (Error.STALE_CONTROLLER_EPOCH, ())
    assert made.partition_dirs() == ["t-0", "t-1"]
