"""The backfill job: the closed segments of a tiered topic, copied to its remote storage by Spark.

    from ottla.spark.jobs.backfill import BackfillOptions, backfill
    backfill(spark, BackfillOptions(topic="orders", cluster=config, remote_storage="s3://bucket/p"))

Leaders grant the copies and finish them; they alone write segment metadata. The tasks read batches
from the leaders and write the objects (`backfill_tasks`). A run goes in rounds: after each one the
leaders are asked what is left of what was there at the beginning. There is no state of a run: what
a killed one has begun ends with its leases, and the next run copies what is left.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa

from ottla.base.ids import Uuid
from ottla.client.cluster import ClientConfig, ClusterClient
from ottla.client.errors import ClientError
from ottla.spark.cluster_options import retried
from ottla.spark.errors import ClusterError, OptionError, RemoteStorageError
from ottla.spark.jobs.backfill_tasks import CopyOptions, CopyRow, copy_segments
from ottla.spark.jobs.copy_grants import NO_HOLDER, ask_grants
from ottla.spark.jobs.store_access import StoreAccess
from ottla.spark.jobs.target_store import target_uri
from ottla.spark.jobs.tasks import cores_of, directly, ignore, mapped, to_batches
from ottla.stores.uri import FileUri, StoreUriError, parse_store_uri
from ottla.tiered.granted_copy import (
    FAILED,
    FINISHED,
    KEPT,
    OTHER_STORE,
    REFUSED,
    CopyTarget,
    object_of,
)
from ottla.tiered.object_names import ObjectKind
from ottla.wire.messages import describe_remote_log as remote_log
from ottla.wire.messages import grant_segment_copies as grants

T = TypeVar("T")

LEASE_S: Final = 300.0
ROUND_S: Final = 30.0
IDLE_PAUSE_S: Final = 2.0
"""Between rounds in which others held all that was left."""
FAILED_ROUNDS_MAX: Final = 3
"""Rounds in a row that copied nothing, and failed, before the run ends."""

ROW_SCHEMA: Final = (
    "topic string, partition int, start_offset long, end_offset long, size_bytes long, "
    "state string, detail string"
)
_FIELDS: Final[list[Any]] = [
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("start_offset", pa.int64()),
    ("end_offset", pa.int64()),
    ("size_bytes", pa.int64()),
    ("state", pa.string()),
    ("detail", pa.string()),
]
_ARROW: Final = pa.schema(_FIELDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillOptions:
    """What to copy, and how.

    Fields: `partitions`: None = all. `parallelism`: segments that are copied at once; None = the
            cores of the session. `lease_s`: within which a copy must be committed, or renewed.
    """

    topic: str
    cluster: ClientConfig
    remote_storage: str
    partitions: tuple[int, ...] | None = None
    parallelism: int | None = None
    lease_s: float = LEASE_S
    round_s: float = ROUND_S
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        target_uri(self.remote_storage, "remote_storage")
        for name, value in (("parallelism", self.parallelism), ("lease_s", self.lease_s)):
            if value is not None and value <= 0:
                raise OptionError(f"{name}={value}: expected a positive number")

    def copying(self) -> CopyOptions:
        """Return the options of the tasks."""
        return CopyOptions(
            cluster=self.cluster,
            remote_storage=self.remote_storage,
            lease_s=self.lease_s,
            round_s=self.round_s,
            timeout_s=self.timeout_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLeft:
    """What is left to copy of a partition: closed segments, and their bytes."""

    target: CopyTarget
    segments: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillPlan:
    """What a run would copy, by partition; partitions with nothing left are there, too."""

    topic: str
    topic_id: Uuid
    partitions: tuple[PartitionLeft, ...]

    @property
    def segments(self) -> int:
        return sum(each.segments for each in self.partitions)

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillResult:
    """What a run did. `rows`: the copies of its tasks. `left`: what is left of the plan."""

    plan: BackfillPlan
    rows: tuple[CopyRow, ...]
    left: BackfillPlan
    rounds: int

    @property
    def copied(self) -> list[CopyRow]:
        """The copies that count: the leaders have finished them, or will."""
        return [each for each in self.rows if each.state in (FINISHED, KEPT)]

    @property
    def failures(self) -> list[CopyRow]:
        return [each for each in self.rows if each.state == FAILED]


def plan_backfill(options: BackfillOptions) -> BackfillPlan:
    """Return what a run would copy; nothing is changed.

    Raises: OptionError, RemoteStorageError; ClusterError where the topic is not tiered, its tiered
            storage is off, or a leader does not serve the requests.
    """
    with ClusterClient(options.cluster) as client:
        targets = _targets(client, options)
        plan = _left(client, targets)
        _check_store(client, options, plan)
        return plan


def backfill(
    spark: Any,
    options: BackfillOptions,
    *,
    act: Callable[[Callable[[], T]], T] = directly,
    report: Callable[[str], object] = ignore,
) -> BackfillResult:
    """Copy what is left; return what this run did.

    `act` runs a Spark action, and may show its progress; `report` gets lines of progress.
    Raises: as `plan_backfill`; ClusterError where copies fail again and again.
    """
    plan = plan_backfill(options)
    rows: list[CopyRow] = []
    left, rounds = plan, 0
    failed_rounds = 0
    idle_until_s: float | None = None
    while left.segments:
        targets = [each.target for each in left.partitions if each.segments]
        found = _round(spark, options, targets, act)
        rounds += 1
        rows += found
        _check_rows(options, found)
        with ClusterClient(options.cluster) as client:
            left = _left(client, [each.target for each in plan.partitions])
        report(_progress(plan, left))
        if any(each.state in (FINISHED, KEPT) for each in found):
            failed_rounds, idle_until_s = 0, None
        elif found:
            failed_rounds += 1
            if failed_rounds >= FAILED_ROUNDS_MAX:
                raise ClusterError(f"no segment could be copied: {found[-1].detail}")
        elif left.segments:
            idle_until_s = _wait_for_others(options, idle_until_s, report)
    return BackfillResult(plan=plan, rows=tuple(rows), left=left, rounds=rounds)


def _round(
    spark: Any,
    options: BackfillOptions,
    targets: Sequence[CopyTarget],
    act: Callable[[Callable[[], Any]], Any],
) -> list[CopyRow]:
    tasks = cores_of(spark) if options.parallelism is None else options.parallelism
    work = partial(_copy_batches, tuple(targets), options.copying())
    rows = act(mapped(spark, work, tasks, ROW_SCHEMA).collect)
    return [CopyRow(**row.asDict()) for row in rows]


def _copy_batches(
    targets: Sequence[CopyTarget], options: CopyOptions, batches: Iterator[Any]
) -> Iterator[Any]:
    """Run in a task: copy segments, for a round. Where it has several numbers, they follow."""
    numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
    rows = (asdict(row) for number in numbers for row in copy_segments(targets, options, number))
    yield from to_batches(rows, _ARROW)


def _check_rows(options: BackfillOptions, rows: Sequence[CopyRow]) -> None:
    """Raise where no other round can be better."""
    for row in rows:
        if row.state == OTHER_STORE:
            raise RemoteStorageError(
                f"{row.detail}; {options.remote_storage} must be the store of the brokers, and the "
                "objects that were written there are deleted"
            )
        if row.state == REFUSED:
            raise ClusterError(row.detail)


def _wait_for_others(
    options: BackfillOptions, until_s: float | None, report: Callable[[str], object]
) -> float:
    """Pause where others hold what is left; return until when that is worth it."""
    now_s = time.monotonic()
    if until_s is None:
        until_s = now_s + 2 * options.lease_s + options.timeout_s
    if now_s >= until_s:
        raise ClusterError(
            "the segments that are left are being copied by their leaders or by another run, which "
            "does not end"
        )
    report("what is left is being copied by its leaders, or by another run whose leases must end")
    time.sleep(IDLE_PAUSE_S)
    return until_s


def _progress(plan: BackfillPlan, left: BackfillPlan) -> str:
    done = plan.segments - left.segments
    return (
        f"{done} of {plan.segments} segments, "
        f"{plan.size_bytes - left.size_bytes} of {plan.size_bytes} bytes copied"
    )


# Planning


def _targets(client: ClusterClient, options: BackfillOptions) -> list[CopyTarget]:
    name = options.topic
    found = retried(
        client, f"looking up topic {name}", lambda: client.topics([name], skip_unknown=True)
    )
    if not found:
        raise ClusterError(f"there is no topic {name}")
    (topic,) = found
    numbers = sorted(each.partition_index for each in topic.partitions)
    wanted = numbers if options.partitions is None else sorted(set(options.partitions))
    for each in wanted:
        if each not in numbers:
            raise ClusterError(f"topic {name} has no partition {each}: it has {len(numbers)}")
    return [CopyTarget(name, topic.topic_id, each) for each in wanted]


def _left(client: ClusterClient, targets: Sequence[CopyTarget]) -> BackfillPlan:
    """Ask what is left, up to the offsets of the targets, or of all that is closed now."""
    found = [(each, _ask_left(client, each)) for each in targets]
    return BackfillPlan(
        topic=targets[0].topic,
        topic_id=targets[0].topic_id,
        partitions=tuple(
            PartitionLeft(
                target=each if each.until_offset >= 0 else _bounded(each, row),
                segments=row.segments_left,
                size_bytes=row.bytes_left,
            )
            for each, row in found
        ),
    )


def _ask_left(client: ClusterClient, target: CopyTarget) -> grants.GrantedPartition:
    return ask_grants(client, target, NO_HOLDER, segments=0, lease_ms=1)


def _bounded(target: CopyTarget, row: grants.GrantedPartition) -> CopyTarget:
    """Return the target with the end of what is closed now: what comes later is not waited for."""
    return replace(target, until_offset=max(row.end_offset, 0))


def _check_store(client: ClusterClient, options: BackfillOptions, plan: BackfillPlan) -> None:
    """Refuse a store that is not there, or that lacks what the brokers have in theirs.

    Where they have nothing of the topic yet, the first commit tells: they look for its objects.
    """
    try:
        parsed = parse_store_uri(options.remote_storage)
    except StoreUriError as error:
        raise OptionError(f"remote_storage: {error}") from None
    if isinstance(parsed, FileUri) and not Path(parsed.path).is_dir():
        raise RemoteStorageError(f"the object store {parsed} does not exist")
    name = _known_object(client, plan)
    with StoreAccess(options.remote_storage, options.timeout_s) as store:
        if name is None:
            store.check("")
        elif not store.exists(name):
            raise RemoteStorageError(
                f"the object store {store.uri} is not that of the brokers: it lacks {name}"
            )


def _known_object(client: ClusterClient, plan: BackfillPlan) -> str | None:
    """Return an object that the brokers have in their store; None = none is known."""
    for each in plan.partitions:
        target = each.target
        key = target.topic, target.partition
        request = remote_log.DescribeRemoteLogRequest(
            topics=(
                remote_log.DescribeRemoteLogTopic(
                    name=target.topic, partitions=(target.partition,)
                ),
            ),
            include_segments=True,
        )
        with suppress(ClientError):
            leader = client.leader(key, topic_id=target.topic_id)
            answer = client.ask(request, remote_log.DescribeRemoteLogResponse, node=leader.node)
            for row in answer.topics[0].partitions:
                if row.segments:
                    segment = row.segments[-1]
                    return object_of(
                        target, segment.segment_id, segment.start_offset, ObjectKind.LOG
                    )
    return None
