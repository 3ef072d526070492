"""Links behave as a process's channels do; each fault of the network has its effect.

Method: one fake node that answers ApiVersions, or holds it; no other part of the product.
"""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending
from ottla.broker.dispatch import Outcome, read_header
from ottla.broker.ports import CloseConnection, Connection, Listener
from ottla.testing.sim.net import MS, NetFaults, Network, SimListener
from ottla.testing.sim.scheduler import Process, Scheduler
from ottla.testing.sim.transport import CheckedChannel, links_from
from ottla.wire.frames import encode_response
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

ADDRESS = ("10.0.0.1", 9092)
OTHER = ("10.0.0.2", 9092)
CLIENT, NODE = -1, 1


class Server:
    """A node's request handler. `frames`: all requests; `parked`: promises of unanswered ones."""

    def __init__(self, net: Network, place: int = NODE) -> None:
        self.process = Process(f"node {place}")
        self.correlations: list[int] = []
        self.parks = False
        self.refuses = False
        self.throttle_ms = 0
        self.answers_nothing = False
        self.skew = 0
        self.parked: list[Callable[[], None]] = []
        self.connections: list[Connection] = []
        self.listener = SimListener(self.process, place, Listener.CLIENT, "PLAINTEXT", self.handle)
        self.listener.is_open = True
        net.listen((f"10.0.0.{place}", 9092), self.listener)

    def handle(self, connection: Connection, frame: memoryview) -> Outcome:
        header, _ = read_header(frame)
        self.correlations.append(header.correlation_id)
        if connection not in self.connections:
            self.connections.append(connection)
        if self.refuses:
            raise CloseConnection("garbage")
        answer = encode_response(
            ApiVersionsResponse(error_code=0, api_keys=()), 0, header.correlation_id + self.skew
        )
        connection.throttle_ms = self.throttle_ms
        if self.answers_nothing:
            self.answers_nothing = False
            return None
        if not self.parks:
            return answer
        late: Pending[list[Any] | None] = Pending()
        self.parked.append(lambda: late.complete(answer) and None)
        return late


class Story:
    """A network, a server and a client's link to it."""

    def __init__(self, **faults: Any) -> None:
        self.problems: list[str] = []
        self.scheduler = Scheduler(lambda where, error: self.problems.append(f"{where}: {error}"))
        self.arrived: Counter[str] = Counter()
        self.net = Network(
            self.scheduler,
            Random(7),
            lambda what, source, target, frame: self.arrived.update([what]),
        )
        self.net.faults = NetFaults(**faults)
        self.server = Server(self.net)
        self.answers: list[Any] = []

    def link(self, address: tuple[str, int] | None = ADDRESS, **timing: Any) -> CheckedChannel:
        return links_from(self.net, CLIENT, None)(lambda: address, client_id="c", **timing)

    def ask(self, link: CheckedChannel, timeout_ms: int = 1_000) -> Pending[Any | ApiError]:
        answer = link.send(ApiVersionsRequest(), 0, timeout_ms=timeout_ms)
        answer.then(self.answers.append)
        return answer

    def run(self, ms: int) -> None:
        self.scheduler.run_until(self.scheduler.now_us + ms * MS)

    @property
    def errors(self) -> list[Error | None]:
        return [each.error if isinstance(each, ApiError) else None for each in self.answers]


def test_requests_are_answered_in_their_order() -> None:
    story = Story()
    link = story.link()
    for _ in range(5):
        story.ask(link)
    assert not link.connected
    story.run(20)
    assert story.errors == [None] * 5
    assert story.server.correlations == [1, 2, 3, 4, 5]
    assert link.connected
    assert len(story.server.connections) == 1
    assert story.arrived == {"request": 5, "response": 5}


@pytest.mark.parametrize("parks", [False, True])
def test_a_connection_with_a_throttle_is_muted_after_its_response(parks: bool) -> None:
    story = Story()
    story.server.throttle_ms, story.server.parks = 1_000, parks
    link, other = story.link(), story.link()
    for _ in range(3):
        story.ask(link, timeout_ms=10_000)
    story.run(100)
    if parks:
        story.server.parked.pop()()
        story.run(100)
    assert len(story.answers) == len(story.server.correlations) == 1
    story.server.throttle_ms, story.server.parks = 0, False
    story.ask(other)
    story.run(100)
    assert story.errors == [None] * 2, "other connections are served"
    story.run(600)
    assert len(story.answers) == 2
    story.run(400)
    assert story.errors == [None] * 4


def test_a_request_without_a_response_may_have_a_throttle() -> None:
    story = Story()
    story.server.throttle_ms, story.server.answers_nothing = 1_000, True
    link = story.link()
    for _ in range(2):
        story.ask(link, timeout_ms=10_000)
    story.run(900)
    assert len(story.server.correlations) == 1
    story.server.answers_nothing = True
    story.run(200)
    assert len(story.server.correlations) == 2


def test_the_next_request_of_a_connection_waits_for_the_one_before() -> None:
    story = Story()
    story.server.parks = True
    link = story.link()
    for _ in range(3):
        story.ask(link)
    story.run(50)
    assert story.server.correlations == [1]
    story.server.parked.pop()()
    story.run(50)
    assert (story.server.correlations, len(story.answers)) == ([1, 2], 1)


def test_what_waits_for_a_connection_can_be_taken_back_and_nothing_else() -> None:
    story = Story()
    link = story.link()
    taken = story.ask(link)
    story.ask(link)
    assert link.withdraw(taken)
    assert not link.withdraw(taken)
    story.run(20)
    assert story.errors == [Error.REQUEST_TIMED_OUT, None]
    assert story.server.correlations == [2]
    story.server.parks = True
    sent = story.ask(link)
    assert not link.withdraw(sent)
    story.run(20)
    assert (link.connected, len(story.answers)) == (True, 2)


def test_a_request_that_is_given_up_takes_the_connection_along() -> None:
    story = Story()
    story.server.parks = True
    link = story.link()
    story.ask(link, timeout_ms=100)
    story.ask(link, timeout_ms=900)
    story.run(150)
    assert story.errors == [Error.REQUEST_TIMED_OUT, Error.NETWORK_EXCEPTION]
    assert not link.connected
    assert story.server.connections[0].closed.done, "the server's end is closed"
    story.server.parks = False
    story.ask(link)
    story.run(50)
    assert story.errors[2] is None
    assert len(story.server.connections) == 2


def test_a_server_that_closes_or_dies_breaks_the_connection() -> None:
    story = Story()
    story.server.refuses = True
    link = story.link()
    story.ask(link)
    story.run(20)
    assert story.errors == [Error.NETWORK_EXCEPTION]
    story.server.refuses, story.server.parks = False, True
    story.ask(link)
    story.run(100)
    story.server.process.alive = False
    story.net.vanish(story.server.process, silently=False)
    story.run(20)
    assert story.errors == [Error.NETWORK_EXCEPTION] * 2


def test_a_machine_that_lost_power_sends_no_fin() -> None:
    story = Story()
    story.server.parks = True
    link = story.link()
    story.ask(link, timeout_ms=5_000)
    story.run(20)
    story.server.process.alive = False
    story.net.vanish(story.server.process, silently=True)
    story.run(4_000)
    assert story.answers == []
    story.run(1_100)
    assert story.errors == [Error.REQUEST_TIMED_OUT]


def test_a_response_that_no_request_waits_for_is_a_bug() -> None:
    """Both ends are the product's: outside the simulator the connection would end."""
    story = Story()
    story.server.skew = 1
    story.ask(story.link())
    with pytest.raises(AssertionError, match="unexpected correlation id"):
        story.run(20)


def test_a_missing_listener_is_retried_until_the_timeout() -> None:
    story = Story()
    story.ask(story.link(OTHER), timeout_ms=700)
    hasty = story.link(OTHER, patient=False)
    story.ask(hasty, timeout_ms=700)
    story.run(50)
    assert story.errors == [Error.NETWORK_EXCEPTION]
    Server(story.net, place=2)
    story.run(500)
    assert story.errors == [Error.NETWORK_EXCEPTION, None]


def test_a_link_that_is_sent_elsewhere_fails_what_was_on_its_way() -> None:
    story = Story()
    story.server.parks = True
    addresses = [ADDRESS]
    link = links_from(story.net, CLIENT, None)(lambda: addresses[0], client_id="c")
    story.ask(link)
    story.run(20)
    link.retarget()
    story.run(20)
    assert story.answers == [], "the same address"
    addresses[0] = OTHER
    Server(story.net, place=2)
    link.retarget()
    story.run(20)
    assert story.errors == [Error.NETWORK_EXCEPTION]
    story.ask(link)
    story.run(20)
    assert story.errors[1] is None


def test_a_closed_link_fails_its_requests() -> None:
    story = Story()
    link = story.link()
    story.ask(link)
    link.close()
    story.ask(link)
    assert story.errors == [Error.NETWORK_EXCEPTION] * 2
    story.run(100)
    assert story.server.correlations == []


@pytest.mark.parametrize("way", [(CLIENT, NODE), (NODE, CLIENT)])
def test_what_meets_a_cut_arrives_when_the_cut_is_mended(way: tuple[int, int]) -> None:
    story = Story()
    link = story.link()
    story.ask(link)
    story.run(20)
    story.net.cut.add(way)
    story.ask(link, timeout_ms=20_000)
    story.ask(link, timeout_ms=20_000)
    story.run(3_000)
    assert story.errors == [None]
    assert story.server.correlations == ([1] if way[0] == CLIENT else [1, 2, 3])
    story.net.cut.clear()
    story.run(4_000)
    assert story.errors == [None] * 3


def test_a_cut_lets_no_connection_be_made() -> None:
    story = Story()
    story.net.cut.add((NODE, CLIENT))
    story.ask(story.link(connect_timeout_ms=100, connect_timeout_max_ms=200), timeout_ms=900)
    story.run(1_000)
    assert story.errors == [Error.REQUEST_TIMED_OUT]
    assert story.server.correlations == []


def test_attempts_on_a_cut_link_succeed_when_all_is_healed() -> None:
    story = Story(slow=1.0)
    story.net.cut.add((CLIENT, NODE))
    story.ask(story.link(), timeout_ms=9_000)
    closed = story.link()
    story.ask(closed, timeout_ms=9_000)
    over = story.link(connect_timeout_ms=100, backoff_ms=5_000, backoff_max_ms=5_000)
    story.ask(over, timeout_ms=9_000)
    story.run(1_000)
    closed.close()
    story.net.heal()
    story.run(20)
    assert story.errors == [Error.NETWORK_EXCEPTION, None]
    assert len(story.server.connections) == 1, "an attempt that had ended went on"
    story.run(5_000)
    assert story.errors == [Error.NETWORK_EXCEPTION, None, None]


def test_a_silent_connection_is_noticed_only_by_the_timeout() -> None:
    story = Story(silent=1.0)
    link = story.link()
    story.ask(link, timeout_ms=800)
    story.run(700)
    assert story.answers == []
    story.net.faults.silent = 0.0
    story.run(200)
    story.ask(link)
    story.run(100)
    assert story.errors == [Error.REQUEST_TIMED_OUT, None]


def test_a_request_on_a_broken_connection_may_have_been_processed() -> None:
    done = Counter[bool]()
    story = Story(broken=1.0)
    link = story.link(backoff_ms=1)
    for _ in range(60):
        before = len(story.server.correlations)
        story.ask(link)
        story.run(100)
        if story.errors[-1] is Error.NETWORK_EXCEPTION:
            done[len(story.server.correlations) > before] += 1
    assert done[True] > 0
    assert done[False] > 0


def test_the_response_to_a_redelivered_request_is_shown_to_observers_alone() -> None:
    story = Story(twice=1.0, slow_us_max=500 * MS)
    link = story.link()
    shown = list[int]()
    story.net.observe_responses(lambda connection, _: shown.append(connection))
    for _ in range(10):
        story.ask(link)
    story.run(1_000)
    assert story.errors == [None] * 10
    assert sorted(story.server.correlations) == sorted([*range(1, 11)] * 2)
    assert story.arrived["again"] == 10
    assert story.arrived["response"] == 10
    (_, times), *others = Counter(shown).most_common()
    assert (times, [each for _, each in others]) == (10, [1] * 10)
    assert story.problems == []


def test_a_slow_frame_holds_up_what_is_behind_it() -> None:
    story = Story(slow=0.3, slow_us_max=400 * MS)
    link = story.link()
    for _ in range(20):
        story.ask(link, timeout_ms=60_000)
    story.run(60_000)
    assert story.errors == [None] * 20
    assert story.server.correlations == [*range(1, 21)]


def test_a_paused_server_answers_after_its_resume() -> None:
    story = Story()
    link = story.link()
    story.ask(link)
    story.run(20)
    story.server.process.paused = True
    story.ask(link, timeout_ms=10_000)
    fresh = story.link()
    story.ask(fresh, timeout_ms=10_000)
    story.run(5_000)
    assert fresh.connected, "its system accepts for it"
    assert story.errors == [None]
    story.scheduler.resume(story.server.process)
    story.run(20)
    assert story.errors == [None] * 3


def test_a_client_that_dies_is_noticed_by_its_server() -> None:
    story = Story()
    story.server.parks = True
    process = Process("another node")
    link = links_from(story.net, 2, process)(lambda: ADDRESS, client_id="c")
    story.scheduler.after(0, lambda: story.ask(link), process)
    story.run(20)
    process.alive = False
    story.net.vanish(process, silently=False)
    story.run(20)
    assert story.server.connections[0].closed.done
    assert story.answers == [], "a dead client gets no response"


class Slice:
    """A piece of a file that was cut, or cannot be read."""

    length = 10

    def __init__(self, content: bytes | OSError) -> None:
        self.content = content
        self.file = self
        self.path = "/log"
        self.released = 0

    def read(self) -> bytes:
        if isinstance(self.content, OSError):
            raise self.content
        return self.content

    def release(self) -> None:
        self.released += 1


@pytest.mark.parametrize("content", [b"short", OSError("as it happens")])
def test_an_answer_whose_file_cannot_be_read_ends_the_connection(content: Any) -> None:
    story = Story()
    piece = Slice(content)
    story.server.listener.handle = lambda connection, frame: [b"\0\0\0\x0e\0\0\0\x01", piece]
    story.ask(story.link())
    story.run(20)
    assert story.errors == [Error.NETWORK_EXCEPTION]
    assert piece.released == 1
