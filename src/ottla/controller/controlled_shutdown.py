"""A broker asks to go, where it does so by a request of its own (ControlledShutdown).

It gives up what it leads and leaves the in-sync replicas, as far as others take over: nobody is
elected who may lack records, and nobody's only in-sync replica is taken from it. What it must go
on leading is its answer; it asks again, and goes in the end. Partitions with one replica have
nowhere to go and are not counted.

That it is on its way out is the controller's to know, and no one else's: a new controller hears
it from the broker's next request. It is noted last, so that whoever decides half of this anew
finds all of it to do; brokers that are told of the note first heard of all that moved.
Source: KafkaController.doControlledShutdown, Kafka 3.9; KIP-380. In KRaft, `brokers` decides.
"""

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_LEADER
from ottla.controller.elections import RulesByLeader, partitions
from ottla.controller.keys import PartitionKey
from ottla.controller.partition_change import ChangeContext, PartitionTarget, build_change
from ottla.controller.step import Decision, Step
from ottla.metadata.brokers import BrokerImage
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.records import BrokerRegistrationChangeRecord, Record

ANY_BROKER_EPOCH = -1
"""What a broker says that does not know its epoch."""


def controlled_shutdown(
    image: ClusterImage, config: NodeConfig, broker_id: int, broker_epoch: int
) -> Decision[tuple[PartitionKey, ...]]:
    """Let a broker go; the reply names what it leads still though there are other replicas.

    Raises: ApiError: BROKER_NOT_AVAILABLE for an unknown broker; STALE_BROKER_EPOCH for the
            request of a process that is not the present one. A newer epoch than the known one is
            taken: its registration will be heard of (KAFKA-9839).
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise ApiError(Error.BROKER_NOT_AVAILABLE, f"Broker {broker_id} is not alive.")
    if broker_epoch != ANY_BROKER_EPOCH and broker_epoch < broker.epoch:
        raise ApiError(
            Error.STALE_BROKER_EPOCH,
            f"Broker {broker_id} has the epoch {broker.epoch}, but it said {broker_epoch}.",
        )
    rules = RulesByLeader(image, config, without=broker_id)
    records: list[Record] = []
    remaining: list[PartitionKey] = []
    for topic, partition_id, partition in partitions(image):
        if broker_id not in partition.isr or partition.leader == NO_LEADER:
            continue
        if len(partition.replicas) == 1:
            continue
        context = rules.of(partition.leader).change_context(topic.name)
        remaining_isr = _remaining_isr(partition, broker_id, context)
        if not remaining_isr:
            remaining.append(PartitionKey(topic.name, partition_id))
            continue
        record = build_change(
            topic.id, partition_id, partition, PartitionTarget(isr=remaining_isr), context
        )
        if record is not None:
            records.append(record)
    records += _shutdown_record(broker)
    return Decision(Step(tuple(records), atomic=False), tuple(remaining))


def _remaining_isr(
    partition: PartitionImage, broker_id: int, context: ChangeContext
) -> tuple[int, ...]:
    """Return the ISR without a broker: where it leads, without all that cannot take over."""
    return tuple(
        each
        for each in partition.isr
        if each != broker_id
        and (
            partition.leader != broker_id or context.is_acceptable(each, partition.directory(each))
        )
    )


def _shutdown_record(broker: BrokerImage) -> list[Record]:
    if broker.in_controlled_shutdown:
        return []
    return [
        BrokerRegistrationChangeRecord(
            broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=1
        )
    ]
