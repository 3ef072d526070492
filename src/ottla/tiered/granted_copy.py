"""What the holder of a grant does: the steps of one copy, apart from what executes them.

    steps = GrantedCopy(target, holder, lease_ms=300_000, now_ms=now_ms).steps()
    step = next(steps)                # AskGrants
    step = steps.send(result)         # of the step before; or steps.throw(CopyFailed(...))

The generator returns a `CopyOutcome`. A task of Spark executes the steps one after the other, and
so do the simulator's clients, in virtual time. Nothing is written after the end of a lease: a
leader counts on it when it deletes the objects of a copy that has ended.

Pure.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.base.ports import Buffer
from ottla.records.errors import CorruptBatch, RecordsError
from ottla.tiered.object_names import ObjectKind, object_name
from ottla.tiered.segment_builder import SegmentBuilder
from ottla.wire.messages.commit_segment_copies import (
    CommitSegmentCopiesPartition,
    CommitSegmentCopiesRequest,
    CommitSegmentCopiesTopic,
    CommittedSegmentCopy,
    SegmentCopyResult,
)
from ottla.wire.messages.grant_segment_copies import (
    GrantedPartition,
    GrantedSegment,
    GrantSegmentCopiesPartition,
    GrantSegmentCopiesRequest,
    GrantSegmentCopiesTopic,
)

FINISHED, KEPT, FAILED, OTHER_STORE, REFUSED = (
    "finished", "kept", "failed", "other store", "refused",
)  # fmt: skip
"""What became of a copy; REFUSED = there was no grant, and will be none."""

FAILURE_CHARS_MAX: Final = 1_000

ENDED: Final = frozenset(
    {
        Error.FENCED_LEADER_EPOCH,
        Error.FENCED_STATE_EPOCH,
        Error.TIERED_STORAGE_DISABLEMENT_IN_PROGRESS,
        Error.UNKNOWN_TOPIC_ID,
        Error.INVALID_REQUEST,
    }
)
"""Errors of a partition after which no commit of these grants succeeds."""


class CopyFailed(Exception):
    """A step could not be done; the text says why."""


class CopyEnded(CopyFailed):
    """A granted copy cannot be finished any more: the leader will have it copied again."""


@dataclass(frozen=True, slots=True, order=True)
class CopyTarget:
    """A partition whose segments are to be copied, up to an offset, inclusive; -1 = all."""

    topic: str
    topic_id: Uuid
    partition: int
    until_offset: int = -1

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class _Named:
    """What the names of a segment's objects are made of."""

    topic: str
    topic_id: Uuid
    partition: int
    segment_id: Uuid
    start_offset: int


def object_of(target: CopyTarget, segment_id: Uuid, start_offset: int, kind: ObjectKind) -> str:
    """Return the name of one of a segment's objects."""
    named = _Named(target.topic, target.topic_id, target.partition, segment_id, start_offset)
    return object_name(named, kind)


def grant_request(
    target: CopyTarget, holder: Uuid, *, segments: int, lease_ms: int
) -> GrantSegmentCopiesRequest:
    """Return what asks for grants, or with 0 segments what is left."""
    return GrantSegmentCopiesRequest(
        holder=holder,
        lease_ms=lease_ms,
        topics=(
            GrantSegmentCopiesTopic(
                topic_id=target.topic_id,
                partitions=(
                    GrantSegmentCopiesPartition(
                        partition=target.partition,
                        segments_max=segments,
                        until_offset=target.until_offset,
                    ),
                ),
            ),
        ),
    )


def commit_request(
    target: CopyTarget, granted: GrantedPartition, copy: CommittedSegmentCopy
) -> CommitSegmentCopiesRequest:
    """Return what commits a copy of a response's grant, or gives it up."""
    return CommitSegmentCopiesRequest(
        topics=(
            CommitSegmentCopiesTopic(
                topic_id=target.topic_id,
                partitions=(
                    CommitSegmentCopiesPartition(
                        partition=target.partition,
                        leader_epoch=granted.leader_epoch,
                        tiered_epoch=granted.tiered_epoch,
                        copies=(copy,),
                    ),
                ),
            ),
        ),
    )


# -- steps -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AskGrants:
    """Ask the partition's leader for one grant, or renew it: `grant_request`. The result is its
    `GrantedPartition`."""

    target: CopyTarget
    holder: Uuid
    lease_ms: int


@dataclass(frozen=True, slots=True)
class FetchBatches:
    """Fetch batches from an offset on; the result is at least a part of one.

    `leader_epoch`: of the grant. CopyEnded where another one leads, or the offset is gone.
    """

    target: CopyTarget
    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class KeepBatches:
    """Append batches to what the log object is to hold."""

    batches: Buffer


@dataclass(frozen=True, slots=True)
class PutObject:
    """Write an object; no attempt may go beyond `until_ms`. `data` None = the kept batches."""

    name: str
    data: bytes | None
    size_bytes: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class CheckObject:
    """Fail unless there is an object of this size."""

    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CommitCopy:
    """Commit a copy, or give it up: `commit_request`. The result is its `SegmentCopyResult`.

    CopyEnded for an error of `ENDED`. It may be repeated: what it did is found.
    """

    target: CopyTarget
    granted: GrantedPartition
    copy: CommittedSegmentCopy


@dataclass(frozen=True, slots=True)
class DeleteObjects:
    """Delete objects, those that are there."""

    names: tuple[str, ...]


Step = AskGrants | FetchBatches | KeepBatches | PutObject | CheckObject | CommitCopy | DeleteObjects
Steps = Generator[Step, Any, "CopyOutcome | None"]


@dataclass(frozen=True, slots=True)
class CopyOutcome:
    """What became of a granted segment. `detail`: why it was not finished."""

    segment: GrantedSegment
    state: str
    detail: str = ""


class GrantedCopy:
    """One grant of a partition, and what is made of it.

    `holder`: an id of its own. `now_ms`: the monotonic time that the leases and writes count on.
    """

    def __init__(
        self, target: CopyTarget, holder: Uuid, *, lease_ms: int, now_ms: Callable[[], int]
    ) -> None:
        self._target = target
        self._holder = holder
        self._lease_ms = lease_ms
        self._now_ms = now_ms
        self._until_ms = 0
        self._renew_ms = 0

    def steps(self) -> Steps:
        """Copy a segment; None = none is granted. Raises: CopyFailed, where there is no grant."""
        granted = yield from self._ask()
        if not granted.segments:
            return None
        (segment,) = granted.segments
        try:
            sizes = yield from self._write(segment, granted.leader_epoch)
            return (yield from self._commit(granted, segment, sizes))
        except (CopyFailed, RecordsError) as error:
            yield from self._give_up(granted, segment, str(error))
            return CopyOutcome(segment, FAILED, str(error))

    # -- the grant -----------------------------------------------------------------------------

    def _ask(self) -> Generator[Step, Any, GrantedPartition]:
        """Take a grant, or renew it. Its time counts from before the request."""
        asked_ms = self._now_ms()
        granted: GrantedPartition = yield AskGrants(self._target, self._holder, self._lease_ms)
        for each in granted.segments:
            self._until_ms = asked_ms + each.lease_ms
            self._renew_ms = asked_ms + each.lease_ms // 2
        return granted

    def _check_lease(self, segment: GrantedSegment) -> Generator[Step, Any, None]:
        """Renew the lease where half of it is over. Raises: CopyEnded."""
        if self._now_ms() < self._renew_ms:
            return
        granted = yield from self._ask()
        if [each.segment_id for each in granted.segments] != [segment.segment_id]:
            for each in granted.segments:  # Another one, which is not begun.
                yield from self._give_up(granted, each, "it was asked for another")
            raise CopyEnded(f"the lease of {self._target.name} has ended")

    # -- the objects ---------------------------------------------------------------------------

    def _write(
        self, segment: GrantedSegment, leader_epoch: int
    ) -> Generator[Step, Any, tuple[int, int]]:
        """Write the objects, the log last, and look at them; return the sizes of the indexes.

        Raises: CopyFailed, RecordsError.
        """
        builder = SegmentBuilder(segment)
        while not builder.is_complete:
            yield from self._check_lease(segment)
            records = yield FetchBatches(self._target, builder.next_offset, leader_epoch)
            taken = builder.add(records)
            if not taken:
                raise CorruptBatch(f"no batch from offset {builder.next_offset} on")
            yield KeepBatches(records[:taken])
        offset_index, time_index = builder.indexes()
        objects: list[tuple[ObjectKind, bytes | None]] = [
            (ObjectKind.LEADER_EPOCHS, segment.leader_epochs),
            (ObjectKind.PRODUCER_SNAPSHOT, segment.producer_snapshot),
            (ObjectKind.OFFSET_INDEX, offset_index),
            (ObjectKind.TIME_INDEX, time_index),
        ]
        if segment.transaction_index is not None:
            objects.append((ObjectKind.TXN_INDEX, segment.transaction_index))
        objects.append((ObjectKind.LOG, None))
        written = [
            (self._name(segment, kind), data, segment.size_bytes if data is None else len(data))
            for kind, data in objects
        ]
        for name, data, size_bytes in written:
            yield from self._check_lease(segment)
            yield PutObject(name, data, size_bytes, self._until_ms)
        for name, _, size_bytes in written:
            yield CheckObject(name, size_bytes)
        return len(offset_index), len(time_index)

    def _name(self, segment: GrantedSegment, kind: ObjectKind) -> str:
        return object_of(self._target, segment.segment_id, segment.start_offset, kind)

    # -- the end -------------------------------------------------------------------------------

    def _commit(
        self, granted: GrantedPartition, segment: GrantedSegment, sizes: tuple[int, int]
    ) -> Generator[Step, Any, CopyOutcome]:
        copy = CommittedSegmentCopy(
            segment_id=segment.segment_id, offset_index_bytes=sizes[0], time_index_bytes=sizes[1]
        )
        result: SegmentCopyResult = yield CommitCopy(self._target, granted, copy)
        if not result.error_code:
            return CopyOutcome(segment, FINISHED if result.is_finished else KEPT)
        # The leader has given it up, so nobody will count on these objects. Where it looks into
        # another store, nobody else would ever delete them.
        yield DeleteObjects(tuple(self._name(segment, kind) for kind in ObjectKind))
        state = OTHER_STORE if result.error_code == Error.RESOURCE_NOT_FOUND else FAILED
        return CopyOutcome(segment, state, result.error_message or "")

    def _give_up(
        self, granted: GrantedPartition, segment: GrantedSegment, why: str
    ) -> Generator[Step, Any, None]:
        """Tell the leader, so that it need not wait for the end of the lease."""
        failure = why[:FAILURE_CHARS_MAX]
        copy = CommittedSegmentCopy(segment_id=segment.segment_id, failure=failure)
        try:
            yield CommitCopy(self._target, granted, copy)
        except CopyFailed:
            return  # Its lease ends.
