"""What a broker led in a former life is over, from its return to the election that follows.

Method: a small cluster, one change after another; `test_broker_requests` has the requests.
"""

from ottla.controller.zookeeper.broker_changes import process_broker_change
from ottla.controller.zookeeper.broker_requests import delta_batch, full_batch, resend_batch
from ottla.controller.zookeeper.previous_broker_epochs import (
    PreviousEpochs,
    previous_epochs_after,
    previous_epochs_at_start,
)
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import PartitionChangeRecord, RemoveTopicRecord
from ottla.metadata.topics import TopicImage, topic_records
from tests.unit.controller.model_brokers import (
    CONFIG,
    a_broker,
    change,
    cluster_image,
    compare,
    leads,
    led,
    metadata,
    registered,
    sent,
    topic,
    topic_id,
    view,
)

ID = topic_id("t")


def bounced(before: ClusterImage, epoch: int = 500) -> ClusterDelta:
    """Return broker 2 as another process."""
    return change(before, compare(before, registered(a_broker(1), a_broker(2, epoch=epoch))))


def two_partitions() -> ClusterImage:
    return cluster_image([1, 2], topic("t", led([2, 1]), led([1, 2])))


def test_what_it_led_is_over_from_its_return_to_the_election() -> None:
    delta = bounced(two_partitions())
    over = previous_epochs_after({}, delta)
    assert over == {(ID, 0): 3}
    assert previous_epochs_after(over, bounced(delta.image, 600)) == {(ID, 0): 3}
    decided = change(delta.image, process_broker_change(delta.image, CONFIG, delta).records)
    assert previous_epochs_after(over, decided) == {}


def test_a_broker_that_restarts_before_its_failure_is_decided_has_a_stale_leader_epoch() -> None:
    before = two_partitions()
    died = change(before, compare(before, registered(a_broker(1))))
    assert previous_epochs_after({}, died) == {}
    assert previous_epochs_after({}, bounced(died.image, 102)) == {(ID, 0): 3}


def test_an_election_of_the_very_change_is_of_the_new_life() -> None:
    before = two_partitions()
    elected = PartitionChangeRecord(partition_id=1, topic_id=ID, leader=2)
    records = compare(before, registered(a_broker(1), a_broker(2, epoch=500)))
    assert previous_epochs_after({}, change(before, [*records, elected])) == {(ID, 0): 3}


def test_a_topic_of_the_same_name_is_another_one() -> None:
    delta = bounced(two_partitions())
    again = TopicImage(name="t", id=topic_id("another")).with_partition(0, led([2, 1]))
    records = [RemoveTopicRecord(topic_id=ID), *topic_records(again)]
    assert (
        previous_epochs_after(previous_epochs_after({}, delta), change(delta.image, records)) == {}
    )


def test_a_controller_finds_what_was_over_before_its_term() -> None:
    since = {("t", 0): frozenset({2}), ("t", 1): frozenset({2}), ("gone", 0): frozenset({2})}
    assert previous_epochs_at_start(two_partitions(), since) == {(ID, 0): 3}


def heard_by_2(image: ClusterImage, over: PreviousEpochs) -> None:
    seen = view(image, previous_epochs=over)
    everything = sent(full_batch(seen), seen)
    assert {
        partition_id: each.leader for (_, partition_id), each in metadata(everything)[2].items()
    } == {
        0: -1,
        1: 1,
    }
    for requests in (everything, sent(resend_batch(seen, 2), seen)):
        assert [key.partition for broker_id, key in leads(requests) if broker_id == 2] == [1]


def test_no_request_meanwhile_names_it_as_a_leader() -> None:
    """A new controller's requests; those after a failed log directory; changes of others."""
    delta = bounced(two_partitions())
    over = previous_epochs_after({}, delta)
    heard_by_2(delta.image, over)
    shrunk = change(delta.image, [PartitionChangeRecord(partition_id=0, topic_id=ID, isr=(2,))])
    requests = sent(
        delta_batch(view(shrunk.image, previous_epochs=over), shrunk), view(shrunk.image)
    )
    assert {
        state.leader for states in metadata(requests).values() for state in states.values()
    } == {-1}
    assert leads(requests) == {}
