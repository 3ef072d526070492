"""Requests for topics that are being deleted: the leader -2, and nothing else.

Method: as in test_broker_requests.
"""

from dataclasses import replace

from ottla.controller.keys import PartitionKey
from ottla.controller.zookeeper.broker_requests import full_batch
from ottla.metadata.deletions import STARTED, DeletionImage, Policy, header_record, replicas_record
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import (
    BrokerRegistrationChangeRecord,
    ForgetDeletionRecord,
    PartitionChangeRecord,
    Record,
    RemoveTopicRecord,
)
from ottla.metadata.topics import topic_records
from tests.unit.controller.model_brokers import (
    a_broker,
    change,
    cluster_image,
    compare,
    kinds,
    leads,
    led,
    metadata,
    never_led,
    requests_of,
    sent,
    topic,
    topic_id,
    view,
)

T0 = PartitionKey("t", 0)
ID = topic_id("t")
TO_ALL = [(1, "metadata"), (2, "metadata"), (3, "metadata")]


def changed(**how: object) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=0, topic_id=ID, **how)  # type: ignore[arg-type]


def leaving(image: ClusterImage, broker_id: int) -> Record:
    epoch = image.brokers[broker_id].epoch
    return BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=epoch, in_controlled_shutdown=1
    )


ASKED = DeletionImage(topic_id=ID, name="t", policy=Policy.CLASSIC, asked_ms=1)
BEGINS = replicas_record(ID, 1, STARTED, [0])


def test_kafka_1355_a_topic_in_deletion_has_the_leader_minus_two() -> None:
    before = cluster_image([1, 2, 3], topic("t", led([1, 2])), topic("u", led([1])))
    queued = change(before, [header_record(ASKED)])
    assert requests_of(queued) == []  # It may have to wait, and is served so long.
    requests = requests_of(change(queued.image, [BEGINS]))
    assert kinds(requests) == TO_ALL
    assert [
        {key: (state.leader, state.leader_epoch, state.isr) for key, state in states.items()}
        for states in metadata(requests).values()
    ] == [{T0: (-2, 0, (1, 2))}] * 3


def test_a_deletion_that_is_queued_and_begins_at_once_is_sent_once() -> None:
    before = cluster_image([1, 2], topic("t", led([1, 2]), never_led(2)))
    begun = change(before, [header_record(ASKED), BEGINS])
    # Of the one that nobody ever led a broker may have read in ZooKeeper.
    assert metadata(requests_of(begun))[2].keys() == {T0, T0._replace(partition=1)}
    more = change(begun.image, [replicas_record(ID, 2, STARTED, [0])])
    assert requests_of(more) == []


def test_latent_l6_a_topic_in_deletion_gets_no_leader_and_isr() -> None:
    """Brokers that have deleted a replica would begin it again, and delete it again."""
    before = cluster_image([1, 2, 3], topic("t", led([1, 2])))
    image = change(before, [header_record(ASKED), BEGINS]).image
    assert requests_of(change(image, [changed(leader=2, isr=(2,))])) == []
    requests = sent(full_batch(view(image)), view(image))
    assert kinds(requests) == TO_ALL
    assert metadata(requests)[1][T0].leader == -2
    came = compare(image, {**image.brokers, 4: a_broker(4)})
    assert metadata(requests_of(change(image, came)))[4][T0].leader == -2
    assert requests_of(change(image, [leaving(image, 2)])) == []


def test_the_end_of_a_deletion_sends_nothing_and_a_new_topic_of_the_name_does() -> None:
    before = cluster_image([1, 2], topic("t", led([1, 2])))
    image = change(before, [header_record(ASKED), BEGINS]).image
    done = [RemoveTopicRecord(topic_id=ID), header_record(replace(ASKED, finished_ms=2))]
    gone = change(image, done)
    assert requests_of(gone) == []
    again = replace(topic("t", led([1, 2])), id=topic_id("another"))
    requests = requests_of(change(gone.image, topic_records(again)))
    assert all(each.is_new for each in leads(requests).values())
    assert metadata(requests)[1][T0].leader == 1
    at_once = requests_of(change(image, [*done, *topic_records(again)]))
    assert kinds(at_once) == kinds(requests)


def test_kafka_1742_the_end_of_one_deletion_leaves_all_other_topics_whole() -> None:
    """There, what came later in an unordered collection lost its state, or was not sent."""
    others = [topic(name, *[led([1, 2])] * 3) for name in "abcdefgh"]
    before = cluster_image([1, 2], *others, topic("t", led([1, 2])))
    image = change(before, [header_record(ASKED), BEGINS]).image
    gone = change(image, [RemoveTopicRecord(topic_id=ID)]).image
    assert [each.name for each in gone.topics] == [*"abcdefgh"]
    assert all(gone.topics.by_name(each.name) == each for each in others)
    requests = sent(full_batch(view(gone)), view(gone))
    wanted = {PartitionKey(name, partition_id) for name in "abcdefgh" for partition_id in range(3)}
    assert [set(states) for states in metadata(requests).values()] == [wanted, wanted]
    assert {key for _, key in leads(requests)} == wanted


def test_a_deletion_cancelled_before_it_began_sends_nothing() -> None:
    before = cluster_image([1, 2], topic("t", led([1, 2])))
    queued = change(before, [header_record(ASKED)]).image
    off = change(queued, [ForgetDeletionRecord(topic_id=ID)])
    assert requests_of(off) == []
    assert leads(requests_of(change(off.image, [changed(leader=2)])))


def test_a_topic_that_somebody_removed_by_hand_stays_with_its_brokers() -> None:
    before = cluster_image([1, 2], topic("t", led([1, 2])))
    assert requests_of(change(before, [RemoveTopicRecord(topic_id=ID)])) == []
