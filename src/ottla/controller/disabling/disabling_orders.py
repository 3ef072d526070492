"""The orders by which brokers disable topics' tiered storage, and the results in their responses.

An order is a DisableRemoteTopic request (key 1001), in both modes. Its response counts for what the
request named: the tiered epoch, and the leader epoch that the partition had when it was sent. A
broker that reports a leader epoch must report that one.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.base.errors import Error
from ottla.base.ids import NO_EPOCH, Uuid
from ottla.controller.zookeeper.broker_responses import error_of
from ottla.controller.zookeeper.request_batch import BrokerRequest
from ottla.metadata.image import ClusterImage
from ottla.metadata.tiering import DisablePolicy
from ottla.wire.messages import disable_remote_topic as wire

DISABLE_REMOTE_TOPIC_VERSION: Final = 0

PARTITIONS_PER_ORDER_MAX: Final = 1_000
"""A broker answers for all partitions of a request together."""

NOT_YET: Final = Error.OPERATION_NOT_ATTEMPTED
"""A result that says nothing yet: the broker has to be asked again."""

_POLICIES: Final = {DisablePolicy.RETAIN: wire.RETAIN, DisablePolicy.DELETE: wire.DELETE}


class DisabledReplica(NamedTuple):
    """What one order asks of a broker. Another leader epoch makes another order."""

    topic_id: Uuid
    tiered_epoch: int
    partition: int
    leader_epoch: int


class Result(NamedTuple):
    """A broker's answer for one partition. `leader_epoch`: NO_EPOCH = it named none."""

    error: Error
    is_leader: bool = False
    leader_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class DisablingOrder:
    """What one broker, under its present registration, is to disable."""

    broker_id: int
    broker_epoch: int
    replicas: tuple[DisabledReplica, ...]


def orders_of(
    image: ClusterImage, broker_id: int, replicas: Collection[DisabledReplica]
) -> Iterator[DisablingOrder]:
    """Yield the orders for replicas of a broker, each within PARTITIONS_PER_ORDER_MAX."""
    listed = sorted(replicas)
    for begin in range(0, len(listed), PARTITIONS_PER_ORDER_MAX):
        yield DisablingOrder(
            broker_id=broker_id,
            broker_epoch=image.brokers[broker_id].epoch,
            replicas=tuple(listed[begin : begin + PARTITIONS_PER_ORDER_MAX]),
        )


def request_of(
    image: ClusterImage, order: DisablingOrder, *, controller_id: int, controller_epoch: int
) -> BrokerRequest:
    """Return an order as a request. `image`: on which it was made."""
    partitions: dict[tuple[Uuid, int], list[int]] = {}
    for each in order.replicas:
        partitions.setdefault((each.topic_id, each.tiered_epoch), []).append(each.partition)
    return BrokerRequest(
        broker_id=order.broker_id,
        broker_epoch=order.broker_epoch,
        controller_epoch=controller_epoch,
        request=wire.DisableRemoteTopicRequest(
            controller_id=controller_id,
            controller_epoch=controller_epoch,
            broker_epoch=order.broker_epoch,
            topics=tuple(
                wire.DisableRemoteTopicTopic(
                    topic_id=topic_id,
                    tiered_epoch=tiered_epoch,
                    policy=_POLICIES[image.tiering[topic_id].policy],
                    remote_floor_epoch=image.tiering[topic_id].remote_floor_epoch,
                    partitions=tuple(listed),
                )
                for (topic_id, tiered_epoch), listed in partitions.items()
            ),
        ),
        version=DISABLE_REMOTE_TOPIC_VERSION,
        order=order,
    )


def results_of(
    order: DisablingOrder, response: wire.DisableRemoteTopicResponse
) -> dict[DisabledReplica, Result]:
    """Return the result for each replica of an order; one that is not in the response failed."""
    whole = error_of(response.error_code)
    if whole is not Error.NONE:
        return dict.fromkeys(order.replicas, Result(whole))
    found = {
        (topic.topic_id, topic.tiered_epoch, each.partition_index): Result(
            error_of(each.error_code), each.role == wire.LEADER, each.leader_epoch
        )
        for topic in response.topics
        for each in topic.partitions
    }
    failed = Result(Error.UNKNOWN_SERVER_ERROR)
    return {
        each: found.get((each.topic_id, each.tiered_epoch, each.partition), failed)
        for each in order.replicas
    }
