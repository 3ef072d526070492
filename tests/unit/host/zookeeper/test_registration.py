"""A broker registers with each of its sessions, and replaces only its own registrations.

Method: the simulator's model of ZooKeeper in virtual time.
"""

import json

import pytest

from ottla.base.pending import Pending, completed
from ottla.base.zookeeper import Session, Stat, Watcher, ZkCode, ZkError
from ottla.host.zookeeper.registration import Registration
from ottla.metadata.brokers import Endpoint
from ottla.metadata.znodes import paths

from .harness import SESSION_MS, Client, ZooKeeperHarness

NODE = paths.broker(1)


class Broker:
    """Broker 1's registration, in a process of its own."""

    def __init__(
        self, sim: ZooKeeperHarness, name: str = "broker 1", previous_sessions: tuple[int, ...] = ()
    ) -> None:
        self.sim = sim
        self.client = Client(sim, name)
        self.epochs: list[int] = []
        self.registration = Registration(
            1,
            [Endpoint("PLAINTEXT", "here", 9092)],
            rack="r",
            clock=self.client.clock,
            timers=self.client.timers,
            store_session=lambda _: completed(None),
            previous_sessions=previous_sessions,
            on_epoch=self.epochs.append,
        )
        self.client.keeper.on_new(self.registration.session_started)
        self.session = self.client.start()

    def wait(self) -> None:
        self.sim.wait(self.registration.registered)


def started() -> ZooKeeperHarness:
    sim = ZooKeeperHarness()
    sim.make_cluster()
    return sim


def owner(sim: ZooKeeperHarness) -> int:
    return sim.model.tree.nodes[NODE].ephemeral_owner


def test_it_registers_as_kafka_s_brokers_do_and_its_epoch_is_the_czxid() -> None:
    sim = started()
    broker = Broker(sim)
    broker.wait()
    data = sim.data(NODE)
    assert data is not None
    znode = json.loads(data)
    assert znode["version"] == 5
    assert znode["endpoints"] == ["PLAINTEXT://here:9092"]
    assert (znode["host"], znode["port"], znode["rack"]) == ("here", 9092, "r")
    assert broker.epochs == [sim.model.tree.nodes[NODE].czxid]
    assert owner(sim) == broker.session.id


def test_the_session_is_noted_before_anything_is_made_with_it() -> None:
    sim = started()
    client = Client(sim, "broker 1")
    noting: Pending[None] = Pending()
    noted: list[int] = []

    def store_session(session_id: int) -> Pending[None]:
        noted.append(session_id)
        return noting

    registration = Registration(
        1,
        [],
        rack=None,
        clock=client.clock,
        timers=client.timers,
        store_session=store_session,
        previous_sessions=(),
        on_epoch=lambda _: None,
    )
    client.keeper.on_new(registration.session_started)
    session = client.start()
    sim.settle()
    assert noted == [session.id]
    assert sim.data(NODE) is None
    noting.complete(None)
    sim.wait(registration.registered)


def test_a_new_session_registers_again_with_a_larger_epoch() -> None:
    sim = started()
    broker = Broker(sim)
    broker.wait()
    sim.model.expire(broker.session.id)
    sim.until(lambda: len(broker.epochs) == 2)
    assert broker.epochs[0] < broker.epochs[1]
    assert owner(sim) != broker.session.id


def test_kafka_7165_a_znode_of_a_previous_session_is_replaced_at_once() -> None:
    """The process was killed: the session has not expired, but its id is stored."""
    sim = started()
    killed = Broker(sim)
    killed.wait()
    sim.model.cut(killed.client.name)
    again = Broker(sim, "broker 1, again", previous_sessions=(killed.session.id,))
    began_us = sim.scheduler.now_us
    again.wait()
    assert (sim.scheduler.now_us - began_us) / 1000 < SESSION_MS / 2
    assert owner(sim) == again.session.id
    assert again.epochs[0] > killed.epochs[0]


def test_another_broker_of_this_id_is_waited_for_and_left_alone() -> None:
    sim = started()
    first = Broker(sim, "one")
    first.wait()
    second = Broker(sim, "other")
    sim.run(3 * SESSION_MS)
    assert second.registration.blocking_session == first.session.id
    assert not second.registration.registered.done
    assert owner(sim) == first.session.id
    sim.wait(first.session.close())
    second.wait()
    assert second.registration.blocking_session == 0
    assert owner(sim) == second.session.id


def test_a_killed_broker_of_unknown_session_is_waited_for_until_its_session_is_over() -> None:
    sim = started()
    killed = Broker(sim, "killed")
    killed.wait()
    sim.model.cut("killed")
    again = Broker(sim, "again")
    again.wait()
    assert owner(sim) == again.session.id


def test_an_answer_that_was_lost_is_no_reason_to_register_twice() -> None:
    """Both ways: the connection breaks before it is done, and after."""
    for seed in range(12):
        sim = ZooKeeperHarness(seed)
        sim.make_cluster()
        sim.model.faults.broken = 0.3
        broker = Broker(sim)
        broker.wait()
        sim.model.faults.broken = 0.0
        sim.settle()
        assert owner(sim) == _present(broker).id
        assert broker.epochs[-1] == sim.model.tree.nodes[NODE].czxid


def _present(broker: Broker) -> Session:
    session = broker.client.keeper.session
    assert session is not None
    return session


def test_once_closed_it_registers_no_more() -> None:
    sim = started()
    broker = Broker(sim)
    broker.wait()
    broker.registration.close()
    sim.model.expire(broker.session.id)
    sim.until(lambda: broker.client.keeper.session is not broker.session)
    sim.settle()
    assert sim.data(NODE) is None


def test_a_broker_that_leaves_takes_its_node_away_before_its_session_ends() -> None:
    sim = started()
    broker = Broker(sim)
    broker.wait()
    sim.wait(broker.registration.unregister())
    assert sim.data(NODE) is None
    assert broker.client.keeper.session is broker.session


def test_one_that_waits_for_another_takes_nothing_away() -> None:
    sim = started()
    first = Broker(sim, "one")
    first.wait()
    second = Broker(sim, "other")
    sim.settle()
    sim.wait(second.registration.unregister())
    assert owner(sim) == first.session.id


def test_one_that_leaves_before_its_new_session_has_registered_takes_nothing_away() -> None:
    """It froze until its session was over; meanwhile another broker has become the one of its id.

    The other one would never find out: nobody watches a node of his own.
    """
    sim = started()
    frozen = Broker(sim, "frozen")
    frozen.wait()
    sim.model.cut("frozen")
    sim.model.expire(frozen.session.id)
    other = Broker(sim, "its replacement")
    other.wait()
    sim.model.heal("frozen")
    sim.until(lambda: frozen.client.keeper.session not in (None, frozen.session))
    assert frozen.registration.blocking_session == 0, "it has not looked yet"
    sim.wait(frozen.registration.unregister())
    assert owner(sim) == other.session.id


def test_one_that_was_registered_with_each_of_its_sessions_takes_the_last_node_away() -> None:
    sim = started()
    broker = Broker(sim)
    broker.wait()
    sim.model.expire(broker.session.id)
    sim.until(lambda: len(broker.epochs) == 2)
    sim.wait(broker.registration.unregister())
    assert sim.data(NODE) is None


def test_one_that_leaves_while_its_node_is_being_made_takes_it_away() -> None:
    """A controller that is elected just then would give it something to lead."""
    sim = started()
    broker = Broker(sim)
    assert not broker.registration.registered.done
    sim.wait(broker.registration.unregister())
    sim.settle()
    assert sim.data(NODE) is None
    assert broker.client.keeper.session is broker.session


def test_a_look_at_another_brokers_node_that_fails_is_taken_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sim = started()
    other = Broker(sim, "another broker 1")
    other.wait()
    broker = Broker(sim)
    looks = 0

    def fail(path: str, watch: Watcher | None = None) -> Pending[Stat | ZkError | None]:
        nonlocal looks
        looks += 1
        monkeypatch.undo()
        return completed(ZkError(ZkCode.SYSTEM_ERROR, path))

    monkeypatch.setattr(broker.session, "exists", fail)
    sim.settle()
    assert looks == 1
    sim.wait(other.client.keeper.close())
    broker.wait()
    assert owner(sim) == broker.session.id
