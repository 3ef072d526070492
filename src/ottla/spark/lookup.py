"""Requests of planning: topics, offsets, sizes, whether topics are compacted."""

import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Final

from ottla.base.errors import Error
from ottla.client.errors import NoSuchVersionError
from ottla.spark.client import ClusterClient, Refused, Topic
from ottla.spark.errors import ClusterError
from ottla.spark.options import (
    EARLIEST,
    LATEST,
    Assign,
    ByPartition,
    Pattern,
    Subscription,
    TopicPartition,
)
from ottla.spark.planning import Found
from ottla.wire.errors import WireError
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_TOPIC_RESOURCE: Final = 2
_CLEANUP_POLICY: Final = "cleanup.policy"
_TOLERATED: Final = (OSError, WireError, NoSuchVersionError, Refused)
"""Errors of optional lookups, which are ignored."""


def subscribed(client: ClusterClient, subscription: Subscription) -> dict[TopicPartition, Topic]:
    """Return the partitions to read, with their topics.

    Raises: ClusterError where a named topic or partition does not exist.
    """
    if isinstance(subscription, Pattern):
        everything = client.with_retries("listing topics", client.topics)
        regex = re.compile(subscription.regex)
        return {
            (topic.name, partition): topic
            for topic in everything.values()
            if regex.fullmatch(topic.name) and not topic.is_internal
            for partition in sorted(topic.leaders)
        }
    if isinstance(subscription, Assign):
        names = {topic for topic, _ in subscription.partitions}
    else:
        names = set(subscription.topics)

    def look() -> dict[str, Topic]:
        found = client.topics(names)
        for name in sorted(names - set(found)):
            raise Refused(f"topic {name}", Error.UNKNOWN_TOPIC_OR_PARTITION)
        return found

    found = client.with_retries("looking up topics", look)
    if not isinstance(subscription, Assign):
        return {
            (name, partition): topic
            for name, topic in sorted(found.items())
            for partition in sorted(topic.leaders)
        }
    for name, partition in subscription.partitions:
        if partition not in found[name].leaders:
            raise ClusterError(
                f"topic {name} has no partition {partition}: it has {len(found[name].leaders)}"
            )
    return {key: found[key[0]] for key in subscription.partitions}


def offsets_at(
    client: ClusterClient,
    timestamps: ByPartition,
    *,
    read_committed: bool = False,
    attempts_min: int = 1,
    backoff_ms: int | None = None,
) -> Found:
    """Return, for each partition, the first offset of that timestamp (ms) or a later one.

    Timestamps -2 and -1: the earliest and the latest readable offset.
    """
    found: dict[TopicPartition, int | None] = {}

    def ask() -> None:
        missing = [key for key in timestamps if key not in found]
        refusals: list[Refused] = []
        for node, keys in sorted(client.by_leader(missing).items()):
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=int(read_committed),
                topics=tuple(_list_offsets(client, keys, timestamps)),
            )
            response = client.ask(request, ListOffsetsResponse, node=node)
            for topic in response.topics:
                for each in topic.partitions:
                    key = (topic.name, each.partition_index)
                    if each.error_code:
                        refusals.append(Refused(f"{key[0]}-{key[1]}", each.error_code))
                    else:
                        found[key] = each.offset if each.offset >= 0 else None
        if refusals:
            raise refusals[0]

    client.with_retries("looking up offsets", ask, attempts_min=attempts_min, backoff_ms=backoff_ms)
    return found


def _list_offsets(
    client: ClusterClient, keys: Iterable[TopicPartition], timestamps: ByPartition
) -> Iterable[ListOffsetsTopic]:
    by_topic: dict[str, list[ListOffsetsPartition]] = {}
    for key in keys:
        by_topic.setdefault(key[0], []).append(
            ListOffsetsPartition(
                partition_index=key[1],
                current_leader_epoch=client.leader(key).epoch,
                timestamp=timestamps[key],
            )
        )
    for name, partitions in sorted(by_topic.items()):
        yield ListOffsetsTopic(name=name, partitions=tuple(partitions))


def edges_of(
    client: ClusterClient,
    keys: Collection[TopicPartition],
    *,
    read_committed: bool,
    attempts_min: int = 1,
    backoff_ms: int | None = None,
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the earliest offset of each partition and the one after its last readable record."""
    earliest, latest = (
        offsets_at(
            client,
            dict.fromkeys(keys, edge),
            read_committed=read_committed,
            attempts_min=attempts_min,
            backoff_ms=backoff_ms,
        )
        for edge in (EARLIEST, LATEST)
    )
    return {key: (earliest[key] or 0, latest[key] or 0) for key in keys}


def sizes_of(client: ClusterClient, keys: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the sizes of partitions on their leaders, as far as brokers return them."""
    sizes: dict[TopicPartition, int] = {}
    with suppress(*_TOLERATED):
        for node, led in sorted(client.by_leader(keys).items()):
            by_topic: dict[str, list[int]] = {}
            for topic, partition in led:
                by_topic.setdefault(topic, []).append(partition)
            request = DescribeLogDirsRequest(
                topics=tuple(
                    DescribableLogDirTopic(topic=name, partitions=tuple(partitions))
                    for name, partitions in sorted(by_topic.items())
                )
            )
            response = client.ask(request, DescribeLogDirsResponse, node=node)
            for log_dir in response.results:
                for each in log_dir.topics:
                    for part in each.partitions:
                        if not part.is_future_key:
                            sizes[each.name, part.partition_index] = part.partition_size
    return sizes


def never_compacted(client: ClusterClient, names: Collection[str]) -> set[str]:
    """Return the topics with `cleanup.policy=delete`: they lose records by retention only."""
    request = DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(
                resource_type=_TOPIC_RESOURCE,
                resource_name=name,
                configuration_keys=(_CLEANUP_POLICY,),
            )
            for name in sorted(names)
        )
    )
    with suppress(*_TOLERATED):
        response = client.ask(request, DescribeConfigsResponse)
        return {
            result.resource_name
            for result in response.results
            for each in result.configs
            if each.name == _CLEANUP_POLICY and each.value == "delete"
        }
    return set()
