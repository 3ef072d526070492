"""Goal: kazoo calls back in order and never blocks; once its session is over, it does not connect.

Method: the handler without kazoo.
"""

from typing import Any

import pytest

from ottla.host.zookeeper.kazoo.kazoo_handler import DirectHandler
from ottla.host.zookeeper.request_queue import SENT_MAX


def test_a_result_calls_the_listener_of_its_request_at_once() -> None:
    handler = DirectHandler(1.0)
    results: list[Any] = []
    handler.start()
    handler.on_result = lambda result: results.append(("first", result.value))
    first = handler.async_result()
    handler.on_result = lambda result: results.append(("second", result.exception))
    second = handler.async_result()
    handler.on_result = None
    handler.async_result().set("nobody's")
    error = ValueError()
    second.set_exception(error)
    first.set(1)
    assert results == [("second", error), ("first", 1)]


def test_waking_a_thread_that_does_not_read_never_blocks() -> None:
    """And leaves it at least one byte for each request that it may have."""
    read, write = DirectHandler(1.0).create_socket_pair()
    with read:
        for _ in range(100_000):
            write.send(b"\0")
        read.setblocking(False)
        waiting = 0
        while True:
            try:
                waiting += len(read.recv(1))
            except BlockingIOError:
                break
        assert waiting >= SENT_MAX
        write.close()


def test_no_connection_is_made_once_the_session_is_over() -> None:
    handler = DirectHandler(1.0)
    handler.session_over = True
    with pytest.raises(ConnectionAbortedError):
        handler.create_connection(address=("127.0.0.1", 1), timeout=10.0)
