"""The grant task of a partition: its leader has others copy segments, and finishes their copies.

`ottla pipeline backfill` asks for grants and commits copies; both come here as requests, which are
handled one after the other. The leader stays the only one that writes segment metadata:

1. A grant: COPY_STARTED with a new segment id, for each of the next segments. What cannot be
   computed from a segment's batches comes with it.
2. The holder puts the objects, and commits. The leader looks at them itself.
3. COPY_FINISHED and the manifest, as the copy task writes them, once all segments before are
   copied. A commit that comes earlier is kept.

A copy that is not committed within its lease, that its holder gives up, or whose objects are
missing, is a failed copy: it is marked DELETE_STARTED, and the expiration task deletes its objects.
So it is with all grants when the term ends: the next leader's fence ends them.

The copy quota does not limit granted copies: this broker does not write their objects.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.base.object_store import FileSource
from ottla.base.pending import Pending, completed
from ottla.broker.remote.dialogue import Dialogue, Wakeup, wait
from ottla.broker.remote.store_calls import ATTEMPT_MS_MAX
from ottla.broker.remote.tasks.copy_steps import (
    announced,
    copy_text,
    finish_copy,
    look_at_objects,
    note_lag,
    note_refused,
    update_manifest,
)
from ottla.broker.remote.tasks.copy_task import UNDELETED_COPIES_MAX
from ottla.broker.remote.tasks.grant_values import (
    CommitRequest,
    CommitResult,
    Commits,
    CommittedCopy,
    GrantedSegment,
    GrantRequest,
    Grants,
)
from ottla.broker.remote.tasks.leader_term import LeaderTerm, copy_ms_max
from ottla.broker.remote.tasks.local_files import SegmentObject, segment_objects
from ottla.broker.remote.tasks.manifest_writer import ManifestWriter
from ottla.log.indexes import offset_index, time_index
from ottla.metadata.tiering import TieringState
from ottla.tiered.copy_grants import (
    NO_LIMIT,
    CopyGrant,
    first_to_finish,
    lease_until_ms,
    next_end_ms,
    segments_to_grant,
)
from ottla.tiered.copy_plan import next_segments
from ottla.tiered.object_names import ObjectKind
from ottla.tiered.segment_metadata import SegmentMetadata, SegmentState

if TYPE_CHECKING:
    from ottla.log.segment_files import LocalSegment, SegmentFiles
    from ottla.tiered.remote_log import RemoteLog

T = TypeVar("T")

GRANTS_MAX: Final = 64
"""Copies of a partition that are granted at once: their producers' states are held in memory."""
REQUESTS_MAX: Final = 256
"""Requests of a partition that wait."""
LEASE_MS_MIN: Final = 1_000
LOOK_MS_MAX: Final = 2 * ATTEMPT_MS_MAX
COMMIT_MS_MAX: Final = 4 * LOOK_MS_MAX
"""How long a commit may wait to be handled."""


@dataclass(frozen=True, slots=True)
class _Granted:
    """What is kept of a grant besides its state."""

    files: "SegmentFiles"
    leader_epochs: bytes
    producer_snapshot: bytes
    transaction_index: bytes | None


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A request that is not answered."""

    answer: Pending[Any]
    handle: Callable[[], Dialogue[Any]]


class GrantTask:
    """See the module.

    `wake_copies`: called when the copy task has something to do again; `expire`: when objects of a
    failed copy are to be deleted.
    """

    def __init__(
        self,
        term: LeaderTerm,
        manifests: ManifestWriter,
        *,
        wake_copies: Callable[[], object],
        expire: Callable[[], object],
    ) -> None:
        self._term = term
        self._environment = term.environment
        self._log = term.log
        self._manifests = manifests
        self._wake_copies = wake_copies
        self._expire = expire
        self._requests: deque[_Waiting] = deque()
        self._granted: dict[Uuid, _Granted] = {}
        self._failed: list[SegmentMetadata] = []
        """Failed copies that are not marked."""
        self._is_closed = False
        self._is_manifest_due = False
        self.wakeup = Wakeup(self._environment.timers, self._environment.clock)

    # -- requests ------------------------------------------------------------------------------

    def grant(self, request: GrantRequest) -> Pending[Grants | ApiError]:
        """Grant copies; the promise is completed when COPY_STARTED is replayed."""
        answer: Pending[Grants | ApiError] = Pending()
        return self._queued(answer, lambda: self._grant(request))

    def commit(self, request: CommitRequest) -> Pending[Commits | ApiError]:
        """Commit copies; the promise is completed when they are finished, kept or refused."""
        self._extend(request)
        answer: Pending[Commits | ApiError] = Pending()
        return self._queued(answer, lambda: self._commit(request))

    def _extend(self, request: CommitRequest) -> None:
        """Have the leases of copies that are committed in time last until that is handled: nothing
        is written any more, and what is handled before may take long."""
        now_ms = self._environment.clock.monotonic_ms()
        for each in request.copies:
            grant = self._term.grants.get(each.segment_id)
            if grant is not None and not grant.is_over(now_ms):
                until_ms = max(grant.until_ms, now_ms + COMMIT_MS_MAX)
                self._term.grants[each.segment_id] = replace(grant, until_ms=until_ms)

    def _queued(
        self, answer: Pending[T | ApiError], handle: Callable[[], Dialogue[T | ApiError]]
    ) -> Pending[T | ApiError]:
        if self._is_closed:
            return completed(ApiError(Error.NOT_LEADER_OR_FOLLOWER))
        if len(self._requests) >= REQUESTS_MAX:
            return completed(ApiError(Error.REQUEST_TIMED_OUT, "too many requests wait"))
        self._requests.append(_Waiting(answer, handle))
        self.wakeup.notify()
        return answer

    def close(self) -> None:
        """Refuse what waits: the term is over."""
        self._is_closed = True
        requests, self._requests = self._requests, deque()
        for each in requests:
            each.answer.complete(ApiError(Error.NOT_LEADER_OR_FOLLOWER))

    # -- the task ------------------------------------------------------------------------------

    def run(self) -> Dialogue[None]:
        """Handle requests, and end leases, for as long as this broker leads."""
        failures = 0
        while True:
            self._end_leases()
            try:
                if self._requests:
                    yield from self._respond(self._requests[0])
                    self._requests.popleft()
                yield from self._mark_failed()
                yield from self._finish_kept()
                if self._is_manifest_due:
                    self._is_manifest_due = False
                    yield from update_manifest(self._term, self._manifests)
                failures = 0
            except (ApiError, OSError) as error:
                failures += 1
                pause_ms = self._term.pause_ms(failures)
                self._term.failed("grants", "end of granted copies", error, pause_ms)
                yield pause_ms
                continue
            if not self._requests:
                yield from self.wakeup.wait(self._pause_ms())

    def _respond(self, request: "_Waiting") -> Dialogue[None]:
        try:
            result = yield from request.handle()
        except ApiError as error:
            result = error
        except OSError as error:
            result = ApiError(Error.KAFKA_STORAGE_ERROR, str(error))
        request.answer.complete(result)

    def _pause_ms(self) -> int:
        end_ms = next_end_ms(self._term.grants.values())
        interval_ms = self._environment.config.interval_ms
        if end_ms is None:
            return interval_ms
        return max(1, min(interval_ms, end_ms - self._environment.clock.monotonic_ms()))

    def _end_leases(self) -> None:
        """Drop the grants whose lease is over, and those that a fence has ended."""
        term, remote = self._term, self._term.remote()
        now_ms = self._environment.clock.monotonic_ms()
        for each in list(term.grants.values()):
            segment = each.segment
            if each.is_over(now_ms):
                lived_ms = now_ms - each.granted_ms
                self._give_up(segment, f"its lease has ended after {lived_ms} ms")
            elif remote is not None and _state(remote, segment) is not SegmentState.COPY_STARTED:
                self._drop(segment)

    def _drop(self, segment: SegmentMetadata) -> None:
        self._term.grants.pop(segment.segment_id, None)
        self._granted.pop(segment.segment_id, None)
        self._wake_copies()

    def _mark_failed(self) -> Dialogue[None]:
        """Mark failed copies. The copy task would, too, unless it waits for its quota or a slot."""
        if self._failed:
            yield from self._term.change_states(self._failed, SegmentState.DELETE_STARTED)
            self._failed = []
            self._expire()

    def _give_up(self, segment: SegmentMetadata, why: object) -> None:
        """End a granted copy as one that has failed."""
        term = self._term
        term.metrics.copy_errors += 1
        term.failed("grants", f"granted {copy_text(segment)}", why, term.pause_ms(1))
        term.copy_failed(segment)
        self._failed.append(segment)
        self._drop(segment)

    def _give_up_ended(self, segment: SegmentMetadata, why: object) -> None:
        """End a granted copy that its holder has ended: only a late write may still come."""
        self._term.write_unknown(segment)
        self._term.copy_ended(segment)
        self._give_up(segment, why)

    # -- grants --------------------------------------------------------------------------------

    def _grant(self, request: GrantRequest) -> Dialogue[Grants | ApiError]:
        self._check_term()
        self._renew(request)
        left = self._left(request.until_offset)
        if request.segments_max and not self._held_by(request.holder):
            if not self._term.has_fenced:
                yield from self._term.append_fence()
                self._check_term()
                left = self._left(request.until_offset)
            yield from self._grant_some(request, left)
        remote = self._check_term()
        copied = self._term.note_copied(remote)
        return Grants(
            leader_epoch=self._term.leader_epoch,
            tiered_epoch=self._term.tiering.tiered_epoch,
            end_offset=left[-1].end_offset - 1 if left else copied,
            segments_left=len(left),
            bytes_left=sum(each.size_bytes for each in left),
            granted=tuple(map(self._answer_of, self._held_by(request.holder))),
        )

    def _check_term(self) -> "RemoteLog":
        """Return the remote log. Raises: ApiError, where this leader grants nothing."""
        term = self._term
        if not term.may_copy:
            state = term.tiering.state
            if state is TieringState.DISABLING:
                raise ApiError(Error.TIERED_STORAGE_DISABLEMENT_IN_PROGRESS)
            raise ApiError(
                Error.INVALID_REQUEST,
                f"the topic's tiered storage is {state.name}: nothing of it is copied",
            )
        remote = term.remote()
        if remote is None or not term.has_begun:
            raise ApiError(Error.REPLICA_NOT_AVAILABLE, "the segment metadata are being read")
        if term.is_fenced(remote):
            raise ApiError(Error.NOT_LEADER_OR_FOLLOWER, "a newer leader has fenced this one")
        return remote

    def _left(self, until_offset: int) -> "list[LocalSegment]":
        remote, log = self._check_term(), self._log
        planned = next_segments(
            log.local_segments(),
            copied=self._term.note_copied(remote),
            log_start=log.log_start_offset,
            last_stable=log.last_stable_offset,
        )
        return [
            each
            for each in planned
            if until_offset == NO_LIMIT or each.end_offset <= until_offset + 1
        ]

    def _held_by(self, holder: Uuid) -> list[CopyGrant]:
        grants = self._term.grants.values()
        return [each for each in grants if each.holder == holder and not each.is_kept]

    def _renew(self, request: GrantRequest) -> None:
        for each in self._held_by(request.holder):
            until_ms = self._lease_until_ms(each.segment, request, each.granted_ms)
            segment_id = each.segment.segment_id
            self._term.grants[segment_id] = replace(each, until_ms=until_ms)

    def _lease_until_ms(
        self, segment: SegmentMetadata, request: GrantRequest, granted_ms: int
    ) -> int:
        return lease_until_ms(
            asked_ms=max(LEASE_MS_MIN, request.lease_ms),
            granted_ms=granted_ms,
            now_ms=self._environment.clock.monotonic_ms(),
            lives_ms_max=copy_ms_max(segment.size_bytes),
        )

    def _grant_some(self, request: GrantRequest, left: "list[LocalSegment]") -> Dialogue[None]:
        term, log = self._term, self._log
        remote = self._check_term()
        if term.undeleted_copies(remote) >= UNDELETED_COPIES_MAX:
            raise ApiError(
                Error.INVALID_REQUEST,
                f"{UNDELETED_COPIES_MAX} copies have failed, and their objects could not be "
                f"deleted: {term.last_error}",
            )
        taken = {each.segment.start_offset for each in term.grants.values()}
        if term.copying_offset is not None:
            taken.add(term.copying_offset)
        for each in segments_to_grant(
            left,
            taken,
            log_start=log.log_start_offset,
            until_offset=request.until_offset,
            most=min(request.segments_max, GRANTS_MAX - len(term.grants)),
        ):
            files = log.segment_files(each.base_offset)
            if files is None or not (yield from self._grant_one(request, files)):
                return

    def _grant_one(self, request: GrantRequest, files: "SegmentFiles") -> Dialogue[bool]:
        """Announce a copy; return whether that had its effect."""
        term, environment = self._term, self._environment
        segment = announced(term, files)
        now_ms = environment.clock.monotonic_ms()
        # At once, so that the copy task does not begin with the same segment meanwhile.
        term.grants[segment.segment_id] = CopyGrant(
            segment=segment,
            holder=request.holder,
            granted_ms=now_ms,
            until_ms=self._lease_until_ms(segment, request, now_ms),
        )
        try:
            self._granted[segment.segment_id] = yield from self._small_objects(files)
            term.metrics.copy_requests += 1
            error = yield from wait(environment.metadata.append(segment))
        except OSError:
            self._drop(segment)
            raise
        remote = term.remote()
        if error is not None or remote is None:
            # It may have been appended after all: an unfinished copy without objects.
            self._give_up(segment, error)
            return False
        if remote.get(segment.segment_id) is None:
            note_refused(term, segment, remote)
            self._drop(segment)
            return False
        return True

    def _small_objects(self, files: "SegmentFiles") -> Dialogue[_Granted]:
        contents: dict[ObjectKind, bytes] = {}
        for each in (yield from segment_objects(files, self._environment.workers)):
            if each.kind in (ObjectKind.PRODUCER_SNAPSHOT, ObjectKind.TXN_INDEX):
                contents[each.kind] = yield from self._content(files, each)
        return _Granted(
            files,
            files.leader_epochs,
            contents[ObjectKind.PRODUCER_SNAPSHOT],
            contents.get(ObjectKind.TXN_INDEX),
        )

    def _content(self, files: "SegmentFiles", each: SegmentObject) -> Dialogue[bytes]:
        source = each.source
        if not isinstance(source, FileSource):
            return bytes(source)
        done: Pending[bytes | BaseException] = Pending()

        def came(result: bytes | BaseException) -> None:
            done.complete(result)

        self._environment.workers.submit(lambda: files.read(source), came)
        content = yield from wait(done)
        if isinstance(content, BaseException):
            raise content
        return content

    def _answer_of(self, grant: CopyGrant) -> GrantedSegment:
        known = self._granted[grant.segment.segment_id]
        return GrantedSegment(
            segment=grant.segment,
            lease_ms=max(0, grant.until_ms - self._environment.clock.monotonic_ms()),
            leader_epochs=known.leader_epochs,
            producer_snapshot=known.producer_snapshot,
            transaction_index=known.transaction_index,
        )

    # -- commits -------------------------------------------------------------------------------

    def _commit(self, request: CommitRequest) -> Dialogue[Commits | ApiError]:
        self._check_term()
        self._check_epochs(request)
        errors: dict[Uuid, ApiError] = {}
        for each in request.copies:
            self._end_leases()
            error = yield from self._take(each)
            if error is not None:
                errors[each.segment_id] = error
        yield from self._finish_kept()
        remote = self._check_term()
        return tuple(
            self._result(remote, each.segment_id, errors.get(each.segment_id))
            for each in request.copies
        )

    def _check_epochs(self, request: CommitRequest) -> None:
        """Raises: ApiError where the grants were not of this term."""
        own = self._term.leader_epoch
        if request.leader_epoch != own:
            raise ApiError(
                Error.FENCED_LEADER_EPOCH
                if request.leader_epoch < own
                else Error.UNKNOWN_LEADER_EPOCH,
                f"granted in leader epoch {request.leader_epoch}, and {own} now",
            )
        tiered_epoch = self._term.tiering.tiered_epoch
        if request.tiered_epoch != tiered_epoch:
            raise ApiError(
                Error.FENCED_STATE_EPOCH,
                f"granted in tiered epoch {request.tiered_epoch}, and {tiered_epoch} now",
            )

    def _take(self, copy: CommittedCopy) -> Dialogue[ApiError | None]:
        """Keep a commit; return why it is refused."""
        term = self._term
        grant = term.grants.get(copy.segment_id)
        if grant is None or grant.is_kept:
            return None  # The result tells what became of it.
        segment = grant.segment
        if copy.failure is not None:
            self._give_up_ended(segment, copy.failure)
            return ApiError(Error.INVALID_REQUEST, "the copy was given up")
        problem = _size_problem(copy)
        if problem is None:
            found = yield from look_at_objects(
                self._environment.calls,
                segment,
                self._sizes(segment, copy),
                self._environment.clock.monotonic_ms() + LOOK_MS_MAX,
            )
            if found is not None and found.is_retriable:
                return ApiError(Error.REQUEST_TIMED_OUT, f"{found}; commit it again")
            problem = None if found is None else str(found)
        if problem is not None:
            self._give_up_ended(segment, problem)
            return ApiError(
                Error.RESOURCE_NOT_FOUND, f"the brokers' store does not have the copy: {problem}"
            )
        term.grants[copy.segment_id] = replace(grant, is_kept=True)
        return None

    def _sizes(self, segment: SegmentMetadata, copy: CommittedCopy) -> list[tuple[ObjectKind, int]]:
        known = self._granted[segment.segment_id]
        sizes = [
            (ObjectKind.LOG, segment.size_bytes),
            (ObjectKind.OFFSET_INDEX, copy.offset_index_bytes),
            (ObjectKind.TIME_INDEX, copy.time_index_bytes),
            (ObjectKind.PRODUCER_SNAPSHOT, len(known.producer_snapshot)),
            (ObjectKind.LEADER_EPOCHS, len(known.leader_epochs)),
        ]
        if known.transaction_index is not None:
            sizes.append((ObjectKind.TXN_INDEX, len(known.transaction_index)))
        return sizes

    def _result(
        self, remote: "RemoteLog", segment_id: Uuid, error: ApiError | None
    ) -> CommitResult:
        found = remote.get(segment_id)
        if found is not None and found.state is SegmentState.COPY_FINISHED:
            return CommitResult(segment_id, is_finished=True)
        if error is None and segment_id not in self._term.grants:
            error = ApiError(
                Error.INVALID_REQUEST, "it is not granted: its lease has ended, or it was given up"
            )
        return CommitResult(segment_id, error)

    def _finish_kept(self) -> Dialogue[None]:
        """Finish the kept copies that abut what is copied."""
        term, log = self._term, self._log
        while True:
            remote = term.unfenced()
            if remote is None or not term.may_copy:
                break
            copied = term.note_copied(remote)
            grant = first_to_finish(term.grants.values(), max(copied + 1, log.log_start_offset))
            if grant is None:
                break
            yield from self._finish(grant)
            self._is_manifest_due = True

    def _finish(self, grant: CopyGrant) -> Dialogue[None]:
        segment = grant.segment
        if not self._granted[segment.segment_id].files.is_intact():
            self._give_up_ended(segment, "the local files have changed meanwhile")
            return
        took_ms = self._environment.clock.monotonic_ms() - grant.granted_ms
        refused = yield from finish_copy(self._term, segment, f"by a grant, in {took_ms} ms")
        if refused is not None:
            note_refused(self._term, segment, refused)
        else:
            self._term.succeeded("grants")
            # The copy task may not do it for long, where it waits for its quota.
            note_lag(self._term, self._log.local_segments(), segment.end_offset)
        self._drop(segment)


def _state(remote: "RemoteLog", segment: SegmentMetadata) -> SegmentState | None:
    """Return a granted segment's state; of one that is not replayed yet, COPY_STARTED."""
    found = remote.get(segment.segment_id)
    return SegmentState.COPY_STARTED if found is None else found.state


def _size_problem(copy: CommittedCopy) -> str | None:
    """Return why the committed sizes are none of indexes."""
    for size, entry, what in (
        (copy.offset_index_bytes, offset_index.ENTRY_SIZE, "offset index"),
        (copy.time_index_bytes, time_index.ENTRY_SIZE, "time index"),
    ):
        if size < 0 or size % entry:
            return f"{size} bytes of {what} are not whole entries of {entry}"
    return None
