"""One topic whose partitions move: the steps of its life, made by the real deciders."""

from ottla.base.errors import Error
from ottla.controller.elections.elections import elect_after_unfencing, remove_from_isrs
from ottla.controller.partitions.isr import IsrChange, alter_partition
from ottla.controller.partitions.reassignment import Target, alter_reassignments
from ottla.metadata.configs import ResourceType
from ottla.metadata.image import ClusterImage, PartitionImage, TopicImage
from ottla.metadata.records import (
    ConfigRecord,
    FenceBrokerRecord,
    RemoveTopicRecord,
    UnfenceBrokerRecord,
)
from ottla.metadata.topics import topic_records

from .builders import advance, after, broker, cluster, context, uuid

ID = uuid("topic")
SIX = cluster(*map(broker, range(1, 7)))
CONTEXT = context()
Ids = tuple[int, ...]


def cluster_image(
    replicas: Ids, isr: Ids | None = None, leader: int | None = None, count: int = 1
) -> ClusterImage:
    """Six brokers and the topic t."""
    topic = TopicImage(name="t", id=ID)
    for partition_id in range(count):
        partition = PartitionImage(
            replicas=replicas,
            directories=tuple(uuid(f"dir-{each}") for each in replicas),
            isr=replicas if isr is None else isr,
            leader=replicas[0] if leader is None else leader,
            leader_epoch=5,
        )
        topic = topic.with_partition(partition_id, partition)
    return advance(SIX, topic_records(topic))


def of(image: ClusterImage, partition_id: int = 0) -> PartitionImage:
    topic = image.topics.by_name("t")
    assert topic is not None
    return topic.partitions[partition_id]


def reassign(image: ClusterImage, target: Ids | None, partition_id: int = 0) -> ClusterImage:
    """Return the image after a reassignment, or a cancellation, that is accepted."""
    decided = alter_reassignments(
        image, [Target("t", partition_id, target)], may_change_factor=True, context=CONTEXT
    )
    [answer] = decided.reply
    assert (answer.error, answer.message) == (Error.NONE, None)
    return after(image, decided)


def refused(image: ClusterImage, target: Target, *, may_change_factor: bool = True) -> Error:
    """Return why a reassignment is refused; that changes nothing."""
    decided = alter_reassignments(
        image, [target], may_change_factor=may_change_factor, context=CONTEXT
    )
    [answer] = decided.reply
    assert decided.step.records == ()
    assert answer.message or answer.error is Error.NONE
    return answer.error


def proposed(image: ClusterImage, *isr: int) -> tuple[Error, ClusterImage]:
    """Return the answer to the leader's AlterPartition, and the image after it."""
    partition = of(image)
    leader = image.brokers[partition.leader]
    wanted = IsrChange(
        topic_id=ID,
        partition_id=0,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        isr=tuple((each, image.brokers[each].epoch) for each in isr),
    )
    decided = alter_partition(
        image, [wanted], broker_id=leader.id, broker_epoch=leader.epoch, context=CONTEXT
    )
    return decided.reply[0].error, after(image, decided)


def synced(image: ClusterImage, *isr: int) -> ClusterImage:
    """Return the image after the leader reported these replicas in sync."""
    error, changed = proposed(image, *isr)
    assert error in (Error.NONE, Error.NEW_LEADER_ELECTED)
    return changed


def dead(image: ClusterImage, broker_id: int) -> ClusterImage:
    """Return the image after a broker was fenced."""
    changes = list(remove_from_isrs(image, CONTEXT.config, broker_id))
    epoch = image.brokers[broker_id].epoch
    return advance(image, [*changes, FenceBrokerRecord(id=broker_id, epoch=epoch)])


def alive(image: ClusterImage, broker_id: int) -> ClusterImage:
    """Return the image after a broker was unfenced."""
    changes = list(elect_after_unfencing(image, CONTEXT.config, broker_id))
    epoch = image.brokers[broker_id].epoch
    return advance(image, [*changes, UnfenceBrokerRecord(id=broker_id, epoch=epoch)])


def configured(image: ClusterImage, name: str, value: str) -> ClusterImage:
    record = ConfigRecord(
        resource_type=ResourceType.TOPIC, resource_name="t", name=name, value=value
    )
    return advance(image, [record])


def state(partition: PartitionImage) -> tuple[Ids, Ids, Ids, Ids, int]:
    """Return replicas, adding, removing, ISR and leader."""
    return (
        partition.replicas,
        partition.adding_replicas,
        partition.removing_replicas,
        partition.isr,
        partition.leader,
    )


def moved_topic(replicas: Ids) -> TopicImage:
    topic = cluster_image(replicas).topics.by_name("t")
    assert topic is not None
    return topic


def cluster_with(image: ClusterImage, replicas: Ids) -> ClusterImage:
    if image.topics.by_id(ID) is not None:
        image = advance(image, [RemoveTopicRecord(topic_id=ID)])
    return advance(image, topic_records(moved_topic(replicas)))
