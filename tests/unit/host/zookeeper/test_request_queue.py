"""Goal: requests are answered once each, in their order, whatever becomes of connections.

Method: a queue whose sender only records requests; the test plays the connection. One test plays
random histories and checks invariants.
"""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ottla.host.zookeeper.request_queue import SENT_MAX, Request, RequestQueue, Stage


class Harness:
    """A line, what it sent, and what was answered."""

    def __init__(self) -> None:
        self.line = RequestQueue(lambda request: self.sent.append((request, request.attempt)))
        self.sent: list[tuple[Request, int]] = []
        self.answers: list[tuple[Any, Any]] = []

    def request(self, name: Any, *, repeats: bool = True) -> Request:
        return Request(lambda: None, lambda answer: self.answers.append((name, answer)), repeats)

    def add(self, name: Any, *, repeats: bool = True) -> Request:
        request = self.request(name, repeats=repeats)
        self.line.add(request)
        return request

    def arrive(self, answer: Any, index: int = 0, *, undone: bool = False) -> None:
        request, attempt = self.sent.pop(index)
        self.line.arrived(request, attempt, answer, undone=undone)


def test_nothing_is_sent_before_there_is_a_connection() -> None:
    harness = Harness()
    harness.add("a")
    assert harness.sent == []
    harness.line.connected(())
    harness.arrive(1)
    assert harness.answers == [("a", 1)]


def test_few_are_sent_at_a_time() -> None:
    harness = Harness()
    harness.line.connected(())
    for number in range(SENT_MAX + 2):
        harness.add(number)
    assert len(harness.sent) == SENT_MAX
    harness.arrive("x")
    assert len(harness.sent) == SENT_MAX


def test_an_early_answer_waits_for_those_before_it() -> None:
    harness = Harness()
    harness.line.connected(())
    harness.add("a")
    harness.add("b")
    harness.arrive(2, index=1)
    assert harness.answers == []
    harness.arrive(1)
    assert harness.answers == [("a", 1), ("b", 2)]


def test_a_refused_request_waits_for_its_turn() -> None:
    harness = Harness()
    harness.line.connected(())
    harness.add("a")
    refused = harness.request("b")
    refused.stage, refused.answer = Stage.ANSWERED, "no"
    harness.line.add(refused)
    assert (harness.answers, len(harness.sent)) == ([], 1)
    harness.arrive(1)
    assert harness.answers == [("a", 1), ("b", "no")]


def test_reads_are_sent_again_and_writes_are_answered_in_their_turn() -> None:
    harness = Harness()
    harness.line.connected(())
    harness.add("read")
    harness.add("write", repeats=False)
    harness.add("later")
    for _ in range(3):
        harness.arrive("lost", undone=True)
    harness.line.broken()
    assert harness.answers == []
    harness.line.connected(())
    assert len(harness.sent) == 2
    harness.arrive(1)
    harness.arrive(3)
    assert harness.answers == [("read", 1), ("write", "lost"), ("later", 3)]


def test_a_read_that_stayed_with_the_sender_is_sent_twice_and_answered_once() -> None:
    harness = Harness()
    harness.line.connected(())
    harness.add("read")
    harness.line.broken()  # It did not come back: the sender has it still.
    harness.line.connected(())
    assert len(harness.sent) == 2
    harness.arrive("old")
    assert harness.answers == []
    harness.arrive("new")
    assert harness.answers == [("read", "new")]


def test_a_write_that_stayed_with_the_sender_keeps_its_one_chance() -> None:
    harness = Harness()
    harness.line.connected(())
    harness.add("write", repeats=False)
    harness.line.broken()
    harness.line.connected(())
    assert len(harness.sent) == 1
    harness.arrive("done")
    assert harness.answers == [("write", "done")]


def test_requests_that_set_watches_again_go_first_and_hold_all_responses() -> None:
    harness = Harness()
    harness.line.connected(())
    harness.add("write", repeats=False)
    harness.line.broken()
    harness.add("read")
    harness.line.connected([harness.request("watch 1"), harness.request("watch 2")])
    assert len(harness.sent) == 4
    harness.arrive("done")  # The write, which the sender had kept, overtook.
    harness.arrive("w1")
    assert harness.answers == [("watch 1", "w1")]
    harness.arrive("w2")
    assert harness.answers == [("watch 1", "w1"), ("watch 2", "w2"), ("write", "done")]
    harness.arrive("r")
    assert harness.answers[-1] == ("read", "r")


def test_a_connection_that_ends_while_watches_are_set_again() -> None:
    harness = Harness()
    harness.add("read")
    harness.line.connected([harness.request("first"), harness.request("second")])
    harness.arrive("lost", undone=True)
    harness.line.broken()
    harness.line.connected([harness.request("first again")])
    harness.arrive("late")  # Of the connection before.
    harness.arrive("late")
    assert harness.answers == []
    harness.arrive(1)
    harness.arrive(2)
    assert harness.answers == [("first again", 1), ("read", 2)]


def test_the_end_returns_unanswered_requests() -> None:
    harness = Harness()
    harness.line.connected([harness.request("watch")])
    added = [harness.add("a"), harness.add("b")]
    harness.arrive(1, index=1)
    assert harness.line.end() == added
    harness.line.connected(())
    assert harness.answers == []


def test_a_listener_that_fails_does_not_keep_others_from_their_answers(caplog: Any) -> None:
    harness = Harness()
    harness.line.connected(())
    harness.line.add(Request(lambda: None, lambda answer: 1 / 0))  # type: ignore[arg-type,return-value]
    harness.add("b")
    harness.arrive(1)
    harness.arrive(2)
    assert harness.answers == [("b", 2)]
    assert "a ZooKeeper session listener failed" in caplog.text


@given(st.lists(st.sampled_from("rwabkcc"), max_size=60), st.randoms(use_true_random=False))
def test_any_history(acts: list[str], dice: Any) -> None:
    """Every request is answered at most once, in order; writes are sent once; in the end, all are.

    r, w: ask; a: an answer comes; b: the connection breaks, some requests come back and some
    stay; k: it breaks while nothing comes back; c: there is one again.
    """
    harness = Harness()
    connected = False
    added = 0
    sendings: dict[int, int] = {}

    def settle(break_rate: float) -> None:
        for _ in range(len(harness.sent)):
            if dice.random() < break_rate:
                harness.arrive("lost", undone=True)
            else:
                harness.sent.append(harness.sent.pop(0))

    for act in acts:
        if act in "rw":
            harness.add((added, act), repeats=act == "r")
            added += 1
        elif act == "a" and connected and harness.sent:
            harness.arrive("answer")
        elif act in "bk" and connected:
            settle(0.7 if act == "b" else 0.0)
            harness.line.broken()
            connected = False
        elif act == "c" and not connected:
            harness.line.connected([harness.request("watch")])
            connected = True
    if not connected:
        harness.line.connected(())
    while harness.sent:
        request, _ = harness.sent[0]
        sendings[id(request)] = sendings.get(id(request), 0) + 1
        harness.arrive("answer")
    numbers = [name[0] for name, _ in harness.answers if name != "watch"]
    assert numbers == list(range(added))
    for name, answer in harness.answers:
        assert answer == "answer" or name[1] == "w", "a read is answered by a server"
