"""Requests and notifications to the controller by znode, of tools and brokers: read and passed on.

    znode                                 hook                    deleted by
    /admin/reassign_partitions            on_reassign_request     its handler, with `change`
    /admin/preferred_replica_election     on_preferred_election   its handler, with `change`
    /admin/delete_topics/T                on_deletion_requests    the end of the deletion
    /isr_change_notification/...          on_isr_notification     this, once passed on
    /log_dir_event_notification/...       on_log_dir_event        this, once passed on

The first two are passed on once each time they are created, however soon that follows a deletion; a
rewrite of one by the controller itself is not a new request. Invalid ones are logged and deleted,
as in Kafka.

Source: KafkaController (processZkPartitionReassignment, processReplicaLeaderElection,
processIsrChangeNotification, processLogDirEventNotification), Kafka 3.9.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.base.ports import Clock
from ottla.base.timers import Timers
from ottla.base.zookeeper import Delete, Session, ZkCode, ZkError, ZnodeData
from ottla.host.steps import Steps, drive
from ottla.host.zookeeper.persistent import persistent_children
from ottla.host.zookeeper.store.store_reading import Watched, read_each, reading, reading_or_none
from ottla.host.zookeeper.store.store_writing import (
    DELETES_PER_MULTI,
    RETRY_MS,
    ControllerMoved,
    Writer,
)
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.admin import Partition, decode_preferred_election, decode_reassignment
from ottla.metadata.znodes.fields import ZnodeError
from ottla.metadata.znodes.notifications import decode_isr_change, decode_log_dir_event

log = logging.getLogger(__name__)


def _ignore(_value: Any) -> None:
    """Do nothing."""


@dataclass(slots=True, kw_only=True)
class StoreHooks:
    """The handlers of requests, set by their owners."""

    on_reassign_request: Callable[[Mapping[Partition, tuple[int, ...]]], None] = _ignore
    on_preferred_election: Callable[[tuple[Partition, ...]], None] = _ignore
    on_deletion_requests: Callable[[tuple[str, ...]], None] = _ignore
    """Called with all marked topics, each time that the set has changed."""
    on_isr_notification: Callable[[tuple[Partition, ...]], None] = _ignore
    on_log_dir_event: Callable[[int], None] = _ignore


REQUESTS = (paths.REASSIGN_PARTITIONS, paths.PREFERRED_ELECTION)
NOTIFICATIONS = (paths.ISR_CHANGES, paths.LOG_DIR_EVENTS)


class StoreRequests:
    """Reads the znodes above, one at a time.

    `read_again`: called with partitions whose state another broker has written.
    """

    def __init__(
        self,
        watched: Watched,
        writer: Writer,
        hooks: StoreHooks,
        *,
        clock: Clock,
        timers: Timers,
        read_again: Callable[[Sequence[Partition]], None],
    ) -> None:
        self._watched = watched
        self._session: Session = watched.session
        self._writer = writer
        self._hooks = hooks
        self._clock = clock
        self._timers = timers
        self._read_again = read_again
        self._handed_on: dict[str, int] = {}
        self._paths_to_read: dict[str, None] = {}
        self._is_reading = False
        self._is_open = False

    def start(self) -> None:
        """Read everything now, and on each change."""
        self._is_open = True
        for path in (*REQUESTS, *NOTIFICATIONS):
            self.path_changed(path)

    def close(self) -> None:
        """Pass nothing on any more."""
        self._is_open = False

    def path_changed(self, path: str) -> bool:
        """Read a node that changed; return whether it is one of these."""
        if path not in REQUESTS and path not in NOTIFICATIONS:
            return False
        self._paths_to_read[path] = None
        self._read_next()
        return True

    def purge_notifications(self) -> Steps[bool]:
        """Delete the notifications before the load; False = another broker is the controller."""
        for parent in NOTIFICATIONS:
            names = yield from reading_or_none(self._watched.children(parent))
            if not (yield from self._delete([f"{parent}/{name}" for name in names or ()])):
                return False
        return True

    def _read_next(self) -> None:
        if self._is_reading or not self._is_open or not self._paths_to_read:
            return
        path = next(iter(self._paths_to_read))
        del self._paths_to_read[path]
        self._is_reading = True
        steps = self._request(path) if path in REQUESTS else self._notifications(path)
        drive(steps, lambda outcome: self._on_read(path, outcome))

    def _on_read(self, path: str, outcome: Exception | None) -> None:
        self._is_reading = False
        if isinstance(outcome, ZkError) and outcome.code is ZkCode.SESSION_EXPIRED:
            self.close()
        elif isinstance(outcome, Exception):
            log.error("reading %s failed: %s; retrying", path, outcome, exc_info=outcome)
            again = self._clock.monotonic_ms() + RETRY_MS
            self._timers.at(again, lambda: _unused(self.path_changed(path)))
        self._read_next()

    def _request(self, path: str) -> Steps[None]:
        # The watch fires when the node is created, also if it is missing now.
        stat = yield from reading(self._watched.exists(path))
        if stat is None or self._handed_on.get(path) == stat.czxid:
            return
        got = yield from reading_or_none(self._session.get(path))
        if got is None or not self._is_open:
            return
        self._handed_on[path] = got.stat.czxid
        try:
            if path == paths.REASSIGN_PARTITIONS:
                self._hooks.on_reassign_request(decode_reassignment(got.data))
            else:
                self._hooks.on_preferred_election(decode_preferred_election(got.data))
        except ZnodeError as error:
            log.error("deleting an invalid request znode: %s", error)
            yield from self._delete([path])

    def _notifications(self, parent: str) -> Steps[None]:
        names = yield from persistent_children(self._watched, parent)
        listed = [f"{parent}/{name}" for name in names]
        found = yield from reading(read_each(listed, self._session.get))
        if not self._is_open:
            return
        if parent == paths.ISR_CHANGES:
            self._report_isr_changes(found)
        else:
            self._report_log_dir_events(found)
        yield from self._delete(listed)

    def _report_isr_changes(self, found: Mapping[str, ZnodeData]) -> None:
        partitions = _flat(_decoded(decode_isr_change, found))
        if partitions:
            self._read_again(partitions)
            self._hooks.on_isr_notification(partitions)

    def _report_log_dir_events(self, found: Mapping[str, ZnodeData]) -> None:
        for broker_id in dict.fromkeys(_decoded(decode_log_dir_event, found)):
            self._hooks.on_log_dir_event(broker_id)

    def _delete(self, listed: Sequence[str]) -> Steps[bool]:
        for start in range(0, len(listed), DELETES_PER_MULTI):
            part = listed[start : start + DELETES_PER_MULTI]
            written = yield from self._writer.write([Delete(path) for path in part])
            if isinstance(written, ControllerMoved):
                return False
        return True


def _decoded(decode: Callable[[str, bytes], Any], found: Mapping[str, ZnodeData]) -> list[Any]:
    decoded = []
    for path, got in found.items():
        try:
            decoded.append(decode(path, got.data))
        except ZnodeError as error:
            log.error("ignoring an invalid notification: %s", error)
    return decoded


def _flat(listed: list[tuple[Partition, ...]]) -> tuple[Partition, ...]:
    return tuple(dict.fromkeys(partition for partitions in listed for partition in partitions))


def _unused(_value: object) -> None:
    """Drop an unused value."""
