"""Turns brokers' responses to the controller of a ZooKeeper cluster into events.

A response decides nothing: it becomes an event, for which a decision is put into the controller's
queue. Responses to UpdateMetadata, and errors of partitions that the next change of them corrects,
are logged and need nothing.

Source: KafkaController.{processLeaderAndIsrResponseReceived, processUpdateMetadataResponseReceived,
processTopicDeletionStopReplicaResponseReceived}, Kafka 3.9.
"""

import logging
from dataclasses import dataclass

from ottla.base.errors import Error
from ottla.base.ids import uuid_text
from ottla.controller.deletion.deletion_events import DeletionsAnswered, OrdersDropped
from ottla.controller.deletion.deletion_orders import stop_replica_results, stopped_replicas
from ottla.controller.keys import PartitionKey
from ottla.controller.zookeeper.broker_responses import error_of, failed_replicas
from ottla.host.controller.controller_channel import ChannelEvent, Dropped
from ottla.metadata.image import ClusterImage
from ottla.metadata.znodes import paths
from ottla.wire.messages.leader_and_isr import LeaderAndIsrResponse
from ottla.wire.messages.stop_replica import StopReplicaResponse

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ControllerMoved:
    """A broker has a newer controller epoch: another broker is the controller."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class LogDirFailure:
    """Replicas of a broker are offline: their log directories have failed."""

    broker_id: int
    broker_epoch: int
    partitions: tuple[PartitionKey, ...]


BrokerEvent = ControllerMoved | LogDirFailure | DeletionsAnswered | OrdersDropped


def event_of(image: ClusterImage, channel_event: ChannelEvent) -> BrokerEvent | None:
    """Return the event of a response; None = nothing to do."""
    sent = channel_event.sent
    if isinstance(channel_event, Dropped):
        dropped = tuple(stopped_replicas(sent).values())
        return OrdersDropped(sent.broker_id, sent.broker_epoch, dropped) if dropped else None
    response = channel_event.response
    error = error_of(response.error_code)
    if error is Error.STALE_CONTROLLER_EPOCH:
        return ControllerMoved(sent.broker_id)
    if error is not Error.NONE:
        # It has restarted, which its registration shows as well.
        log.info(
            "broker %d rejected %s: %s", sent.broker_id, type(sent.request).__name__, error.name
        )
    if isinstance(response, LeaderAndIsrResponse):
        _log_refused_topics(image, sent.broker_id, response)
        failed = failed_replicas(sent, response)
        return LogDirFailure(sent.broker_id, sent.broker_epoch, failed) if failed else None
    if isinstance(response, StopReplicaResponse):
        results = stop_replica_results(sent, response)
        return DeletionsAnswered(sent.broker_id, sent.broker_epoch, results) if results else None
    return None


def _log_refused_topics(
    image: ClusterImage, broker_id: int, response: LeaderAndIsrResponse
) -> None:
    """Log the topics that a broker rejected, since they were deleted in this term before.

    A broker cannot tell a restored topic from a delayed request from before its deletion.
    """
    for topic_error in response.topics:
        topic = image.topics.by_id(topic_error.topic_id)
        if topic is None or image.deletions.is_queued(topic.id):
            continue
        if any(each.error_code == Error.UNKNOWN_TOPIC_ID for each in topic_error.partition_errors):
            log.error(
                "broker %d rejected LeaderAndIsr for topic %s with id %s: this controller had "
                "it deleted before. If the topic was restored since: delete "
                "the znode %s, so that another controller is elected, whose requests brokers "
                "accept",
                broker_id,
                topic.name,
                uuid_text(topic.id),
                paths.CONTROLLER,
            )
