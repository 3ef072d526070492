"""LeaderAndIsr makes a broker lead and follow, each partition by itself, checked in Kafka's order.

Method: a broker with logs on a disk in memory; requests through the codec.
"""

import pytest

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.base.pending import Pending
from ottla.broker.dispatch import load_apis
from ottla.metadata.records import ConfigRecord
from ottla.wire.messages import metadata

from ..harness import TOPIC_ID
from .zk_metadata_harness import (
    BROKER_EPOCH,
    CONTROLLER_EPOCH,
    ZkMetadataHarness,
    known,
    partition_state,
)

OTHER_ID = Uuid(b"o" * 16)


def test_a_new_partition_is_led_and_another_one_followed() -> None:
    made = ZkMetadataHarness()
    made.update_metadata()
    assert made.lead(partition_state(0), partition_state(1, leader=2)) == {
        0: Error.NONE,
        1: Error.NONE,
    }
    assert made.broker.replicas.partition("t", 0).is_leader
    assert made.broker.replicas.partition("t", 1).leader == 2
    assert len(made.broker.fetchers) == 1
    assert made.partition_dirs() == ["t-0", "t-1"]
    assert made.image.topics.id_of("t") == TOPIC_ID


def test_an_older_broker_epoch_is_stale_first_of_all() -> None:
    made = ZkMetadataHarness()
    made.update_metadata()
    stale = made.begin_lead(partition_state(), broker_epoch=BROKER_EPOCH - 1, controller_epoch=1)
    assert stale.value.error_code == Error.STALE_BROKER_EPOCH
    assert "t" not in made.image.topics


@pytest.mark.parametrize("epoch", [-1, BROKER_EPOCH, BROKER_EPOCH + 1])
def test_kafka_9839_a_newer_broker_epoch_is_taken_and_so_is_none(epoch: int) -> None:
    assert ZkMetadataHarness().lead(partition_state(), broker_epoch=epoch) == {0: Error.NONE}


def test_an_older_controller_is_refused_and_a_newer_one_adopted() -> None:
    made = ZkMetadataHarness()
    made.lead(partition_state(), controller_epoch=9)
    assert (made.facts.controller_id, made.facts.controller_epoch) == (3, 9)
    stale = made.begin_lead(partition_state(1), controller_epoch=8)
    assert stale.value.error_code == Error.STALE_CONTROLLER_EPOCH
    assert made.lead(partition_state(1), controller_epoch=10) == {1: Error.NONE}


def test_an_older_leader_epoch_is_stale_and_the_same_one_a_repetition() -> None:
    made = ZkMetadataHarness()
    now = {"leader_epoch": 5, "partition_epoch": 9}
    made.lead(partition_state(**now))
    assert made.lead(partition_state(**now)) == {0: Error.NONE}
    assert made.lead(partition_state(leader_epoch=5, partition_epoch=10, isr=(1,))) == {
        0: Error.NONE
    }
    assert made.broker.replicas.partition("t", 0).isr == (1,)
    stale = {0: Error.STALE_CONTROLLER_EPOCH}
    assert made.lead(partition_state(leader_epoch=4, partition_epoch=11)) == stale
    assert made.lead(partition_state(leader_epoch=5, partition_epoch=9)) == stale
    assert made.broker.replicas.partition("t", 0).isr == (1,)


def test_one_bad_partition_does_not_hold_up_the_others() -> None:
    made = ZkMetadataHarness()
    assert made.lead(partition_state(0, replicas=(2, 3)), partition_state(1)) == {
        0: Error.UNKNOWN_TOPIC_OR_PARTITION,
        1: Error.NONE,
    }
    assert made.partition_dirs() == ["t-1"]


def test_kafka_12835_another_id_for_a_topic_that_is_here_is_refused() -> None:
    made = ZkMetadataHarness()
    made.lead(partition_state())
    assert made.lead(partition_state(), topic_id=OTHER_ID) == {0: Error.INCONSISTENT_TOPIC_ID}
    assert made.partition_dirs() == ["t-0"]
    assert made.image.topics.id_of("t") == TOPIC_ID


def test_a_topic_that_was_made_again_while_this_broker_had_none_of_it_is_taken() -> None:
    """It was disconnected while the old one was deleted, and missed the request."""
    made = ZkMetadataHarness()
    made.update_metadata(known(leader=2, replicas=(2, 3), isr=(2, 3)), topic_id=OTHER_ID)
    assert made.lead(partition_state()) == {0: Error.NONE}
    assert made.image.topics.id_of("t") == TOPIC_ID


def test_a_topic_without_an_id_is_refused() -> None:
    assert ZkMetadataHarness().lead(partition_state(), topic_id=NO_UUID) == {
        0: Error.UNKNOWN_TOPIC_ID
    }


def test_kafka_7313_an_offline_log_dir_has_the_same_error_each_time() -> None:
    made = ZkMetadataHarness()
    made.lead(partition_state())
    made.broker.replicas.storage_failed(made.broker.replicas.partition("t", 0), OSError(5, "io"))
    for epoch in (1, 1, 2):
        again = made.lead(partition_state(leader_epoch=epoch, partition_epoch=epoch, is_new=False))
        assert again == {0: Error.KAFKA_STORAGE_ERROR}


def test_a_replica_whose_name_is_taken_has_the_same_error_each_time() -> None:
    """Or it would lead for ever without a log, while a healthy replica stands beside it."""
    made = ZkMetadataHarness()
    made.disk.link("/logs/t-0", "/not-mounted/t-0")
    for epoch in (0, 0, 1):
        answers = made.lead(
            partition_state(leader_epoch=epoch, partition_epoch=epoch), partition_state(1)
        )
        assert answers[0] is Error.KAFKA_STORAGE_ERROR
    assert answers[1] is not Error.KAFKA_STORAGE_ERROR
    assert made.broker.log_dirs.offline_dirs == ()


def test_the_log_of_a_new_topic_is_made_with_its_configuration() -> None:
    """There is no notification of a topic's first configuration before the topic's request."""
    made = ZkMetadataHarness()
    made.config_read = Pending()
    asked = made.begin_lead(partition_state())
    assert made.configs_read == [["t"]]
    assert not asked.done
    assert made.partition_dirs() == []
    record = ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value="2")
    made.apply([record])
    made.config_read.complete(None)
    assert asked.value.topics[0].partition_errors[0].error_code == Error.NONE
    assert made.broker.replicas.partition("t", 0).min_insync_replicas == 2
    made.lead(partition_state(1))
    assert made.configs_read == [["t"]]


def test_the_config_of_a_topic_with_a_former_topics_name_is_read_again() -> None:
    made = ZkMetadataHarness()
    made.update_metadata(known(leader=2, replicas=(2, 3), isr=(2, 3)), topic_id=OTHER_ID)
    made.config_read = Pending()
    asked = made.begin_lead(partition_state())
    assert made.configs_read == [["t"], ["t"]]
    record = ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value="2")
    made.apply([record])
    made.config_read.complete(None)
    assert asked.value.topics[0].partition_errors[0].error_code == Error.NONE
    assert made.broker.replicas.partition("t", 0).min_insync_replicas == 2


def test_a_newer_controller_that_spoke_meanwhile_wins() -> None:
    made = ZkMetadataHarness()
    made.config_read = Pending()
    late = made.begin_lead(partition_state())
    made.update_metadata(controller_epoch=CONTROLLER_EPOCH + 1)
    made.config_read.complete(None)
    assert late.value.error_code == Error.STALE_CONTROLLER_EPOCH
    assert made.partition_dirs() == []


def test_only_brokers_of_zookeeper_clusters_serve_it_unadvertised() -> None:
    for key in (4, 5, 6):
        api = load_apis()[key].api
        assert api.answers_on(zookeeper=False) == frozenset()
        assert not api.is_for_clients


def partitions_in_metadata(made: ZkMetadataHarness) -> list[int]:
    """Return the partitions in a Metadata response."""
    named = metadata.MetadataRequest(topics=None)
    return [
        each.partition_index for topic in made.ask(named, 12).topics for each in topic.partitions
    ]


def test_clients_see_all_partitions_of_a_new_topic_or_none() -> None:
    """They count the partitions, and would refuse to write to the others."""
    made = ZkMetadataHarness()
    made.lead(partition_state(1))
    assert partitions_in_metadata(made) == []
    made.update_metadata(known(0, leader=2, replicas=(2, 3)), known(1))
    assert partitions_in_metadata(made) == [0, 1]
    made.lead(partition_state(1, leader_epoch=1), partition_state(3))
    assert partitions_in_metadata(made) == [0, 1]
    made.update_metadata(known(2, leader=2, replicas=(2, 3)), known(3))
    assert partitions_in_metadata(made) == [0, 1, 2, 3]
