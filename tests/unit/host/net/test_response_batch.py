"""Small responses wait for the end of the turn, for each other, and not for long."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

from ottla.host.net.outgoing import Outgoing
from ottla.host.net.response_batch import BATCHED_BYTES_MAX, HELD_NS_MAX, ResponseBatch


def connection(flush: Callable[[], None], queued_bytes: int = 1) -> Outgoing:
    return cast(Outgoing, SimpleNamespace(flush=flush, queued_bytes=queued_bytes))


class Sent:
    """Connections that note when they send, and a clock and a loop that the test moves."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.now_ns = 0
        self.turns: list[Callable[[], None]] = []
        self.batch = ResponseBatch(self.turns.append, lambda: self.now_ns)
        self.connections: dict[str, Outgoing] = {}

    def add(self, name: str) -> None:
        new = connection(lambda: self.sent.append(name))
        self.batch.send(self.connections.setdefault(name, new))

    def turn(self) -> None:
        due, self.turns[:] = list(self.turns), []
        for call in due:
            call()


def test_responses_are_sent_together_in_their_order_when_the_turn_is_over() -> None:
    all_ = Sent()
    for name in "abc":
        all_.add(name)
    assert all_.sent == []
    assert len(all_.turns) == 1
    all_.turn()
    assert all_.sent == ["a", "b", "c"]
    all_.turn()
    assert all_.turns == [], "nothing is scheduled where nothing waits"


def test_a_response_does_not_wait_for_long_handling() -> None:
    all_ = Sent()
    all_.add("a")
    all_.now_ns = HELD_NS_MAX
    all_.add("b")
    assert all_.sent == []
    all_.now_ns += 1
    all_.add("c")
    assert all_.sent == ["a", "b", "c"]
    all_.add("d")
    assert (all_.sent, len(all_.turns)) == (["a", "b", "c"], 1)
    all_.turn()
    assert all_.sent == ["a", "b", "c", "d"]


def test_what_is_added_while_responses_are_sent_is_sent_in_the_next_turn() -> None:
    all_ = Sent()

    def send() -> None:
        all_.sent.append("first")
        all_.add("second")

    all_.batch.send(connection(send))
    all_.turn()
    assert all_.sent == ["first"]
    all_.turn()
    assert all_.sent == ["first", "second"]


def test_a_connection_that_is_served_alone_waits_for_nothing() -> None:
    all_ = Sent()
    all_.add("a")
    all_.turn()
    all_.add("a")
    assert (all_.sent, all_.turns) == (["a", "a"], [])
    all_.add("b")
    all_.add("b")
    assert all_.sent == ["a", "a"], "what waits is not overtaken"
    all_.turn()
    assert all_.sent == ["a", "a", "b", "b"]


def test_what_is_large_is_sent_at_once() -> None:
    all_ = Sent()
    all_.add("a")
    for size, name in ((BATCHED_BYTES_MAX + 1, "large"), (0, "none"), (BATCHED_BYTES_MAX, "small")):
        all_.batch.send(connection(lambda name=name: all_.sent.append(name), size))  # type: ignore[misc]
    assert all_.sent == ["large", "none"]
    all_.turn()
    assert all_.sent == ["large", "none", "a", "small"]
