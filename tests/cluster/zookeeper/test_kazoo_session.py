"""Goal: kazoo's sessions keep what `ottla.base.zookeeper` promises, as long as nothing breaks.

Method: real sessions with a real ZooKeeper, and what two of them see of each other. For lost
connections and expiry see test_lost_connections.py.
"""

import asyncio
from typing import Any

import pytest

from ottla.base.zookeeper import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    Event,
    EventKind,
    SessionState,
    SetData,
    Stat,
    ZkCode,
    ZnodeData,
)
from ottla.host.steps import outcome_of
from ottla.host.zookeeper.kazoo.kazoo_session import open_kazoo_session
from ottla.testing.zookeeper_server import ZooKeeperServer

from .conftest import answer, do, make, refusal, session_with, until

pytestmark = pytest.mark.cluster


def test_reads_show_what_was_written(zookeeper: ZooKeeperServer, chroot: str) -> None:
    async def story() -> None:
        async with session_with(zookeeper.connect + chroot) as heard:
            session = heard.session
            await make(session, "/a", b"one")
            got = await answer(session.get("/a"))
            assert isinstance(got, ZnodeData)
            assert (got.data, got.stat.version, got.stat.ephemeral_owner) == (b"one", 0, 0)
            (stat,) = await do(session, SetData("/a", b"two", 0))
            assert isinstance(stat, Stat)
            assert stat.version == 1
            assert stat.czxid == got.stat.czxid < stat.mzxid
            assert await answer(session.exists("/a")) == stat
            assert await answer(session.exists("/b")) is None
            await do(session, Create("/a/y"), Create("/a/x"))
            assert await answer(session.children("/a")) == ("x", "y")
            assert (await refusal(session.get("/b"))).code is ZkCode.NO_NODE
            assert (await refusal(session.children("/b"))).code is ZkCode.NO_NODE

    asyncio.run(story())


def test_a_multi_answers_each_operation(zookeeper: ZooKeeperServer, chroot: str) -> None:
    async def story() -> None:
        async with session_with(zookeeper.connect + chroot) as heard:
            results = await do(
                heard.session,
                Create("/a"),
                Check("/a", 0),
                SetData("/a", b"x", ANY_VERSION),
                Create("/a/s-", sequential=True),
                Create("/mine", ephemeral=True),
                Create("/gone"),
                Delete("/gone"),
            )
            assert results[:2] == ("/a", None)
            assert isinstance(results[2], Stat)
            assert results[3:] == ("/a/s-0000000000", "/mine", "/gone", None)
            mine = await answer(heard.session.exists("/mine"))
            assert mine is not None
            assert mine.ephemeral_owner == heard.session.id != 0

    asyncio.run(story())


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (Create("/a"), ZkCode.NODE_EXISTS),
        (Create("/no/parent"), ZkCode.NO_NODE),
        (Create("/ephemeral/child"), ZkCode.NO_CHILDREN_FOR_EPHEMERALS),
        (SetData("/a", b"", 7), ZkCode.BAD_VERSION),
        (Check("/a", 7), ZkCode.BAD_VERSION),
        (Check("/nowhere", 0), ZkCode.NO_NODE),
        (Delete("/parent"), ZkCode.NOT_EMPTY),
    ],
)
def test_a_multi_is_all_or_nothing(
    zookeeper: ZooKeeperServer, chroot: str, refused: Any, code: ZkCode
) -> None:
    async def story() -> None:
        async with session_with(zookeeper.connect + chroot) as heard:
            session = heard.session
            made = Create("/a"), Create("/parent"), Create("/parent/child")
            await do(session, *made, Create("/ephemeral", ephemeral=True))
            error = await refusal(session.multi([Create("/first"), refused, Create("/last")]))
            assert (error.code, error.index, error.path) == (code, 1, refused.path)
            assert await answer(session.exists("/first")) is None

    asyncio.run(story())


def test_answers_come_in_the_order_of_the_requests(zookeeper: ZooKeeperServer, chroot: str) -> None:
    """More requests than kazoo is given at once, of all kinds, with one that is not even sent."""

    async def story() -> None:
        order: list[int] = []
        async with session_with(zookeeper.connect + chroot) as heard:
            session = heard.session
            await make(session, "/a")
            for number in range(500):
                asked: Any
                match number % 4:
                    case 0:
                        asked = session.get("/a")
                    case 1:
                        asked = session.multi([SetData("/a", b"x" * number)])
                    case 2:
                        asked = session.multi([SetData("/a", b"x" * 2_000_000)])
                    case _:
                        asked = session.children("/")
                asked.then(lambda _, number=number: order.append(number))
            await answer(session.exists("/a"))
            assert order == list(range(500))

    asyncio.run(story())


def test_requests_wait_for_the_first_connection(zookeeper: ZooKeeperServer, chroot: str) -> None:
    async def story() -> None:
        session = open_kazoo_session(
            zookeeper.connect + chroot,
            session_timeout_ms=5_000,
            connection_timeout_ms=5_000,
            loop=asyncio.get_running_loop(),
        )(lambda state: None)
        assert (session.state, session.id) == (SessionState.CONNECTING, 0)
        await make(session, "/early")
        assert await answer(session.children("/")) == ("early",)
        await outcome_of(session.close())
        assert session.state is SessionState.CLOSED

    asyncio.run(story())


def test_what_no_server_takes_is_refused_and_harms_nothing(
    zookeeper: ZooKeeperServer, chroot: str
) -> None:
    """A server would end the connection, and the next one, and so on until the session expires."""

    async def story() -> None:
        async with session_with(zookeeper.connect + chroot) as heard:
            session = heard.session
            error = await refusal(session.multi([Create("/a"), Create("/b", b"x" * 1_048_576)]))
            assert error.code is ZkCode.BAD_ARGUMENTS
            almost = [Create(f"/{name}", b"x" * 9_800) for name in range(106)]
            assert len(await do(session, *almost)) == 106
            assert heard.states == [SessionState.CONNECTED]

    asyncio.run(story())


# -- watches -------------------------------------------------------------------------------------


def test_each_watch_sees_its_kind_of_change_once(zookeeper: ZooKeeperServer, chroot: str) -> None:
    async def story() -> None:
        events: list[tuple[str, Event]] = []

        def noting(name: str) -> Any:
            return lambda event: events.append((name, event))

        async with session_with(zookeeper.connect + chroot) as heard:
            session = heard.session
            await make(session, "/a")
            await answer(session.get("/a", noting("get")))
            await answer(session.exists("/a", noting("exists")))
            await answer(session.exists("/b", noting("missing")))
            await answer(session.children("/", noting("children")))
            await answer(session.children("/a", noting("grandchildren")))
            await refusal(session.get("/c", noting("none")))
            await do(session, SetData("/a", b"1"))
            await do(session, SetData("/a", b"2"), Create("/b"), Create("/c"))
            await do(session, Delete("/a"))
            await answer(session.exists("/"))
        assert events == [
            ("get", Event(EventKind.DATA_CHANGED, "/a")),
            ("exists", Event(EventKind.DATA_CHANGED, "/a")),
            ("missing", Event(EventKind.CREATED, "/b")),
            ("children", Event(EventKind.CHILDREN_CHANGED, "/")),
            ("grandchildren", Event(EventKind.DELETED, "/a")),
        ]

    asyncio.run(story())


def test_a_watch_fires_before_any_answer_that_shows_the_change(
    zookeeper: ZooKeeperServer, chroot: str
) -> None:
    """One session writes, another reads in a stream with a watch set: 200 times."""

    async def story() -> None:
        fired = 0

        def watcher(event: Event) -> None:
            nonlocal fired
            fired += 1

        async with (
            session_with(zookeeper.connect + chroot) as writer,
            session_with(zookeeper.connect + chroot) as reader,
        ):
            await make(writer.session, "/a", b"0")
            for number in range(1, 201):
                before = await answer(reader.session.get("/a", watcher))
                assert isinstance(before, ZnodeData)
                assert int(before.data) == number - 1
                written = writer.session.multi([SetData("/a", str(number).encode())])
                seen = before.data
                while int(seen) < number:
                    got = await answer(reader.session.get("/a"))
                    assert isinstance(got, ZnodeData)
                    assert got.data == before.data or fired == number
                    seen = got.data
                await answer(written)

    asyncio.run(story())


def test_a_watch_fires_before_the_answer_to_the_own_write(
    zookeeper: ZooKeeperServer, chroot: str
) -> None:
    async def story() -> None:
        order: list[str] = []
        async with session_with(zookeeper.connect + chroot) as heard:
            session = heard.session
            await make(session, "/a")
            for _ in range(100):
                session.get("/a", lambda event: order.append("watch"))
                session.multi([SetData("/a", b"")]).then(lambda _: order.append("answer"))
            await answer(session.exists("/"))
        assert order == ["watch", "answer"] * 100

    asyncio.run(story())


# -- two sessions, and ends ----------------------------------------------------------------------


def test_an_ephemeral_node_goes_with_its_session(zookeeper: ZooKeeperServer, chroot: str) -> None:
    async def story() -> None:
        gone: list[Event] = []
        async with session_with(zookeeper.connect + chroot) as stays:
            async with session_with(zookeeper.connect + chroot, session_timeout_ms=60_000) as goes:
                await do(goes.session, Create("/mine", ephemeral=True))
                stat = await answer(stays.session.exists("/mine", gone.append))
                assert stat is not None
                assert stat.ephemeral_owner == goes.session.id != stays.session.id
            # At once, not when its timeout of a minute is over.
            await until(lambda: gone == [Event(EventKind.DELETED, "/mine")])

    asyncio.run(story())


def test_a_closed_session_answers_everything_and_fires_nothing(
    zookeeper: ZooKeeperServer, chroot: str
) -> None:
    async def story() -> None:
        events: list[Event] = []
        async with session_with(zookeeper.connect + chroot) as other:
            await make(other.session, "/a")
            async with session_with(zookeeper.connect + chroot) as heard:
                await answer(heard.session.get("/a", events.append))
                asked = [heard.session.get("/a") for _ in range(300)]
                closed = heard.session.close()
                codes = {(await refusal(each)).code for each in asked}
                assert codes == {ZkCode.SESSION_EXPIRED}
                await outcome_of(closed)
                assert (await refusal(heard.session.exists("/a"))).code is ZkCode.SESSION_EXPIRED
                assert heard.states == [SessionState.CONNECTED, SessionState.CLOSED]
                await do(other.session, SetData("/a", b"changed"))
            assert events == []

    asyncio.run(story())


def test_the_chroot_is_made_and_taken_off_every_path(
    zookeeper: ZooKeeperServer, chroot: str
) -> None:
    async def story() -> None:
        events: list[Event] = []
        async with (
            session_with(f"{zookeeper.connect}{chroot}/deep/er") as below,
            session_with(zookeeper.connect) as above,
        ):
            assert await answer(below.session.children("/", events.append)) == ()
            assert await do(below.session, Create("/a")) == ("/a",)
            assert await answer(above.session.exists(f"{chroot}/deep/er/a")) is not None
            await until(lambda: events == [Event(EventKind.CHILDREN_CHANGED, "/")])
            error = await refusal(below.session.multi([Create("/b"), Create("/a")]))
            assert (error.path, error.index) == ("/a", 1)

    asyncio.run(story())
