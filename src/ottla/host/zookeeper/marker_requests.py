"""Topic deletion markers, `/admin/delete_topics/T`, in a ZooKeeper cluster's controller.

A marker has a topic's name, but means the topic that existed when it was written: that topic is
queued for deletion. A marker that is older than the topic of its name is of a previous topic, whose
znodes were removed by hand. It is deleted, as are markers of unknown topics, of topics that must
not be deleted, and all markers while delete.topic.enable=false (KAFKA-3175). Kafka uses the name
alone.

A marker without a deletion is processed when the set of markers changes, and when its topic is
created or deleted or its deletion ends: none stays behind for a topic that is created later. A
marker that replaces a removed one leaves the set unchanged, so `on_removed` is called for each
removed marker, and has them listed again. A marker whose topic is stored but not in the image yet
waits for it; Kafka deletes it. A marker whose topic's znode cannot be read waits until that is
repaired or removed.

A failure, by ZooKeeper or by a bug, is retried (`ottla.controller.retry_queue`): no other marker
waits for it, and no further event is needed.

Source: KafkaController.processTopicDeletion, Kafka 3.9.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.base.ports import Clock
from ottla.base.timers import Timer, Timers
from ottla.base.zookeeper import Delete, Operation, Stat, ZkCode, ZkError
from ottla.controller.context import DecisionContext
from ottla.controller.deletion.delete_topics import mark_topics
from ottla.controller.retry_queue import RetryQueue
from ottla.host.controller.controller_runtime import ControllerRuntime
from ottla.host.steps import Steps, drive, wait
from ottla.host.zookeeper.store.store_reading import read_each, reading
from ottla.host.zookeeper.store.store_writing import (
    DELETES_PER_MULTI,
    ControllerMoved,
    Done,
    Written,
)
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.znodes import paths

log = logging.getLogger(__name__)

Change = Callable[[Sequence[Operation]], Pending[Written | ZkError]]
Exists = Callable[[str], Pending[Stat | ZkError | None]]


class MarkerRequests:
    """The markers of one term.

    `change` writes znodes that are not part of the image, fenced; `exists` reads the stat of one;
    `marked`: the topics with a marker, as far as known; `on_removed`: called with the topics whose
    marker was removed. `unreadable`: the topics with an invalid znode, with the reason.
    """

    def __init__(
        self,
        runtime: ControllerRuntime,
        context: DecisionContext,
        *,
        clock: Clock,
        timers: Timers,
        change: Change,
        exists: Exists,
        marked: Callable[[], Collection[str]],
        on_removed: Callable[[Collection[str]], None],
        unreadable: Callable[[], Mapping[str, str]],
    ) -> None:
        self._runtime = runtime
        self._enabled = context.config["delete.topic.enable"]
        self._clock = clock
        self._timers = timers
        self._change = change
        self._exists = exists
        self._marked = marked
        self._on_removed = on_removed
        self._unreadable = unreadable
        self._waiting: set[str] = set()
        """The unreadable topics whose waiting markers were logged."""
        self._queue: RetryQueue[str] = RetryQueue()
        self._timer: Timer | None = None
        self._is_processing = self._is_over = False

    def process_markers(self, names: Iterable[str]) -> None:
        """Queue the marked topics that are not queued yet; delete the markers of others."""
        image = self._runtime.image
        self._queue.add(each for each in names if not image.is_queued_for_deletion(each))
        self._process_next()

    def stop(self) -> None:
        """Stop: the term is over."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()

    def changed(self, delta: ClusterDelta) -> None:
        """Process a change of the image, after which a marker may be of another topic or none."""
        marked = self._marked()
        if not marked:
            return
        touched = {each.name for each in delta.created_topics.values()}
        touched.update(each.name for each in delta.deleted_topics.values())
        for topic_id in delta.changed_deletions:
            entry = delta.before.deletions.of(topic_id)
            if entry is not None:
                touched.add(entry.name)
        self.process_markers(touched.intersection(marked))

    @property
    def _is_open(self) -> bool:
        return self._runtime.active and not self._is_over

    def _process_next(self) -> None:
        if self._is_open and not self._is_processing:
            self._is_processing = True
            drive(self._process_all(), self._on_processed)

    def _process_all(self) -> Steps[None]:
        """Process the queued markers, one set after the other."""
        while self._is_open and (names := self._queue.take()):
            try:
                yield from self._process(names)
            except Exception as error:
                if isinstance(error, ZkError) and error.code is ZkCode.SESSION_EXPIRED:
                    return  # The next controller processes all markers.
                self._failed(names, error)
            else:
                self._queue.done(names)

    def _process(self, names: Sequence[str]) -> Steps[None]:
        """Queue the topics or delete their markers. Raises: any exception."""
        # The ids first: znodes that are read afterwards are never older than these topics.
        image = self._runtime.image
        ids = {
            name: image.topics.id_of(name)
            for name in names
            if not image.is_queued_for_deletion(name)
        }
        listed = [*map(paths.topic, ids), *map(paths.marker, ids)]
        found = yield from reading(read_each(listed, self._exists))
        removed = [name for name in ids if found.get(paths.marker(name)) is None]
        if removed:
            self._on_removed(removed)
        wanted, refused = self._sort(ids, found)
        if wanted:
            yield from self._queue_topics(wanted, refused)
        yield from self._delete_markers(refused)

    def _failed(self, names: Sequence[str], error: Exception) -> None:
        bug = None if isinstance(error, ApiError | ZkError) else error
        if len(names) > 1:
            text = "processing %d topic deletion markers together failed: %s; retrying in halves"
            log.info(text, len(names), error, exc_info=bug)
        else:
            text = "processing the deletion marker of topic %s failed: %s; retrying"
            log.error(text, names[0], error, exc_info=bug)
        self._queue.failed(names, self._clock.monotonic_ms())

    def _on_processed(self, outcome: Exception | None) -> None:
        self._is_processing = False
        if outcome is not None:
            log.error("processing /admin/delete_topics failed", exc_info=outcome)
        self._arm()

    def _arm(self) -> None:
        """Set the timer to the end of the next backoff."""
        due_ms = self._queue.due_ms if self._is_open else None
        self._timer = self._timers.move(self._timer, due_ms, self._tick)

    def _tick(self) -> None:
        self._queue.end_pauses(self._clock.monotonic_ms())
        self._process_next()

    def _sort(
        self, ids: Mapping[str, Uuid | None], found: Mapping[str, Stat | None]
    ) -> tuple[dict[str, Uuid], dict[str, str]]:
        """Return the topics to queue, and those whose markers are deleted, with the reason."""
        wanted: dict[str, Uuid] = {}
        refused: dict[str, str] = {}
        for name, topic_id in ids.items():
            topic, marker = found.get(paths.topic(name)), found.get(paths.marker(name))
            if marker is None or topic is None or topic_id is not None:
                self._waiting.discard(name)
            if marker is None:
                continue  # It was removed by its writer.
            if topic is None:
                refused[name] = Error.UNKNOWN_TOPIC_OR_PARTITION.name
            elif marker.czxid < topic.czxid:
                refused[name] = "its marker is older than the topic"
            elif topic_id is not None:
                wanted[name] = topic_id
            elif name in self._runtime.image.topics:
                self._queue.add((name,))  # Its change came meanwhile; otherwise it will.
            elif name not in self._waiting and name in self._unreadable():
                self._waiting.add(name)
                text = "deletion marker %s waits until %s is repaired or removed: %s"
                reason = self._unreadable()[name]
                log.warning(text, paths.marker(name), paths.topic(name), reason)
        return wanted, refused

    def _queue_topics(self, wanted: Mapping[str, Uuid], refused: dict[str, str]) -> Steps[None]:
        wall_ms = self._clock.now_ms()
        reply = yield from wait(
            self._runtime.run(
                lambda image: mark_topics(image, wanted, enabled=self._enabled, wall_ms=wall_ms)
            )
        )
        if isinstance(reply, ApiError):
            if reply.error is not Error.NOT_CONTROLLER:
                raise reply
            return  # The next controller processes all markers.
        for name, error in reply.refused.items():
            if error is Error.UNKNOWN_TOPIC_OR_PARTITION:
                self._queue.add((name,))  # It was deleted, and may have been created again.
            else:
                refused[name] = error.name

    def _delete_markers(self, refused: Mapping[str, str]) -> Steps[None]:
        for name, reason in refused.items():
            log.warning("deletion of topic %s rejected: %s", name, reason)
        names = list(refused)
        for start in range(0, len(names), DELETES_PER_MULTI):
            part = names[start : start + DELETES_PER_MULTI]
            outcome = yield from wait(self._change([Delete(paths.marker(each)) for each in part]))
            if isinstance(outcome, ZkError):
                raise outcome
            if not isinstance(outcome, Done | ControllerMoved):
                raise ApiError(Error.UNKNOWN_SERVER_ERROR, f"deleting markers failed: {outcome}")
            self._on_removed(part)
