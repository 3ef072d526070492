"""Configs of topics and brokers, from `/config` into the broker's image.

A config change creates a sequential znode under `/config/changes` that names it; each broker then
reads the config again. With a new session all configs are read, because notifications may have been
deleted meanwhile. The config of a topic that is new to the broker is read before its first log is
created, because there may be no notification of it.

What has no notification is not read again, so these reads follow a write that changes nothing: the
server of this session may lag, and have the config of a former topic of that name. A session's
reads are answered after its earlier writes, so none of them waits longer for it.

Reads do not wait for one another. Of two concurrent reads of a config the one that began later
counts: it has seen all changes of which the other one was notified. A change after it began has a
notification, or is of a topic that is new again.

Notifications that are older than 15 minutes are deleted by any broker that sees them, as in Kafka.
Configs of users, clients and addresses are not read: quotas are not enforced.

Source: ZkNodeChangeNotificationListener, ZkConfigManager, Kafka 3.9.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from ottla.base.pending import Pending, completed
from ottla.base.ports import Clock
from ottla.base.zookeeper import (
    ANY_VERSION,
    Check,
    Delete,
    Session,
    ZkCode,
    ZkError,
    ZnodeData,
)
from ottla.host.steps import Steps, drive
from ottla.host.zookeeper.persistent import NumberedChild, numbered_children
from ottla.host.zookeeper.start_reading import topic_resource
from ottla.host.zookeeper.store.store_gathering import Wanted, read_once
from ottla.host.zookeeper.store.store_reading import Watched, read_each, reading
from ottla.metadata.configs import Resource, config_records
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import ConfigRecord
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.config import decode_config
from ottla.metadata.znodes.fields import ZnodeError
from ottla.metadata.znodes.notifications import changed_resource, decode_config_change

log = logging.getLogger(__name__)

KEPT_MS = 15 * 60_000
"""How long a notification is kept for brokers that have not seen it."""


class Target(Protocol):
    """The image that configs are applied to."""

    @property
    def image(self) -> ClusterImage:
        """Return the image as of now."""
        ...

    def apply(self, records: Iterable[ConfigRecord]) -> None:
        """Apply records to the image."""
        ...


class ConfigFollower:
    """See the module."""

    def __init__(self, target: Target, clock: Clock) -> None:
        self._target = target
        self._clock = clock
        self._session: Session | None = None
        self._seen: dict[NumberedChild, int] = {}
        """The processed notifications, with their creation times (epoch milliseconds)."""
        self._readings = 0
        self._superseded: dict[int, set[Resource]] = {}
        """The reads under way, by number, with what one that began later has read already."""
        self._is_busy = False
        self._is_wanted = False
        self._is_closed = False

    def session_started(self, session: Session) -> None:
        """Begin with a new session: set the watch, then read everything."""
        if self._is_closed:
            return
        self._session = session
        self._seen = {}
        self._is_busy = False
        watched = Watched(session, lambda _event: self._read_changes_soon(watched))
        self._run(watched, self._read_all(watched))

    def close(self) -> None:
        """Stop."""
        self._is_closed = True
        self._session = None

    def read_configs(self, topics: Iterable[str]) -> Pending[None]:
        """Read the configs of topics; the promise is kept when they are in the image.

        Or when the session is over: the next one reads all.
        """
        session = self._session
        if session is None:
            return completed(None)
        learned: Pending[None] = Pending()
        resources = [topic_resource(name) for name in topics]

        def ended(result: Exception | None) -> None:
            _log_failure(result)
            learned.complete(None)

        _catch_up(session)
        drive(self._read(session, resources), ended)
        return learned

    # -- steps ---------------------------------------------------------------------------------

    def _run(self, watched: Watched, steps: Steps[None]) -> None:
        """Run steps, one after another; a change meanwhile is processed afterwards."""

        def ended(result: Exception | None) -> None:
            _log_failure(result)
            if watched.session is not self._session:
                return
            self._is_busy = False
            if self._is_wanted:
                self._read_changes_soon(watched)

        self._is_busy, self._is_wanted = True, False
        drive(steps, ended)

    def _read_changes_soon(self, watched: Watched) -> None:
        if self._is_busy:
            self._is_wanted = True
        elif watched.session is self._session:
            self._run(watched, self._read_changes(watched))

    def _read_all(self, watched: Watched) -> Steps[None]:
        session = watched.session
        _catch_up(session)
        listed = yield from numbered_children(watched, paths.CONFIG_CHANGES)
        self._seen = dict.fromkeys(listed, self._clock.now_ms())
        # Configs learned meanwhile may not have been listed: they must not be taken as deleted.
        known = set(self._target.image.configs.resources())
        with self._reading() as number:
            found = (yield from read_once(session, Wanted(config_list=True))).configs
            read = {resource: found.get(resource) for resource in {*known, *found}}
            self._take(session, number, read)

    def _read_changes(self, watched: Watched) -> Steps[None]:
        session = watched.session
        listed = yield from numbered_children(watched, paths.CONFIG_CHANGES)
        new = [each for each in listed if each not in self._seen]
        self._seen = {each: self._seen[each] for each in listed if each in self._seen}
        notifications = yield from reading(read_each(new, lambda each: session.get(_path_of(each))))
        yield from self._read(session, self._resources(notifications))
        self._seen |= {each: got.stat.created_ms for each, got in notifications.items()}
        self._purge(session)

    def _resources(self, notifications: dict[NumberedChild, ZnodeData]) -> list[Resource]:
        """Return the resources of notifications, each once; invalid ones are logged."""
        found: dict[Resource, None] = {}
        for each, got in notifications.items():
            try:
                entity = decode_config_change(_path_of(each), got.data)
            except ZnodeError as error:
                log.error("ignoring an invalid config change notification: %s", error)
                continue
            resource = changed_resource(entity)
            if resource is not None:
                found[resource] = None
        return list(found)

    def _read(self, session: Session, resources: list[Resource]) -> Steps[None]:
        with self._reading() as number:
            found: dict[Resource, ZnodeData] = yield from reading(
                read_each(resources, lambda resource: session.get(paths.config(resource)))
            )
            read = {resource: found.get(resource) for resource in resources}
            self._take(session, number, read)

    @contextmanager
    def _reading(self) -> Iterator[int]:
        """Number a read that begins now, once its resources are known."""
        self._readings += 1
        number = self._readings
        self._superseded[number] = set()
        try:
            yield number
        finally:
            del self._superseded[number]

    def _take(self, session: Session, number: int, found: dict[Resource, ZnodeData | None]) -> None:
        if session is not self._session:
            return
        for other, superseded in self._superseded.items():
            if other < number:
                superseded.update(found)
        image = self._target.image
        records: list[ConfigRecord] = []
        for resource in sorted(found.keys() - self._superseded[number]):
            got = found[resource]
            try:
                values = {} if got is None else dict(decode_config(resource, got.data).values)
            except ZnodeError as error:
                log.error("ignoring an invalid config: %s", error)
                continue
            records += config_records(resource, image.configs.of(*resource), values)
        self._target.apply(records)

    def _purge(self, session: Session) -> None:
        before_ms = self._clock.now_ms() - KEPT_MS
        for each in [each for each, made_ms in self._seen.items() if made_ms < before_ms]:
            # Another broker may have deleted it already.
            session.multi((Delete(_path_of(each)),))


def _catch_up(session: Session) -> None:
    """Have the session's next reads show what the ensemble has now.

    Where this write is lost with its connection, the next connection begins with one.
    """
    session.multi((Check("/", ANY_VERSION),))


def _path_of(notification: NumberedChild) -> str:
    return f"{paths.CONFIG_CHANGES}/{notification.name}"


def _log_failure(result: object) -> None:
    if isinstance(result, ZkError):
        if result.code is not ZkCode.SESSION_EXPIRED:
            log.warning("reading configs failed: %s", result)
    elif isinstance(result, Exception):
        log.error("following config changes failed", exc_info=result)
