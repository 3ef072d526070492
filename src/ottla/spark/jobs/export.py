"""The export job: a topic as a Parquet table, continued by each run.

    from ottla.spark.jobs.export import ExportOptions, export, exported
    source = Source(topic="orders", cluster=config)
    export(spark, ExportOptions(source=source, to="s3://lake/orders"))
    exported(spark, "s3://lake/orders").show()

A run exports the offsets from where the last one ended up to what is there now, decided once and
recorded before anything is written. Tasks read batches, write Parquet files and hand the driver
their names only; `export_journal` says how a run becomes visible, all of it or nothing.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

import pyarrow as pa

from ottla.base.ids import Uuid, uuid_text
from ottla.spark.errors import ClusterError, OptionError
from ottla.spark.jobs.documents import OffsetRange
from ottla.spark.jobs.exporting import export_journal as journal
from ottla.spark.jobs.exporting.export_delta import check_place, deltalake
from ottla.spark.jobs.exporting.export_files import BY_DATE, BY_NONE, COLUMNS, ParquetFiles
from ottla.spark.jobs.exporting.export_iceberg import check_target
from ottla.spark.jobs.exporting.export_journal import Entry, ExportedFile, Phase, Table
from ottla.spark.jobs.exporting.export_listing import DELTA, ICEBERG, PARQUET, Listing, listing_of
from ottla.spark.jobs.exporting.export_state import ALIVE, Journal, check_table, recover
from ottla.spark.jobs.heartbeat import PATIENCE_S, Heartbeat
from ottla.spark.jobs.source_ranges import EDGE, Bound, Source, find_ranges, plan_tasks, report_lost
from ottla.spark.jobs.target_store import TargetStore, target_uri
from ottla.spark.jobs.tasks import directly, ignore, mapped, to_batches
from ottla.spark.options import ReadOptions
from ottla.spark.planner import Task
from ottla.spark.tasks import read_task
from ottla.stores.uri import FileUri, S3Uri

__all__ = ["Bound", "ExportOptions", "ExportResult", "Source", "export", "exported"]

T = TypeVar("T")

FAIL, CONTINUE = "fail", "continue"

ROW_SCHEMA: Final = "name string, partition int, start long, end long, rows long, size_bytes long"
_FIELDS: Final[list[Any]] = [
    ("name", pa.string()),
    ("partition", pa.int32()),
    ("start", pa.int64()),
    ("end", pa.int64()),
    ("rows", pa.int64()),
    ("size_bytes", pa.int64()),
]
_ARROW: Final = pa.schema(_FIELDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """What to export.

    Fields: `to`: a directory or an object store's URI; of an Iceberg table a directory, or its name
            in a catalog (see `export_iceberg`).
            `format`: parquet; delta or iceberg = such files in a Delta or Iceberg table, by the
            packages deltalake and pyiceberg.
            `partition_by`: date (of the record's timestamp, UTC) or none.
            `start`: where the first run starts; later ones continue. `end`: where this one ends.
            `on_recreate`: fail, or continue with the first record of a topic that was deleted and
            created again.
            `patience_s`: how long a run that has not ended is watched before it counts as killed.
    """

    source: Source
    to: str
    format: str = PARQUET
    partition_by: str = BY_DATE
    start: Bound = EDGE
    end: Bound = EDGE
    on_recreate: str = FAIL
    timeout_s: float = 60.0
    patience_s: float = PATIENCE_S

    def __post_init__(self) -> None:
        for name, value, expected in (
            ("format", self.format, (PARQUET, DELTA, ICEBERG)),
            ("partition_by", self.partition_by, (BY_DATE, BY_NONE)),
            ("on_recreate", self.on_recreate, (FAIL, CONTINUE)),
        ):
            if value not in expected:
                *others, last = expected
                raise OptionError(f"{name}={value}: expected {', '.join(others)} or {last}")
        if self.format == ICEBERG:
            check_target(self.to)
            return
        uri = target_uri(self.to)
        if self.format == DELTA:
            check_place(uri)
            deltalake()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportPlan:
    """What a run would do.

    Fields: `last`: the last entry of the target's journal. `offsets`: where it continues.
            `losses`: a message for each range that is gone.
    """

    topic_id: Uuid
    last: Entry | None
    offsets: dict[int, int]
    ranges: tuple[OffsetRange, ...]
    losses: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """What a run did. `recovered`: what was done about a killed one: "", completed or discarded."""

    topic: str
    topic_id: Uuid
    to: str
    run: str | None
    ranges: tuple[OffsetRange, ...]
    files: tuple[ExportedFile, ...]
    losses: tuple[str, ...]
    recovered: str

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.files)


def plan_export(options: ExportOptions) -> ExportPlan:
    """Return what a run would export; nothing is changed.

    Raises: OptionError, ClusterError, RemoteStorageError; JournalError; DataLossError where records
            are gone, unless `skip_lost`.
    """
    with _listing(options) as listing:
        place = listing.place()
        if place is None:
            return _plan(options, None)
        with TargetStore(place, options.timeout_s) as store:
            entries = Journal(store)
            _check_target(options, listing, entries)
            return _plan(options, entries)


def export(
    spark: Any,
    options: ExportOptions,
    *,
    act: Callable[[Callable[[], T]], T] = directly,
    report: Callable[[str], object] = ignore,
) -> ExportResult:
    """Run an export in a Spark session; return what it did.

    `act` runs the Spark action, and may show its progress; `report` gets lines of progress.
    Raises: as `plan_export`; RunningError where another export to this target is under way.
    """
    with ExitStack() as stack:
        listing = stack.enter_context(_listing(options))
        place = listing.place() or listing.create()
        store = stack.enter_context(TargetStore(place, options.timeout_s))
        store.make_root()
        entries = Journal(store, listing.add_run)
        _check_target(options, listing, entries)
        listing.create()
        recovered = recover(entries, store, patience_s=options.patience_s, report=report)
        plan = _plan(options, entries)
        done: tuple[ExportedFile, ...] = ()
        run: str | None = None
        if plan.ranges:
            with Heartbeat(place, ALIVE, options.timeout_s):
                run = _new_run(entries.last)
                done = _run(spark, options, plan, place, entries, run, act, report)
        elif options.start.is_set:
            # Later runs continue where this one was to start.
            _begin(options, plan, entries, _new_run(entries.last))
            entries.discard()
        return ExportResult(
            topic=options.source.topic,
            topic_id=plan.topic_id,
            to=listing.name,
            run=run,
            ranges=plan.ranges,
            files=done,
            losses=plan.losses,
            recovered=recovered,
        )


def _listing(options: ExportOptions) -> Listing:
    return listing_of(options.format, options.to, options.source.topic, options.partition_by)


def _check_target(options: ExportOptions, listing: Listing, entries: Journal) -> None:
    last = entries.last
    check_table(last, options.source.topic, options.format, options.partition_by)
    is_pending = last is not None and last.phase is Phase.COMMITTED
    try:
        listing.check(entries.last_published, last if is_pending else None)
    except OptionError:
        entries.check_last()  # Between both looks another export may have ended a run.
        raise


def _run(
    spark: Any,
    options: ExportOptions,
    plan: ExportPlan,
    place: str,
    entries: Journal,
    run: str,
    act: Callable[[Callable[[], Any]], Any],
    report: Callable[[str], object],
) -> tuple[ExportedFile, ...]:
    source = replace(options.source, topic_id=plan.topic_id)
    reading, tasks = plan_tasks(source, plan.topic_id, plan.ranges)
    _begin(options, plan, entries, run)
    entries.sweep(kept=run)
    work = partial(_export_batches, tasks, reading, options, place, run)
    rows = mapped(spark, work, len(tasks), ROW_SCHEMA)
    files = tuple(sorted(map(_file, act(rows.collect)), key=lambda each: each.name))
    entries.commit(files)
    entries.publish(report)
    return files


def _begin(options: ExportOptions, plan: ExportPlan, entries: Journal, run: str) -> None:
    table = Table(
        topic=options.source.topic,
        topic_id=plan.topic_id,
        format=options.format,
        partition_by=options.partition_by,
    )
    entries.append(journal.begun(entries.last, run, table, plan.offsets, plan.ranges))


def _new_run(last: Entry | None) -> str:
    number = 0 if last is None else last.number + 1
    return f"{number:06}-{os.urandom(4).hex()}"


def _plan(options: ExportOptions, entries: Journal | None) -> ExportPlan:
    source = options.source
    last = None if entries is None else entries.last
    offsets = {} if last is None else dict(last.offsets)
    if entries is not None and options.start.is_set and offsets:
        if entries.has_commits():
            raise OptionError(
                "the target was exported to before, and continues where that ended: a start can "
                "only be given for the first run"
            )
        # A first run that was killed, or had nothing to export, has only recorded where to start.
        offsets = {}
    if last is not None and source.topic_id is None and options.on_recreate == FAIL:
        source = replace(source, topic_id=last.table.topic_id)
    # A partition that no earlier run has seen is new, and is exported from its beginning: what
    # of it has expired is lost.
    start = Bound(offset=0) if offsets else options.start
    found = find_ranges(source, start, options.end, offsets)
    named = options.source.topic_id
    if named is not None and found.topic_id != named:
        raise ClusterError(
            f"topic {source.topic} has the id {uuid_text(found.topic_id)}, not {uuid_text(named)}"
        )
    if last is not None and found.topic_id != last.table.topic_id:
        if options.on_recreate == FAIL:
            raise ClusterError(
                f"topic {source.topic} was deleted and created again: the target has records of "
                f"the id {uuid_text(last.table.topic_id)}, the topic's id is "
                f"{uuid_text(found.topic_id)}. Export to another target, or continue with the new "
                "topic (on_recreate=continue)"
            )
        offsets = {}
        found = find_ranges(source, options.start, options.end, offsets)
    report_lost(source, found)
    return ExportPlan(
        topic_id=found.topic_id,
        last=last,
        # A broker with older metadata knows fewer partitions: those of earlier runs are kept.
        offsets={**offsets, **found.starts},
        ranges=found.ranges,
        losses=found.losses,
    )


def _export_batches(
    tasks: Sequence[Task],
    reading: ReadOptions,
    options: ExportOptions,
    place: str,
    run: str,
    batches: Iterator[Any],
) -> Iterator[Any]:
    """Run in a task: export the planned tasks of its numbers; yield its files."""
    # pyiceberg finds a file's partition by the values of its columns.
    has_date = options.format == ICEBERG
    with (
        TargetStore(place, options.timeout_s) as store,
        ParquetFiles(store, run, options.partition_by, has_date=has_date) as files,
    ):
        for batch in batches:
            for number in batch.column(0).to_pylist():
                if number < len(tasks):
                    for rows in read_task(tasks[number], reading, COLUMNS):
                        files.write(rows)
        yield from to_batches(map(_row, files.finish()), _ARROW)


def _row(file: ExportedFile) -> dict[str, Any]:
    return {name: getattr(file, name) for name, _ in _FIELDS}


def _file(row: Any) -> ExportedFile:
    return ExportedFile(**row.asDict())


def exported(spark: Any, to: str, *, timeout_s: float = 60.0) -> Any:
    """Return the records of all runs that have ended, as a DataFrame.

    A plain `spark.read.parquet(to)` reads the same, but for the moments in which a run's files are
    moved into place one after the other: it may see some of them.
    Raises: OptionError, RemoteStorageError, JournalError.
    """
    with TargetStore(to, timeout_s) as store:
        names = [file.name for entry in Journal(store).commits() for file in entry.files]
        root = _hadoop_path(store)
    if not names:
        raise OptionError(f"{to} has no exported records")
    reader = spark.read.option("basePath", root)
    return reader.parquet(*(f"{root}/{name}" for name in names))


def _hadoop_path(store: TargetStore) -> str:
    uri = store.parsed
    if isinstance(uri, S3Uri):
        return f"s3a://{uri.bucket}" + (f"/{uri.prefix}" if uri.prefix else "")
    if isinstance(uri, FileUri):
        return f"file://{uri.path}"  # Hadoop takes a %20 for what it is, not for a space.
    raise OptionError(f"{uri} cannot be read by Spark")
