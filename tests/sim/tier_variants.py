"""Remote storage with one rule broken, or kept a little wrong.

They are to be found by the standard mix of the simulator, played with the seeds that have remote
storage, or by a story that is made for it: by a checker of promises, see `test_tier_stories` and
`standard_mix`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ottla.base.errors import ApiError
from ottla.base.object_store import Pool, StoreError
from ottla.base.pending import Pending, completed
from ottla.base.ports import Buffer
from ottla.broker.fetch.delayed_fetch import FetchReader
from ottla.broker.fetch.fetch_sessions import FetchPartition
from ottla.broker.remote import remote_log_manager
from ottla.broker.remote.dialogue import Dialogue
from ottla.broker.remote.reads import reads
from ottla.broker.remote.reads.remote_segments import slices
from ottla.broker.remote.store_calls import ATTEMPT_MS_MAX, StoreCalls
from ottla.broker.remote.tasks import copy_task, expiration_task, leader_term
from ottla.broker.remote.tasks.copy_task import CopyTask
from ottla.broker.remote.tasks.expiration_task import ExpirationTask
from ottla.broker.remote.tasks.leader_term import LeaderTerm
from ottla.broker.remote.tasks.log_start_publication import LogStartPublisher
from ottla.broker.remote.tasks.manifest_writer import ManifestWriter
from ottla.log.indexes.transaction_index import select
from ottla.log.partition_log import PartitionLog
from ottla.tiered.expiration import ExpirationPlan
from ottla.tiered.lineage import Lineage
from ottla.tiered.manifest import Manifest
from ottla.tiered.manifest_planner import ManifestPlanner
from ottla.tiered.object_names import object_name
from ottla.tiered.remote_log import RemoteLog
from ottla.tiered.segment_metadata import SegmentMetadata, SegmentState

from .replaced import replaced

COPYING = (SegmentState.COPY_STARTED, SegmentState.COPY_FINISHED)

# -- log starts --------------------------------------------------------------------------------


@contextmanager
def begins_at_the_local_log_after_a_restart() -> Iterator[None]:
    """A log that is opened has no remote prefix."""
    init = PartitionLog.__init__

    def local(self: PartitionLog, *given: Any, **named: Any) -> None:
        init(self, *given, **named)
        self.offsets.log_start_offset = self.local_log_start_offset

    with replaced(PartitionLog, "__init__", local):
        yield


@contextmanager
def deletes_before_the_log_start_is_published() -> Iterator[None]:
    """Remote segments are deleted as soon as the leader has moved its log start."""

    def at_once(self: LogStartPublisher, log: Any, offset: int) -> Pending[ApiError | None]:
        return completed(None)

    with replaced(LogStartPublisher, "publish", at_once):
        yield


@contextmanager
def deletes_before_the_log_start_moves() -> Iterator[None]:
    """Expired segments are deleted, and the log start stays: a later round moves it."""
    begin = ExpirationTask._begin

    def early(self: ExpirationTask, plan: ExpirationPlan, begun: Any) -> Any:
        return begin(self, replace(plan, log_start_offset=0), begun)

    with replaced(ExpirationTask, "_begin", early):
        yield


@contextmanager
def expires_one_segment_too_many() -> Iterator[None]:
    """What is copied and still local counts twice (KAFKA-20732)."""
    with replaced(expiration_task, "highest_copied_offset", lambda remote, lineage: -1):
        yield


# -- local retention ---------------------------------------------------------------------------


@contextmanager
def deletes_local_files_of_copies_that_have_begun() -> Iterator[None]:
    """A follower takes COPY_STARTED for copied."""

    def begun(log: PartitionLog, remote: RemoteLog) -> None:
        ends = [each.end_offset for each in remote.segments() if each.state in COPYING]
        log.remote_copied_to(max([leader_term.note_copied(log, remote), *ends]))

    with replaced(remote_log_manager, "note_copied", begun):
        yield


@contextmanager
def remembers_the_highest_copied_offset() -> Iterator[None]:
    """The copied offset never falls, whatever became of the segments and of the log."""
    highest: dict[int, int] = {}

    def historical(remote: RemoteLog, lineage: Lineage, **starts: int) -> int:
        ends = [each.end_offset for each in remote.segments() if each.state in COPYING[1:]]
        highest[id(remote)] = max([highest.get(id(remote), -1), *ends])
        return highest[id(remote)]

    with replaced(leader_term, "copied_offset", historical):
        yield


# -- copies ------------------------------------------------------------------------------------


@contextmanager
def accepts_copies_of_former_leaders() -> Iterator[None]:
    """Fences are not judged."""
    with replaced(RemoteLog, "_is_fenced", lambda self, copy: False):
        yield


@contextmanager
def trusts_the_store() -> Iterator[None]:
    """What was put is not looked at."""

    def put_all(self: CopyTask, upload: Any) -> Dialogue[StoreError | None]:
        environment = self._environment
        until_ms = environment.clock.monotonic_ms() + 120_000
        for each in upload.objects:
            error = yield from environment.calls.put(
                object_name(upload.segment, each.kind),
                each.source,
                each.size_bytes,
                until_ms=until_ms,
                on_unknown=lambda: self._term.write_unknown(upload.segment),
            )
            if error is not None:
                return error
        return None

    with replaced(CopyTask, "_put_all", put_all):
        yield


@contextmanager
def forgets_failed_copies_at_once() -> Iterator[None]:
    """A segment is forgotten although a write of its copy may still be executed."""
    with (
        replaced(LeaderTerm, "quiet_ms", lambda self, segment: 0),
        replaced(LeaderTerm, "write_unknown", lambda self, segment: None),
    ):
        yield


@contextmanager
def copies_from_the_wrong_end() -> Iterator[None]:
    """The newest sealed segment is copied first."""
    plan = copy_task.next_segments

    def newest(local: Sequence[Any], **named: int) -> list[Any]:
        return plan(local, **named)[::-1]

    with replaced(copy_task, "next_segments", newest):
        yield


# -- manifests ---------------------------------------------------------------------------------


@contextmanager
def overwrites_manifests() -> Iterator[None]:
    """A manifest is put, whether its number is taken or not."""

    def put(self: StoreCalls, name: str, data: Buffer) -> Dialogue[StoreError | None]:
        return (
            yield from self._once(
                lambda deadline_ms: self._store.put(
                    name, data, pool=Pool.COPIER, deadline_ms=deadline_ms
                ),
                ATTEMPT_MS_MAX,
            )
        )

    with replaced(StoreCalls, "put_if_absent_once", put):
        yield


@contextmanager
def deletes_objects_before_the_manifest() -> Iterator[None]:
    """Objects are deleted while the last manifest still lists them."""
    round_, update = ExpirationTask._round, ManifestWriter.update
    expiring = False

    def skipped(self: ManifestWriter) -> Any:
        if expiring:
            return None
        return (yield from update(self))

    def noted(self: ExpirationTask) -> Any:
        nonlocal expiring
        steps = round_(self)
        sent: Any = None
        while True:
            expiring = True
            try:
                awaited = steps.send(sent)
            except StopIteration as end:
                return end.value
            finally:
                expiring = False
            sent = yield awaited

    with replaced(ExpirationTask, "_round", noted), replaced(ManifestWriter, "update", skipped):
        yield


@contextmanager
def lists_what_is_being_copied() -> Iterator[None]:
    """A manifest lists COPY_STARTED segments, too."""
    plan = ManifestPlanner.plan

    def early(self: ManifestPlanner, remote: RemoteLog, **named: Any) -> Manifest | None:
        seen = RemoteLog.from_image(remote.image())
        for each in seen.unfinished():
            seen._set(replace(each, state=SegmentState.COPY_FINISHED))
        return plan(self, seen, **named)

    with replaced(ManifestPlanner, "plan", early):
        yield


# -- reads -------------------------------------------------------------------------------------


@contextmanager
def reads_the_next_local_record() -> Iterator[None]:
    """What is below the local log start is answered with what comes next in the local log."""

    def local(self: FetchReader, requested: Any, max_bytes: int, *rest: Any) -> Any:
        partition = self._replica_manager.partition_for(requested)
        assert partition.log is not None
        behind = FetchPartition(
            partition.topic,
            partition.topic_id,
            partition.partition_id,
            partition.log.local_log_start_offset,
            max(max_bytes, 0),
        )
        return partition.read(behind, max(max_bytes, 0), True, False, True)

    with replaced(FetchReader, "_read_remote", local):
        yield


@contextmanager
def takes_the_closest_later_segment() -> Iterator[None]:
    """An offset that no segment has in its leader epoch is read in the next segment."""
    find = RemoteLog.segment_for

    def closest(self: RemoteLog, epoch: int, offset: int) -> SegmentMetadata | None:
        found = find(self, epoch, offset)
        later = (
            each
            for each in self.segments()
            if each.state is SegmentState.COPY_FINISHED and each.end_offset >= offset
        )
        return found or next(later, None)

    with replaced(RemoteLog, "segment_for", closest):
        yield


@contextmanager
def reads_beyond_the_lineage() -> Iterator[None]:
    """A segment is read to its end, also where an unclean election has cut its records off."""
    with replaced(Lineage, "shared_end", lambda self, segment: segment.end_offset):
        yield


@contextmanager
def asks_one_segment_for_aborted_transactions() -> Iterator[None]:
    """The list of aborted transactions is that of the segment that is read."""

    def of_one(reader: Any, remote: Any, log: PartitionLog, start: int, end: int) -> Any:
        lineage = Lineage(log.epochs.entries, log.log_end_offset)
        first = next(slices(remote, lineage, start, end))
        entries = yield from reader.aborted(first.segment)
        found, _ = select(list(entries), start, end)
        return tuple((entry.producer_id, entry.first_offset) for entry in found)

    with replaced(reads, "aborted_transactions", of_one):
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class TierVariant:
    """A broken rule.

    Fields: `story`: the one of `tier_stories` that shows it, with one of its first seeds; `by`: to
            this checker.
    """

    breaks: Callable[[], AbstractContextManager[None]]
    story: str
    by: str


TIER_VARIANTS = (
    TierVariant(
        breaks=begins_at_the_local_log_after_a_restart,
        story="restarts",
        by="log start moved",
    ),
    TierVariant(
        breaks=deletes_before_the_log_start_is_published,
        story="retention",
        by="offset unreadable",
    ),
    TierVariant(
        breaks=deletes_before_the_log_start_moves, story="retention", by="offset unreadable"
    ),
    TierVariant(breaks=expires_one_segment_too_many, story="retention", by="log start moved"),
    TierVariant(
        breaks=deletes_local_files_of_copies_that_have_begun,
        story="outages",
        by="local log start wrong",
    ),
    TierVariant(
        breaks=remembers_the_highest_copied_offset, story="unclean", by="local log start wrong"
    ),
    TierVariant(
        breaks=accepts_copies_of_former_leaders, story="late_record", by="segment images differ"
    ),
    TierVariant(breaks=trusts_the_store, story="lies", by="remote object missing"),
    TierVariant(breaks=forgets_failed_copies_at_once, story="late_put", by="orphan object"),
    TierVariant(breaks=copies_from_the_wrong_end, story="outages", by="local log start wrong"),
    TierVariant(breaks=overwrites_manifests, story="late_manifest", by="object replaced"),
    TierVariant(breaks=deletes_objects_before_the_manifest, story="retention", by="manifest wrong"),
    TierVariant(breaks=lists_what_is_being_copied, story="retention", by="manifest wrong"),
    TierVariant(breaks=reads_the_next_local_record, story="restarts", by="read lost"),
    TierVariant(breaks=takes_the_closest_later_segment, story="stale_follower", by="read lost"),
    TierVariant(breaks=reads_beyond_the_lineage, story="unclean", by="read lost"),
    TierVariant(
        breaks=asks_one_segment_for_aborted_transactions,
        story="transactions",
        by="uncommitted record read",
    ),
)
