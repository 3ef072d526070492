"""From options to tasks: queries the cluster or the object store.

The decisions are in `planning`, and in `tier_planning` for what is read from the object store.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from pyspark.sql.datasource import InputPartition

from ottla.base.ids import Uuid
from ottla.client.cluster import ClusterClient
from ottla.client.partitions import TopicPartition
from ottla.spark import lookup
from ottla.spark.losses import report_losses
from ottla.spark.options import ByPartition, ReadOptions
from ottla.spark.planning import (
    Found,
    PartitionFacts,
    Range,
    check_named,
    cut,
    resolve,
    timestamps_of,
)
from ottla.spark.raw_options import REMOTE_STORAGE, log
from ottla.spark.splits import Split
from ottla.spark.tiers import tier_lookup
from ottla.spark.tiers.store_session import ObjectMissingError, StoreSession, open_session
from ottla.spark.tiers.stored_logs import find_stored, offsets_by_time, stored_log
from ottla.spark.tiers.tier_planning import Pairs
from ottla.spark.tiers.tiered_planner import (
    plan_stored,
    plan_tiers,
    split_of_range,
    unexpectedly_missing,
)
from ottla.wire.messages.describe_remote_log import DescribeRemoteLogRequest

T = TypeVar("T")

ATTEMPTS_MAX: Final = 3
"""How often a query is planned where segments are deleted meanwhile."""
IDLE_PER_TASK: Final = 64
"""Empty partitions in one task: a task costs about 80 ms of CPU, one empty fetch much less."""


@dataclass(frozen=True)
class Task(InputPartition):  # type: ignore[misc]  # pyspark is not type-checked.
    """What one task reads: splits of one partition, or several that were empty when planned."""

    splits: tuple[Split, ...]


def plan(options: ReadOptions) -> list[Task]:
    """Return the tasks of a query.

    Raises: OptionError, ClusterError, RemoteStorageError; DataLossError where requested records no
            longer exist and `failOnDataLoss` is set.
    """
    if options.cluster is None:
        return tasks_of(_plan_stored(options))
    with ClusterClient(options.brokers) as client:
        ids = lookup.subscribed(client, options.subscription)
        keys = sorted(ids)
        check_named(options.starting, keys, "startingOffsets")
        check_named(options.ending, keys, "endingOffsets")
        facts = facts_of(client, options, {key: ids[key] for key in keys})
        ranges = _ranges(client, options, facts)
        return tasks_of(plan_ranges(client, options, ranges))


def plan_ranges(
    client: ClusterClient, options: ReadOptions, ranges: list[Range]
) -> list[list[Split]]:
    """Return the splits of each task. Raises: ClusterError, RemoteStorageError."""
    if options.remote_storage is None or not ranges:
        return _plan_brokers(options, ranges)
    if not client.serves(DescribeRemoteLogRequest):
        log.warning(
            "option %s has no effect: the brokers at %s do not serve DescribeRemoteLog",
            REMOTE_STORAGE,
            options.brokers.bootstrap,
        )
        return _plan_brokers(options, ranges)
    ids = {each.facts.key: each.facts.topic_id for each in ranges}

    def aborted_at(key: TopicPartition, offset: int) -> Pairs:
        return tier_lookup.aborted_at(client, key, ids[key], offset)

    with open_session(options) as session:
        return listed_again(
            session,
            lambda: plan_tiers(
                ranges, tier_lookup.describe(client, ids), options, session, aborted_at
            ),
        )


def listed_again(session: StoreSession, act: Callable[[], T]) -> T:
    """Run `act`, which lists segments; repeat it where one is deleted since it was listed.

    Then it is not listed any more. Raises: RemoteStorageError where it still is.
    """
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            return act()
        except ObjectMissingError as error:
            if attempt == ATTEMPTS_MAX:
                raise unexpectedly_missing(error, session) from None
    raise AssertionError("the last attempt raises")


def _plan_brokers(options: ReadOptions, ranges: list[Range]) -> list[list[Split]]:
    pieces = cut(
        ranges,
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )
    return [[split_of_range(each)] for each in pieces]


def _plan_stored(options: ReadOptions) -> list[list[Split]]:
    """Plan from the manifests in the object store alone."""
    with open_session(options) as session:
        return listed_again(session, lambda: _plan_stored_once(session, options))


def _plan_stored_once(session: StoreSession, options: ReadOptions) -> list[list[Split]]:
    stored = find_stored(session, options.subscription, options.topic_ids)
    check_named(options.starting, sorted(stored), "startingOffsets")
    check_named(options.ending, sorted(stored), "endingOffsets")
    logs = [stored_log(session, each, options) for each in stored.values()]
    ranges = resolved(
        options,
        [each.facts for each in logs],
        lambda wanted: offsets_by_time(session, logs, wanted, options),
    )
    # An end at latest is that of the remote tier when the query was planned.
    closed = [replace(each, is_open=False) for each in ranges if len(each)]
    return plan_stored(session, closed, logs, options)


def tasks_of(planned: list[list[Split]]) -> list[Task]:
    """Return the tasks; those with nothing to read yet are read together."""
    busy: list[list[Split]] = []
    idle: list[Split] = []
    for some in planned:
        if any(each.start < each.end for each in some):
            busy.append(some)
        else:
            idle += some
    return [
        *(Task(tuple(some)) for some in busy),
        *(Task(tuple(some)) for some in _grouped(idle)),
    ]


def _grouped(idle: list[Split]) -> Iterator[list[Split]]:
    for begin in range(0, len(idle), IDLE_PER_TASK):
        yield idle[begin : begin + IDLE_PER_TASK]


def facts_of(
    client: ClusterClient, options: ReadOptions, ids: Mapping[TopicPartition, Uuid]
) -> list[PartitionFacts]:
    """Return the state of partitions, as their brokers say it. Raises: ClusterError."""
    if not ids:
        return []
    edges = lookup.edges_of(
        client,
        list(ids),
        read_committed=options.read_committed,
        attempts_min=1 + options.offset_retries,
        backoff_ms=options.offset_retry_ms,
    )
    sizes = lookup.sizes_of(client, list(ids))
    plain = lookup.never_compacted(client, {topic for topic, _ in ids})
    return [
        PartitionFacts(
            topic=topic,
            topic_id=ids[topic, partition],
            partition=partition,
            earliest=earliest,
            latest=latest,
            size_bytes=sizes.get((topic, partition)),
            contiguous=topic in plain,
        )
        for (topic, partition), (earliest, latest) in edges.items()
    ]


def _ranges(
    client: ClusterClient, options: ReadOptions, facts: list[PartitionFacts]
) -> list[Range]:
    return resolved(
        options,
        facts,
        lambda wanted: lookup.offsets_at(client, wanted, read_committed=options.read_committed),
    )


def resolved(
    options: ReadOptions,
    facts: list[PartitionFacts],
    offsets_at: Callable[[ByPartition], Found],
) -> list[Range]:
    """Return the ranges to read; `offsets_at` finds offsets by timestamp. Raises: as `plan`."""
    keys = {each.key for each in facts}
    found = []
    for limit in (options.starting, options.ending):
        wanted = timestamps_of(limit, keys)
        found.append(offsets_at(wanted) if wanted else {})
    ranges, losses = resolve(
        facts,
        starting=options.starting,
        starting_found=found[0],
        latest_where_none_since=options.latest_where_none_since,
        ending=options.ending,
        ending_found=found[1],
    )
    report_losses(losses, fail=options.fail_on_data_loss)
    return ranges
