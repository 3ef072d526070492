"""UpdateMetadata tells who is there and who leads, and with a leader of -2 that a topic goes.

Method: a broker with logs on a disk in memory; requests through the codec.
"""

from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import NO_EPOCH, Uuid, uuid_text
from ottla.broker.zk_replica_drops import drop_topics
from ottla.metadata.configs import ResourceType
from ottla.metadata.topics import DIRECTORY_LOST, DIRECTORY_MIGRATING, PartitionImage
from ottla.wire.messages.update_metadata import (
    FULL,
    INCREMENTAL,
    UpdateMetadataPartitionState,
)

from ..world import TOPIC_ID, config_record
from .zk_metadata_world import BROKER_EPOCH, CONTROLLER_EPOCH, DYING, ZkMetadataWorld, known, told

OTHER_ID, NEXT_ID = Uuid(b"o" * 16), Uuid(b"n" * 16)


def state(made: ZkMetadataWorld, number: int = 0) -> PartitionImage:
    topic = made.image.topics.by_name("t")
    assert topic is not None
    return topic.partitions[number]


def test_brokers_are_all_that_are_named() -> None:
    made = ZkMetadataWorld()
    assert made.learn_metadata(brokers=(1, 2)) is Error.NONE
    made.learn_metadata(brokers=(1, 3))
    assert made.image.broker_ids() == [1, 3]
    third = made.image.brokers[3]
    assert (third.epoch, third.fenced, third.rack) == (NO_EPOCH, False, "r3")
    assert [(each.name, each.host, each.port) for each in third.endpoints] == [
        ("PLAINTEXT", "h3", 9092)
    ]
    assert made.broker.controller_id == 3


def test_the_same_word_again_changes_nothing() -> None:
    made = ZkMetadataWorld()
    made.learn_metadata(known())
    before = made.image
    made.learn_metadata(known())
    assert made.image is before


def test_partitions_that_are_not_named_stay() -> None:
    made = ZkMetadataWorld()
    made.learn_metadata(known(0), known(1))
    made.learn_metadata(known(1, leader=2, leader_epoch=1, zk_version=1))
    assert state(made, 0).leader == 1
    assert state(made, 1).leader == 2


def test_of_all_partitions_one_that_is_not_named_is_a_ghost_where_a_replica_of_it_is() -> None:
    """It was deleted, perhaps: the ledger is asked. Its name may have been used again."""
    made = ZkMetadataWorld()
    made.lead(told())
    made.learn_metadata(known(), type=FULL)
    made.learn_metadata(known(), topic_id=OTHER_ID, type=INCREMENTAL)
    assert made.doubts == []
    made.learn_metadata(known(), topic_id=OTHER_ID, type=FULL)
    made.learn_metadata(type=FULL)
    assert made.doubts == [{TOPIC_ID}] * 2
    assert made.folders() == ["t-0"]
    drop_topics(made.broker, made, [OTHER_ID])
    assert made.folders() == ["t-0"]
    drop_topics(made.broker, made, [TOPIC_ID])
    assert made.folders() == []
    assert "t" not in made.image.topics
    made.learn_metadata(known(), topic_id=OTHER_ID, type=FULL)
    assert made.image.topics.id_of("t") == OTHER_ID


def elsewhere(number: int = 0, **how: Any) -> UpdateMetadataPartitionState:
    return known(number, leader=2, replicas=(2, 3), isr=(2, 3), **how)


def test_of_all_partitions_one_that_is_not_named_may_have_been_made_since() -> None:
    """A late copy took topics from the metadata, and from groups what they had committed."""
    made = ZkMetadataWorld()
    made.learn_metadata(type=FULL)
    made.learn_metadata(elsewhere())
    made.learn_metadata(type=FULL)
    assert made.doubts == [{TOPIC_ID}]
    assert made.image.topics.id_of("t") == TOPIC_ID
    assert made.groups.heard == [("full_metadata_received", None)] * 2
    drop_topics(made.broker, made, [TOPIC_ID])
    assert "t" not in made.image.topics
    assert made.groups.heard[2:] == [("topics_deleted", {TOPIC_ID: "t"})]
    made.learn_metadata(elsewhere(1))
    assert "t" not in made.image.topics, "what the ledger knows to go is told of by no late copy"


def test_a_new_topic_of_a_name_that_was_read_at_the_start_takes_it_over_at_once() -> None:
    made = ZkMetadataWorld()
    made.learn_metadata(elsewhere())
    made.learn_metadata(elsewhere(), topic_id=OTHER_ID, type=FULL)
    assert made.image.topics.id_of("t") == OTHER_ID
    assert made.doubts == []


def test_the_configuration_of_the_next_topic_of_a_name_is_kept_and_read() -> None:
    """All configurations were read when it was there, and what was told was the one before it."""
    made = ZkMetadataWorld()
    made.learn_metadata(elsewhere())
    made.apply([config_record("t", "retention.ms", "5")])
    made.learn_metadata(elsewhere(), topic_id=OTHER_ID, type=FULL)
    assert made.learned == [["t"], ["t"]]
    assert dict(made.image.configs.of(ResourceType.TOPIC, "t")) == {"retention.ms": "5"}


def test_what_is_refused_is_remembered_until_it_is_taken_or_goes() -> None:
    """Its name is its own by then, though a former topic's replicas are still here."""
    made = ZkMetadataWorld()
    made.learn_metadata()
    made.lead(told())
    made.learn_metadata(elsewhere(), topic_id=OTHER_ID)
    assert made.facts.inconsistent_ids == {"t": OTHER_ID}
    assert made.learned == [["t"]], "its configuration would be the former one's"
    made.learn_metadata(known(leader=DYING), topic_id=OTHER_ID)
    assert made.facts.inconsistent_ids == {}
    made.learn_metadata(elsewhere(), topic_id=NEXT_ID)
    drop_topics(made.broker, made, [TOPIC_ID])
    assert made.facts.inconsistent_ids == {"t": NEXT_ID}
    made.learn_metadata(elsewhere(), topic_id=NEXT_ID)
    assert (made.facts.inconsistent_ids, made.image.topics.id_of("t")) == ({}, NEXT_ID)


def test_all_is_known_from_a_registration_s_first_word_of_all_partitions_on() -> None:
    made = ZkMetadataWorld()
    made.learn_metadata()
    assert not made.facts.has_full_metadata
    made.learn_metadata(type=FULL)
    made.learn_metadata(type=INCREMENTAL)
    assert made.facts.has_full_metadata
    made.learn_metadata(broker_epoch=BROKER_EPOCH + 1)
    assert not made.facts.has_full_metadata


def test_nor_is_all_known_that_a_new_controller_knows_before_it_has_told_of_all() -> None:
    """Its elections come first: a coordinator would take a topic that was made anew for the old."""
    made = ZkMetadataWorld()
    made.learn_metadata(type=FULL)
    again = {"controller_epoch": CONTROLLER_EPOCH + 1}
    made.lead(told(), **again)
    assert not made.facts.has_full_metadata
    made.learn_metadata(type=INCREMENTAL, **again)
    assert not made.facts.has_full_metadata
    made.learn_metadata(type=FULL, **again)
    made.learn_metadata(type=INCREMENTAL, **again)
    assert made.facts.has_full_metadata


def test_what_was_said_to_an_older_registration_is_late_once_a_newer_one_was_spoken_to() -> None:
    """The broker may not know yet that it is registered anew; of its epochs it has heard."""
    made = ZkMetadataWorld()
    made.learn_metadata(elsewhere(), broker_epoch=BROKER_EPOCH + 1, topic_id=OTHER_ID)
    assert made.learn_metadata(elsewhere(), topic_id=TOPIC_ID) is Error.STALE_BROKER_EPOCH
    assert made.begin_lead(told()).value.error_code == Error.STALE_BROKER_EPOCH
    assert made.begin_stop(0).value.error_code == Error.STALE_BROKER_EPOCH
    assert made.image.topics.id_of("t") == OTHER_ID
    made.facts.broker_epoch = BROKER_EPOCH + 1
    assert made.learn_metadata(broker_epoch=BROKER_EPOCH) is Error.STALE_BROKER_EPOCH
    assert made.learn_metadata(broker_epoch=BROKER_EPOCH + 1) is Error.NONE


def test_nothing_is_heard_before_the_broker_knows_its_epoch() -> None:
    made = ZkMetadataWorld()
    made.facts.broker_epoch = NO_EPOCH
    with pytest.raises(AssertionError):
        made.learn_metadata(broker_epoch=BROKER_EPOCH)


def test_what_is_older_than_known_is_passed_over() -> None:
    """What was read in ZooKeeper at the start may be newer than what is on its way here."""
    made = ZkMetadataWorld()
    made.learn_metadata(known(leader_epoch=3, zk_version=8))
    made.learn_metadata(known(leader=2, leader_epoch=2, zk_version=9))
    made.learn_metadata(known(leader_epoch=3, zk_version=7, isr=(1,)))
    assert (state(made).leader, state(made).isr, state(made).partition_epoch) == (1, (1, 2), 8)


def test_a_move_and_a_recovery_are_known_from_leader_and_isr_alone() -> None:
    made = ZkMetadataWorld()
    made.learn_metadata()
    made.lead(
        told(
            replicas=(1, 2, 3),
            adding_replicas=(3,),
            removing_replicas=(2,),
            isr=(1,),
            leader_recovery_state=1,
        )
    )
    made.learn_metadata(known(replicas=(1, 2, 3), isr=(1,)))
    now = state(made)
    assert (now.adding_replicas, now.removing_replicas) == ((3,), (2,))
    assert (now.leader_recovery_state, now.isr) == (1, (1,))
    # It ends with the leader's next AlterPartition, of which a former replica hears only here.
    made.learn_metadata(known(replicas=(1, 2, 3), isr=(1, 3), zk_version=1))
    assert (state(made).leader_recovery_state, state(made).isr) == (0, (1, 3))
    made.learn_metadata(known(replicas=(1, 3), isr=(1, 3), leader_epoch=1, zk_version=2))
    assert state(made).removing_replicas == ()


def test_a_live_broker_s_offline_replica_is_in_a_folder_that_failed() -> None:
    made = ZkMetadataWorld()
    made.learn_metadata(known(offline_replicas=(2,)), brokers=(1, 2))
    assert state(made).directories == (DIRECTORY_MIGRATING, DIRECTORY_LOST)
    made.learn_metadata(known(offline_replicas=(2,)), brokers=(1,))
    assert state(made).directories == (DIRECTORY_MIGRATING, DIRECTORY_MIGRATING)


def test_kafka_1355_a_leader_of_minus_two_ends_the_topic() -> None:
    made = ZkMetadataWorld()
    made.learn_metadata()
    made.lead(told(0), told(1))
    made.learn_metadata(known(0, leader=DYING), known(1, leader=DYING))
    assert "t" not in made.image.topics
    assert made.folders() == []
    assert made.groups.heard[-1] == ("topics_deleted", {TOPIC_ID: "t"})
    assert made.learn_metadata(known(leader=DYING)) is Error.NONE


def test_a_topic_of_another_id_does_not_take_replicas_away() -> None:
    made = ZkMetadataWorld()
    made.learn_metadata()
    made.lead(told())
    made.learn_metadata(known(leader=2, replicas=(2, 3), leader_epoch=9), topic_id=OTHER_ID)
    made.learn_metadata(known(leader=DYING), topic_id=OTHER_ID)
    assert made.folders() == ["t-0"]
    assert made.broker.replicas.partition("t", 0).is_leader


def test_the_configuration_of_a_topic_that_is_new_is_read() -> None:
    made = ZkMetadataWorld()
    made.learn_metadata(known(leader=2, replicas=(2, 3)))
    made.learn_metadata(known(leader=2, replicas=(2, 3), leader_epoch=1))
    assert made.learned == [["t"]]


def test_epochs() -> None:
    made = ZkMetadataWorld()
    made.learn_metadata(controller_epoch=9)
    assert made.learn_metadata(controller_epoch=8) is Error.STALE_CONTROLLER_EPOCH
    assert made.learn_metadata(broker_epoch=3) is Error.STALE_BROKER_EPOCH
    assert made.learn_metadata(broker_epoch=-1, controller_epoch=9) is Error.NONE


def test_the_end_of_a_move_is_known_to_a_broker_that_is_no_replica_any_more() -> None:
    """LeaderAndIsr tells it to replicas alone."""
    made = ZkMetadataWorld()
    made.learn_metadata()
    made.lead(told(replicas=(1, 2, 3), adding_replicas=(3,), removing_replicas=(1,)))
    made.learn_metadata(known(replicas=(2, 3), isr=(2, 3), leader=2, leader_epoch=9, zk_version=9))
    assert (state(made).adding_replicas, state(made).removing_replicas) == ((), ())


def test_a_late_copy_of_an_earlier_word_does_not_bring_a_deleted_topic_back() -> None:
    """It was sent again where no answer came; the copy on the broken connection arrives last."""
    made = ZkMetadataWorld()
    made.learn_metadata(known())
    made.learn_metadata(known(leader=DYING))
    assert made.learn_metadata(known(1, leader=2)) is Error.NONE
    assert made.lead(told(0)) == {0: Error.UNKNOWN_TOPIC_ID}
    assert "t" not in made.image.topics


def test_a_topic_that_never_was_here_does_not_come_after_its_end_either() -> None:
    made = ZkMetadataWorld()
    made.learn_metadata(known(leader=DYING))
    made.learn_metadata(known())
    assert "t" not in made.image.topics


def test_that_a_deleted_topic_is_refused_is_said_once_a_term(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Who puts a topic's znode back finds out why it stays dead, and what helps."""

    def said() -> list[str]:
        return [each.getMessage() for each in caplog.records if "rejected" in each.getMessage()]

    made = ZkMetadataWorld()
    made.learn_metadata(known(leader=DYING))
    assert said() == []
    made.learn_metadata(known())
    made.lead(told(0))
    [text] = said()
    assert text.startswith(f"topic t with the id {uuid_text(TOPIC_ID)} rejected")
    made.learn_metadata(known(leader=DYING), controller_epoch=CONTROLLER_EPOCH + 1)
    made.learn_metadata(known(), controller_epoch=CONTROLLER_EPOCH + 1)
    assert len(said()) == 2


def test_a_later_controller_may_speak_of_a_topic_whose_deletion_an_earlier_one_began() -> None:
    made = ZkMetadataWorld()
    made.learn_metadata(known(leader=DYING))
    made.learn_metadata(known(), controller_epoch=CONTROLLER_EPOCH + 1)
    assert state(made).leader == 1
