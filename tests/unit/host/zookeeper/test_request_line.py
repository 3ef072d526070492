"""Goal: requests are answered once each, in their order, whatever becomes of connections.

Method: a line whose sender only notes what it was given; the test plays the connection. One test
plays random histories against what every history must satisfy.
"""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ottla.host.zookeeper.request_line import SENT_MAX, Request, RequestLine, Stage


class World:
    """A line, what it sent, and what was answered."""

    def __init__(self) -> None:
        self.line = RequestLine(lambda request: self.sent.append((request, request.attempt)))
        self.sent: list[tuple[Request, int]] = []
        self.answers: list[tuple[Any, Any]] = []

    def request(self, name: Any, *, repeats: bool = True) -> Request:
        return Request(lambda: None, lambda answer: self.answers.append((name, answer)), repeats)

    def ask(self, name: Any, *, repeats: bool = True) -> Request:
        request = self.request(name, repeats=repeats)
        self.line.ask(request)
        return request

    def arrive(self, answer: Any, index: int = 0, *, undone: bool = False) -> None:
        request, attempt = self.sent.pop(index)
        self.line.arrived(request, attempt, answer, undone=undone)


def test_nothing_is_sent_before_there_is_a_connection() -> None:
    world = World()
    world.ask("a")
    assert world.sent == []
    world.line.connected(())
    world.arrive(1)
    assert world.answers == [("a", 1)]


def test_few_are_sent_at_a_time() -> None:
    world = World()
    world.line.connected(())
    for number in range(SENT_MAX + 2):
        world.ask(number)
    assert len(world.sent) == SENT_MAX
    world.arrive("x")
    assert len(world.sent) == SENT_MAX


def test_an_early_answer_waits_for_those_before_it() -> None:
    world = World()
    world.line.connected(())
    world.ask("a")
    world.ask("b")
    world.arrive(2, index=1)
    assert world.answers == []
    world.arrive(1)
    assert world.answers == [("a", 1), ("b", 2)]


def test_a_refused_request_waits_for_its_turn() -> None:
    world = World()
    world.line.connected(())
    world.ask("a")
    refused = world.request("b")
    refused.stage, refused.answer = Stage.ANSWERED, "no"
    world.line.ask(refused)
    assert (world.answers, len(world.sent)) == ([], 1)
    world.arrive(1)
    assert world.answers == [("a", 1), ("b", "no")]


def test_reads_are_sent_again_and_writes_are_answered_in_their_turn() -> None:
    world = World()
    world.line.connected(())
    world.ask("read")
    world.ask("write", repeats=False)
    world.ask("later")
    for _ in range(3):
        world.arrive("lost", undone=True)
    world.line.broken()
    assert world.answers == []
    world.line.connected(())
    assert len(world.sent) == 2
    world.arrive(1)
    world.arrive(3)
    assert world.answers == [("read", 1), ("write", "lost"), ("later", 3)]


def test_a_read_that_stayed_with_the_sender_is_sent_twice_and_answered_once() -> None:
    world = World()
    world.line.connected(())
    world.ask("read")
    world.line.broken()  # It did not come back: the sender has it still.
    world.line.connected(())
    assert len(world.sent) == 2
    world.arrive("old")
    assert world.answers == []
    world.arrive("new")
    assert world.answers == [("read", "new")]


def test_a_write_that_stayed_with_the_sender_keeps_its_one_chance() -> None:
    world = World()
    world.line.connected(())
    world.ask("write", repeats=False)
    world.line.broken()
    world.line.connected(())
    assert len(world.sent) == 1
    world.arrive("done")
    assert world.answers == [("write", "done")]


def test_what_sets_watches_anew_goes_first_and_holds_all_answers() -> None:
    world = World()
    world.line.connected(())
    world.ask("write", repeats=False)
    world.line.broken()
    world.ask("read")
    world.line.connected([world.request("watch 1"), world.request("watch 2")])
    assert len(world.sent) == 4
    world.arrive("done")  # The write, which the sender had kept, overtook.
    world.arrive("w1")
    assert world.answers == [("watch 1", "w1")]
    world.arrive("w2")
    assert world.answers == [("watch 1", "w1"), ("watch 2", "w2"), ("write", "done")]
    world.arrive("r")
    assert world.answers[-1] == ("read", "r")


def test_a_connection_that_ends_while_watches_are_set_anew() -> None:
    world = World()
    world.ask("read")
    world.line.connected([world.request("first"), world.request("second")])
    world.arrive("lost", undone=True)
    world.line.broken()
    world.line.connected([world.request("first again")])
    world.arrive("late")  # Of the connection before.
    world.arrive("late")
    assert world.answers == []
    world.arrive(1)
    world.arrive(2)
    assert world.answers == [("first again", 1), ("read", 2)]


def test_the_end_returns_what_was_never_answered() -> None:
    world = World()
    world.line.connected([world.request("watch")])
    asked = [world.ask("a"), world.ask("b")]
    world.arrive(1, index=1)
    assert world.line.end() == asked
    world.line.connected(())
    assert world.answers == []


def test_a_listener_that_fails_does_not_keep_others_from_their_answers(caplog: Any) -> None:
    world = World()
    world.line.connected(())
    world.line.ask(Request(lambda: None, lambda answer: 1 / 0))  # type: ignore[arg-type,return-value]
    world.ask("b")
    world.arrive(1)
    world.arrive(2)
    assert world.answers == [("b", 2)]
    assert "a listener of the ZooKeeper session failed" in caplog.text


@given(st.lists(st.sampled_from("rwabkcc"), max_size=60), st.randoms(use_true_random=False))
def test_any_history(acts: list[str], dice: Any) -> None:
    """Every request is answered at most once, in order; writes are sent once; in the end, all are.

    r, w: ask; a: an answer comes; b: the connection breaks, some requests come back and some
    stay; k: it breaks while nothing comes back; c: there is one again.
    """
    world = World()
    connected = False
    asked = 0
    sendings: dict[int, int] = {}

    def settle(break_rate: float) -> None:
        for _ in range(len(world.sent)):
            if dice.random() < break_rate:
                world.arrive("lost", undone=True)
            else:
                world.sent.append(world.sent.pop(0))

    for act in acts:
        if act in "rw":
            world.ask((asked, act), repeats=act == "r")
            asked += 1
        elif act == "a" and connected and world.sent:
            world.arrive("answer")
        elif act in "bk" and connected:
            settle(0.7 if act == "b" else 0.0)
            world.line.broken()
            connected = False
        elif act == "c" and not connected:
            world.line.connected([world.request("watch")])
            connected = True
    if not connected:
        world.line.connected(())
    while world.sent:
        request, _ = world.sent[0]
        sendings[id(request)] = sendings.get(id(request), 0) + 1
        world.arrive("answer")
    numbers = [name[0] for name, _ in world.answers if name != "watch"]
    assert numbers == list(range(asked))
    for name, answer in world.answers:
        assert answer == "answer" or name[1] == "w", "a read is answered by a server"
