"""Reassignments over the wire: assignments, moves under way, starting and cancelling."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ottla.base.errors import Error
from ottla.cli.configs import configs_client
from ottla.client.cluster import ClusterClient
from ottla.client.errors import Refusal, check, reason_of
from ottla.client.partitions import TopicPartition
from ottla.wire.messages import alter_partition_reassignments as alter_wire
from ottla.wire.messages import incremental_alter_configs as config_wire
from ottla.wire.messages import list_partition_reassignments as list_wire
from ottla.wire.messages import metadata as metadata_wire

Assignment = dict[TopicPartition, tuple[int, ...]]

BROKER_THROTTLES = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
TOPIC_THROTTLES = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)

_DELETE = 1


@dataclass(frozen=True, slots=True)
class Move:
    """A reassignment under way: all replicas, those being added, those being removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def moves(client: ClusterClient) -> dict[TopicPartition, Move]:
    """Return all reassignments under way."""
    request = list_wire.ListPartitionReassignmentsRequest(timeout_ms=client.timeout_ms)

    def act() -> dict[TopicPartition, Move]:
        response = client.ask(request, list_wire.ListPartitionReassignmentsResponse)
        check("the reassignments", response.error_code, response.error_message)
        return {
            (topic.name, each.partition_index): Move(
                each.replicas, each.adding_replicas, each.removing_replicas
            )
            for topic in response.topics
            for each in topic.partitions
        }

    return client.with_retries(act)


def alter(
    client: ClusterClient, wanted: Mapping[TopicPartition, tuple[int, ...] | None]
) -> dict[TopicPartition, str]:
    """Start reassignments; replicas None = cancel. Return the errors by partition."""
    topics: dict[str, list[alter_wire.ReassignablePartition]] = {}
    for (topic, partition), replicas in sorted(wanted.items()):
        topics.setdefault(topic, []).append(
            alter_wire.ReassignablePartition(partition_index=partition, replicas=replicas)
        )
    request = alter_wire.AlterPartitionReassignmentsRequest(
        timeout_ms=client.timeout_ms,
        topics=tuple(
            alter_wire.ReassignableTopic(name=name, partitions=tuple(partitions))
            for name, partitions in topics.items()
        ),
    )

    def act() -> dict[TopicPartition, str]:
        response = client.ask(request, alter_wire.AlterPartitionReassignmentsResponse)
        check("the reassignment", response.error_code, response.error_message)
        refused = {}
        for topic in response.responses:
            for each in topic.partitions:
                if each.error_code == Error.NOT_CONTROLLER:
                    check(topic.name, each.error_code, each.error_message)  # Retried.
                if each.error_code:
                    reason = reason_of(each.error_code, each.error_message)
                    refused[topic.name, each.partition_index] = reason
        return refused

    return client.with_retries(act)


def assignment(client: ClusterClient, names: Iterable[str]) -> dict[str, Assignment]:
    """Return the replicas of the partitions of topics, without topics that do not exist."""
    wanted = tuple(metadata_wire.MetadataRequestTopic(name=name) for name in sorted(set(names)))
    if not wanted:
        return {}
    response = client.ask(
        metadata_wire.MetadataRequest(topics=wanted, allow_auto_topic_creation=False),
        metadata_wire.MetadataResponse,
    )
    found: dict[str, Assignment] = {}
    for topic in response.topics:
        if topic.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION:
            continue
        if topic.error_code != Error.LEADER_NOT_AVAILABLE:
            check(f"topic {topic.name}", topic.error_code)
        name = topic.name or ""
        found[name] = {
            (name, each.partition_index): each.replica_nodes
            for each in sorted(topic.partitions, key=lambda each: each.partition_index)
        }
    return found


def is_active_controller(client: ClusterClient) -> bool:
    """Tell whether the client's node is the active controller."""
    nothing = list_wire.ListPartitionReassignmentsRequest(timeout_ms=client.timeout_ms, topics=())
    response = client.ask(nothing, list_wire.ListPartitionReassignmentsResponse)
    if response.error_code == Error.NOT_CONTROLLER:
        return False
    check("the reassignments", response.error_code, response.error_message)
    return True


def clear_broker_throttles(
    client: ClusterClient, brokers: Iterable[int], *, directly: bool
) -> None:
    """Delete brokers' replication throttles; `directly`: each request goes to its own broker."""
    for broker in sorted(brokers):
        node = broker if directly else None
        _delete(client, configs_client.BROKER, str(broker), BROKER_THROTTLES, node=node)


def clear_topic_throttles(client: ClusterClient, topics: Iterable[str]) -> None:
    """Delete topics' lists of throttled replicas.

    A topic may have been deleted: a deletion can wait for the end of a reassignment.
    """
    for topic in sorted(topics):
        try:
            _delete(client, configs_client.TOPIC, topic, TOPIC_THROTTLES)
        except Refusal as refusal:
            if refusal.code != Error.UNKNOWN_TOPIC_OR_PARTITION:
                raise


def _delete(
    client: ClusterClient, kind: int, name: str, keys: tuple[str, ...], node: int | None = None
) -> None:
    resource = config_wire.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=tuple(
            config_wire.AlterableConfig(name=key, config_operation=_DELETE, value=None)
            for key in keys
        ),
    )
    request = config_wire.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)

    def act() -> None:
        response = client.ask(request, config_wire.IncrementalAlterConfigsResponse, node=node)
        for result in response.responses:
            check(f"throttles of {name}", result.error_code, result.error_message)

    client.with_retries(act)
