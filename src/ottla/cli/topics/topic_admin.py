"""Topics over the wire: create, add partitions, delete, describe."""

from collections.abc import Mapping, Sequence

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.cli.configs import configs_client
from ottla.cli.progress import print_stderr
from ottla.cli.topics.topic_text import Partition, Reassignment, Topic
from ottla.client.cluster import ClusterClient
from ottla.client.errors import Refusal, check
from ottla.wire.messages import create_partitions as grow_wire
from ottla.wire.messages import create_topics as create_wire
from ottla.wire.messages import delete_topics as delete_wire
from ottla.wire.messages import describe_topic_partitions as describe_wire
from ottla.wire.messages import list_partition_reassignments as moves_wire

CONTROLLER_ABSENT = frozenset({Error.NOT_CONTROLLER, Error.REQUEST_TIMED_OUT})
"""Errors of a broker that cannot reach the controller."""

CONTROLLER_WAIT_MS = 5_000
"""Timeout of --describe for reassignments, which only the controller knows."""

CLUSTER_DEFAULT = -1
"""The broker's default of partitions or replication factor (KIP-464)."""


def create(
    client: ClusterClient,
    name: str,
    *,
    partitions: int | None,
    replication_factor: int | None,
    assignment: Sequence[tuple[int, ...]],
    configs: Mapping[str, str],
    unless_exists: bool,
) -> bool:
    """Create a topic; return False if it exists and `unless_exists` is set."""
    topic = create_wire.CreatableTopic(
        name=name,
        num_partitions=CLUSTER_DEFAULT if partitions is None else partitions,
        replication_factor=CLUSTER_DEFAULT if replication_factor is None else replication_factor,
        assignments=tuple(
            create_wire.CreatableReplicaAssignment(partition_index=partition, broker_ids=replicas)
            for partition, replicas in enumerate(assignment)
        ),
        configs=tuple(
            create_wire.CreatableTopicConfig(name=key, value=value)
            for key, value in configs.items()
        ),
    )
    request = create_wire.CreateTopicsRequest(topics=(topic,), timeout_ms=client.timeout_ms)

    def act() -> bool:
        for result in client.ask(request, create_wire.CreateTopicsResponse).topics:
            if unless_exists and result.error_code == Error.TOPIC_ALREADY_EXISTS:
                return False
            check(f"topic {result.name}", result.error_code, result.error_message)
        return True

    return client.with_retries(act)


def grow(
    client: ClusterClient,
    names: Sequence[str],
    count: int,
    assignment: Sequence[tuple[int, ...]],
) -> None:
    """Increase topics to `count` partitions. `assignment`: of all partitions, old ones too."""
    present = {topic.name: len(topic.partitions) for topic in client.topics(names)}
    request = grow_wire.CreatePartitionsRequest(
        topics=tuple(
            grow_wire.CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=tuple(
                    grow_wire.CreatePartitionsAssignment(broker_ids=replicas)
                    for replicas in assignment[present[name] :]
                )
                if assignment
                else None,
            )
            for name in names
        ),
        timeout_ms=client.timeout_ms,
        validate_only=False,
    )

    def act() -> None:
        for result in client.ask(request, grow_wire.CreatePartitionsResponse).results:
            check(f"topic {result.name}", result.error_code, result.error_message)

    client.with_retries(act)


def delete(client: ClusterClient, names: Sequence[str]) -> None:
    """Delete topics by name."""
    request = delete_wire.DeleteTopicsRequest(
        topic_names=tuple(names), timeout_ms=client.timeout_ms
    )

    def act() -> None:
        # Versions from 6 on name topics by id too; here only names are known.
        response = client.ask(request, delete_wire.DeleteTopicsResponse, at_most=5)
        for result in response.responses:
            message = result.error_message
            if result.error_code == Error.REQUEST_TIMED_OUT:
                message = (
                    f"{message or 'The deletion has not finished in time and continues.'} Follow it"
                    f" with 'ottla topics --describe-deletions --topic {result.name}'."
                )
            check(f"topic {result.name}", result.error_code, message)

    client.with_retries(act)


def describe(client: ClusterClient, names: Sequence[str], limit: int) -> list[Topic]:
    """Return topics in full, sorted by name."""
    if client.serves(describe_wire.DescribeTopicPartitionsRequest):
        described = _describe_in_pages(client, names, limit)
    else:
        described = _describe_from_metadata(client, names)
    configs = configs_client.describe(client, configs_client.TOPIC, names)
    moves = _reassignments(client, described)
    return [
        Topic(
            name=name,
            id=topic_id,
            partitions=tuple(sorted(partitions, key=lambda partition: partition.id)),
            configs=configs.get(name, ()),
            reassignments=moves.get(name, {}),
        )
        for name, (topic_id, partitions) in sorted(described.items())
    ]


Described = dict[str, tuple[Uuid, list[Partition]]]


def _describe_in_pages(client: ClusterClient, names: Sequence[str], limit: int) -> Described:
    described: Described = {}
    cursor: describe_wire.Cursor | None = None
    while True:
        request = describe_wire.DescribeTopicPartitionsRequest(
            topics=tuple(describe_wire.TopicRequest(name=name) for name in sorted(names)),
            response_partition_limit=limit,
            cursor=cursor,
        )
        response = client.ask(request, describe_wire.DescribeTopicPartitionsResponse)
        for topic in response.topics:
            check(f"topic {topic.name}", topic.error_code)
            _, partitions = described.setdefault(topic.name or "", (topic.topic_id, []))
            partitions += [
                Partition(
                    id=each.partition_index,
                    leader=each.leader_id,
                    replicas=each.replica_nodes,
                    isr=each.isr_nodes,
                    elr=each.eligible_leader_replicas or (),
                    last_known_elr=each.last_known_elr or (),
                )
                for each in topic.partitions
            ]
        cursor = response.next_cursor
        if cursor is None:
            return described
        names = [name for name in names if name >= cursor.topic_name]


def _describe_from_metadata(client: ClusterClient, names: Sequence[str]) -> Described:
    return {
        topic.name or "": (
            topic.topic_id,
            [
                Partition(
                    id=each.partition_index,
                    leader=each.leader_id,
                    replicas=each.replica_nodes,
                    isr=each.isr_nodes,
                    elr=None,
                    last_known_elr=None,
                )
                for each in topic.partitions
            ],
        )
        for topic in client.topics(names)
    }


def _reassignments(
    client: ClusterClient, described: Described
) -> dict[str, dict[int, Reassignment]]:
    """Return the reassignments under way; print a warning where no controller responds.

    Brokers know all else that is described, also without a controller.
    """
    if not described or not client.serves(moves_wire.ListPartitionReassignmentsRequest):
        return {}
    limit_ms = min(client.timeout_ms, CONTROLLER_WAIT_MS)
    request = moves_wire.ListPartitionReassignmentsRequest(
        timeout_ms=limit_ms,
        topics=tuple(
            moves_wire.ListPartitionReassignmentsTopics(
                name=name, partition_indexes=tuple(each.id for each in partitions)
            )
            for name, (_, partitions) in sorted(described.items())
        ),
    )
    try:
        response = client.ask(request, moves_wire.ListPartitionReassignmentsResponse)
        check("reassignments", response.error_code, response.error_message)
    except Refusal as refusal:
        if refusal.code not in CONTROLLER_ABSENT:
            raise
        print_stderr(f"WARN: reassignments are unknown: {refusal.reason}")
        return {}
    return {
        topic.name: {
            each.partition_index: Reassignment(each.adding_replicas, each.removing_replicas)
            for each in topic.partitions
        }
        for topic in response.topics
    }
