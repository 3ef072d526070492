"""The retention report: what each retention setting would keep, delete and cost.

    from ottla.spark.jobs.retention_report import RetentionOptions, retention_report
    retention_report(spark, RetentionOptions(remote_storage="s3://bucket/prefix")).show()

Only metadata are read: the manifests in the store, one task reading those of some partitions, and
with brokers the present settings, log starts and sizes of local logs. Nothing is changed.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as sql

from ottla.base.ids import Uuid, uuid_text
from ottla.client.cluster import ClientConfig, ClusterClient
from ottla.spark.errors import RemoteStorageError
from ottla.spark.jobs.metadata_log import Key
from ottla.spark.jobs.retention_facts import BrokerFacts, broker_facts, present_retention
from ottla.spark.jobs.rules.retention_rules import (
    RETENTION_BYTES,
    RETENTION_MS,
    UNLIMITED,
    Outcome,
    RetainedLog,
    Setting,
    log_of_manifests,
    outcomes,
    settings,
)
from ottla.spark.jobs.store_access import StoreAccess
from ottla.spark.jobs.store_partitions import stored_partitions
from ottla.spark.jobs.tasks import mapped, to_batches
from ottla.spark.tiers.stored_logs import read_state
from ottla.tiered.lineage import Lineage
from ottla.tiered.manifest import ManifestState
from ottla.tiered.remote_log import RemoteLog
from ottla.tiered.segment_metadata import NO_FLOOR

DAY_MS: Final = 86_400_000
DEFAULT_MS: Final = 7 * DAY_MS
"""Kafka's default of retention.ms: of brokers that nobody asks it is not known."""
CANDIDATES_MS: Final = (DAY_MS, 3 * DAY_MS, 7 * DAY_MS, 30 * DAY_MS, 90 * DAY_MS, UNLIMITED)
PRESENT: Final = "current"
YEAR_9999_MS: Final = 253_402_300_799_000
BYTES_PER_GB: Final = 1_000_000_000

ROW_SCHEMA: Final = (
    "topic string, topic_id string, partition int, setting string, retention_ms long, "
    "retention_bytes long, kept_segments long, kept_bytes long, kept_records long, "
    "deleted_segments long, deleted_bytes long, deleted_records long, local_only_bytes long, "
    "log_start_offset long, oldest_kept timestamp, gb_months double, cost double, error string, "
    "is_deleted boolean"
)
_FIELDS: Final[list[Any]] = [
    ("topic", pa.string()),
    ("topic_id", pa.string()),
    ("partition", pa.int32()),
    ("setting", pa.string()),
    ("retention_ms", pa.int64()),
    ("retention_bytes", pa.int64()),
    ("kept_segments", pa.int64()),
    ("kept_bytes", pa.int64()),
    ("kept_records", pa.int64()),
    ("deleted_segments", pa.int64()),
    ("deleted_bytes", pa.int64()),
    ("deleted_records", pa.int64()),
    ("local_only_bytes", pa.int64()),
    ("log_start_offset", pa.int64()),
    ("oldest_kept", pa.timestamp("us", tz="UTC")),
    ("gb_months", pa.float64()),
    ("cost", pa.float64()),
    ("error", pa.string()),
    ("is_deleted", pa.bool_()),
]
_ARROW: Final = pa.schema(_FIELDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionOptions:
    """What to report.

    Fields: `remote_storage`: the store's URI. `cluster`: None = no broker is asked: the present
            settings are those in the manifests, else Kafka's defaults, and nothing is known of
            local logs. `topics`: names, () = all in the store. `retention_ms`, `retention_bytes`:
            candidates, -1 = no limit; each changes one property of the present setting.
            `price_per_gb_month`: of the store, for 10^9 bytes; None = no cost. `now_ms`: the time
            that ages are measured at; None = now. `timeout_s`: how long an operation of the store
            is repeated.
    """

    remote_storage: str
    cluster: ClientConfig | None = None
    topics: tuple[str, ...] = ()
    retention_ms: tuple[int, ...] = CANDIDATES_MS
    retention_bytes: tuple[int, ...] = ()
    price_per_gb_month: float | None = None
    now_ms: int | None = None
    timeout_s: float = 60.0


@dataclass(frozen=True, slots=True)
class RetentionUnit:
    """A partition. `present`, `facts`: from brokers; None = nothing is known."""

    key: Key
    present: tuple[int, int] | None = None
    facts: BrokerFacts | None = None


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """What is read. `now_ms`: see `RetentionOptions`. `deleted`: topics that are not reported."""

    units: tuple[RetentionUnit, ...]
    now_ms: int
    deleted: tuple[tuple[str, Uuid], ...] = ()

    @property
    def topics(self) -> frozenset[str]:
        """The names of the topics."""
        return frozenset(each.key[0] for each in self.units)


def plan_retention(options: RetentionOptions) -> RetentionPlan:
    """Return the plan, from listings and the brokers' metadata alone.

    Raises: OptionError, RemoteStorageError, ClientError.
    """
    now_ms = time.time_ns() // 1_000_000 if options.now_ms is None else options.now_ms
    with StoreAccess(options.remote_storage, options.timeout_s) as store:
        stored = stored_partitions(store, options.topics)
    keys = sorted(stored.keys)
    if options.cluster is None:
        return RetentionPlan(tuple(RetentionUnit(key) for key in keys), now_ms)
    names = sorted({key[0] for key in keys})
    with ClusterClient(options.cluster) as client:

        def ask() -> tuple[set[Uuid], dict[str, tuple[int, int]], dict[Any, BrokerFacts]]:
            existing = client.topics(names, skip_unknown=True) if names else []
            ids = {each.topic_id for each in existing}
            alive = [key for key in keys if key[1] in ids]
            present = present_retention(client, {key[0] for key in alive}) if alive else {}
            return ids, present, broker_facts(client, [(key[0], key[2]) for key in alive])

        ids, present, facts = client.with_retries(ask, repeatable=True)
    units = tuple(
        RetentionUnit(key, present[key[0]], facts.get((key[0], key[2])))
        for key in keys
        if key[1] in ids
    )
    deleted = sorted({(topic, topic_id) for topic, topic_id, _ in keys if topic_id not in ids})
    return RetentionPlan(units, now_ms, tuple(deleted))


def retention_report(spark: Any, options: RetentionOptions) -> Any:
    """Return a row for each partition and setting; each action on it repeats the report.

    Columns: topic, topic_id, partition, setting (`current`, or the property that differs from it,
             with its value), retention_ms, retention_bytes, of segments, bytes and records
             kept_... and deleted_..., local_only_bytes, log_start_offset, oldest_kept (the newest
             timestamp of the oldest segment that is kept), gb_months, cost, error.
    Raises:  OptionError, RemoteStorageError, ClientError, where store or cluster cannot be reached.
    """
    return retention_rows(spark, options, plan_retention(options))


def retention_rows(spark: Any, options: RetentionOptions, plan: RetentionPlan) -> Any:
    """Return the rows of a plan, without those of deleted topics."""
    rows = mapped(spark, partial(_report_batches, plan, options), len(plan.units), ROW_SCHEMA)
    # Of a deleted topic not all manifests say so at once.
    topic = Window.partitionBy("topic_id")
    rows = rows.withColumn("is_deleted", sql.max("is_deleted").over(topic))
    return rows.where("not is_deleted").drop("is_deleted")


def _report_batches(
    plan: RetentionPlan, options: RetentionOptions, batches: Iterator[Any]
) -> Iterator[Any]:
    """Run in a task: report the units of its numbers."""
    numbers = [number for batch in batches for number in batch.column(0).to_pylist()]

    def rows() -> Iterator[dict[str, Any]]:
        with StoreAccess(options.remote_storage, options.timeout_s) as store:
            for number in numbers:
                if number < len(plan.units):
                    yield from report_unit(store, plan.units[number], options, plan.now_ms)

    yield from to_batches(rows(), _ARROW)


def report_unit(
    store: StoreAccess, unit: RetentionUnit, options: RetentionOptions, now_ms: int
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a partition; one row with an error where it cannot be read."""
    topic, topic_id, partition = unit.key
    head = {"topic": topic, "topic_id": uuid_text(topic_id), "partition": partition}
    try:
        state = read_state(store, topic, topic_id, partition)
    except RemoteStorageError as error:
        yield {**head, "error": str(error), "is_deleted": False}
        return
    log = _log(state, unit.facts)
    # With brokers, it is they who know which topics exist.
    head["is_deleted"] = unit.present is None and _is_deleted(state)
    present = unit.present or _present_in(state)
    candidates = settings(present, options.retention_ms, options.retention_bytes)
    known_local = unit.facts is not None
    for setting, outcome in zip(candidates, outcomes(log, candidates, now_ms), strict=True):
        row = _row(setting, outcome, options)
        yield {**head, **row, "local_only_bytes": log.local_only_bytes if known_local else None}


def _log(state: ManifestState | None, facts: BrokerFacts | None) -> RetainedLog:
    if state is None:  # Nothing is copied yet.
        local_bytes = 0 if facts is None else facts.local_bytes
        return RetainedLog(RemoteLog(), Lineage((), 0), 0, local_bytes)
    if facts is None:
        return log_of_manifests(state)
    return log_of_manifests(
        state, log_start=facts.log_start, local=(facts.local_start, facts.local_bytes)
    )


def _is_deleted(state: ManifestState | None) -> bool:
    return state is not None and state.floor != NO_FLOOR and state.floor >= state.tiered_epoch


def _present_in(state: ManifestState | None) -> tuple[int, int]:
    configs = {} if state is None or state.configs is None else state.configs
    return (
        int(configs.get(RETENTION_MS, DEFAULT_MS)),
        int(configs.get(RETENTION_BYTES, UNLIMITED)),
    )


def _row(setting: Setting, outcome: Outcome, options: RetentionOptions) -> dict[str, Any]:
    gb = outcome.kept_bytes / BYTES_PER_GB
    price, oldest_ms = options.price_per_gb_month, outcome.oldest_kept_ms
    return {
        "setting": name_of(setting),
        "retention_ms": setting.retention_ms,
        "retention_bytes": setting.retention_bytes,
        "kept_segments": outcome.kept_segments,
        "kept_bytes": outcome.kept_bytes,
        "kept_records": outcome.kept_records,
        "deleted_segments": outcome.deleted_segments,
        "deleted_bytes": outcome.deleted_bytes,
        "deleted_records": outcome.deleted_records,
        "log_start_offset": outcome.log_start_offset,
        "oldest_kept": None if oldest_ms is None or oldest_ms < 0 else _timestamp(oldest_ms),
        "gb_months": gb,
        "cost": None if price is None else gb * price,
    }


def _timestamp(at_ms: int) -> datetime:
    """Return a time; producers may have written one that no calendar has."""
    return datetime.fromtimestamp(min(at_ms, YEAR_9999_MS) / 1e3, UTC)


def name_of(setting: Setting) -> str:
    """Return `current`, or the property that differs from the present setting with its value."""
    if not setting.name:
        return PRESENT
    changed = setting.retention_ms if setting.name == RETENTION_MS else setting.retention_bytes
    return f"{setting.name}={changed}"
