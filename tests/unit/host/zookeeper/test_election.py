"""One controller at a time, whichever brokers start, stop, pause or lose their connections.

Method: several brokers' elections over a simulated ZooKeeper in virtual time; sessions expire,
connections are cut and broken, and multis are lost before or after they were done.
"""

from collections.abc import Callable
from typing import cast

import pytest

from ottla.base.ids import NO_LEADER
from ottla.base.pending import Pending
from ottla.base.zookeeper import Create, Delete, Session, SetData, ZkError, ZnodeData
from ottla.host.zookeeper.election import ControllerElection
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.controller import (
    ControllerZnode,
    decode_controller,
    encode_controller,
)

from .harness import SESSION_MS, Client, ZooKeeperHarness


class Broker:
    """One broker's election, and the calls of its listeners."""

    def __init__(self, sim: ZooKeeperHarness, broker_id: int) -> None:
        self.sim = sim
        self.id = broker_id
        self.client: Client = sim.client(f"broker {broker_id}")
        self.elected: list[tuple[int, int]] = []
        self.resigned = 0
        self.to_wind_up: Pending[None] | None = None
        self.seen: list[tuple[int, int]] = []
        self.election = ControllerElection(
            self.client.keeper,
            broker_id,
            clock=self.client.clock,
            timers=self.client.timers,
            on_elected=lambda epoch, version: self.elected.append((epoch, version)),
            on_resigned=self._resigned,
        )
        self.election.on_controller(lambda who, epoch: self.seen.append((who, epoch)))

    def _resigned(self) -> Pending[None] | None:
        self.resigned += 1
        return self.to_wind_up

    def start(self) -> "Broker":
        self.client.start()
        self.election.start()
        return self

    @property
    def rules(self) -> bool:
        return self.election.term is not None

    @property
    def session(self) -> Session:
        assert self.client.keeper.session is not None
        return self.client.keeper.session


@pytest.fixture
def sim() -> ZooKeeperHarness:
    return ZooKeeperHarness()


def three(sim: ZooKeeperHarness) -> list[Broker]:
    """Return three brokers, of which the first is the controller."""
    first = Broker(sim, 1).start()
    sim.settle()
    others = [Broker(sim, number).start() for number in (2, 3)]
    sim.settle()
    return [first, *others]


def test_the_first_election_is_of_epoch_1(sim: ZooKeeperHarness) -> None:
    broker = Broker(sim, 7).start()
    sim.settle()
    assert broker.elected == [(1, 1)]
    assert broker.seen == [(NO_LEADER, -1), (NO_LEADER, 0), (7, 1)]
    assert sim.data(paths.CONTROLLER_EPOCH) == b"1"
    data = sim.data(paths.CONTROLLER)
    assert data is not None
    assert decode_controller(data).broker_id == 7


def test_the_others_follow_and_one_of_them_succeeds(sim: ZooKeeperHarness) -> None:
    first, second, third = three(sim)
    assert (first.rules, second.rules, third.rules) == (True, False, False)
    assert second.seen[-1] == third.seen[-1] == (1, 1)
    sim.wait(first.client.keeper.close())
    sim.settle()
    assert second.rules != third.rules
    winner = second if second.rules else third
    assert winner.elected == [(2, 2)]
    assert second.seen[-1] == third.seen[-1] == (winner.id, 2)
    assert (NO_LEADER, 1) in third.seen


def test_resigning_makes_way_at_once(sim: ZooKeeperHarness) -> None:
    first, second, third = three(sim)
    sim.wait(first.election.close())
    assert first.resigned == 1
    sim.settle()
    assert not first.rules
    assert second.rules != third.rules
    assert first.seen[-1][1] == 2  # It takes no part any more, but it sees the controller.


def test_an_expired_session_ends_the_term_and_the_next_one_is_a_candidate_again(
    sim: ZooKeeperHarness,
) -> None:
    first, second, third = three(sim)
    sim.model.expire(first.session.id)
    sim.settle()
    assert first.resigned == 1
    assert sum(broker.rules for broker in (first, second, third)) == 1
    assert first.client.keeper.session is not None
    assert sim.data(paths.CONTROLLER_EPOCH) == b"2"


def test_no_new_session_before_the_term_has_ended(sim: ZooKeeperHarness) -> None:
    broker = Broker(sim, 1).start()
    sim.settle()
    broker.to_wind_up = Pending()
    sim.model.expire(broker.session.id)
    sim.settle()
    assert broker.resigned == 1
    assert broker.client.keeper.session is None
    broker.to_wind_up.complete(None)
    sim.settle()
    assert broker.elected == [(1, 1), (2, 2)]


def test_deleting_the_controllers_znode_forces_an_election(sim: ZooKeeperHarness) -> None:
    brokers = three(sim)
    sim.delete(paths.CONTROLLER)
    sim.settle()
    assert brokers[0].resigned == 1
    assert sum(broker.rules for broker in brokers) == 1
    assert sim.data(paths.CONTROLLER_EPOCH) == b"2"


def test_kafka_6082_a_paused_controller_is_fenced_when_it_resumes(
    sim: ZooKeeperHarness,
) -> None:
    first, second, third = three(sim)
    first.client.process.paused = True
    sim.run(SESSION_MS * 2)
    assert second.rules != third.rules
    assert first.election.term is not None  # It knows of nothing yet, and its epoch is its own:
    assert first.election.term.epoch == 1
    sim.scheduler.resume(first.client.process)
    sim.settle()
    assert first.resigned == 1
    assert not first.rules
    assert first.seen[-1] == second.seen[-1]


def test_a_fenced_controller_reads_the_new_controller(sim: ZooKeeperHarness) -> None:
    first, *_ = three(sim)
    epoch_before = first.election.epoch
    # The epoch is incremented by hand: the term ends, and the znode is deleted.
    sim.write(SetData(paths.CONTROLLER_EPOCH, b"10"))
    first.election.fenced()
    assert first.resigned == 1
    sim.settle()
    assert sim.data(paths.CONTROLLER_EPOCH) == b"11"
    assert first.election.epoch == 11 > epoch_before


def test_there_is_no_election_while_the_controller_lives(sim: ZooKeeperHarness) -> None:
    kraft = b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":7}'
    sim.write(Create(paths.CONTROLLER, kraft), Create(paths.CONTROLLER_EPOCH, b"8"))
    broker = Broker(sim, 1).start()
    sim.settle()
    assert not broker.rules
    assert broker.seen[-1] == (3000, 8)


def test_an_unreadable_epoch_is_logged_and_read_again(
    sim: ZooKeeperHarness, caplog: pytest.LogCaptureFixture
) -> None:
    sim.write(Create(paths.CONTROLLER_EPOCH, b"seven"))
    broker = Broker(sim, 1).start()
    sim.settle()
    assert not broker.rules
    assert "/controller_epoch" in caplog.text
    sim.write(SetData(paths.CONTROLLER_EPOCH, b"7"))
    sim.settle()
    assert broker.elected == [(8, 2)]


@pytest.mark.parametrize("seed", range(40))
def test_a_lost_answer_never_makes_two_controllers_nor_none(seed: int) -> None:
    sim = ZooKeeperHarness(seed)
    sim.model.faults.broken = 0.25
    brokers = [Broker(sim, number) for number in (1, 2)]
    for broker in brokers:
        broker.client.keeper.start()
        broker.election.start()
    for _round in range(3):
        sim.run(5_000)
        for broker in brokers:
            broker.election.resign()
    sim.model.faults.broken = 0.0
    sim.run(3 * SESSION_MS)
    (ruler,) = [broker for broker in brokers if broker.rules]
    data = sim.data(paths.CONTROLLER)
    assert data is not None
    assert decode_controller(data).broker_id == ruler.id
    term = ruler.election.term
    assert term is not None
    assert str(term.epoch).encode() == sim.data(paths.CONTROLLER_EPOCH)
    assert term.epoch_version == sim.version(paths.CONTROLLER_EPOCH)
    epochs = [epoch for broker in brokers for epoch, _ in broker.elected]
    assert len(set(epochs)) == len(epochs)  # No epoch has two controllers.


def test_a_cut_off_controller_is_succeeded_and_comes_back_as_a_follower(
    sim: ZooKeeperHarness,
) -> None:
    first, second, third = three(sim)
    sim.model.cut("broker 1")
    sim.run(SESSION_MS * 2)
    assert second.rules != third.rules
    sim.model.heal("broker 1")
    sim.run(SESSION_MS)
    assert not first.rules
    assert first.seen[-1] == second.seen[-1]


def test_closing_while_an_election_is_under_way_leaves_no_controller_behind(
    sim: ZooKeeperHarness,
) -> None:
    broker = Broker(sim, 1)
    broker.client.start()
    sim.write(Create(paths.CONTROLLER_EPOCH, b"0"))
    broker.election.start()
    sim.until(lambda: sim.data(paths.CONTROLLER) is not None)
    broker.election.close()  # The multi is done; its answer is on the way.
    sim.settle()
    assert broker.elected == []
    assert sim.data(paths.CONTROLLER) is None


def test_a_znode_of_a_previous_session_is_deleted_at_once(sim: ZooKeeperHarness) -> None:
    broker = Broker(sim, 1)
    session = broker.client.start()
    broker.election.start()
    sim.settle()
    previous = session.id
    # The keeper buries a session that the servers have not given up: the znode is still there.
    broker.client.keeper._on_expired(session)
    sim.settle()
    assert broker.client.keeper.session is not None
    assert broker.client.keeper.session.id != previous
    assert broker.elected == [(1, 1), (2, 2)]


def unused(_value: object) -> None:
    """Drop an unused value."""


class SlowSecondRead:
    """A session whose second read is sent only once the test says so."""

    def __init__(self, session: Session) -> None:
        self.id = session.id
        self.exists, self.multi = session.exists, session.multi
        self.send_second: Callable[[], None] = lambda: None
        self._session = session
        self._reads = 0

    def get(self, path: str) -> Pending[ZnodeData | ZkError]:
        self._reads += 1
        if self._reads != 2:
            return self._session.get(path)
        held: Pending[ZnodeData | ZkError] = Pending()

        def send() -> None:
            self._session.get(path).then(lambda answer: unused(held.complete(answer)))

        self.send_second = send
        return held


class OneSession:
    """A keeper of one session that never ends."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def on_new(self, listener: Callable[[Session], None]) -> None:
        """There is no other session."""

    def on_lost(self, listener: Callable[[], Pending[None] | None]) -> None:
        """It is not lost."""


def test_deleting_a_previous_znode_never_deletes_a_newer_controllers(
    sim: ZooKeeperHarness,
) -> None:
    previous = sim.client("broker 1, killed").session()
    sim.write(Create(paths.CONTROLLER_EPOCH, b"1"))
    node = encode_controller(ControllerZnode(broker_id=1, timestamp_ms=1))
    sim.wait(previous.multi((Create(paths.CONTROLLER, node, ephemeral=True),)))
    second = Broker(sim, 2).start()
    client = sim.client("broker 1")
    slow = SlowSecondRead(client.session())
    election = ControllerElection(
        OneSession(cast(Session, slow)),
        1,
        clock=client.clock,
        timers=client.timers,
        on_elected=lambda epoch, version: None,
        on_resigned=lambda: None,
    )
    election.add_previous_sessions([previous.id])
    election.start()
    sim.settle()
    # Between the two reads the previous session ends, and another broker is elected.
    sim.model.expire(previous.id)
    sim.settle()
    assert second.rules
    slow.send_second()
    sim.settle()
    assert second.resigned == 0
    assert (election.controller_id, election.epoch) == (2, 2)


@pytest.mark.parametrize("is_emptied", [False, True], ids=["put back", "emptied"])
def test_there_is_no_election_in_an_ensemble_that_has_lost_its_epochs(
    sim: ZooKeeperHarness, caplog: pytest.LogCaptureFixture, is_emptied: bool
) -> None:
    """Brokers reject requests of smaller epochs, and the stored metadata may be old."""
    first = Broker(sim, 1).start()
    sim.until(lambda: first.rules)
    second = Broker(sim, 2).start()
    sim.put(paths.CONTROLLER_EPOCH, b"7")
    first.election.fenced()  # It clears away what it was elected by.
    sim.until(lambda: first.rules or second.rules)
    sim.settle()
    assert {each.election.epoch for each in (first, second)} == {8}
    epoch = paths.CONTROLLER_EPOCH
    lost = Delete(epoch) if is_emptied else SetData(epoch, b"3")
    sim.write(Delete(paths.CONTROLLER), lost)
    sim.run(60_000)
    assert not first.rules
    assert not second.rules
    assert [each.election.controller_id for each in (first, second)] == [NO_LEADER] * 2
    lines = [each.getMessage() for each in caplog.records if "has seen 8" in each.getMessage()]
    assert len(lines) == 2, "once for each broker"

    newcomer = Broker(sim, 3).start()
    sim.until(lambda: newcomer.rules)
    assert newcomer.elected[0][0] == (1 if is_emptied else 4)
    sim.settle()
    assert first.election.controller_id == NO_LEADER
    sim.put(paths.CONTROLLER_EPOCH, b"9")
    newcomer.election.fenced()
    sim.settle()
    assert {each.election.epoch for each in (first, second, newcomer)} == {10}
