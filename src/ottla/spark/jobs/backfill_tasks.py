"""What the tasks of a backfill do: take a grant, copy its segment, commit it, and again.

A task asks for its grants itself, one at a time: so no lease counts while a task waits to be
started, the time of a lease and of the writes is that of one clock, and a task that Spark repeats
has grants of its own. Nothing is written after the end of a lease: a leader counts on it when it
deletes the objects of a copy that has ended.
"""

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, Final

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.base.object_store import FileSource, ObjectInfo, Source, StoreError
from ottla.base.ports import Buffer
from ottla.client.cluster import ClientConfig, ClusterClient
from ottla.client.errors import ClientError
from ottla.client.fetch import fetch
from ottla.spark.errors import ClusterError, RemoteStorageError
from ottla.spark.jobs.copy_grants import ask_grants, commit_copy
from ottla.spark.jobs.target_store import TargetStore
from ottla.spark.tiers.store_session import POOL, RETRIES
from ottla.tiered.granted_copy import (
    FAILED,
    OTHER_STORE,
    REFUSED,
    AskGrants,
    CheckObject,
    CommitCopy,
    CopyEnded,
    CopyFailed,
    CopyOutcome,
    CopyTarget,
    DeleteObjects,
    FetchBatches,
    GrantedCopy,
    KeepBatches,
    PutObject,
    Step,
)

FETCH_BYTES: Final = 8 * 1024 * 1024
FETCH_WAIT_MS: Final = 500
EMPTY_FETCHES_MAX: Final = 20
FAILURES_MAX: Final = 3
"""Failed copies of a task after which it ends: the next round begins others."""

_EXPECTED: Final = (ClusterError, ClientError, RemoteStorageError, OSError)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOptions:
    """How the tasks copy.

    Fields: `remote_storage`: the brokers' store. `lease_s`: within which a copy must be committed,
            unless it is renewed. `round_s`: after which a task takes no other segment.
    """

    cluster: ClientConfig
    remote_storage: str
    lease_s: float
    round_s: float
    timeout_s: float

    @property
    def lease_ms(self) -> int:
        return int(self.lease_s * 1_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRow:
    """One copy of a task; without a segment where there was no grant.

    `detail`: why it was not finished.
    """

    topic: str
    partition: int
    start_offset: int = -1
    end_offset: int = -1
    size_bytes: int = 0
    state: str
    detail: str = ""


def copy_segments(
    targets: Sequence[CopyTarget], options: CopyOptions, number: int
) -> Iterator[CopyRow]:
    """Copy segments of partitions, for one round; yield a row for each. `number`: of the task.

    It ends when the others copy all that is left, too.
    """
    until_s = time.monotonic() + options.round_s
    first = number % len(targets)
    waiting = [*targets[first:], *targets[:first]]
    failures = 0
    with (
        ClusterClient(options.cluster) as client,
        SegmentStore(options.remote_storage, options.timeout_s) as store,
    ):
        while waiting and failures < FAILURES_MAX and time.monotonic() < until_s:
            target = waiting.pop(0)
            try:
                with SegmentCopy(client, store, target, options) as copy:
                    row = copy.run()
            except CopyFailed as error:
                row = CopyRow(
                    topic=target.topic,
                    partition=target.partition,
                    state=REFUSED,
                    detail=str(error),
                )
            if row is None:
                continue  # Nothing of it is left, or all of that is being copied.
            yield row
            if row.state in (OTHER_STORE, REFUSED):
                return
            failures += row.state == FAILED
            waiting.append(target)


def _row(target: CopyTarget, outcome: CopyOutcome) -> CopyRow:
    segment = outcome.segment
    return CopyRow(
        topic=target.topic,
        partition=target.partition,
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        size_bytes=segment.size_bytes,
        state=outcome.state,
        detail=outcome.detail,
    )


class SegmentCopy:
    """One grant of a partition: executes the steps of its copy. Use as a context manager."""

    def __init__(
        self, client: ClusterClient, store: "SegmentStore", target: CopyTarget, options: CopyOptions
    ) -> None:
        self._client = client
        self._store = store
        self._target = target
        self._copy = GrantedCopy(
            target, Uuid(os.urandom(16)), lease_ms=options.lease_ms, now_ms=store.now_ms
        )
        self._files = ExitStack()
        self._kept: IO[bytes] | None = None

    def __enter__(self) -> "SegmentCopy":
        return self

    def __exit__(self, *error: object) -> None:
        self._files.close()

    def run(self) -> CopyRow | None:
        """Copy a segment; None = none is granted. Raises: CopyFailed where there is no grant."""
        steps = self._copy.steps()
        result: object = None
        failure: CopyFailed | None = None
        while True:
            try:
                step = steps.send(result) if failure is None else steps.throw(failure)
            except StopIteration as end:
                outcome: CopyOutcome | None = end.value
                return None if outcome is None else _row(self._target, outcome)
            result, failure = None, None
            try:
                result = self._execute(step)
            except CopyFailed as error:
                failure = error
            except _EXPECTED as error:
                failure = CopyFailed(str(error))

    def _execute(self, step: Step) -> object:
        match step:
            case AskGrants(target, holder, lease_ms):
                return ask_grants(self._client, target, holder, segments=1, lease_ms=lease_ms)
            case FetchBatches(_, offset, leader_epoch):
                return self._fetch(offset, leader_epoch)
            case KeepBatches(batches):
                self._file().write(batches)
            case PutObject(name, data, size_bytes, until_ms):
                source = self._kept_batches(size_bytes) if data is None else data
                self._store.put_until(name, source, until_ms)
            case CheckObject(name, size_bytes):
                self._store.check_size(name, size_bytes)
            case CommitCopy(target, granted, copy):
                return commit_copy(self._client, target, granted, copy)
            case DeleteObjects(names):
                self._store.delete(names)
        return None

    def _file(self) -> IO[bytes]:
        if self._kept is None:
            made = tempfile.NamedTemporaryFile(prefix="ottla-backfill-")  # noqa: SIM115
            self._kept = self._files.enter_context(made)
        return self._kept

    def _kept_batches(self, size_bytes: int) -> Source:
        file = self._file()
        file.flush()
        return FileSource(file.name, size_bytes)

    def _fetch(self, offset: int, leader_epoch: int) -> Buffer:
        """Return batches from an offset on, from the leader that has granted the copy."""
        target = self._target
        key = target.topic, target.partition
        problem = f"no records from offset {offset} on"
        for _ in range(EMPTY_FETCHES_MAX):
            leader = self._client.leader(key, topic_id=target.topic_id)
            if -1 < leader.epoch < leader_epoch:
                # It has granted the copy in a later term, which the metadata do not have yet.
                problem = f"the metadata have another leader epoch, {leader.epoch}"
                self._client.refresh()
                time.sleep(self._client.config.backoff_s)
                continue
            if leader.epoch not in (leader_epoch, -1):
                raise CopyEnded(f"{target.name} has another leader epoch, {leader.epoch}")
            data = fetch(
                self._client,
                key,
                offset,
                topic_id=target.topic_id,
                max_bytes=FETCH_BYTES,
                max_wait_ms=FETCH_WAIT_MS,
                read_committed=False,
            )
            if data.error_code == Error.OFFSET_OUT_OF_RANGE:
                raise CopyEnded(f"{target.name}: offset {offset} is not in the log any more")
            assert data.records is None or isinstance(data.records, memoryview)
            if data.records:
                return data.records
        raise ClusterError(f"{target.name}: {problem}")


class SegmentStore(TargetStore):
    """The brokers' store, as a task writes segments to it."""

    def __enter__(self) -> "SegmentStore":
        return self

    def now_ms(self) -> int:
        """Return the monotonic time that `put_until` compares with."""
        return self._clock.monotonic_ms()

    def put_until(self, name: str, source: Source, until_ms: int) -> None:
        """Write an object; no attempt goes beyond a time, monotonic. Raises: RemoteStorageError."""
        failures = 0
        while True:
            if self._clock.monotonic_ms() >= until_ms:  # The process was suspended.
                raise RemoteStorageError(f"{self.uri}: too late to write {name}")
            deadline_ms = min(until_ms, self._write_deadline_ms(_size(source)))
            result = self._wait(self._store.put(name, source, pool=POOL, deadline_ms=deadline_ms))
            failures += 1
            pause_ms = RETRIES.delay_ms(failures, self._dice)
            is_last = self._clock.monotonic_ms() + pause_ms >= until_ms
            if not isinstance(result, StoreError) or not result.is_retriable or is_last:
                self._check_written(result, name)
                return
            time.sleep(pause_ms / 1_000)

    def check_size(self, name: str, size_bytes: int) -> None:
        """Raise RemoteStorageError unless there is an object of this size."""
        found: ObjectInfo | StoreError = self._retried(self._head(name), lambda: self._head(name))
        self._check_written(found, name)
        if isinstance(found, ObjectInfo) and found.size_bytes != size_bytes:
            raise RemoteStorageError(
                f"{self.uri}: {name} has {found.size_bytes} bytes of {size_bytes}"
            )


def _size(source: Source) -> int:
    return source.size_bytes if isinstance(source, FileSource) else len(source)
