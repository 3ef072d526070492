"""A log directory fails on a live broker: the replicas concerned, and the new leaders.

Method: a cluster, the broker's response, the image after it and after the broker's next start.
"""

from ottla.base.ids import NO_LEADER
from ottla.controller.elections.elections import elect_after_failover
from ottla.controller.keys import PartitionKey
from ottla.controller.partitions.isr import IsrChange, alter_partition
from ottla.controller.zookeeper.broker_changes import process_broker_change
from ottla.controller.zookeeper.offline_log_dirs import take_replicas_offline
from ottla.metadata.image import ClusterImage
from ottla.metadata.topics import DIRECTORY_LOST, DIRECTORY_MIGRATING
from tests.unit.controller.builders import after, context
from tests.unit.controller.model_brokers import (
    CONFIG,
    Ids,
    a_broker,
    change,
    cluster_image,
    compare,
    led,
    never_led,
    of,
    registered,
    topic,
    topic_id,
)

T0, T1 = PartitionKey("t", 0), PartitionKey("t", 1)


def failed(image: ClusterImage, broker_id: int, *keys: PartitionKey) -> ClusterImage:
    step = take_replicas_offline(image, CONFIG, broker_id, keys)
    assert not step.atomic or not step.records
    return after(image, step)


def state(image: ClusterImage, partition_id: int = 0) -> tuple[int, Ids, int]:
    partition = of(image, "t", partition_id)
    return partition.leader, partition.isr, partition.leader_epoch


def test_another_replica_leads_after_the_leaders_log_dir_failed() -> None:
    image = failed(cluster_image([1, 2], topic("t", led([1, 2]), led([1, 2]))), 1, T0)
    assert state(image) == (2, (2,), 4)
    assert of(image).directories == (DIRECTORY_LOST, DIRECTORY_MIGRATING)
    assert of(image, "t", 1) == led([1, 2])


def test_a_follower_in_a_failed_log_dir_leaves_the_isr() -> None:
    image = failed(cluster_image([1, 2], topic("t", led([1, 2]))), 2, T0)
    assert state(image) == (1, (1,), 3)


def test_kafka_708_the_last_in_sync_replica_stays_in_the_isr_without_leading() -> None:
    image = failed(cluster_image([1, 2], topic("t", led([1, 2], [1]))), 1, T0)
    assert state(image) == (NO_LEADER, (1,), 4)
    assert elect_after_failover(image, CONFIG).records == ()


def test_kafka_7313_the_same_answer_again_changes_nothing() -> None:
    image = failed(cluster_image([1, 2], topic("t", led([1, 2]))), 1, T0, T0)
    assert take_replicas_offline(image, CONFIG, 1, [T0]).records == ()


def test_what_a_broker_does_not_hold_changes_nothing() -> None:
    image = cluster_image([1, 2], topic("t", led([1])))
    unknown = PartitionKey("u", 0)
    assert take_replicas_offline(image, CONFIG, 2, [T0, T1, unknown]).records == ()
    assert take_replicas_offline(image, CONFIG, 3, [T0]).records == ()


def test_a_partition_that_nobody_ever_led_stays_so() -> None:
    image = failed(cluster_image([1, 2], topic("t", never_led(1, 2))), 1, T0)
    assert state(image) == (NO_LEADER, (), -1)


def test_both_of_two_log_dirs_may_fail() -> None:
    image = failed(cluster_image([1, 2], topic("t", led([1, 2]))), 1, T0)
    image = failed(image, 2, T0)
    assert state(image) == (NO_LEADER, (2,), 5)


def test_a_shutting_down_leader_leads_on_when_a_follower_s_log_dir_fails() -> None:
    leaving = a_broker(1, in_controlled_shutdown=True)
    image = failed(cluster_image([leaving, 2], topic("t", led([1, 2]))), 2, T0)
    assert state(image) == (1, (1,), 3)


def test_a_replica_in_a_lost_log_dir_is_never_elected_not_even_uncleanly() -> None:
    unclean = context({"unclean.leader.election.enable": "true"}).config
    image = failed(cluster_image([1, 2], topic("t", led([1, 2], [1]))), 2, T0)
    delta = change(image, compare(image, registered(a_broker(2))))
    followed = after(delta.image, process_broker_change(delta.image, unclean, delta))
    assert state(followed) == (NO_LEADER, (1,), 4)


def test_the_next_start_of_the_broker_resets_its_lost_directories() -> None:
    image = failed(cluster_image([1, 2], topic("t", led([1, 2], [1]))), 1, T0)
    delta = change(image, compare(image, registered(a_broker(1, epoch=500), a_broker(2))))
    image = after(delta.image, process_broker_change(delta.image, CONFIG, delta))
    assert of(image).directories == (DIRECTORY_MIGRATING, DIRECTORY_MIGRATING)
    assert state(image) == (1, (1,), 5)


def test_later_changes_keep_a_lost_directory() -> None:
    image = failed(cluster_image([1, 2, 3], topic("t", led([1, 2, 3]))), 1, T0)
    partition = of(image)
    wanted = IsrChange(
        topic_id=topic_id("t"),
        partition_id=0,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        isr=((2, -1),),
    )
    decided = alter_partition(image, [wanted], broker_id=2, broker_epoch=102, context=context())
    assert of(after(image, decided)).directories[0] == DIRECTORY_LOST
