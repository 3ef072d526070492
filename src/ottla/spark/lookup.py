"""Requests of planning: topics, offsets, sizes, whether topics are compacted."""

import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Final

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClientError, check
from ottla.client.offsets import EARLIEST, LATEST, list_offsets
from ottla.client.partitions import TopicPartition, by_topic
from ottla.client.topic_configs import describe_topic_configs
from ottla.spark.cluster_options import retried
from ottla.spark.errors import ClusterError
from ottla.spark.options import Assign, ByPartition, Pattern, Subscription
from ottla.spark.planning import Found
from ottla.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ottla.wire.messages.metadata import MetadataResponseTopic

_CLEANUP_POLICY: Final = "cleanup.policy"


def subscribed(
    client: ClusterClient, subscription: Subscription, *, skip_unknown: bool = False
) -> dict[TopicPartition, Uuid]:
    """Return the partitions to read, with the ids of their topics.

    Raises: ClusterError where a named topic or partition does not exist, unless `skip_unknown`.
    """
    if isinstance(subscription, Pattern):
        regex = re.compile(subscription.regex)
        everything = retried(client, "listing topics", client.topics)
        return _partitions(
            each for each in everything if regex.fullmatch(each.name or "") and not each.is_internal
        )
    if isinstance(subscription, Assign):
        names = {topic for topic, _ in subscription.partitions}
    else:
        names = set(subscription.topics)
    found = _partitions(
        retried(
            client,
            "looking up topics",
            lambda: client.topics(sorted(names), skip_unknown=skip_unknown),
        )
    )
    if not isinstance(subscription, Assign):
        return found
    for key in subscription.partitions:
        if key not in found and not skip_unknown:
            count = sum(topic == key[0] for topic, _ in found)
            raise ClusterError(f"topic {key[0]} has no partition {key[1]}: it has {count}")
    return {key: found[key] for key in subscription.partitions if key in found}


def ids_of(client: ClusterClient, names: Collection[str]) -> dict[str, Uuid]:
    """Return the ids of the topics that exist. Raises: ClusterError.

    What a broker does not know is asked for again for some seconds: perhaps it was just started.
    """

    def look(*, skip_unknown: bool) -> dict[str, Uuid]:
        found = retried(
            client,
            "looking up topics",
            lambda: client.topics(sorted(names), skip_unknown=skip_unknown),
        )
        return {each.name or "": each.topic_id for each in found}

    try:
        return look(skip_unknown=False)
    except ClusterError as error:
        if error.code != Error.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return look(skip_unknown=True)


def includes(subscription: Subscription, key: TopicPartition) -> bool:
    """Tell whether a partition is to be read, if it exists."""
    if isinstance(subscription, Assign):
        return key in subscription.partitions
    if isinstance(subscription, Pattern):
        return re.compile(subscription.regex).fullmatch(key[0]) is not None
    return key[0] in subscription.topics


def _partitions(topics: Iterable[MetadataResponseTopic]) -> dict[TopicPartition, Uuid]:
    return {
        (each.name or "", partition): each.topic_id
        for each in topics
        for partition in sorted(part.partition_index for part in each.partitions)
    }


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
        missing = {key: each for key, each in timestamps.items() if key not in found}
        results = list_offsets(client, missing, read_committed=read_committed)
        for key, each in results.items():
            if not each.error_code:
                found[key] = each.offset if each.offset >= 0 else None
        for key, each in results.items():
            check(f"{key[0]}-{key[1]}", each.error_code)

    retried(client, "looking up offsets", ask, attempts_min=attempts_min, backoff_ms=backoff_ms)
    return found


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
    with suppress(ClientError):
        for node, led in sorted(client.by_leader(keys).items()):
            request = DescribeLogDirsRequest(
                topics=tuple(
                    DescribableLogDirTopic(topic=name, partitions=tuple(partitions))
                    for name, partitions in by_topic(led).items()
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
    with suppress(ClientError):
        return {
            result.resource_name
            for result in describe_topic_configs(client, names, (_CLEANUP_POLICY,))
            for each in result.configs
            if each.name == _CLEANUP_POLICY and each.value == "delete"
        }
    return set()
