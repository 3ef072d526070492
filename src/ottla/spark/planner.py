"""From options to tasks: queries the cluster; the decisions are in `planning`."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pyspark.sql.datasource import InputPartition

from ottla.base.ids import Uuid
from ottla.client.cluster import ClusterClient
from ottla.client.partitions import TopicPartition
from ottla.spark import lookup
from ottla.spark.errors import DataLossError
from ottla.spark.options import ReadOptions
from ottla.spark.planning import (
    PartitionFacts,
    Range,
    check_named,
    cut,
    resolve,
    timestamps_of,
)
from ottla.spark.raw_options import log

IDLE_PER_TASK: Final = 64
"""Empty partitions in one task: a task costs about 80 ms of CPU, one empty fetch much less."""


@dataclass(frozen=True, slots=True)
class Split:
    """Offsets [start, end) of one partition of one incarnation of a topic.

    `contiguous`: every offset has a record or a marker, so a missing one is lost.
    `is_open`: the split also includes what is readable beyond `end` when the task runs.
    """

    topic: str
    topic_id: Uuid
    partition: int
    start: int
    end: int
    contiguous: bool
    is_open: bool = False


@dataclass(frozen=True)
class Task(InputPartition):  # type: ignore[misc]  # pyspark is not type-checked.
    """What one task reads: one split, or several that were empty when planned."""

    splits: tuple[Split, ...]


def plan(options: ReadOptions) -> list[Task]:
    """Return the tasks of a query.

    Raises: OptionError, ClusterError; DataLossError where requested records no longer exist and
            `failOnDataLoss` is set.
    """
    with ClusterClient(options.cluster) as client:
        ids = lookup.subscribed(client, options.subscription)
        keys = sorted(ids)
        check_named(options.starting, keys, "startingOffsets")
        check_named(options.ending, keys, "endingOffsets")
        facts = _facts(client, options, {key: ids[key] for key in keys})
        ranges = _ranges(client, options, facts)
    pieces = cut(
        ranges,
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )
    splits = [_split(each) for each in pieces]
    idle = [each for each in splits if each.start == each.end]
    return [
        *(Task((each,)) for each in splits if each.start < each.end),
        *(Task(tuple(some)) for some in _grouped(idle)),
    ]


def _grouped(idle: list[Split]) -> Iterator[list[Split]]:
    for begin in range(0, len(idle), IDLE_PER_TASK):
        yield idle[begin : begin + IDLE_PER_TASK]


def _facts(
    client: ClusterClient, options: ReadOptions, ids: dict[TopicPartition, Uuid]
) -> list[PartitionFacts]:
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
    keys = {each.key for each in facts}
    found = []
    for limit in (options.starting, options.ending):
        wanted = timestamps_of(limit, keys)
        found.append(lookup.offsets_at(client, wanted) if wanted else {})
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


def report_losses(losses: list[str], *, fail: bool) -> None:
    """Raise DataLossError for lost records, or log them with `fail` false."""
    if losses and fail:
        raise DataLossError(
            f"{'; '.join(losses)}. With failOnDataLoss=false the query continues without them."
        )
    for each in losses:
        log.warning("data loss: %s", each)


def _split(piece: Range) -> Split:
    facts = piece.facts
    return Split(
        facts.topic,
        facts.topic_id,
        facts.partition,
        piece.start,
        piece.end,
        facts.contiguous,
        piece.is_open,
    )
