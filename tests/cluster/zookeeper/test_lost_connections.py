"""Goal: a session outlives lost connections, and nothing of it outlives its end.

Method: a gate between a session and a real ZooKeeper cuts connections, or keeps requests or
answers; a second session, straight to the server, changes things meanwhile and sees what was done.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from ottla.base.pending import Pending
from ottla.base.zookeeper import (
    ANY_VERSION,
    Create,
    Delete,
    Event,
    EventKind,
    Session,
    SessionState,
    SetData,
    ZkCode,
)
from ottla.host.steps import outcome_of
from ottla.host.system_ports import LoopTimers, SystemClock
from ottla.host.zookeeper.kazoo.kazoo_session import KazooSession, open_kazoo_session
from ottla.host.zookeeper.session_keeper import SessionKeeper
from ottla.testing.zookeeper_server import ZooKeeperServer

from .conftest import Heard, answer, do, make, refusal, session_with, until
from .gate import Gate

pytestmark = [pytest.mark.cluster, pytest.mark.drawn(6)]

LONG_MS = 30_000


@asynccontextmanager
async def gated(
    zookeeper: ZooKeeperServer, chroot: str, session_timeout_ms: int = LONG_MS
) -> AsyncIterator[tuple[Gate, Heard, Session]]:
    """Give a gate, the session behind it, and one beside it."""
    with Gate(zookeeper.members[0].client_port) as gate:
        async with (
            session_with(zookeeper.connect + chroot) as beside,
            session_with(
                f"127.0.0.1:{gate.port}{chroot}", session_timeout_ms=session_timeout_ms
            ) as behind,
        ):
            yield gate, behind, beside.session


def test_a_session_outlives_its_connection(zookeeper: ZooKeeperServer, chroot: str) -> None:
    async def story() -> None:
        async with gated(zookeeper, chroot) as (gate, behind, beside):
            await do(behind.session, Create("/mine", ephemeral=True))
            before = behind.session.id
            gate.cut()
            await behind.until(SessionState.SUSPENDED)
            await behind.until(SessionState.CONNECTED)
            assert behind.session.id == before
            assert await answer(beside.exists("/mine")) is not None
            assert gate.connections == 2

    asyncio.run(story())


def test_reads_are_repeated_and_answered_in_order(zookeeper: ZooKeeperServer, chroot: str) -> None:
    async def story() -> None:
        async with gated(zookeeper, chroot) as (gate, behind, beside):
            await make(beside, "/a", b"before")
            order: list[int] = []
            gate.hold_answers()
            asked = [behind.session.get("/a") for _ in range(250)]
            for number, each in enumerate(asked):
                each.then(lambda _, number=number: order.append(number))  # type: ignore[misc]
            assert await asyncio.to_thread(gate.held.wait, 10)
            await do(beside, SetData("/a", b"after"))
            gate.cut()
            gate.open()
            assert {(await answer(each)).data for each in asked} == {b"after"}
            assert order == list(range(250))

    asyncio.run(story())


def test_a_multi_whose_answer_was_lost_is_connection_loss_and_was_done(
    zookeeper: ZooKeeperServer, chroot: str
) -> None:
    async def story() -> None:
        async with gated(zookeeper, chroot) as (gate, behind, beside):
            gate.hold_answers()
            asked = behind.session.multi([Create("/a"), Create("/b")])
            shown = behind.session.children("/")
            assert await asyncio.to_thread(gate.held.wait, 10)
            # What is held may be the answer to a ping: the server need not have it yet.
            while await answer(beside.children("/")) != ("a", "b"):
                await asyncio.sleep(0.01)
            gate.cut()
            gate.open()
            assert (await refusal(asked)).code is ZkCode.CONNECTION_LOSS
            assert await answer(shown) == ("a", "b")
            assert await answer(beside.children("/")) == ("a", "b")

    asyncio.run(story())


def test_a_multi_that_never_arrived_is_connection_loss_and_is_not_done_later(
    zookeeper: ZooKeeperServer, chroot: str
) -> None:
    async def story() -> None:
        async with gated(zookeeper, chroot) as (gate, behind, beside):
            gate.hold_requests()
            asked = behind.session.multi([Create("/a")])
            assert await asyncio.to_thread(gate.held.wait, 10)
            gate.cut()
            gate.open()
            assert (await refusal(asked)).code is ZkCode.CONNECTION_LOSS
            assert await answer(behind.session.exists("/a")) is None
            assert await answer(beside.exists("/a")) is None

    asyncio.run(story())


def test_what_is_asked_without_a_connection_waits_for_one(
    zookeeper: ZooKeeperServer, chroot: str
) -> None:
    """Hundreds of requests, too: kazoo's thread could not be woken for each, nor the loop wait."""

    async def story() -> None:
        async with gated(zookeeper, chroot) as (gate, behind, beside):
            gate.shut()
            await behind.until(SessionState.SUSPENDED)
            made = [behind.session.multi([Create(f"/{number:04}")]) for number in range(600)]
            shown = behind.session.children("/")
            assert await answer(beside.children("/")) == ()
            gate.open()
            assert len(await answer(shown)) == 600
            assert [await answer(each) for each in made][-1] == ("/0599",)

    asyncio.run(story())


def test_watches_outlive_the_connection(zookeeper: ZooKeeperServer, chroot: str) -> None:
    """What changed meanwhile fires; what did not still waits for a change. Each once."""

    async def story() -> None:
        events: list[Event] = []
        async with gated(zookeeper, chroot) as (gate, behind, beside):
            session = behind.session
            names = ("/set", "/deleted", "/parent", "/quiet", "/quiet-parent", "/again")
            await do(beside, *map(Create, names))
            for name in ("/set", "/deleted", "/quiet", "/again"):
                await answer(session.get(name, events.append))
            for name in ("/parent", "/quiet-parent", "/deleted"):
                await answer(session.children(name, events.append))
            for name in ("/new", "/later"):
                assert await answer(session.exists(name, events.append)) is None
            gate.shut()
            await behind.until(SessionState.SUSPENDED)
            await do(beside, SetData("/set", b"1"), Delete("/deleted"), Create("/parent/child"))
            await do(beside, Create("/new"), Delete("/again"), Create("/again"))
            gate.open()
            await answer(session.exists("/"))
            assert sorted(events, key=str) == sorted(
                [
                    Event(EventKind.DATA_CHANGED, "/set"),
                    Event(EventKind.DELETED, "/deleted"),
                    Event(EventKind.DELETED, "/deleted"),
                    Event(EventKind.CHILDREN_CHANGED, "/parent"),
                    Event(EventKind.CREATED, "/new"),
                    Event(EventKind.DATA_CHANGED, "/again"),
                ],
                key=str,
            )
            events.clear()
            await do(beside, *(SetData(name, b"2", ANY_VERSION) for name in ("/set", "/quiet")))
            await do(beside, Create("/quiet-parent/child"), Create("/later"), Create("/parent/2"))
            await until(lambda: len(events) == 3)
            await answer(session.exists("/"))
            assert sorted(events, key=str) == [
                Event(EventKind.CHILDREN_CHANGED, "/quiet-parent"),
                Event(EventKind.CREATED, "/later"),
                Event(EventKind.DATA_CHANGED, "/quiet"),
            ]

    asyncio.run(story())


def test_after_a_lost_connection_watches_fire_before_answers_that_show_why(
    zookeeper: ZooKeeperServer, chroot: str
) -> None:
    async def story() -> None:
        order: list[str] = []
        async with gated(zookeeper, chroot) as (gate, behind, beside):
            await make(beside, "/a")
            await answer(behind.session.get("/a", lambda event: order.append("watch")))
            gate.hold_answers()
            behind.session.get("/a").then(lambda _: order.append("answer"))
            assert await asyncio.to_thread(gate.held.wait, 10)
            gate.shut()
            await behind.until(SessionState.SUSPENDED)
            await do(beside, SetData("/a", b"changed"))
            gate.open()
            await answer(behind.session.exists("/a"))
        assert order == ["watch", "answer"]

    asyncio.run(story())


def test_a_session_that_is_closed_without_a_connection_still_ends_in_order(
    zookeeper: ZooKeeperServer, chroot: str
) -> None:
    """Else its registration would stand in the way of a restarted node for a whole timeout."""

    async def story() -> None:
        gone: list[Event] = []
        async with gated(zookeeper, chroot, 60_000) as (gate, behind, beside):
            await do(behind.session, Create("/mine", ephemeral=True))
            await answer(beside.exists("/mine", gone.append))
            gate.shut()
            await behind.until(SessionState.SUSPENDED)
            closed = behind.session.close()
            assert (await refusal(behind.session.exists("/"))).code is ZkCode.SESSION_EXPIRED
            gate.open()
            await outcome_of(closed)
            await until(lambda: bool(gone))

    asyncio.run(story())


# -- expiry --------------------------------------------------------------------------------------


async def expire(gate: Gate, behind: Heard, beside: Session) -> None:
    """Keep a session away from its server until that has ended it, and let it learn that."""
    await do(behind.session, Create("/pulse", ephemeral=True))
    gone: list[Event] = []
    await answer(beside.exists("/pulse", gone.append))
    gate.shut()
    await until(lambda: bool(gone))
    gate.open()


def test_an_expired_session_stays_expired(zookeeper: ZooKeeperServer, chroot: str) -> None:
    """kazoo would open another one, and do there what was asked in this one."""

    async def story() -> None:
        async with gated(zookeeper, chroot, 1_000) as (gate, behind, beside):
            session = behind.session
            before = session.id
            events: list[Event] = []
            await answer(session.children("/", events.append))
            expired = asyncio.create_task(expire(gate, behind, beside))
            await behind.until(SessionState.SUSPENDED)
            events.clear()
            asked = [session.multi([Create("/a")]), session.multi([Create("/b", ephemeral=True)])]
            reads: list[Pending[object]] = [session.get("/"), session.exists("/a")]
            await expired
            await behind.until(SessionState.EXPIRED)
            for each in (*asked, *reads):
                assert (await refusal(each)).code is ZkCode.SESSION_EXPIRED  # type: ignore[arg-type]
            assert (await refusal(session.multi([Create("/c")]))).code is ZkCode.SESSION_EXPIRED
            connections = gate.connections
            await do(beside, Create("/d"))
            await outcome_of(session.close())
            # It has ended: were another session begun, it would have come through the gate.
            assert gate.connections == connections
            assert await answer(beside.children("/")) == ("d",)
            assert (events, session.id) == ([], before)
            assert behind.states == [
                SessionState.CONNECTED,
                SessionState.SUSPENDED,
                SessionState.EXPIRED,
            ]

    asyncio.run(story())


def test_the_keeper_opens_another_session_once_the_old_one_is_wound_up(
    zookeeper: ZooKeeperServer, chroot: str
) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        with Gate(zookeeper.members[0].client_port) as gate:
            keeper = SessionKeeper(
                open_kazoo_session(
                    f"127.0.0.1:{gate.port}{chroot}",
                    session_timeout_ms=1_000,
                    connection_timeout_ms=5_000,
                    loop=loop,
                ),
                clock=SystemClock(),
                timers=LoopTimers(loop, SystemClock()).timers,
            )
            sessions: list[Session] = []
            wound_up: Pending[None] = Pending()
            lost: list[Session | None] = []

            def on_lost() -> Pending[None]:
                lost.append(keeper.session)
                return wound_up

            keeper.on_new(sessions.append)
            keeper.on_lost(on_lost)
            async with session_with(zookeeper.connect + chroot) as beside:
                assert await outcome_of(keeper.start())
                behind = Heard()
                behind.session = sessions[0]
                await expire(gate, behind, beside.session)
                await until(lambda: bool(lost))
                assert (lost, len(sessions), keeper.session) == ([None], 1, None)
                wound_up.complete(None)
                await until(lambda: len(sessions) == 2)
                await do(sessions[1], Create("/second", ephemeral=True))
                assert await answer(beside.session.exists("/second")) is not None
                assert sessions[0].id != sessions[1].id
                await outcome_of(keeper.close())
                assert await answer(beside.session.exists("/second")) is None

    asyncio.run(story())


# -- an ensemble ---------------------------------------------------------------------------------


def test_a_session_moves_to_another_server_of_the_ensemble() -> None:
    """The leader is killed, then another server frozen: the session and its watches go on."""

    async def story(ensemble: ZooKeeperServer) -> None:
        events: list[Event] = []
        async with session_with(ensemble.connect + "/chroot", session_timeout_ms=20_000) as heard:
            session = heard.session
            await do(session, Create("/mine", ephemeral=True))
            stat = await answer(session.exists("/mine", events.append))
            assert stat is not None
            leader = ensemble.leader()
            assert leader is not None
            await asyncio.to_thread(ensemble.kill, leader)
            again = await answer(session.exists("/mine"))
            assert again == stat
            await asyncio.to_thread(ensemble.restart, leader)
            found = session.multi([SetData("/mine", b"still", ANY_VERSION)])
            outcome = await outcome_of(found)
            got = await answer(session.get("/mine"))
            assert (got.data == b"still") or getattr(outcome, "code", 0) is ZkCode.CONNECTION_LOSS
            assert got.stat.ephemeral_owner == session.id
            assert len(events) == got.stat.version

    with ZooKeeperServer(3) as ensemble:
        asyncio.run(story(ensemble))


def test_sessions_that_end_while_they_move_between_servers_hear_of_it(tmp_path: Path) -> None:
    """One of thirty stayed connected: its new server took it in after its end had gone by.

    A broker was registered no more then, and did not know: it had nothing to write.
    """

    def end(hosts: str, session: Session) -> None:
        """Take it over with its id and password, which moves it to and fro, and close it."""
        assert isinstance(session, KazooSession)
        thief = KazooClient(hosts, client_id=session._client.client_id)
        thief.start()
        thief.stop()
        thief.close()

    async def one(hosts: str) -> None:
        async with session_with(hosts, session_timeout_ms=2_000) as heard:
            await asyncio.to_thread(end, hosts, heard.session)
            await heard.until(SessionState.EXPIRED)

    async def story() -> None:
        for _ in range(10):
            await asyncio.gather(*(one(ensemble.connect) for _ in range(10)))

    with ZooKeeperServer(3, data_dir=tmp_path) as ensemble:
        asyncio.run(story())
