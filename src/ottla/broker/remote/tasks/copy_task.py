"""The copy task of a partition: its leader copies sealed segments, in the order of their offsets.

One segment at a time. Its batches are checked before anything is written (`segment_checker`). Then
one attempt at one segment is:

1. COPY_STARTED, with a new segment id: no two attempts write the same objects.
2. Its objects are put, the log last, and looked at: a store may report a success that was none.
3. COPY_FINISHED. From here on it is readable, and its local files may be deleted.
4. The manifest, which may lag.

A failure between 1 and 3 leads to DELETE_STARTED; the expiration task deletes the objects. If this
broker dies, or leads no more, the next leader's fence and copy task do that.

While others have grants of this leader to copy segments (`grant_task.py`), it copies none itself.

Source: RemoteLogManager.RLMCopyTask; KIP-405, KIP-956.
"""

import logging
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from ottla.base.errors import ApiError
from ottla.base.ids import NO_OFFSET
from ottla.base.object_store import Failure, StoreError
from ottla.broker.remote.copy_quota import wait_to_spend
from ottla.broker.remote.dialogue import Dialogue, Wakeup, wait
from ottla.broker.remote.tasks.copy_steps import (
    announced,
    copy_text,
    finish_copy,
    look_at_objects,
    note_lag,
    note_refused,
    update_manifest,
)
from ottla.broker.remote.tasks.leader_term import LeaderTerm, copy_ms_max
from ottla.broker.remote.tasks.local_files import SegmentObject, segment_objects
from ottla.broker.remote.tasks.manifest_writer import ManifestWriter
from ottla.broker.remote.tasks.segment_checker import SegmentChecker
from ottla.log.results import DamagedLog
from ottla.tiered.copy_grants import may_copy_itself
from ottla.tiered.copy_plan import elected_log_start, next_segments
from ottla.tiered.object_names import object_name
from ottla.tiered.read_plan import slice_at
from ottla.tiered.segment_metadata import SegmentMetadata, SegmentState

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.log.segment_files import LocalSegment, SegmentFiles
    from ottla.tiered.remote_log import RemoteLog

logger = logging.getLogger(__name__)

UNDELETED_COPIES_MAX: Final = 8
"""Failed copies of a partition whose objects could not be deleted either. Above it no other copy
begins, so that an outage of the store does not fill the metadata; below it copying goes on where
only deletions fail."""


class Outcome(Enum):
    """How one round of the copy task ended."""

    IDLE = auto()
    """There is nothing to copy, or this leader may not copy."""
    AGAIN = auto()
    """Something has changed: the next round plans again, at once."""
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class _Upload:
    """A segment that was announced, and what is uploaded of it."""

    segment: SegmentMetadata
    files: "SegmentFiles"
    objects: tuple[SegmentObject, ...]


class CopyTask:
    """See the module.

    `expire`: called when objects of a failed copy are to be deleted, and when the log start is
    known. `wake_offset`: the last stable offset from which on there is something to copy; None =
    when a segment is rolled.
    """

    def __init__(
        self, term: LeaderTerm, manifests: ManifestWriter, expire: "Callable[[], object]"
    ) -> None:
        self._term = term
        self._environment = term.environment
        self._log = term.log
        self._manifests = manifests
        self._expire = expire
        self._checker = SegmentChecker(term.environment)
        self.wake_offset: int | None = None
        self.wakeup = Wakeup(self._environment.timers, self._environment.clock)

    def run(self) -> Dialogue[None]:
        """Copy for as long as this broker leads."""
        failures = 0
        while True:
            try:
                outcome = yield from self._round()
            except DamagedLog as damage:
                outcome = Outcome.FAILED
                self._environment.log_damaged(self._log, self._term.leader_epoch, damage)
                self._term.metrics.copy_errors += 1
                self._term.failed("copy", "copy", damage, self._term.pause_ms(failures + 1))
            except (ApiError, OSError) as error:
                # The log's directory has failed, or a segment's file cannot be opened.
                outcome = Outcome.FAILED
                self._term.failed("copy", "copy", error, self._term.pause_ms(failures + 1))
            if outcome is Outcome.AGAIN:
                failures = 0
            elif outcome is Outcome.IDLE:
                failures = 0
                yield from self.wakeup.wait(self._environment.config.interval_ms)
            else:
                failures += 1
                yield self._term.pause_ms(failures)

    def _round(self) -> Dialogue[Outcome]:
        term = self._term
        remote = term.unfenced()
        if remote is None:
            return Outcome.IDLE
        if not self._knows_log_start(remote) and (yield from self._find_log_start(remote)):
            return Outcome.AGAIN
        if not term.may_copy:
            self._log.reset_remote()  # What is retained expires, and no more is copied.
            term.note_copied(remote)
            note_lag(term, [], NO_OFFSET)
            return Outcome.IDLE
        planned = self._plan(remote)
        unfinished = term.unfinished(remote)
        if not planned and not unfinished:
            return Outcome.IDLE
        if not term.has_fenced:
            yield from term.append_fence()
            return Outcome.AGAIN
        if unfinished:
            yield from term.change_states(unfinished, SegmentState.DELETE_STARTED)
            self._expire()
            return Outcome.AGAIN
        if term.undeleted_copies(remote) >= UNDELETED_COPIES_MAX:
            return Outcome.IDLE
        if not may_copy_itself(planned, term.grants.values()):
            return Outcome.IDLE  # The grant task wakes this one when it may.
        try:
            return (yield from self._copy_next())
        finally:
            term.copying = term.copying_offset = None

    def _knows_log_start(self, remote: "RemoteLog") -> bool:
        """Tell whether the term has begun, and the log start can still be read.

        A former leader's deletions count also after this term's fence:

        1. Broker 1 advances the log start and publishes it: broker 2 has it, in memory.
        2. Broker 1 sends DELETE_STARTED, which waits for the metadata topic.
        3. Broker 2 is killed, starts with the earlier log start, is elected and begins.
        4. DELETE_STARTED is appended.
        """
        log, start = self._log, self._log.log_start_offset
        return self._term.has_begun and (
            not log.has_remote_prefix or slice_at(remote, self._term.lineage(), start) is not None
        )

    def _find_log_start(self, remote: "RemoteLog") -> Dialogue[bool]:
        """Find out where the log starts, and begin the term; return whether it has to be tried
        again.

        Where no remote segment says so the log starts where the local files do. That must not be
        concluded from metadata that an earlier leader may still be writing.
        """
        term, log = self._term, self._log
        start = elected_log_start(
            remote,
            term.lineage(),
            log_start=log.log_start_offset,
            local_log_start=log.local_log_start_offset,
        )
        if start > log.log_start_offset:
            if not term.has_fenced:
                yield from term.append_fence()
                return True
            logger.info(
                "%s: advancing the log start from %d to %d, the first offset in either tier",
                term.name,
                log.log_start_offset,
                start,
            )
            log.advance_log_start(start)
        log.reset_remote()
        term.has_begun = True
        self._expire()
        return False

    def _plan(self, remote: "RemoteLog") -> "list[LocalSegment]":
        log = self._log
        copied = self._term.note_copied(remote)
        local = log.local_segments()
        stable = log.last_stable_offset
        planned = next_segments(
            local, copied=copied, log_start=log.log_start_offset, last_stable=stable
        )
        sealed = note_lag(self._term, local, copied)
        later = [each.end_offset for each in sealed if each.end_offset > stable]
        self.wake_offset = later[0] if later else None
        return planned

    def _copy_next(self) -> Dialogue[Outcome]:
        """Copy the first segment that is not copied.

        A slot is held only while the segment is read and the object store is used: what waits for a
        partition of the metadata topic must not keep others from copying.
        """
        slots, clock = self._environment.copier_slots, self._environment.clock
        yield from slots.acquire()
        try:
            upload = yield from self._begin_upload()
            if isinstance(upload, Outcome):
                return upload
            began_ms = clock.monotonic_ms()
            error = yield from self._put_all(upload)
        finally:
            slots.release()
        segment = upload.segment
        self._term.copy_ended(segment)
        if error is None and not upload.files.is_intact():
            error = StoreError(Failure.SOURCE, "the local files have changed meanwhile")
        if error is not None:
            return (yield from self._give_up(segment, error))
        return (yield from self._finish(segment, clock.monotonic_ms() - began_ms))

    def _begin_upload(self) -> Dialogue["_Upload | Outcome"]:
        """Announce the next segment; which one that is may have changed while a slot was awaited.

        The record is tried once: a failed one that was appended after all is an unfinished copy
        without objects.
        """
        term, environment = self._term, self._environment
        yield from wait_to_spend(environment.copy_quota, environment.metrics.copy_throttle_time)
        remote = term.unfenced()
        if remote is None:
            return Outcome.AGAIN
        planned = self._plan(remote)
        if not may_copy_itself(planned, term.grants.values()):
            return Outcome.AGAIN
        term.copying_offset = planned[0].base_offset
        files = self._log.segment_files(planned[0].base_offset)
        if files is None:
            return Outcome.FAILED
        yield from self._checker.check(files)
        objects = yield from segment_objects(files, environment.workers)
        if not files.is_intact():
            return Outcome.AGAIN
        segment = announced(term, files)
        term.copying = segment.segment_id
        term.metrics.copy_requests += 1
        error = yield from wait(environment.metadata.append(segment))
        remote = term.remote()
        if error is not None or remote is None:
            term.copy_ended(segment)  # Before it has written anything.
            term.metrics.copy_errors += 1
            term.failed("copy", copy_text(segment), error, term.pause_ms(1))
            return Outcome.FAILED
        if remote.get(segment.segment_id) is None:
            return self._refused(segment, remote)
        environment.copy_quota.spend(sum(each.size_bytes for each in objects))
        return _Upload(segment, files, objects)

    def _give_up(self, segment: SegmentMetadata, error: StoreError) -> Dialogue[Outcome]:
        term = self._term
        term.metrics.copy_errors += 1
        term.failed("copy", copy_text(segment), error, term.pause_ms(1))
        term.copy_failed(segment)
        yield from term.change_states([segment], SegmentState.DELETE_STARTED)
        self._expire()
        return Outcome.FAILED

    def _finish(self, segment: SegmentMetadata, took_ms: int) -> Dialogue[Outcome]:
        term = self._term
        refused = yield from finish_copy(term, segment, f"in {took_ms} ms")
        if refused is not None:
            return self._refused(segment, refused)
        term.copying = term.copying_offset = None
        yield from update_manifest(term, self._manifests)
        return Outcome.AGAIN

    def _refused(self, segment: SegmentMetadata, remote: "RemoteLog") -> Outcome:
        note_refused(self._term, segment, remote)
        self._expire()
        return Outcome.FAILED

    def _put_all(self, upload: "_Upload") -> Dialogue[StoreError | None]:
        segment, objects = upload.segment, upload.objects
        calls = self._environment.calls
        until_ms = self._environment.clock.monotonic_ms() + copy_ms_max(segment.size_bytes)
        for each in objects:
            error = yield from calls.put(
                object_name(segment, each.kind),
                each.source,
                each.size_bytes,
                until_ms=until_ms,
                on_unknown=lambda: self._term.write_unknown(segment),
            )
            if error is not None:
                return error
        sizes = [(each.kind, each.size_bytes) for each in objects]
        return (yield from look_at_objects(calls, segment, sizes, until_ms))
