"""What tools and brokers ask of the controller by writing a znode: seen, read, handed on.

    what                                  hook                    who deletes the znode
    /admin/reassign_partitions            on_reassign_request     whoever acts on it, by `change`
    /admin/preferred_replica_election     on_preferred_election   whoever acts on it, by `change`
    /admin/delete_topics/T                on_deletion_requests    the deletion's end
    /isr_change_notification/...          on_isr_notification     this, once handed on
    /log_dir_event_notification/...       on_log_dir_event        this, once handed on

The first two are handed on once each time they are created, however quickly that follows a
deletion; a rewrite of one by the controller itself is not a new request. What nobody can read is
logged and deleted, as in Kafka.

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
from ottla.host.steps import Steps, follow
from ottla.host.zookeeper.store_reading import Watched, read_each, reading, reading_or_none
from ottla.host.zookeeper.store_writing import RETRY_MS, Deposed, Writer
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.admin import Partition, decode_preferred_election, decode_reassignment
from ottla.metadata.znodes.fields import ZnodeError
from ottla.metadata.znodes.notifications import decode_isr_change, decode_log_dir_event

log = logging.getLogger(__name__)

DELETES_PER_MULTI = 500


def _ignore(_value: Any) -> None:
    """Do nothing."""


@dataclass(slots=True, kw_only=True)
class StoreHooks:
    """What is done with each request; whoever decides sets them."""

    on_reassign_request: Callable[[Mapping[Partition, tuple[int, ...]]], None] = _ignore
    on_preferred_election: Callable[[tuple[Partition, ...]], None] = _ignore
    on_deletion_requests: Callable[[tuple[str, ...]], None] = _ignore
    """All topics that are marked, each time that the set has changed."""
    on_isr_notification: Callable[[tuple[Partition, ...]], None] = _ignore
    on_log_dir_event: Callable[[int], None] = _ignore


REQUESTS = (paths.REASSIGN_PARTITIONS, paths.PREFERRED_ELECTION)
NOTIFICATIONS = (paths.ISR_CHANGES, paths.LOG_DIR_EVENTS)


class StoreRequests:
    """Looks at the nodes above, one look at a time. `read_anew`: of partitions whose state
    somebody else has written."""

    def __init__(
        self,
        watched: Watched,
        writer: Writer,
        hooks: StoreHooks,
        *,
        clock: Clock,
        timers: Timers,
        read_anew: Callable[[Sequence[Partition]], None],
    ) -> None:
        self._watched = watched
        self._session: Session = watched.session
        self._writer = writer
        self._hooks = hooks
        self._clock = clock
        self._timers = timers
        self._read_anew = read_anew
        self._handed_on: dict[str, int] = {}
        self._to_look_at: dict[str, None] = {}
        self._is_looking = False
        self._is_open = False

    def start(self) -> None:
        """Look at everything, and from now on at what changes."""
        self._is_open = True
        for path in (*REQUESTS, *NOTIFICATIONS):
            self.look_at(path)

    def close(self) -> None:
        """Hand nothing on any more."""
        self._is_open = False

    def look_at(self, path: str) -> bool:
        """Look at a node that changed; return whether it is one of those."""
        if path not in REQUESTS and path not in NOTIFICATIONS:
            return False
        self._to_look_at[path] = None
        self._go_on()
        return True

    def purge_notifications(self) -> Steps[bool]:
        """Delete notifications of the time before: all is read anew. False = deposed."""
        for parent in NOTIFICATIONS:
            names = yield from reading_or_none(self._watched.children(parent))
            if not (yield from self._delete([f"{parent}/{name}" for name in names or ()])):
                return False
        return True

    def _go_on(self) -> None:
        if self._is_looking or not self._is_open or not self._to_look_at:
            return
        path = next(iter(self._to_look_at))
        del self._to_look_at[path]
        self._is_looking = True
        steps = self._request(path) if path in REQUESTS else self._notifications(path)
        follow(steps, lambda outcome: self._looked(path, outcome))

    def _looked(self, path: str, outcome: Exception | None) -> None:
        self._is_looking = False
        if isinstance(outcome, ZkError) and outcome.code is ZkCode.SESSION_EXPIRED:
            self.close()
        elif isinstance(outcome, Exception):
            log.error("reading %s failed: %s", path, outcome, exc_info=outcome)
            again = self._clock.monotonic_ms() + RETRY_MS
            self._timers.at(again, lambda: _unused(self.look_at(path)))
        self._go_on()

    def _request(self, path: str) -> Steps[None]:
        # The watch sees the node come, also when it is not there now, or goes and comes again.
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
            log.error("deleting a request that nobody can read: %s", error)
            yield from self._delete([path])

    def _notifications(self, parent: str) -> Steps[None]:
        names = yield from reading(self._watched.children(parent))
        listed = [f"{parent}/{name}" for name in names]
        found = yield from reading(read_each(listed, self._session.get))
        if not self._is_open:
            return
        if parent == paths.ISR_CHANGES:
            self._tell_of_isr(found)
        else:
            self._tell_of_folders(found)
        yield from self._delete(listed)

    def _tell_of_isr(self, found: Mapping[str, ZnodeData]) -> None:
        partitions = _flat(_decoded(decode_isr_change, found))
        if partitions:
            self._read_anew(partitions)
            self._hooks.on_isr_notification(partitions)

    def _tell_of_folders(self, found: Mapping[str, ZnodeData]) -> None:
        for broker_id in dict.fromkeys(_decoded(decode_log_dir_event, found)):
            self._hooks.on_log_dir_event(broker_id)

    def _delete(self, listed: Sequence[str]) -> Steps[bool]:
        for start in range(0, len(listed), DELETES_PER_MULTI):
            part = listed[start : start + DELETES_PER_MULTI]
            written = yield from self._writer.write([Delete(path) for path in part])
            if isinstance(written, Deposed):
                return False
        return True


def _decoded(decode: Callable[[str, bytes], Any], found: Mapping[str, ZnodeData]) -> list[Any]:
    decoded = []
    for path, got in found.items():
        try:
            decoded.append(decode(path, got.data))
        except ZnodeError as error:
            log.error("passing over a notification that nobody can read: %s", error)
    return decoded


def _flat(listed: list[tuple[Partition, ...]]) -> tuple[Partition, ...]:
    return tuple(dict.fromkeys(partition for partitions in listed for partition in partitions))


def _unused(_value: object) -> None:
    """Drop a value that nobody needs."""
