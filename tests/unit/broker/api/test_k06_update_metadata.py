"""UpdateMetadata has the live brokers and the leaders; a leader of -2 means a deleted topic.

Method: a broker with logs on a disk in memory; requests through the codec.
"""

from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import NO_EPOCH, Uuid, uuid_text
from ottla.broker.zookeeper.zk_replica_drops import drop_topics
from ottla.metadata.configs import ResourceType
from ottla.metadata.topics import DIRECTORY_LOST, DIRECTORY_MIGRATING, PartitionImage
from ottla.wire.messages.update_metadata import (
    FULL,
    INCREMENTAL,
    UpdateMetadataPartitionState,
)

from ..harness import TOPIC_ID, config_record
from .zk_metadata_harness import (
    BROKER_EPOCH,
    CONTROLLER_EPOCH,
    DYING,
    ZkMetadataHarness,
    known,
    partition_state,
)

OTHER_ID, NEXT_ID = Uuid(b"o" * 16), Uuid(b"n" * 16)


def state(made: ZkMetadataHarness, number: int = 0) -> PartitionImage:
    topic = made.image.topics.by_name("t")
    assert topic is not None
    return topic.partitions[number]


def test_brokers_are_all_that_are_named() -> None:
    made = ZkMetadataHarness()
    assert made.update_metadata(brokers=(1, 2)) is Error.NONE
    made.update_metadata(brokers=(1, 3))
    assert made.image.broker_ids() == [1, 3]
    third = made.image.brokers[3]
    assert (third.epoch, third.fenced, third.rack) == (NO_EPOCH, False, "r3")
    assert [(each.name, each.host, each.port) for each in third.endpoints] == [
        ("PLAINTEXT", "h3", 9092)
    ]
    assert made.broker.controller_id == 3


def test_a_repeated_request_changes_nothing() -> None:
    made = ZkMetadataHarness()
    made.update_metadata(known())
    before = made.image
    made.update_metadata(known())
    assert made.image is before


def test_partitions_that_are_not_named_stay() -> None:
    made = ZkMetadataHarness()
    made.update_metadata(known(0), known(1))
    made.update_metadata(known(1, leader=2, leader_epoch=1, zk_version=1))
    assert state(made, 0).leader == 1
    assert state(made, 1).leader == 2


def test_of_all_partitions_one_that_is_not_named_is_a_ghost_where_a_replica_of_it_is() -> None:
    """It may have been deleted: the ledger is read. Its name may have been used again."""
    made = ZkMetadataHarness()
    made.lead(partition_state())
    made.update_metadata(known(), type=FULL)
    made.update_metadata(known(), topic_id=OTHER_ID, type=INCREMENTAL)
    assert made.missing_checks == []
    made.update_metadata(known(), topic_id=OTHER_ID, type=FULL)
    made.update_metadata(type=FULL)
    assert made.missing_checks == [{TOPIC_ID}] * 2
    assert made.partition_dirs() == ["t-0"]
    drop_topics(made.broker, made, [OTHER_ID])
    assert made.partition_dirs() == ["t-0"]
    drop_topics(made.broker, made, [TOPIC_ID])
    assert made.partition_dirs() == []
    assert "t" not in made.image.topics
    made.update_metadata(known(), topic_id=OTHER_ID, type=FULL)
    assert made.image.topics.id_of("t") == OTHER_ID


def elsewhere(number: int = 0, **how: Any) -> UpdateMetadataPartitionState:
    return known(number, leader=2, replicas=(2, 3), isr=(2, 3), **how)


def test_of_all_partitions_one_that_is_not_named_may_have_been_made_since() -> None:
    """A late copy took topics from the metadata, and from groups what they had committed."""
    made = ZkMetadataHarness()
    made.update_metadata(type=FULL)
    made.update_metadata(elsewhere())
    made.update_metadata(type=FULL)
    assert made.missing_checks == [{TOPIC_ID}]
    assert made.image.topics.id_of("t") == TOPIC_ID
    assert made.groups.calls == [("full_metadata_received", None)] * 2
    drop_topics(made.broker, made, [TOPIC_ID])
    assert "t" not in made.image.topics
    assert made.groups.calls[2:] == [("topics_deleted", {TOPIC_ID: "t"})]
    made.update_metadata(elsewhere(1))
    assert "t" not in made.image.topics, "a late request brings back no topic that is in the ledger"


def test_a_new_topic_of_a_name_that_was_read_at_the_start_takes_it_over_at_once() -> None:
    made = ZkMetadataHarness()
    made.update_metadata(elsewhere())
    made.update_metadata(elsewhere(), topic_id=OTHER_ID, type=FULL)
    assert made.image.topics.id_of("t") == OTHER_ID
    assert made.missing_checks == []


def test_the_configuration_of_the_next_topic_of_a_name_is_kept_and_read() -> None:
    """All configurations were read when it existed, and the request was about its predecessor."""
    made = ZkMetadataHarness()
    made.update_metadata(elsewhere())
    made.apply([config_record("t", "retention.ms", "5")])
    made.update_metadata(elsewhere(), topic_id=OTHER_ID, type=FULL)
    assert made.configs_read == [["t"], ["t"]]
    assert dict(made.image.configs.of(ResourceType.TOPIC, "t")) == {"retention.ms": "5"}


def test_what_is_refused_is_remembered_until_it_is_taken_or_goes() -> None:
    """Its name is its own by then, though a former topic's replicas are still here."""
    made = ZkMetadataHarness()
    made.update_metadata()
    made.lead(partition_state())
    made.update_metadata(elsewhere(), topic_id=OTHER_ID)
    assert made.facts.inconsistent_ids == {"t": OTHER_ID}
    assert made.configs_read == [["t"]], "its configuration would be the former one's"
    made.update_metadata(known(leader=DYING), topic_id=OTHER_ID)
    assert made.facts.inconsistent_ids == {}
    made.update_metadata(elsewhere(), topic_id=NEXT_ID)
    drop_topics(made.broker, made, [TOPIC_ID])
    assert made.facts.inconsistent_ids == {"t": NEXT_ID}
    made.update_metadata(elsewhere(), topic_id=NEXT_ID)
    assert (made.facts.inconsistent_ids, made.image.topics.id_of("t")) == ({}, NEXT_ID)


def test_metadata_is_full_from_the_first_full_update_of_a_registration_on() -> None:
    made = ZkMetadataHarness()
    made.update_metadata()
    assert not made.facts.has_full_metadata
    made.update_metadata(type=FULL)
    made.update_metadata(type=INCREMENTAL)
    assert made.facts.has_full_metadata
    made.update_metadata(broker_epoch=BROKER_EPOCH + 1)
    assert not made.facts.has_full_metadata


def test_metadata_is_not_full_before_a_new_controllers_full_update() -> None:
    """Its elections come first: a coordinator would take a recreated topic for the old one."""
    made = ZkMetadataHarness()
    made.update_metadata(type=FULL)
    again = {"controller_epoch": CONTROLLER_EPOCH + 1}
    made.lead(partition_state(), **again)
    assert not made.facts.has_full_metadata
    made.update_metadata(type=INCREMENTAL, **again)
    assert not made.facts.has_full_metadata
    made.update_metadata(type=FULL, **again)
    made.update_metadata(type=INCREMENTAL, **again)
    assert made.facts.has_full_metadata


def test_requests_to_an_older_registration_are_stale_after_one_to_a_newer() -> None:
    """The broker may not know its new registration yet; the request has its epoch."""
    made = ZkMetadataHarness()
    made.update_metadata(elsewhere(), broker_epoch=BROKER_EPOCH + 1, topic_id=OTHER_ID)
    assert made.update_metadata(elsewhere(), topic_id=TOPIC_ID) is Error.STALE_BROKER_EPOCH
    assert made.begin_lead(partition_state()).value.error_code == Error.STALE_BROKER_EPOCH
    assert made.begin_stop(0).value.error_code == Error.STALE_BROKER_EPOCH
    assert made.image.topics.id_of("t") == OTHER_ID
    made.facts.broker_epoch = BROKER_EPOCH + 1
    assert made.update_metadata(broker_epoch=BROKER_EPOCH) is Error.STALE_BROKER_EPOCH
    assert made.update_metadata(broker_epoch=BROKER_EPOCH + 1) is Error.NONE


def test_no_request_is_handled_before_the_broker_has_its_epoch() -> None:
    made = ZkMetadataHarness()
    made.facts.broker_epoch = NO_EPOCH
    with pytest.raises(AssertionError):
        made.update_metadata(broker_epoch=BROKER_EPOCH)


def test_what_is_older_than_known_is_passed_over() -> None:
    """What was read in ZooKeeper at the start may be newer than what is on its way here."""
    made = ZkMetadataHarness()
    made.update_metadata(known(leader_epoch=3, zk_version=8))
    made.update_metadata(known(leader=2, leader_epoch=2, zk_version=9))
    made.update_metadata(known(leader_epoch=3, zk_version=7, isr=(1,)))
    assert (state(made).leader, state(made).isr, state(made).partition_epoch) == (1, (1, 2), 8)


def test_a_move_and_a_recovery_are_known_from_leader_and_isr_alone() -> None:
    made = ZkMetadataHarness()
    made.update_metadata()
    made.lead(
        partition_state(
            replicas=(1, 2, 3),
            adding_replicas=(3,),
            removing_replicas=(2,),
            isr=(1,),
            leader_recovery_state=1,
        )
    )
    made.update_metadata(known(replicas=(1, 2, 3), isr=(1,)))
    now = state(made)
    assert (now.adding_replicas, now.removing_replicas) == ((3,), (2,))
    assert (now.leader_recovery_state, now.isr) == (1, (1,))
    # It ends with the leader's next AlterPartition, which a former replica gets only here.
    made.update_metadata(known(replicas=(1, 2, 3), isr=(1, 3), zk_version=1))
    assert (state(made).leader_recovery_state, state(made).isr) == (0, (1, 3))
    made.update_metadata(known(replicas=(1, 3), isr=(1, 3), leader_epoch=1, zk_version=2))
    assert state(made).removing_replicas == ()


def test_a_live_brokers_offline_replica_is_in_a_failed_log_dir() -> None:
    made = ZkMetadataHarness()
    made.update_metadata(known(offline_replicas=(2,)), brokers=(1, 2))
    assert state(made).directories == (DIRECTORY_MIGRATING, DIRECTORY_LOST)
    made.update_metadata(known(offline_replicas=(2,)), brokers=(1,))
    assert state(made).directories == (DIRECTORY_MIGRATING, DIRECTORY_MIGRATING)


def test_kafka_1355_a_leader_of_minus_two_ends_the_topic() -> None:
    made = ZkMetadataHarness()
    made.update_metadata()
    made.lead(partition_state(0), partition_state(1))
    made.update_metadata(known(0, leader=DYING), known(1, leader=DYING))
    assert "t" not in made.image.topics
    assert made.partition_dirs() == []
    assert made.groups.calls[-1] == ("topics_deleted", {TOPIC_ID: "t"})
    assert made.update_metadata(known(leader=DYING)) is Error.NONE


def test_a_topic_of_another_id_does_not_take_replicas_away() -> None:
    made = ZkMetadataHarness()
    made.update_metadata()
    made.lead(partition_state())
    made.update_metadata(known(leader=2, replicas=(2, 3), leader_epoch=9), topic_id=OTHER_ID)
    made.update_metadata(known(leader=DYING), topic_id=OTHER_ID)
    assert made.partition_dirs() == ["t-0"]
    assert made.broker.replicas.partition("t", 0).is_leader


def test_the_configuration_of_a_topic_that_is_new_is_read() -> None:
    made = ZkMetadataHarness()
    made.update_metadata(known(leader=2, replicas=(2, 3)))
    made.update_metadata(known(leader=2, replicas=(2, 3), leader_epoch=1))
    assert made.configs_read == [["t"]]


def test_epochs() -> None:
    made = ZkMetadataHarness()
    made.update_metadata(controller_epoch=9)
    assert made.update_metadata(controller_epoch=8) is Error.STALE_CONTROLLER_EPOCH
    assert made.update_metadata(broker_epoch=3) is Error.STALE_BROKER_EPOCH
    assert made.update_metadata(broker_epoch=-1, controller_epoch=9) is Error.NONE


def test_the_end_of_a_move_is_known_to_a_broker_that_is_no_replica_any_more() -> None:
    """LeaderAndIsr is sent to replicas alone."""
    made = ZkMetadataHarness()
    made.update_metadata()
    made.lead(partition_state(replicas=(1, 2, 3), adding_replicas=(3,), removing_replicas=(1,)))
    made.update_metadata(known(replicas=(2, 3), isr=(2, 3), leader=2, leader_epoch=9, zk_version=9))
    assert (state(made).adding_replicas, state(made).removing_replicas) == ((), ())


def test_a_late_copy_of_an_earlier_request_does_not_bring_a_deleted_topic_back() -> None:
    """It was sent again where no answer came; the copy on the broken connection arrives last."""
    made = ZkMetadataHarness()
    made.update_metadata(known())
    made.update_metadata(known(leader=DYING))
    assert made.update_metadata(known(1, leader=2)) is Error.NONE
    assert made.lead(partition_state(0)) == {0: Error.UNKNOWN_TOPIC_ID}
    assert "t" not in made.image.topics


def test_a_topic_that_never_was_here_does_not_come_after_its_end_either() -> None:
    made = ZkMetadataHarness()
    made.update_metadata(known(leader=DYING))
    made.update_metadata(known())
    assert "t" not in made.image.topics


def test_a_rejected_deleted_topic_is_logged_once_a_controller_epoch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Who puts a topic's znode back finds out why it stays dead, and what helps."""

    def lines() -> list[str]:
        return [each.getMessage() for each in caplog.records if "rejected" in each.getMessage()]

    made = ZkMetadataHarness()
    made.update_metadata(known(leader=DYING))
    assert lines() == []
    made.update_metadata(known())
    made.lead(partition_state(0))
    [text] = lines()
    assert text.startswith(f"topic t with the id {uuid_text(TOPIC_ID)} rejected")
    made.update_metadata(known(leader=DYING), controller_epoch=CONTROLLER_EPOCH + 1)
    made.update_metadata(known(), controller_epoch=CONTROLLER_EPOCH + 1)
    assert len(lines()) == 2


def test_a_later_controller_may_speak_of_a_topic_whose_deletion_an_earlier_one_began() -> None:
    made = ZkMetadataHarness()
    made.update_metadata(known(leader=DYING))
    made.update_metadata(known(), controller_epoch=CONTROLLER_EPOCH + 1)
    assert state(made).leader == 1
