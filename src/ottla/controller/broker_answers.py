"""What a controller makes of its brokers' answers: events, each a plain value.

An answer never runs a decision; whoever gets one of these puts it into the controller's queue.
Source: KafkaController.processLeaderAndIsrResponseReceived,
processTopicDeletionStopReplicaResponseReceived; ControllerChannelManager.scala, Kafka 3.9.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.controller.request_batch import BrokerRequest
from ottla.controller.state_context import PartitionKey, ReplicaKey, StateContext
from ottla.wire.messages import leader_and_isr as lai
from ottla.wire.messages import stop_replica as stop


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionAnswered:
    """A broker was told to delete replicas, and how each of these ended."""

    broker_id: int
    succeeded: tuple[PartitionKey, ...] = ()
    failed: tuple[tuple[PartitionKey, Error], ...] = ()


def stop_replica_answered(
    context: StateContext, sent: BrokerRequest, response: stop.StopReplicaResponse
) -> DeletionAnswered | None:
    """Return what an answer to StopReplica means for deletions; None = nothing.

    Only what this very request told the broker to delete counts, and only while its topic's
    deletion runs: an answer to a mere stop is no proof that data is gone (KAFKA-9946). A
    replica that the broker does not speak of has not been deleted, nor has any where the whole
    request failed; Kafka waits in vain for those.
    """
    told = {
        PartitionKey(each.topic_name, each.partition_index): error_of(each.error_code)
        for each in response.partition_errors
    }
    whole = error_of(response.error_code)
    succeeded: list[PartitionKey] = []
    failed: list[tuple[PartitionKey, Error]] = []
    for key in sorted(sent.deleted):
        if not context.is_being_deleted(key.topic):
            continue
        error = told.get(key, Error.UNKNOWN_SERVER_ERROR) if whole is Error.NONE else whole
        if error is Error.NONE:
            succeeded.append(key)
        else:
            failed.append((key, error))
    if not succeeded and not failed:
        return None
    return DeletionAnswered(
        broker_id=sent.broker_id, succeeded=tuple(succeeded), failed=tuple(failed)
    )


def leader_and_isr_answered(
    context: StateContext, sent: BrokerRequest, response: lai.LeaderAndIsrResponse
) -> tuple[StateContext, tuple[ReplicaKey, ...]]:
    """Return the context with what is known now of a broker's failed folders, and what is new.

    KAFKA_STORAGE_ERROR of a partition is how a controller hears of them; success means that the
    replica is on a folder that works.
    """
    if error_of(response.error_code) is not Error.NONE:
        return context, ()
    offline = set(context.offline_replicas)
    new: list[ReplicaKey] = []
    for key, error in _partition_errors(sent.request, response):
        replica = ReplicaKey(sent.broker_id, *key)
        if error is Error.NONE:
            offline.discard(replica)
        elif error is Error.KAFKA_STORAGE_ERROR and replica not in offline:
            offline.add(replica)
            new.append(replica)
    return replace(context, offline_replicas=frozenset(offline)), tuple(sorted(new))


def _partition_errors(
    request: lai.LeaderAndIsrRequest, response: lai.LeaderAndIsrResponse
) -> Iterator[tuple[PartitionKey, Error]]:
    """Yield the errors by topic name; from version 5 on the broker names topics by id."""
    for each in response.partition_errors:
        yield PartitionKey(each.topic_name, each.partition_index), error_of(each.error_code)
    names: dict[Uuid, str] = {each.topic_id: each.topic_name for each in request.topic_states}
    for topic in response.topics:
        name = names.get(topic.topic_id)
        if name is None:
            continue  # Nobody asked for it.
        for each in topic.partition_errors:
            yield PartitionKey(name, each.partition_index), error_of(each.error_code)


def error_of(code: int) -> Error:
    """Return the error of a code, also of one that is newer than this software."""
    try:
        return Error(code)
    except ValueError:
        return Error.UNKNOWN_SERVER_ERROR
