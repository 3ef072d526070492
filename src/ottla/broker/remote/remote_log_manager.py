"""Copies to the remote tier, and deletions there, of the partitions that this broker leads.

A partition's leader runs three tasks: `copy_task.py`, `expiration_task.py`, and `grant_task.py` for
copies that others make. They begin with its term, that is with its leader epoch or with another
tiered epoch of the topic, and end with it: what they were waiting for is cancelled, and has no
effect any more when it comes after all. A follower keeps account of what is copied, so that it may
delete its local files.

Where the topic's remote segments were given up the log starts with its local files from then on:
a leader moves the log start at once, in the turn in which it gets the tiering state, so that it
never returns an earliest offset which nobody can read. Followers get it with their fetches.

Work begins with its event, which the owner of the logs reports here: a sealed segment, an advanced
offset, a moved log start. `remote.log.manager.task.interval.ms` is the fallback.

Source: RemoteLogManager; KIP-405.
"""

import logging
from typing import TYPE_CHECKING, Final

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_EPOCH, Uuid
from ottla.base.limits import LOGS_PER_STEP_MAX
from ottla.base.pending import Pending, completed
from ottla.broker.remote.dialogue import Dialogue, Task
from ottla.broker.remote.environment import RemoteEnvironment
from ottla.broker.remote.remote_metrics import TieringCounts
from ottla.broker.remote.status import RemoteStatus, status_of
from ottla.broker.remote.tasks.copy_task import CopyTask
from ottla.broker.remote.tasks.expiration_task import ExpirationTask
from ottla.broker.remote.tasks.floor_reports import FloorPurge
from ottla.broker.remote.tasks.floor_seen import FloorSeen
from ottla.broker.remote.tasks.grant_task import GrantTask
from ottla.broker.remote.tasks.grant_values import (
    CommitRequest,
    Commits,
    GrantRequest,
    Grants,
)
from ottla.broker.remote.tasks.leader_opening import LeaderOpening
from ottla.broker.remote.tasks.leader_term import LeaderTerm, note_copied
from ottla.broker.remote.tasks.local_backfill import LocalBackfill
from ottla.broker.remote.tasks.manifest_writer import ManifestWriter
from ottla.broker.remote.tasks.restore_task import RestoreTask
from ottla.tiered.lineage import Lineage
from ottla.tiered.read_plan import slice_at
from ottla.tiered.segment_metadata import NO_FLOOR
from ottla.tiered.visible_segments import VisibleSegments

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog
    from ottla.metadata.tiering import TopicTiering

logger = logging.getLogger(__name__)

STEP_PAUSE_MS: Final = 1
"""Between steps over many partitions, so that requests are served."""

Key = tuple[Uuid, int]
"""Topic id and partition."""


class _Leader:
    """The tasks of a partition that this broker leads."""

    def __init__(
        self,
        environment: RemoteEnvironment,
        log: "PartitionLog",
        leader_epoch: int,
        tiering: "TopicTiering",
        floor_seen: FloorSeen,
    ) -> None:
        self._environment = environment
        self.log = log
        self.tiering = tiering
        self.leader_epoch = leader_epoch
        self.floor_seen = floor_seen
        self.term = LeaderTerm(environment, log, leader_epoch, tiering, floor_seen)
        self._manifests = ManifestWriter(self.term)
        self.copy = CopyTask(self.term, self._manifests, self._expire)
        self.expiration = ExpirationTask(self.term, self._manifests, self._wake_copies)
        self._restored: Pending[None] = Pending()
        self.opening = LeaderOpening(self.term, self._restored)
        self.grants = GrantTask(
            self.term, self._manifests, wake_copies=self._wake_copies, expire=self._expire
        )
        self._tasks = [
            self._task(self.copy.run()),
            self._task(self.expiration.run()),
            self._task(self.opening.run()),
            self._task(self.grants.run()),
        ]
        self._begun = tuple(self._tasks)
        self._was_ready = self.term.remote() is not None
        self._is_over = False

    def start(self) -> None:
        """Begin: with what is left of the partition's restore, if it was restored."""
        log = self.log
        # What was copied may be dead by now: it is found out again before anything is deleted here.
        log.reset_remote()
        if not self.tiering.has_remote_log and not log.failed:
            _give_up_remote_prefix(log)
        restored = self._environment.restored(log.topic_id, log.partition)
        self._restored.then(lambda _: self._start_tasks())
        if restored is None:
            self._restored.complete(None)
            return
        restore = RestoreTask(self.term, restored)
        task = self._task(restore.run())
        restore.done.then(self._is_restored)
        self._tasks.append(task)
        task.start()

    def _is_restored(self, _: None) -> None:
        self._restored.complete(None)

    def _start_tasks(self) -> None:
        if not self._is_over:
            for each in self._begun:
                each.start()

    def retier(self, tiering: "TopicTiering") -> None:
        """Take another state of the same term: the last broker has acknowledged, or the purge is
        over."""
        self.tiering = self.term.tiering = tiering

    def stop(self) -> None:
        """End: cancel every operation."""
        self._is_over = True
        for each in self._tasks:
            each.cancel()
        self.grants.close()
        self._environment.metrics.remove_partition(self.term.gauges)

    def metadata_changed(self) -> None:
        """Wake the tasks where the metadata became ready; end a copy that is fenced off."""
        if not self.opening.done.done:
            self.opening.wakeup.notify()
        if self.term.grants:
            self.grants.wakeup.notify()  # What they wait for may be copied, or they are fenced off.
        remote = self.term.remote()
        if remote is None:
            self._was_ready = False
        elif not self._was_ready:
            self._was_ready = True
            self.wake()
        elif self.term.copying is not None and self.term.is_fenced(remote):
            fence = remote.fence
            logger.warning(
                "%s: copy in leader epoch %d cancelled: fenced by broker %d in leader epoch %d",
                self.term.name,
                self.leader_epoch,
                NO_EPOCH if fence is None else fence.broker_id,
                NO_EPOCH if fence is None else fence.leader_epoch,
            )
            self._restart_copy()

    def _restart_copy(self) -> None:
        self._tasks[0].cancel()
        self._tasks[0] = self._task(self.copy.run())
        self._tasks[0].start()

    def purge_up_to(self, floor: int) -> FloorPurge:
        """Return how far the purge of the segments of a floor and below is.

        With the present tiered epoch as the floor these are all segments, whatever expires them.
        """
        remote = self.term.remote()
        if remote is None or not self.opening.done.done:
            return FloorPurge(last_error=self.term.last_error)
        segments = remote.deleting() if floor <= remote.floor else remote.segments()
        left = [each for each in segments if each.tiered_epoch <= floor]
        is_over = floor <= remote.floor or not self.log.has_remote_prefix
        return FloorPurge(
            is_purged=not left and is_over and not self._manifests.is_stale(remote),
            segments_left=len(left),
            bytes_left=sum(each.size_bytes for each in left),
            last_error=self.term.last_error,
        )

    @property
    def is_disabling(self) -> bool:
        """Whether the fence that ends the copies is not replayed yet."""
        return not self.tiering.copies and not self.opening.done.done

    @property
    def is_purging(self) -> bool:
        """Whether segments that were given up are left."""
        tiering = self.tiering
        return tiering.purge_pending and not self.purge_up_to(tiering.remote_floor_epoch).is_purged

    def wake(self) -> None:
        """Have both tasks look for work."""
        self.copy.wakeup.notify()
        self.expiration.wakeup.notify()

    def _task(self, dialogue: Dialogue[None]) -> Task:
        return Task(dialogue, self._environment.timers, self._environment.clock)

    def _expire(self) -> None:
        self.expiration.wakeup.notify()

    def _wake_copies(self) -> None:
        self.copy.wakeup.notify()


class _Follower:
    """A partition that this broker follows."""

    def __init__(
        self,
        environment: RemoteEnvironment,
        log: "PartitionLog",
        tiering: "TopicTiering",
        floor_seen: FloorSeen,
    ) -> None:
        self._environment = environment
        self.log = log
        self.tiering = tiering
        self.leader_epoch = NO_EPOCH
        self.floor_seen = floor_seen
        self._backfill: Task | None = None

    def retier(self, tiering: "TopicTiering") -> None:
        """Take another tiering state. What was copied before it may be dead."""
        if not _is_same_term(self.tiering, tiering):
            self.log.reset_remote()
        self.tiering = tiering
        self.metadata_changed()

    def metadata_changed(self) -> None:
        """Note how far the log is copied."""
        remote = self._environment.metadata.remote_log(self.log.topic_id, self.log.partition)
        if remote is not None and not self.log.failed:
            # What is retained expires, and no more is copied. A fence may come before the state.
            if not self.tiering.copies or remote.floor > self.tiering.remote_floor_epoch:
                self.log.reset_remote()
            note_copied(self.log, remote)
        self._fill_local_log()

    @property
    def is_filling(self) -> bool:
        """Whether records of the leader are being copied, before the first local one."""
        return self._backfill is not None and not self._backfill.is_over

    def _fill_local_log(self) -> None:
        """Begin to copy the records that are neither in remote storage nor here."""
        environment = self._environment
        records = environment.leader_records
        if self.is_filling or records is None or not self._lacks_records():
            return
        backfill = LocalBackfill(environment, records, self.log, self._lacks_records)
        self._backfill = Task(backfill.run(), environment.timers, environment.clock)
        self._backfill.start()

    def _lacks_records(self) -> bool:
        """Tell whether records between the log start and the local log start are on the leader
        alone: the remote segments that had them were given up."""
        log, tiering = self.log, self.tiering
        if log.failed or not log.has_remote_prefix:
            return False
        if not tiering.has_remote_log:
            return True
        if tiering.remote_floor_epoch == NO_FLOOR:
            return False
        remote = self._environment.metadata.remote_log(log.topic_id, log.partition)
        if remote is None:
            return False
        lineage = Lineage(log.epochs.entries, log.log_end_offset)
        return slice_at(remote, lineage, log.local_log_start_offset - 1) is None

    def stop(self) -> None:
        """End."""
        if self._backfill is not None:
            self._backfill.cancel()


class RemoteLogManager:
    """See the module."""

    def __init__(self, environment: RemoteEnvironment) -> None:
        self._environment = environment
        self._partitions: dict[Key, _Leader | _Follower] = {}
        self._refresh = self._task_of_followers()
        self._refresh.start()

    # -- replicas ------------------------------------------------------------------------------

    def become_leader(
        self, log: "PartitionLog", *, leader_epoch: int, tiering: "TopicTiering"
    ) -> None:
        """Begin the tasks of a leader epoch; no change where they run in it already."""
        key = log.topic_id, log.partition
        known = self._partitions.get(key)
        if (
            isinstance(known, _Leader)
            and known.log is log
            and known.leader_epoch == leader_epoch
            and _is_same_term(known.tiering, tiering)
        ):
            known.retier(tiering)
            return
        self.stop(*key)
        leader = _Leader(
            self._environment, log, leader_epoch, tiering, self._floor_seen(known, key)
        )
        if isinstance(known, _Leader) and known.log is log:
            leader.term.inherit(known.term)
        self._partitions[key] = leader
        leader.start()

    def become_follower(self, log: "PartitionLog", *, tiering: "TopicTiering") -> None:
        """End a leader's tasks; keep account of what is copied from now on."""
        key = log.topic_id, log.partition
        known = self._partitions.get(key)
        if isinstance(known, _Follower) and known.log is log:
            known.retier(tiering)
            return
        self.stop(*key)
        if known is not None and not _is_same_term(known.tiering, tiering):
            log.reset_remote()
        follower = _Follower(self._environment, log, tiering, self._floor_seen(known, key))
        self._partitions[key] = follower
        follower.metadata_changed()

    def _floor_seen(self, known: "_Leader | _Follower | None", key: Key) -> FloorSeen:
        """Return what a partition's former role has noted, with what is replayed by now."""
        seen = FloorSeen() if known is None else known.floor_seen
        self._look_at_floor(seen, key)
        return seen

    def _look_at_floor(self, seen: FloorSeen, key: Key) -> None:
        environment = self._environment
        seen.look(environment.metadata.replayed(*key), environment.clock.monotonic_ms())

    def stop(self, topic_id: Uuid, partition: int) -> None:
        """End a partition's tasks: it is not hosted here any more, or its log has failed."""
        known = self._partitions.pop((topic_id, partition), None)
        if known is not None:
            known.stop()

    def close(self) -> None:
        """End all tasks."""
        self._refresh.cancel()
        for topic_id, partition in sorted(self._partitions):
            self.stop(topic_id, partition)

    def tiering_changed(self, tiering: "TopicTiering") -> None:
        """Apply another tiering state of a topic."""
        for key, known in sorted(self._partitions.items()):
            if key[0] != tiering.topic_id or known.tiering == tiering:
                continue
            if isinstance(known, _Leader):
                self.become_leader(known.log, leader_epoch=known.leader_epoch, tiering=tiering)
            else:
                known.retier(tiering)

    def opened(self, topic_id: Uuid, partition: int) -> Pending[None] | None:
        """Return the promise that this broker, as the leader, follows the tiering state it has: no
        copy of an earlier tiered epoch counts any more. None = it does not lead.

        The promise never completes once the term is over.
        """
        known = self._partitions.get((topic_id, partition))
        return known.opening.done if isinstance(known, _Leader) else None

    def knows_log_start(self, topic_id: Uuid, partition: int) -> bool:
        """Tell whether a led partition's log start can be read, in either tier.

        Where remote segments were given up while this broker was away its log start may still be
        that of the time before, until the remote log is replayed.
        """
        known = self._partitions.get((topic_id, partition))
        if not isinstance(known, _Leader) or not known.log.has_remote_prefix:
            return True
        return known.tiering.remote_floor_epoch == NO_FLOOR or known.term.has_begun

    def purge_of(self, topic_id: Uuid, partition: int, floor: int) -> FloorPurge | None:
        """Return how far the purge of a floor is; None = this broker does not lead."""
        known = self._partitions.get((topic_id, partition))
        return known.purge_up_to(floor) if isinstance(known, _Leader) else None

    # -- copies by others ----------------------------------------------------------------------

    def grant_copies(
        self, topic_id: Uuid, partition: int, request: GrantRequest
    ) -> Pending[Grants | ApiError]:
        """Grant copies of a partition's segments; see `tasks.grant_task`."""
        leader = self._leader_of(topic_id, partition)
        return completed(leader) if isinstance(leader, ApiError) else leader.grants.grant(request)

    def commit_copies(
        self, topic_id: Uuid, partition: int, request: CommitRequest
    ) -> Pending[Commits | ApiError]:
        """Take commits of granted copies."""
        leader = self._leader_of(topic_id, partition)
        return completed(leader) if isinstance(leader, ApiError) else leader.grants.commit(request)

    def _leader_of(self, topic_id: Uuid, partition: int) -> _Leader | ApiError:
        known = self._partitions.get((topic_id, partition))
        return known if isinstance(known, _Leader) else ApiError(Error.NOT_LEADER_OR_FOLLOWER)

    # -- events --------------------------------------------------------------------------------

    def metadata_changed(self, topic_id: Uuid, partition: int) -> None:
        """Note that the partition's segment metadata became ready, or that a record came."""
        known = self._partitions.get((topic_id, partition))
        if known is not None:
            self._look_at_floor(known.floor_seen, (topic_id, partition))
            known.metadata_changed()

    def segment_rolled(self, topic_id: Uuid, partition: int) -> None:
        """Note that a segment was sealed."""
        known = self._partitions.get((topic_id, partition))
        if isinstance(known, _Leader):
            known.copy.wakeup.notify()

    def offsets_advanced(self, topic_id: Uuid, partition: int) -> None:
        """Note that the high watermark or the last stable offset has advanced."""
        known = self._partitions.get((topic_id, partition))
        if isinstance(known, _Leader):
            wake_offset = known.copy.wake_offset
            if wake_offset is not None and known.log.last_stable_offset >= wake_offset:
                known.copy.wakeup.notify()

    def log_start_moved(self, topic_id: Uuid, partition: int) -> None:
        """Note that DeleteRecords has moved the log start."""
        known = self._partitions.get((topic_id, partition))
        if isinstance(known, _Leader):
            known.expiration.wakeup.notify()

    def config_changed(self, topic_id: Uuid) -> None:
        """Note that the topic's configuration, such as its retention, has changed."""
        for key, known in sorted(self._partitions.items()):
            if key[0] == topic_id and isinstance(known, _Leader):
                known.wake()

    def _task_of_followers(self) -> Task:
        return Task(self._refresh_followers(), self._environment.timers, self._environment.clock)

    def _refresh_followers(self) -> Dialogue[None]:
        """Have followers note what is copied, also where no event said so."""
        while True:
            yield self._environment.config.interval_ms
            keys = sorted(self._partitions)
            for first in range(0, len(keys), LOGS_PER_STEP_MAX):
                for key in keys[first : first + LOGS_PER_STEP_MAX]:
                    known = self._partitions.get(key)
                    if isinstance(known, _Follower):
                        known.metadata_changed()
                yield STEP_PAUSE_MS

    def tiering_counts(self) -> TieringCounts:
        """Return how many partitions are not done yet with a change of their tiering state."""
        disabling = purging = filling = 0
        for known in self._partitions.values():
            if isinstance(known, _Leader):
                disabling += known.is_disabling
                purging += known.is_purging
            else:
                filling += known.is_filling
        return TieringCounts(disabling=disabling, purging=purging, filling=filling)

    # -- descriptions --------------------------------------------------------------------------

    def status(self, topic_id: Uuid, partition: int) -> RemoteStatus | None:
        """Return what is known of a partition's tiers; None = it is not hosted here."""
        known = self._partitions.get((topic_id, partition))
        if known is None:
            return None
        term = known.term if isinstance(known, _Leader) else None
        lag = (0, 0)
        if term is not None:
            lag = term.gauges.copy_lag_bytes, term.gauges.copy_lag_segments
        remote = self._environment.metadata.remote_log(topic_id, partition)
        return status_of(
            known.log,
            remote,
            known.tiering,
            visible=VisibleSegments() if term is None else term.visible,
            is_leader=term is not None,
            leader_epoch=known.leader_epoch,
            copy_lag=lag,
            purge=None if term is None or remote is None else term.purge_left(remote),
            last_error=None if term is None else term.last_error,
        )


def _is_same_term(before: "TopicTiering", after: "TopicTiering") -> bool:
    """Tell whether a leader's tasks go on through a change of the tiering state."""
    return (before.tiered_epoch, before.remote_floor_epoch, before.restored) == (
        after.tiered_epoch,
        after.remote_floor_epoch,
        after.restored,
    )


def _give_up_remote_prefix(log: "PartitionLog") -> None:
    """Have a log start with its local files."""
    before = log.log_start_offset
    if log.advance_log_start(log.local_log_start_offset):
        logger.info(
            "%s: advancing the log start from %d to %d, the local log start: the remote segments"
            " are given up",
            *(log.name, before, log.log_start_offset),
        )
