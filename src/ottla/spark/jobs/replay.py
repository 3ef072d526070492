"""The replay job: ranges of one topic, also of its archive, copied into another topic.

    from ottla.spark.jobs.replay import ReplayOptions, Source, replay
    replay(spark, ReplayOptions(source=source, to="orders-again", target=config, state="/var/r1"))

Each source partition is copied by one task, from its first record to its last, so that its order is
kept. Records are written with their keys, values, headers and timestamps. Writing is at-least-once:
a task records its progress after each piece that the cluster has acknowledged, and a run that was
killed in between writes that piece again.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

import pyarrow as pa

from ottla.base.ids import Uuid, uuid_text
from ottla.client.cluster import ClientConfig, ClusterClient
from ottla.client.errors import ClientError, NoSuchVersionError, check
from ottla.client.partitions import TopicPartition
from ottla.client.topic_configs import describe_topic_configs
from ottla.spark.cluster_options import retried
from ottla.spark.errors import ClusterError, OptionError
from ottla.spark.jobs import replay_state as state
from ottla.spark.jobs.documents import OffsetRange
from ottla.spark.jobs.heartbeat import PATIENCE_S, Heartbeat, check_not_running
from ottla.spark.jobs.replay_state import ReplayJob
from ottla.spark.jobs.source_ranges import EDGE, Bound, Source, find_ranges, plan_tasks, report_lost
from ottla.spark.jobs.target_store import TargetStore, absolute, target_uri
from ottla.spark.jobs.tasks import directly, ignore, mapped, to_batches
from ottla.spark.options import ReadOptions
from ottla.spark.planner import Task
from ottla.spark.splits import Split
from ottla.spark.tasks import read_task
from ottla.spark.writing.producing import RawProducer
from ottla.spark.writing.sink import Router, gathered
from ottla.spark.writing.write_options import WriteOptions

__all__ = ["Bound", "ReplayOptions", "ReplayResult", "Source", "replay"]

T = TypeVar("T")

KEEP, KEY, NOW = "keep", "key", "now"
COLUMNS: Final = ("key", "value", "headers", "timestamp", "offset", "partition")
_TIMESTAMP_TYPE: Final = "message.timestamp.type"

ROW_SCHEMA: Final = "partition int, start long, end long, rows long"
_FIELDS: Final[list[Any]] = [
    ("partition", pa.int32()),
    ("start", pa.int64()),
    ("end", pa.int64()),
    ("rows", pa.int64()),
]
_ARROW: Final = pa.schema(_FIELDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """What to replay.

    Fields: `to`: the target topic, which must exist. `target`: its cluster.
            `state`: a directory or an object store's URI, of this replay alone.
            `start`, `end`: where, resolved to offsets by the first run.
            `partitioning`: keep = the same partition number; key = by the hash of the key.
            `timestamps`: keep, or now = the time of writing.
            `compression`: of the batches that are written.
    """

    source: Source
    to: str
    target: ClientConfig
    state: str
    start: Bound = EDGE
    end: Bound = EDGE
    partitioning: str = KEEP
    timestamps: str = KEEP
    compression: str = "none"
    timeout_s: float = 60.0
    patience_s: float = PATIENCE_S

    def __post_init__(self) -> None:
        target_uri(self.state, "state")
        for name, value, expected in (
            ("partitioning", self.partitioning, (KEEP, KEY)),
            ("timestamps", self.timestamps, (KEEP, NOW)),
        ):
            if value not in expected:
                raise OptionError(f"{name}={value}: expected {' or '.join(expected)}")
        self.writing()

    def writing(self) -> WriteOptions:
        """Return the options of the writes. Raises: OptionError."""
        raw = {
            "kafka.bootstrap.servers": self.target.bootstrap,
            "topic": self.to,
            "kafka.compression.type": self.compression,
        }
        return replace(WriteOptions.of(raw), cluster=self.target)

    def asked(self) -> dict[str, str]:
        """Return what decides the ranges and how they are written, for comparison."""
        found = {
            "topic": self.source.topic,
            "target": self.to,
            "partitioning": self.partitioning,
            "timestamps": self.timestamps,
            "isolation": "read_committed" if self.source.read_committed else "read_uncommitted",
        }
        return found | _texts("start", self.start) | _texts("end", self.end)


def _texts(side: str, bound: Bound) -> dict[str, str]:
    pairs = {
        "offset": bound.offset,
        "offsets": ",".join(f"{key}:{value}" for key, value in sorted(bound.offsets.items())),
        "time": bound.time_ms,
    }
    return {f"{side} {name}": str(each) for name, each in pairs.items() if each not in (None, "")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The target topic. `replaces_time`: its brokers set the records' timestamps."""

    topic_id: Uuid
    partitions: int
    replaces_time: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """What a run would do.

    Fields: `job`: of the whole replay. `is_new`: no run has begun it.
            `left`: what is to be copied still. `losses`: a message for each range that is gone.
    """

    job: ReplayJob
    is_new: bool
    left: tuple[OffsetRange, ...]
    losses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """What a run did. `copied`: ranges, with the number of their records."""

    job: ReplayJob
    is_new: bool
    copied: tuple[tuple[OffsetRange, int], ...]
    losses: tuple[str, ...]

    @property
    def rows(self) -> int:
        return sum(count for _, count in self.copied)


def plan_replay(options: ReplayOptions) -> ReplayPlan:
    """Return what a run would copy; nothing is changed.

    Raises: OptionError, ClusterError, ClientError, RemoteStorageError, JournalError; DataLossError
            where records are gone, unless `skip_lost`.
    """
    with TargetStore(options.state, options.timeout_s) as store:
        return _plan(options, store)


def replay(
    spark: Any,
    options: ReplayOptions,
    *,
    act: Callable[[Callable[[], T]], T] = directly,
    report: Callable[[str], object] = ignore,
) -> ReplayResult:
    """Run a replay, or continue it; return what this run did.

    `act` runs the Spark action, and may show its progress; `report` gets lines of progress.
    Raises: as `plan_replay`; WriteError; RunningError where another run is under way.
    """
    options = replace(options, state=absolute(options.state))
    with TargetStore(options.state, options.timeout_s) as store:
        plan = _plan(options, store)
        copied: list[tuple[OffsetRange, int]] = []
        if plan.left:
            store.make_root()
            if not plan.is_new:
                check_not_running(
                    store, state.ALIVE, "the replay", patience_s=options.patience_s, report=report
                )
            with Heartbeat(options.state, state.ALIVE, options.timeout_s):
                if plan.is_new:
                    state.create_job(store, plan.job)
                copied = _run(spark, options, plan, act)
        return ReplayResult(
            job=plan.job, is_new=plan.is_new, copied=tuple(copied), losses=plan.losses
        )


def _run(
    spark: Any,
    options: ReplayOptions,
    plan: ReplayPlan,
    act: Callable[[Callable[[], Any]], Any],
) -> list[tuple[OffsetRange, int]]:
    source = replace(options.source, topic_id=plan.job.topic_id)
    reading, tasks = plan_tasks(source, plan.job.topic_id, plan.left)
    splits: dict[int, list[Split]] = {each.partition: [] for each in plan.left}
    for task in tasks:
        for split in task.splits:
            splits[split.partition].append(split)
    ranges = {each.partition: each for each in plan.job.ranges}
    units = [
        (ranges[number], tuple(sorted(some, key=lambda split: split.start)))
        for number, some in sorted(splits.items())
    ]
    work = partial(_replay_batches, units, reading, options)
    rows = act(mapped(spark, work, len(units), ROW_SCHEMA).collect)
    found = (row.asDict() for row in rows)
    copied = [
        (OffsetRange(row["partition"], row["start"], row["end"]), row["rows"]) for row in found
    ]
    return sorted(copied, key=lambda each: each[0].partition)


# Planning


def _plan(options: ReplayOptions, store: TargetStore) -> ReplayPlan:
    job = state.read_job(store)
    with ClusterClient(options.target) as client:
        target = find_target(client, options.to)
    if job is not None:
        state.check_same(job, options.asked())
        _check_topic_id(options.source, job.topic_id)
        _check_target(options, target, job)
        positions = [(each, state.read_progress(store, each)) for each in job.ranges]
        left = tuple(
            OffsetRange(each.partition, at, each.end) for each, at in positions if at < each.end
        )
        return ReplayPlan(job=job, is_new=False, left=left)
    found = find_ranges(options.source, options.start, options.end)
    _check_topic_id(options.source, found.topic_id)
    report_lost(options.source, found)
    job = ReplayJob(
        topic=options.source.topic,
        topic_id=found.topic_id,
        to=options.to,
        to_id=target.topic_id,
        asked=options.asked(),
        ranges=found.ranges,
        creator=os.urandom(8).hex(),
    )
    _check_target(options, target, job)
    return ReplayPlan(job=job, is_new=True, left=found.ranges, losses=found.losses)


def _check_topic_id(source: Source, found: Uuid) -> None:
    """Refuse another topic than the one that was named: the cluster may have a later one."""
    if source.topic_id is not None and source.topic_id != found:
        raise ClusterError(
            f"topic {source.topic} has the id {uuid_text(found)}, not {uuid_text(source.topic_id)}"
        )


def find_target(client: ClusterClient, name: str) -> Target:
    """Return the target. Raises: ClusterError where there is no such topic; it is not created."""
    found = retried(
        client,
        f"looking up topic {name}",
        lambda: client.topics([name], skip_unknown=True),
    )
    if not found:
        raise ClusterError(f"there is no topic {name}: create it first")
    (topic,) = found
    return Target(
        topic_id=topic.topic_id,
        partitions=len(topic.partitions),
        replaces_time=_replaces_time(client, name),
    )


def _replaces_time(client: ClusterClient, name: str) -> bool:
    """Tell whether brokers set the timestamps of a topic; False where they do not tell."""

    def ask() -> bool:
        results = describe_topic_configs(client, (name,), (_TIMESTAMP_TYPE,))
        for result in results:
            check(f"configuration of {name}", result.error_code, result.error_message)
        return any(
            each.name == _TIMESTAMP_TYPE and each.value == "LogAppendTime"
            for result in results
            for each in result.configs
        )

    try:
        return client.with_retries(ask, repeatable=True)
    except NoSuchVersionError:
        return False
    except ClientError as error:
        raise ClusterError(str(error), error.code) from error


def _check_target(options: ReplayOptions, target: Target, job: ReplayJob) -> None:
    """Refuse a target that cannot take what is to be copied."""
    if target.topic_id != job.to_id:
        raise ClusterError(
            f"topic {job.to} was deleted and created again since the replay began: use another "
            "state to start over"
        )
    if target.topic_id == job.topic_id:
        raise OptionError(f"topic {job.to} is the source itself")
    needed = 1 + max((each.partition for each in job.ranges), default=-1)
    if options.partitioning == KEEP and target.partitions < needed:
        raise OptionError(
            f"topic {job.to} has {target.partitions} partitions, and {needed} are needed to keep "
            "the partitions of the source: create more, or use the partitioning key"
        )
    if options.timestamps == KEEP and target.replaces_time:
        raise OptionError(
            f"topic {job.to} has {_TIMESTAMP_TYPE}=LogAppendTime, which replaces timestamps: set "
            "CreateTime, or use the timestamps now"
        )


# Tasks

Unit = tuple[OffsetRange, tuple[Split, ...]]
"""A partition's whole range, and the splits that are left of it, in order."""


def _replay_batches(
    units: Sequence[Unit], reading: ReadOptions, options: ReplayOptions, batches: Iterator[Any]
) -> Iterator[Any]:
    """Run in a task: copy the partitions of its numbers, one after the other."""
    numbers = (number for batch in batches for number in batch.column(0).to_pylist())
    mine = [units[number] for number in numbers if number < len(units)]
    yield from to_batches((replay_unit(each, reading, options) for each in mine), _ARROW)


def replay_unit(unit: Unit, reading: ReadOptions, options: ReplayOptions) -> dict[str, Any]:
    """Copy what is left of one partition, in order.

    It begins where the progress is now, so that a task that Spark repeats continues.
    """
    whole, splits = unit
    with TargetStore(options.state, options.timeout_s) as store:
        begin = state.read_progress(store, whole)
        left = tuple(
            replace(each, start=max(each.start, begin)) for each in splits if each.end > begin
        )
        with ClusterClient(options.target) as client:
            producer = RawProducer(client, options.writing())
            router = Router(producer, options.to)
            for rows in gathered(read_task(Task(left), reading, COLUMNS)):
                producer.write(_routed(router, rows, options))
                offset = rows.column("offset")[-1].as_py() + 1
                state.write_progress(store, whole.partition, offset)
            producer.finish()
        state.write_progress(store, whole.partition, whole.end)
    return {
        "partition": whole.partition,
        "start": begin,
        "end": whole.end,
        "rows": producer.written,
    }


def _routed(router: Router, rows: Any, options: ReplayOptions) -> dict[TopicPartition, Any]:
    dropped = ["offset"]
    if options.partitioning == KEY:
        dropped.append("partition")
    if options.timestamps == NOW:
        dropped.append("timestamp")
    return router.route(rows.drop_columns(dropped))
