"""A session of kazoo's ends when a server says so, also where kazoo itself does not notice.

Method: a session that never connects is passed what kazoo's thread would pass on.
"""

import asyncio

import pytest
from kazoo.exceptions import NoNodeError, RolledBackError, SessionExpiredError

from ottla.base.zookeeper import SessionState, ZkCode, ZkError
from ottla.host.zookeeper.kazoo.kazoo_session import KazooSession
from ottla.host.zookeeper.request_queue import Request

EXPIRED, GOES_ON = SessionState.EXPIRED, SessionState.CONNECTED


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        # The write that begins each later connection, refused: the server that the session was
        # moved to did not know of its end. A broker stayed unregistered for ever.
        ([SessionExpiredError()], EXPIRED),
        ([RolledBackError(), SessionExpiredError()], EXPIRED),
        (SessionExpiredError(), EXPIRED),
        ([RolledBackError(), NoNodeError()], GOES_ON),
        (NoNodeError(), GOES_ON),
    ],
)
def test_a_server_that_refuses_for_the_session_s_end_ends_it(
    answer: object, state: SessionState
) -> None:
    async def story() -> None:
        states: list[SessionState] = []
        session = KazooSession(
            "127.0.0.1:1",
            "",
            session_timeout_ms=1_000,
            connect_seconds=1.0,
            loop=asyncio.get_running_loop(),
            on_state=states.append,
            on_root_made=None,
        )
        session._connected(5)
        request = Request(lambda: None, lambda _: None)
        session._queue.add(request)
        waits = session.get("/a")
        session._arrived(request, request.attempt, answer)
        assert states[-1] is session.state is state
        assert waits.done == (state is EXPIRED)
        if waits.done:
            assert isinstance(waits.value, ZkError)
            assert waits.value.code is ZkCode.SESSION_EXPIRED
        await asyncio.sleep(0)

    asyncio.run(story())
