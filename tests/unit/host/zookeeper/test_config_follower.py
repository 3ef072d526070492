"""Configs follow what is stored, whatever the notifications, and with every session again.

Method: the simulator's model of ZooKeeper in virtual time; tools write and notify as Kafka's do.
"""

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import cast

from ottla.base.pending import Pending, completed
from ottla.base.zookeeper import (
    Create,
    Operation,
    Result,
    Session,
    Watcher,
    ZkError,
    ZnodeData,
)
from ottla.host.zookeeper.config_follower import KEPT_MS, ConfigFollower
from ottla.metadata.configs import Resource
from ottla.metadata.delta import replay
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.records import ConfigRecord
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.config import encode_config
from ottla.metadata.znodes.notifications import encode_config_change
from ottla.testing.sim.zookeeper.zookeeper import ZooKeeperModel
from ottla.testing.sim.zookeeper.zookeeper_tree import Tree

from .harness import Client, ZooKeeperHarness

T: Resource = (2, "t")
DEFAULT: Resource = (4, "")
ONE: Resource = (4, "1")


class Target:
    """An image, and how often it changed."""

    def __init__(self) -> None:
        self.image: ClusterImage = EMPTY
        self.changes = 0

    def apply(self, records: Iterable[ConfigRecord]) -> None:
        listed = list(records)
        if listed:
            self.changes += 1
            self.image = replay(self.image, listed, offset=self.changes, epoch=0).image


class Followed:
    """A broker that follows configurations."""

    def __init__(self) -> None:
        self.sim = ZooKeeperHarness()
        self.sim.make_cluster()
        self.client = Client(self.sim, "broker")
        self.target = Target()
        self.follower = ConfigFollower(self.target, self.client.clock)
        self.client.keeper.on_new(self.follower.session_started)

    def start(self) -> "Followed":
        self.client.start()
        self.sim.settle()
        return self

    def put(self, resource: Resource, *, notify: bool = True, **values: str) -> None:
        named = {name.replace("_", "."): value for name, value in values.items()}
        self.sim.put(paths.config(resource), encode_config(named))
        if notify:
            self.notify(encode_config_change(resource))

    def notify(self, data: bytes) -> None:
        self.sim.write(Create(paths.CONFIG_CHANGE, data, sequential=True))

    def values(self, resource: Resource = T) -> dict[str, str]:
        self.sim.settle()
        return dict(self.target.image.configs.of(*resource))


def test_what_is_stored_is_read_at_the_start() -> None:
    made = Followed()
    made.put(T, retention_ms="5")
    made.put(DEFAULT, notify=False, log_cleaner_threads="2")
    made.put(ONE, notify=False, log_cleaner_threads="3")
    made.start()
    assert made.values() == {"retention.ms": "5"}
    assert made.values(DEFAULT) == {"log.cleaner.threads": "2"}
    assert made.values(ONE) == {"log.cleaner.threads": "3"}
    assert made.target.changes == 1


def test_each_change_is_followed_also_when_several_come_at_once() -> None:
    made = Followed().start()
    made.put(T, retention_ms="1")
    made.put(T, retention_ms="2", segment_ms="3")
    made.put(ONE, log_cleaner_threads="4")
    assert made.values() == {"retention.ms": "2", "segment.ms": "3"}
    assert made.values(ONE) == {"log.cleaner.threads": "4"}
    made.put(T, segment_ms="3")
    assert made.values() == {"segment.ms": "3"}


def test_a_config_whose_znode_is_deleted_has_no_values() -> None:
    made = Followed().start()
    made.put(T, retention_ms="1")
    assert made.values() == {"retention.ms": "1"}
    made.sim.delete(paths.config(T))
    made.notify(encode_config_change(T))
    assert made.values() == {}


def test_notifications_of_old_tools_and_of_what_is_not_followed() -> None:
    made = Followed().start()
    made.put(T, notify=False, retention_ms="1")
    made.notify(b'{"version":1,"entity_type":"topics","entity_name":"t"}')
    made.notify(b'{"version":2,"entity_path":"users/alice/clients/c"}')
    made.notify(b'{"version":2,"entity_path":"brokers/<default>"}')
    assert made.values() == {"retention.ms": "1"}


def test_garbage_is_passed_over() -> None:
    made = Followed().start()
    made.notify(b"nonsense")
    made.sim.put(paths.config(ONE), b"[")
    made.notify(encode_config_change(ONE))
    made.put(T, retention_ms="1")
    assert made.values() == {"retention.ms": "1"}
    assert made.values(ONE) == {}


def test_a_new_session_reads_changes_of_the_time_without_a_session() -> None:
    """The notification may be gone by then."""
    made = Followed().start()
    made.put(T, retention_ms="1")
    made.put(ONE, log_cleaner_threads="4")
    made.sim.settle()
    session = made.client.keeper.session
    assert session is not None
    made.sim.model.cut("broker")
    made.put(T, notify=False, retention_ms="2")
    made.sim.delete(paths.config(ONE))
    made.sim.model.expire(session.id)
    made.sim.model.heal("broker")
    made.sim.until(lambda: made.client.keeper.session is not session)
    assert made.values() == {"retention.ms": "2"}
    assert made.values(ONE) == {}
    made.put(T, retention_ms="3")
    assert made.values() == {"retention.ms": "3"}


def test_a_connection_that_breaks_within_the_session_loses_nothing() -> None:
    made = Followed().start()
    for number in range(10):
        made.sim.model.break_connection("broker")
        made.put(T, retention_ms=str(number + 1))
        assert made.values() == {"retention.ms": str(number + 1)}


def test_the_config_of_a_new_topic_is_read_without_a_notification() -> None:
    made = Followed().start()
    made.put(T, notify=False, retention_ms="7")
    assert made.values() == {}
    made.sim.wait(made.follower.read_configs(["t", "u"]))
    assert dict(made.target.image.configs.of(*T)) == {"retention.ms": "7"}


class Lagging:
    """A session with a server that lags from now on: reads stay old until its own next write."""

    def __init__(self, session: Session, model: ZooKeeperModel) -> None:
        self.exists = session.exists
        self._session = session
        self._old: Tree | None = deepcopy(model.tree)

    def get(self, path: str) -> Pending[ZnodeData | ZkError]:
        return self._session.get(path) if self._old is None else completed(self._old.get(path))

    def children(
        self, path: str, watch: Watcher | None = None
    ) -> Pending[tuple[str, ...] | ZkError]:
        if self._old is None:
            return self._session.children(path, watch)
        return completed(self._old.children(path))

    def multi(self, operations: Sequence[Operation]) -> Pending[tuple[Result, ...] | ZkError]:
        self._old = None
        return self._session.multi(operations)

    def lag(self, model: ZooKeeperModel) -> None:
        self._old = deepcopy(model.tree)


def test_a_new_topic_does_not_get_the_config_of_a_former_one_from_a_server_that_lags() -> None:
    """There is no notification, neither of the deletion nor of a topic without a config."""
    made = Followed().start()
    made.put(T, retention_ms="1")
    session = Lagging(made.client.session(), made.sim.model)
    made.follower.session_started(cast(Session, session))
    assert made.values() == {"retention.ms": "1"}
    session.lag(made.sim.model)
    made.sim.delete(paths.config(T))
    made.sim.wait(made.follower.read_configs(["t"]))
    assert made.values() == {}


def test_a_new_session_does_not_read_configs_from_a_server_that_lags() -> None:
    made = Followed().start()
    made.put(T, retention_ms="1")
    session = Lagging(made.client.session(), made.sim.model)
    made.sim.delete(paths.config(T))
    made.follower.session_started(cast(Session, session))
    assert made.values() == {}


def test_reading_topic_configs_ends_with_the_session() -> None:
    made = Followed().start()
    session = made.client.keeper.session
    assert session is not None
    made.sim.model.cut("broker")
    learning = made.follower.read_configs(["t"])
    made.sim.model.expire(session.id)
    made.sim.model.heal("broker")
    made.sim.wait(learning)


def test_without_a_session_no_topic_config_is_read() -> None:
    made = Followed()
    assert made.follower.read_configs(["t"]).done


def test_changes_are_followed_after_their_parent_was_removed() -> None:
    """The numbers of notifications begin again at 0."""
    made = Followed().start()
    made.put(T, retention_ms="1")
    assert made.values() == {"retention.ms": "1"}
    made.sim.delete(paths.CONFIG_CHANGES)
    made.sim.settle()
    made.put(T, retention_ms="2")
    assert made.values() == {"retention.ms": "2"}
    # It is gone and there again between two readings.
    made.put(T, notify=False, retention_ms="3")
    again = made.sim.replace_parent(paths.CONFIG_CHANGES)
    made.sim.write(*again, Create(paths.CONFIG_CHANGE, encode_config_change(T), sequential=True))
    assert made.values() == {"retention.ms": "3"}


def test_old_notifications_are_deleted_by_a_broker_that_sees_them() -> None:
    made = Followed().start()
    made.put(T, retention_ms="1")
    made.sim.settle()
    made.sim.run(KEPT_MS - 60_000)
    made.put(T, retention_ms="2")
    made.sim.settle()
    assert len(made.sim.names(paths.CONFIG_CHANGES)) == 2
    made.sim.run(120_000)
    made.put(T, retention_ms="3")
    made.sim.settle()
    assert len(made.sim.names(paths.CONFIG_CHANGES)) == 2
    assert made.values() == {"retention.ms": "3"}


class Slow:
    """A session that holds back the first read of one node until the test says so.

    `send`: lets it go on, None = nobody has read the node. `is_sent`: it is sent at once, and only
    its answer is held back.
    """

    def __init__(self, session: Session, path: str, *, is_sent: bool = False) -> None:
        self.send: Callable[[], None] | None = None
        self.exists, self.children, self.multi = session.exists, session.children, session.multi
        self._session = session
        self._path = path
        self._is_sent = is_sent

    def get(self, path: str) -> Pending[ZnodeData | ZkError]:
        if path != self._path or self.send is not None:
            return self._session.get(path)
        held: Pending[ZnodeData | ZkError] = Pending()
        sent = self._session.get(path) if self._is_sent else None

        def complete(answer: ZnodeData | ZkError) -> None:
            held.complete(answer)

        self.send = lambda: (sent or self._session.get(path)).then(complete)
        return held


def slow(made: Followed, path: str, *, is_sent: bool = False) -> Slow:
    """Give the follower a session that is slow to read a node; return that."""
    session = made.client.keeper.session
    assert session is not None
    given = Slow(session, path, is_sent=is_sent)
    made.follower.session_started(cast(Session, given))
    return given


class SlowToList:
    """A session that holds back a listing, where that is asked for, until the test says so."""

    def __init__(self, session: Session) -> None:
        self.holds = False
        self.send: Callable[[], None] | None = None
        self.get, self.exists, self.multi = session.get, session.exists, session.multi
        self._session = session

    def children(
        self, path: str, watch: Watcher | None = None
    ) -> Pending[tuple[str, ...] | ZkError]:
        if not self.holds:
            return self._session.children(path, watch)
        held: Pending[tuple[str, ...] | ZkError] = Pending()

        def complete(answer: tuple[str, ...] | ZkError) -> None:
            held.complete(answer)

        self.holds, self.send = False, lambda: self._session.children(path, watch).then(complete)
        return held


def test_changes_are_followed_whose_parent_is_replaced_during_a_reading() -> None:
    """The name that is listed then was seen before, below the former parent."""
    made = Followed().start()
    made.put(T, retention_ms="1")
    session = SlowToList(made.client.session())
    made.follower.session_started(cast(Session, session))
    assert made.values() == {"retention.ms": "1"}
    session.holds = True
    made.notify(encode_config_change(ONE))
    made.sim.until(lambda: session.send is not None)
    made.put(T, notify=False, retention_ms="2")
    again = made.sim.replace_parent(paths.CONFIG_CHANGES)
    made.sim.write(*again, Create(paths.CONFIG_CHANGE, encode_config_change(T), sequential=True))
    assert session.send is not None
    session.send()
    assert made.values() == {"retention.ms": "2"}


def test_a_topic_config_read_during_a_full_read_is_kept() -> None:
    """The topic came after the names were listed; it is not one that is gone."""
    made = Followed().start()
    made.put(ONE, log_cleaner_threads="4")
    session = slow(made, paths.config(ONE))
    made.sim.until(lambda: session.send is not None)
    made.put(T, notify=False, retention_ms="7")
    made.sim.wait(made.follower.read_configs(["t"]))
    assert session.send is not None
    session.send()
    assert made.values() == {"retention.ms": "7"}
    assert made.values(ONE) == {"log.cleaner.threads": "4"}


def test_a_topic_config_read_before_a_change_does_not_undo_it() -> None:
    """To read many new topics takes long; meanwhile a tool changes what was read first."""
    made = Followed().start()
    made.put(T, notify=False, retention_ms="1")
    session = slow(made, paths.config((2, "u")))
    made.sim.settle()
    learning = made.follower.read_configs(["t", "u"])
    made.sim.settle()
    made.put(T, retention_ms="2")
    assert made.values() == {"retention.ms": "2"}
    assert not learning.done
    assert session.send is not None
    session.send()
    made.sim.wait(learning)
    assert made.values() == {"retention.ms": "2"}


def test_a_config_of_a_previous_topic_does_not_replace_that_of_the_new_one() -> None:
    """The old one has a notification; the config of the new one has none."""
    made = Followed().start()
    session = slow(made, paths.config(T), is_sent=True)
    made.sim.settle()
    made.put(T, retention_ms="1")
    made.sim.settle()
    made.put(T, notify=False, retention_ms="2")
    made.sim.wait(made.follower.read_configs(["t"]))
    assert session.send is not None
    session.send()
    assert made.values() == {"retention.ms": "2"}


def test_concurrent_reads_of_topic_configs_do_not_wait_for_one_another() -> None:
    """Only what both read is left to the later one."""
    made = Followed().start()
    made.put(T, notify=False, retention_ms="1")
    session = slow(made, paths.config(T), is_sent=True)
    made.sim.settle()
    made.notify(encode_config_change(T))
    made.sim.settle()
    made.put((2, "u"), notify=False, retention_ms="3")
    made.sim.wait(made.follower.read_configs(["u"]))
    assert made.values((2, "u")) == {"retention.ms": "3"}
    assert session.send is not None
    session.send()
    assert made.values() == {"retention.ms": "1"}
