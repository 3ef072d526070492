"""The audit job: objects, `__remote_log_metadata` and manifests are compared with each other.

    from ottla.spark.jobs.audit import AuditOptions, audit
    audit(spark, AuditOptions(remote_storage="s3://bucket/prefix", cluster=config)).show()

The driver lists which partitions the store has and which partitions of the metadata topic have
records; tasks do the rest. With `deep`, segments are then spread over tasks once more, to be read.
Findings are kinds and rows of `findings.py`; docs/pipeline.md says what each one means.
"""

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import pyarrow as pa

from ottla.base.ids import Uuid, uuid_text
from ottla.client.cluster import ClusterClient
from ottla.spark.jobs import metadata_log
from ottla.spark.jobs.audit_tasks import (
    NO_METADATA,
    AuditOptions,
    Result,
    Summary,
    Unit,
    Work,
    audit_unit,
    check_bytes,
)
from ottla.spark.jobs.metadata_log import Key
from ottla.spark.jobs.rules.findings import Finding
from ottla.spark.jobs.store_access import StoreAccess
from ottla.spark.jobs.store_partitions import stored_partitions
from ottla.spark.jobs.tasks import TASKS_PER_CORE, cores_of, mapped, to_batches
from ottla.tiered.metadata_partition import metadata_partition
from ottla.tiered.object_names import parse_manifest_name, partition_prefix

__all__ = ["AuditOptions", "audit"]

FINDING_COLUMNS: Final = (
    "topic string, topic_id string, partition int, kind string, severity string, object string, "
    "start_offset long, end_offset long, detail string"
)
ROW_SCHEMA: Final = f"row string, {FINDING_COLUMNS}, payload binary"
_FIELDS: Final[list[Any]] = [
    ("row", pa.string()),
    ("topic", pa.string()),
    ("topic_id", pa.string()),
    ("partition", pa.int32()),
    ("kind", pa.string()),
    ("severity", pa.string()),
    ("object", pa.string()),
    ("start_offset", pa.int64()),
    ("end_offset", pa.int64()),
    ("detail", pa.string()),
    ("payload", pa.binary()),
]
_ARROW: Final = pa.schema(_FIELDS)
REPORT_OBJECTS: Final = 10_000
FINDING, SUMMARY, WORK = "finding", "summary", "work"


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """What is audited.

    Fields: `units`: for the tasks. `foreign`: findings outside of partitions' directories.
            `metadata_records`: how many records of the metadata topic are read; 0 = no broker.
    """

    units: tuple[Unit, ...]
    foreign: tuple[Finding, ...] = ()
    metadata_records: int = 0
    topics: frozenset[str] = field(default_factory=frozenset)


def plan_audit(options: AuditOptions) -> AuditPlan:
    """Return the plan, from listings and metadata alone.

    Raises: OptionError, RemoteStorageError, ClientError.
    """
    with StoreAccess(options.remote_storage, options.timeout_s) as store:
        stored = stored_partitions(store, options.topics)
    if options.cluster is None:
        units = [Unit(NO_METADATA, (key,)) for key in sorted(stored.keys)]
        names = frozenset(key[0] for key in stored.keys)
        return AuditPlan(tuple(units), tuple(stored.foreign), 0, names)
    with ClusterClient(options.cluster) as client:
        existing = [
            (each.name or "", each.topic_id, row.partition_index)
            for each in client.with_retries(lambda: _topics(client, options), repeatable=True)
            for row in each.partitions
        ]
        ends = metadata_log.ends_of(client)
    names = frozenset({key[0] for key in (*stored.keys, *existing)})
    records = {number: end - start for number, (start, end) in ends.items()}
    units = _units(stored.keys, existing if options.topics else None, records)
    read = sum(records.get(each.metadata_partition, 0) for each in units)
    return AuditPlan(tuple(units), tuple(stored.foreign), read, names)


def _topics(client: ClusterClient, options: AuditOptions) -> list[Any]:
    names = options.topics or None
    return client.topics(names, skip_unknown=True)


def _units(stored: set[Key], wanted: Sequence[Key] | None, records: dict[int, int]) -> list[Unit]:
    """Return a unit for each partition of the metadata topic that has records, or is needed.

    `wanted`: the partitions of the selected topics; None = all, known only by reading.
    """
    count = len(records)
    if not count:
        return [Unit(NO_METADATA, (key,)) for key in sorted(stored)]
    mapped: dict[int, set[Key]] = {}
    for key in stored:
        mapped.setdefault(metadata_partition(key[1], key[2], count), set()).add(key)
    if wanted is None:
        selected = {number for number, left in records.items() if left} | set(mapped)
    else:
        selected = {metadata_partition(key[1], key[2], count) for key in wanted} | set(mapped)
    return [Unit(number, tuple(sorted(mapped.get(number, ())))) for number in sorted(selected)]


def audit(spark: Any, options: AuditOptions) -> Any:
    """Return the findings as a DataFrame; each action on it repeats the audit.

    Columns: topic, topic_id, partition, kind, severity, object, start_offset, end_offset, detail.
    Raises:  OptionError, RemoteStorageError, ClientError, where store or cluster cannot be reached.
    """
    rows = audit_rows(spark, options, plan_audit(options))
    return rows.where(f"row = '{FINDING}'").drop("row", "payload")


def audit_rows(spark: Any, options: AuditOptions, plan: AuditPlan) -> Any:
    """Return findings and summaries, as `result_of` reads them."""
    rows = mapped(spark, partial(_audit_batches, plan, options), len(plan.units), ROW_SCHEMA)
    if options.deep:
        # Segments are of very different sizes: many small tasks even them out.
        tasks = TASKS_PER_CORE * cores_of(spark)
        rows = rows.repartition(tasks).mapInArrow(partial(_check_batches, options), ROW_SCHEMA)
    return rows


def _audit_batches(plan: AuditPlan, options: AuditOptions, batches: Iterator[Any]) -> Iterator[Any]:
    """Run in a task: audit the units of its numbers. The first one has what the driver found."""

    def results() -> Iterator[Result]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                if number == 0:
                    yield from plan.foreign
                if number < len(plan.units):
                    yield from audit_unit(plan.units[number], options)

    yield from to_batches(map(_row, results()), _ARROW)


def _check_batches(options: AuditOptions, batches: Iterator[Any]) -> Iterator[Any]:
    """Run in a task: replace each segment that is to be read by what was found in it."""

    def rows() -> Iterator[dict[str, Any]]:
        for batch in batches:
            for row in batch.to_pylist():
                if row["row"] == WORK:
                    yield from map(_row, check_bytes(pickle.loads(row["payload"]), options))
                else:
                    yield row

    yield from to_batches(rows(), _ARROW)


def _row(result: Result) -> dict[str, Any]:
    if isinstance(result, Work):
        # Only for a later stage of this job, which the driver has made.
        return {"row": WORK, "payload": pickle.dumps(result)}
    if isinstance(result, Summary):
        return {"row": SUMMARY, "payload": pickle.dumps(result)}
    return {
        "row": FINDING,
        "topic": result.topic,
        "topic_id": None if result.topic_id is None else uuid_text(result.topic_id),
        "partition": result.partition,
        "kind": result.kind.value,
        "severity": result.severity.value,
        "object": result.object,
        "start_offset": result.start_offset,
        "end_offset": result.end_offset,
        "detail": result.detail,
        "payload": pickle.dumps(result),
    }


def result_of(row: Any) -> Finding | Summary:
    """Return the finding or the summary in a row of `audit_rows`."""
    result: Finding | Summary = pickle.loads(row["payload"])
    return result


@dataclass(slots=True)
class Measured:
    """What the store has of one topic id. `partitions`: those with objects."""

    topic: str
    topic_id: Uuid
    partitions: int = 0
    objects: int = 0
    object_bytes: int = 0
    manifest_bytes: int = 0

    def bytes_to_read(self, *, deep: bool) -> int:
        """Return about how many bytes an audit reads: manifests, or everything."""
        return self.object_bytes if deep else self.manifest_bytes


def measure_audit(options: AuditOptions, report: Callable[[int], object]) -> list[Measured]:
    """List all objects of what is to be audited; return their numbers and sizes by topic.

    `report` is called with the number of objects so far, now and then.
    Raises: OptionError, RemoteStorageError.
    """
    found: dict[tuple[str, Uuid], Measured] = {}
    count = 0
    with StoreAccess(options.remote_storage, options.timeout_s) as store:
        for key in sorted(stored_partitions(store, options.topics).keys):
            topic, topic_id, _ = key
            measured = found.setdefault((topic, topic_id), Measured(topic, topic_id))
            measured.partitions += 1
            for each in store.list_objects(partition_prefix(*key)):
                count += 1
                measured.objects += 1
                measured.object_bytes += each.size_bytes
                if parse_manifest_name(each.name) is not None:
                    measured.manifest_bytes += each.size_bytes
                if count % REPORT_OBJECTS == 0:
                    report(count)
    return [found[each] for each in sorted(found)]
