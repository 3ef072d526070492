"""The purge check: proof that nothing is left in the store of what was to be deleted.

    from ottla.spark.jobs.purge_check import PurgeOptions, purge_check
    purge_check(spark, PurgeOptions(remote_storage="s3://bucket/prefix", cluster=config)).show()

Checked are the topics of the deletion ledger, the topics whose tiered storage was turned off with
`delete`, and directories of topics that the cluster does not know. First the cluster is asked what
is purged, then the store is listed: what was purged before must not be listed after.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import functions as sql

from ottla.base.ids import Uuid, uuid_text
from ottla.client.cluster import ClientConfig, ClusterClient
from ottla.client.errors import ClientError
from ottla.records.errors import RecordsError
from ottla.spark.errors import RemoteStorageError
from ottla.spark.jobs import metadata_log
from ottla.spark.jobs.audit_tasks import NO_METADATA, SECOND_LOOK_S
from ottla.spark.jobs.cluster_facts import disabled_topics, ledger_of, statuses
from ottla.spark.jobs.metadata_log import Key, MetadataChanged, MetadataPartition, UserLog
from ottla.spark.jobs.rules.purge_rules import Left, is_proven, left_of, left_of_floor
from ottla.spark.jobs.rules.topic_status import Existence, TopicStatus
from ottla.spark.jobs.store_access import StoreAccess
from ottla.spark.jobs.store_partitions import list_partition, stored_partitions
from ottla.spark.jobs.tasks import mapped, to_batches
from ottla.tiered.manifest import Manifest, follow
from ottla.tiered.metadata_partition import metadata_partition

ROW_SCHEMA: Final = (
    "topic string, topic_id string, what string, receipt string, objects_left long, "
    "bytes_left long, example string, proven boolean, error string"
)
_FIELDS: Final[list[Any]] = [
    ("topic", pa.string()),
    ("topic_id", pa.string()),
    ("what", pa.string()),
    ("receipt", pa.string()),
    ("objects_left", pa.int64()),
    ("bytes_left", pa.int64()),
    ("example", pa.string()),
    ("proven", pa.bool_()),
    ("error", pa.string()),
]
_ARROW: Final = pa.schema(_FIELDS)
_EXPECTED: Final = (ClientError, RemoteStorageError, MetadataChanged, RecordsError, TimeoutError)


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeOptions:
    """What to check. `topics`: names, `topic_ids`: ids; () = all."""

    remote_storage: str
    cluster: ClientConfig
    topics: tuple[str, ...] = ()
    topic_ids: tuple[Uuid, ...] = ()
    timeout_s: float = 60.0


@dataclass(frozen=True, slots=True)
class PurgeUnit:
    """A topic, wholly or one of its partitions. `metadata_partition`: of that one."""

    status: TopicStatus
    key: Key | None = None
    metadata_partition: int = NO_METADATA


def plan_purge_check(options: PurgeOptions) -> list[PurgeUnit]:
    """Return the units. Raises: OptionError, RemoteStorageError, ClientError."""

    def is_wanted(status: TopicStatus) -> bool:
        return (not options.topics or status.topic in options.topics) and (
            not options.topic_ids or status.topic_id in options.topic_ids
        )

    with ClusterClient(options.cluster) as client:
        deleted = client.with_retries(lambda: ledger_of(client, None), repeatable=True)
        disabled = [each for each in disabled_topics(client) if is_wanted(each)]
        with StoreAccess(options.remote_storage, options.timeout_s) as store:
            stored = stored_partitions(store, options.topics)
        known = statuses(client, sorted(stored.ids)) if stored.ids else {}
        partitions = {
            each.topic_id: len(each.partitions)
            for each in client.topics([each.topic for each in disabled], skip_unknown=True)
        }
        count = len(metadata_log.ends_of(client)) if disabled else 0
    unknown = [each for each in known.values() if each.existence is Existence.UNKNOWN]
    named = options.topics or options.topic_ids
    gone = [each for each in deleted.values() if named or not each.receipt.startswith("none")]
    gone += unknown
    units = [PurgeUnit(each) for each in gone if is_wanted(each)]
    for each in disabled:
        for number in range(partitions.get(each.topic_id, 0)):
            at = metadata_partition(each.topic_id, number, count) if count else NO_METADATA
            units.append(PurgeUnit(each, (each.topic, each.topic_id, number), at))
    return units


def purge_check(spark: Any, options: PurgeOptions) -> Any:
    """Return a row for each topic id; each action on it repeats the check.

    Columns: topic, topic_id, what (deleted, disabled, unknown), receipt (what the cluster says),
             objects_left, bytes_left, example (an object), proven, error.
    Raises:  OptionError, RemoteStorageError, ClientError, where store or cluster cannot be reached.
    """
    return purge_rows(spark, options, plan_purge_check(options))


def purge_rows(spark: Any, options: PurgeOptions, units: list[PurgeUnit]) -> Any:
    """Return the rows of a plan."""
    rows = mapped(spark, partial(_check_batches, units, options), len(units), ROW_SCHEMA)
    return rows.groupBy("topic", "topic_id", "what", "receipt").agg(
        sql.sum("objects_left").alias("objects_left"),
        sql.sum("bytes_left").alias("bytes_left"),
        sql.max("example").alias("example"),
        sql.min("proven").alias("proven"),
        sql.max("error").alias("error"),
    )


def _check_batches(
    units: list[PurgeUnit], options: PurgeOptions, batches: Iterator[Any]
) -> Iterator[Any]:
    """Run in a task: check the units of its numbers."""
    numbers = (number for batch in batches for number in batch.column(0).to_pylist())
    mine = [units[number] for number in numbers if number < len(units)]
    yield from to_batches((check_unit(each, options) for each in mine), _ARROW)


def check_unit(unit: PurgeUnit, options: PurgeOptions) -> dict[str, Any]:
    """Return the row of a unit."""
    status = unit.status
    left, error = Left(), None
    try:
        with StoreAccess(options.remote_storage, options.timeout_s) as store:
            if unit.key is None:
                directory = f"{status.topic}-{uuid_text(status.topic_id)}"
                left = left_of(list(store.list_objects(directory)))
            else:
                left = _floor_left(store, unit, unit.key, options)
    except _EXPECTED as failed:
        error = str(failed) or type(failed).__name__
    if left.manifest_lags:
        error = f"the newest manifest does not name the floor {status.floor}"
    return {
        "topic": status.topic,
        "topic_id": uuid_text(status.topic_id),
        "what": what_of(status),
        "receipt": receipt_text(status),
        "objects_left": left.objects,
        "bytes_left": left.size_bytes,
        "example": left.example or None,
        "proven": error is None and is_proven(status, left),
        "error": error,
    }


def _floor_left(store: StoreAccess, unit: PurgeUnit, key: Key, options: PurgeOptions) -> Left:
    """Return what is left of a floor; a second look decides where there is something."""
    with ClusterClient(options.cluster) as client:
        metadata: MetadataPartition | None = None
        if unit.metadata_partition != NO_METADATA:
            metadata = MetadataPartition(client, unit.metadata_partition)
        left = _look(store, metadata, key, unit.status.floor)
        if left.objects or left.manifest_lags:
            time.sleep(SECOND_LOOK_S)
            left = _look(store, metadata, key, unit.status.floor)
        return left


def _look(store: StoreAccess, metadata: MetadataPartition | None, key: Key, floor: int) -> Left:
    if metadata is None:
        log, before = UserLog(), 0
        listing = list_partition(store, key, all_manifests=False)
    else:
        metadata.read()
        log = metadata.log_of(key)
        before = log.remote.version
        listing = list_partition(store, key, all_manifests=False)
        metadata.read()
    changed = log.remote.changes_since(before)
    if changed is None:
        raise MetadataChanged("more segments changed meanwhile than can be kept apart")
    state = follow(each for each in listing.manifests.values() if isinstance(each, Manifest))
    return left_of_floor(listing.objects, log.remote, changed, state, floor)


def what_of(status: TopicStatus) -> str:
    """Return the column `what`."""
    if status.existence is Existence.EXISTS:
        return "disabled"
    return "unknown" if status.existence is Existence.UNKNOWN else "deleted"


def receipt_text(status: TopicStatus) -> str:
    """Return what the cluster says of a purge."""
    if status.existence is Existence.UNKNOWN:
        return "not in the ledger"
    if status.existence is not Existence.EXISTS:
        return status.receipt
    purge = "purge pending" if status.purge_pending else "purged"
    return f"{status.tiering}, floor {status.floor}: {purge}"
