"""Controlled shutdown by request (ControlledShutdown, ZooKeeper mode).

The broker gives up its leaderships and leaves the in-sync replicas as far as others can take
over: no replica is elected that may lack records, and the last in-sync replica stays one. The
response names the partitions that it still leads; it retries, and stops in the end. Partitions
with one replica cannot move and are not counted.

That a broker is shutting down is state of the controller alone: a new controller learns it from
the broker's next request. It is recorded last, so that a controller that repeats half of this
decision finds all of it to do, and so that the requests that follow from it come after those for
the partitions that moved.
Source: KafkaController.doControlledShutdown, Kafka 3.9; KIP-380. In KRaft, `brokers` decides.
"""

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_LEADER
from ottla.controller.elections.elections import RulesByLeader, partitions
from ottla.controller.elections.partition_change import ChangeContext, PartitionTarget, build_change
from ottla.controller.keys import PartitionKey
from ottla.controller.step import Decision, Step
from ottla.metadata.brokers import BrokerImage
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.records import BrokerRegistrationChangeRecord, Record

ANY_BROKER_EPOCH = -1
"""The epoch in the request of a broker that does not know its own."""


def controlled_shutdown(
    image: ClusterImage, config: NodeConfig, broker_id: int, broker_epoch: int
) -> Decision[tuple[PartitionKey, ...]]:
    """Begin or continue a broker's shutdown; the reply names what it still leads.

    Partitions without other replicas are left out.
    Raises: ApiError: BROKER_NOT_AVAILABLE for an unknown broker; STALE_BROKER_EPOCH for the
            request of a previous process. A newer epoch than the known one is
            accepted: its registration will be observed (KAFKA-9839).
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise ApiError(Error.BROKER_NOT_AVAILABLE, f"Broker {broker_id} is not alive.")
    if broker_epoch != ANY_BROKER_EPOCH and broker_epoch < broker.epoch:
        raise ApiError(
            Error.STALE_BROKER_EPOCH,
            f"Broker {broker_id} has the epoch {broker.epoch}, but it sent {broker_epoch}.",
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
    """Return the ISR without a broker; where it leads, only those that can take over."""
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
