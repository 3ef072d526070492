"""Purges the objects of deleted topics, as the leader of partitions of `__remote_log_metadata`.

    deletion ledger, leaders of the metadata topic
                      |
                    Purger --- a PurgeTask for each partition of a deleted topic
                      |
                      +------- ReportPurges ----> controller: the ledger's remote part

A deleted topic has no leader any more, but the records of its segments are in a partition of the
metadata topic, whose leader outlives it. That broker reads them, deletes the objects, and reports.
It begins and ends with its leadership, and with the entry in the ledger; the next leader goes on
from the metadata. Two that purge at once, since one does not know yet that it no longer leads, do
no harm.

Reports are repeated for as long as the ledger's entry is pending (`purge_reporter`).
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from ottla.base.ids import REMOTE_LOG_METADATA_TOPIC, Uuid, uuid_text
from ottla.base.limits import LOGS_PER_STEP_MAX
from ottla.base.object_store import StoreError
from ottla.base.timers import Timer
from ottla.broker.remote.dialogue import Task
from ottla.broker.remote.environment import RemoteEnvironment
from ottla.broker.remote.tasks.purge_reporter import REPORT_SOON_MS, Key, PurgeReporter
from ottla.broker.remote.tasks.purge_task import DeletedPartition, PurgeTask
from ottla.metadata.deletions import DeletionImage
from ottla.metadata.image import ClusterImage
from ottla.metadata.tiering import WHOLE_TOPIC
from ottla.tiered.metadata_partition import metadata_partition
from ottla.wire.messages import report_purges as wire

if TYPE_CHECKING:
    from ottla.broker.ports import Forwarder
    from ottla.metadata.topics import TopicImage

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Purge:
    """A partition's task. `is_started`: it has begun."""

    task: PurgeTask
    running: Task
    is_started: bool = False


@dataclass(slots=True)
class _Topic:
    """A deleted topic, and the partitions of it that this broker purges: none, perhaps.

    Fields: `partitions`: all of the entry. `failure`: the kind of the last failure that was logged.
    """

    name: str
    partitions: frozenset[int] = frozenset()
    purges: dict[int, _Purge] = field(default_factory=dict)
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgerPorts:
    """What the purger needs of its broker.

    Fields: `assign`, `unassign`: read the segment metadata of partitions, or no longer.
            `forwarder` leads to the controller; `broker_epoch`: of this registration.
    """

    assign: Callable[[Iterable[Key]], object]
    unassign: Callable[[Iterable[Key]], object]
    forwarder: "Forwarder"
    broker_epoch: Callable[[], int]


class Purger:
    """See the module. `apply` must be called with each metadata change."""

    def __init__(self, environment: RemoteEnvironment, ports: PurgerPorts) -> None:
        self._environment = environment
        self._ports = ports
        self._metadata_topic: TopicImage | None = None
        self._topics: dict[Uuid, _Topic] = {}
        self._pending: set[Uuid] = set()
        self._to_start: dict[Key, None] = {}
        self._start_timer: Timer | None = None
        self._is_closed = False
        self._reports = PurgeReporter(
            environment,
            ports.forwarder,
            ports.broker_epoch,
            rows=self._due_rows,
            is_needed=lambda: any(known.purges for known in self._topics.values()),
        )

    @property
    def is_needed(self) -> bool:
        """Tell whether any purge is pending, whoever has to do it."""
        return bool(self._pending)

    # -- metadata ------------------------------------------------------------------------------

    def note_pending(self, image: ClusterImage, changed: Collection[Uuid] | None) -> None:
        """Note which purges are pending; `changed`: whose entries changed, None = any."""
        if changed is None:
            self._pending = {each.topic_id for each in image.deletions.purges()}
            return
        for topic_id in changed:
            deletion = image.deletions.of(topic_id)
            if deletion is not None and deletion.is_purging:
                self._pending.add(topic_id)
            else:
                self._pending.discard(topic_id)

    def apply(self, image: ClusterImage, changed: Collection[Uuid]) -> None:
        """Follow the ledger, after `note_pending`, and the leaders of the metadata topic.

        `image`: has the metadata topic only where all its partitions are known. `changed`: the
        topics whose entries in the ledger changed.
        """
        if self._is_closed:
            return
        topic = image.topics.by_name(REMOTE_LOG_METADATA_TOPIC)
        if topic is not self._metadata_topic and topic != self._metadata_topic:
            self._metadata_topic = topic
            for known in self._topics.values():
                known.partitions = frozenset()  # They may be other brokers' by now.
            changed = self._pending | self._topics.keys()
        for topic_id in sorted(changed):
            self._follow(topic_id, image.deletions.of(topic_id))
        self._arm_start()
        self._reports.arm()

    def _follow(self, topic_id: Uuid, deletion: DeletionImage | None) -> None:
        if deletion is None or not deletion.is_purging:
            self._stop_topic(topic_id)
            return
        known = self._topics.get(topic_id) or _Topic(deletion.name)
        partitions = deletion.partitions()
        if partitions != known.partitions:
            known.partitions = partitions
            mine = self._mine(topic_id, partitions)
            self._stop(topic_id, known, [each for each in known.purges if each not in mine])
            self._begin(topic_id, known, [each for each in mine if each not in known.purges])
        self._topics[topic_id] = known
        for each in known.purges.values():
            if each.task.replicas_are_over != deletion.replicas_are_over:
                each.task.replicas_are_over = deletion.replicas_are_over
                each.task.wakeup.notify()

    def _mine(self, topic_id: Uuid, partitions: Iterable[int]) -> dict[int, None]:
        """Return the partitions whose segments are recorded where this broker leads."""
        topic, node_id = self._metadata_topic, self._environment.node_id
        if topic is None:
            return {}
        count = len(topic.partitions)
        led = {each for each, state in topic.partitions.items() if state.leader == node_id}
        return {
            each: None
            for each in sorted(partitions)
            if led and metadata_partition(topic_id, each, count) in led
        }

    def _begin(self, topic_id: Uuid, known: _Topic, partitions: Collection[int]) -> None:
        environment = self._environment
        if not partitions:
            return
        logger.info(
            "topic %s (%s) was deleted: purging the remote tier of %d partitions",
            *(known.name, uuid_text(topic_id), len(partitions)),
        )
        for number in partitions:
            task = PurgeTask(
                environment,
                DeletedPartition(topic=known.name, topic_id=topic_id, partition=number),
                failed=self._failed,
                purged=lambda: self._purged(topic_id),
            )
            running = Task(task.run(), environment.timers, environment.clock)
            known.purges[number] = _Purge(task, running)
            self._to_start[topic_id, number] = None
        self._ports.assign([(topic_id, each) for each in partitions])

    def _stop(self, topic_id: Uuid, known: _Topic, partitions: Collection[int]) -> None:
        for number in partitions:
            purge = known.purges.pop(number)
            purge.running.cancel()
            purge.task.close()
            self._to_start.pop((topic_id, number), None)
        if partitions:
            self._ports.unassign([(topic_id, each) for each in partitions])

    def _stop_topic(self, topic_id: Uuid) -> None:
        known = self._topics.pop(topic_id, None)
        self._reports.forget(topic_id)
        if known is not None:
            self._stop(topic_id, known, list(known.purges))

    def close(self) -> None:
        """Stop all tasks and reports."""
        self._is_closed = True
        self._reports.close()
        if self._start_timer is not None:
            self._start_timer.cancel()
        for known in self._topics.values():
            for each in known.purges.values():
                each.running.cancel()
                each.task.close()
        self._topics.clear()
        self._to_start.clear()

    # -- tasks ---------------------------------------------------------------------------------

    def _arm_start(self) -> None:
        """Start tasks some at a time, in turns of their own: a topic may have thousands."""
        if self._to_start and self._start_timer is None:
            now_ms = self._environment.clock.monotonic_ms()
            self._start_timer = self._environment.timers.at(now_ms, self._start_some)

    def _start_some(self) -> None:
        self._start_timer = None
        for topic_id, number in list(islice(self._to_start, LOGS_PER_STEP_MAX)):
            del self._to_start[topic_id, number]
            purge = self._topics[topic_id].purges[number]
            purge.is_started = True
            purge.running.start()
        if not self._is_closed:
            self._arm_start()

    def metadata_changed(self, topic_id: Uuid, partition: int) -> None:
        """Note that a partition's segment metadata became ready."""
        known = self._topics.get(topic_id)
        purge = None if known is None else known.purges.get(partition)
        if purge is not None and purge.is_started:
            purge.task.wakeup.notify()

    def _failed(self, task: PurgeTask, error: object, pause_ms: int) -> None:
        """Log a failure, unless the last one that was logged of the topic is of the same kind."""
        known = self._topics.get(task.partition.topic_id)
        kind = error.failure.value if isinstance(error, StoreError) else "metadata"
        if known is None or known.failure == kind:
            return
        known.failure = kind
        logger.warning(
            "%s: purge of the deleted topic's remote tier failed: %s; retrying in %d ms",
            *(task.partition.name, task.last_error, pause_ms),
        )

    def _purged(self, topic_id: Uuid) -> None:
        known = self._topics.get(topic_id)
        if known is None:
            return
        if all(each.task.is_purged for each in known.purges.values()):
            logger.info(
                "topic %s (%s): purged the remote tier of %d partitions",
                *(known.name, uuid_text(topic_id), len(known.purges)),
            )
        known.failure = None
        self._reports.arm(REPORT_SOON_MS)

    # -- reports -------------------------------------------------------------------------------

    def _due_rows(self, first: Key | None) -> "Iterator[tuple[Key, wire.PurgedPartition]]":
        """Yield the partitions to report, in order."""
        for topic_id in sorted(self._topics):
            if not self._reports.may_report(topic_id, first):
                continue
            known = self._topics[topic_id]
            for number in sorted(known.purges):
                if first is None or (topic_id, number) >= first:
                    yield (topic_id, number), _reported(number, known.purges[number].task)


def _reported(partition: int, task: PurgeTask) -> wire.PurgedPartition:
    return wire.PurgedPartition(
        partition=partition,
        floor=WHOLE_TOPIC,
        is_purged=task.is_purged,
        segments_left=task.segments_left,
        bytes_left=task.bytes_left,
        last_error=task.last_error,
    )
