"""A multi whose response is lost is done once, however often it is tried, with the right outcome.

Method: a scripted session over a real tree of znodes: each multi can be lost before it is done or
after, with other writes in between; the writer's outcome is compared with the tree.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ottla.base.pending import Pending, completed
from ottla.base.timers import Timers
from ottla.base.zookeeper import (
    Check,
    Create,
    Delete,
    Operation,
    SessionState,
    SetData,
    Stat,
    ZkCode,
    ZkError,
    ZnodeData,
)
from ottla.host.steps import drive
from ottla.host.zookeeper.store.store_writing import (
    Changed,
    ControllerMoved,
    Done,
    UnknownOutcome,
    Writer,
)
from ottla.metadata.znodes.paths import CONTROLLER_EPOCH
from ottla.testing.sim.zookeeper.zookeeper_tree import Author, Tree

EPOCH_VERSION = 0


class ScriptedSession:
    """A session over a tree. `script`: what becomes of the next multis, one each.

    "lost": it is not done, and the answer is CONNECTION_LOSS. "done": it is done, and the answer
    is lost all the same. A code: that answer. A function: somebody else writes first.
    """

    id = 1
    state = SessionState.CONNECTED

    def __init__(self) -> None:
        self.tree = Tree()
        self.zxid = 0
        self.script: list[Any] = []
        self.multis = 0

    def others(self, *operations: Operation) -> None:
        """Write as another client."""
        self.zxid += 1
        done = self.tree.apply(operations, Author(2, self.zxid, 0))
        assert not isinstance(done, ZkError), done

    def multi(self, operations: Sequence[Operation]) -> Pending[Any]:
        self.multis += 1
        while self.script and callable(self.script[0]):
            self.script.pop(0)()
        fate = self.script.pop(0) if self.script else None
        if isinstance(fate, ZkCode):
            return completed(ZkError(fate))
        if fate == "lost":
            return completed(ZkError(ZkCode.CONNECTION_LOSS))
        self.zxid += 1
        done = self.tree.apply(tuple(operations), Author(1, self.zxid, 0))
        if fate == "done":
            assert not isinstance(done, ZkError), done
            return completed(ZkError(ZkCode.CONNECTION_LOSS))
        return completed(done if isinstance(done, ZkError) else done[0])

    def get(self, path: str, watch: object = None) -> Pending[ZnodeData | ZkError]:
        return completed(self.tree.get(path))

    def exists(self, path: str, watch: object = None) -> Pending[Stat | ZkError | None]:
        node = self.tree.nodes.get(path)
        return completed(None if node is None else node.stat)

    def children(self, path: str, watch: object = None) -> Pending[tuple[str, ...] | ZkError]:
        return completed(self.tree.children(path))

    def close(self) -> Pending[None]:
        return completed(None)


class Clock:
    now = 0

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now


class Harness:
    def __init__(self) -> None:
        self.session = ScriptedSession()
        self.session.others(Create(CONTROLLER_EPOCH, b"1"), Create("/a", b"old"))
        self.session.others(Create("/brokers"), Create("/brokers/topics"))
        self.clock = Clock()
        self.timers = Timers()
        self.writer = Writer(
            self.session, epoch_version=EPOCH_VERSION, clock=self.clock, timers=self.timers
        )

    def drive(self, steps: Any) -> Any:
        outcomes: list[Any] = []
        drive(steps, outcomes.append)
        while not outcomes:
            self.clock.now += 100
            assert self.timers.run_due(self.clock.now) or outcomes, "it waits for nothing"
        if isinstance(outcomes[0], Exception):
            raise outcomes[0]
        return outcomes[0]

    def write(self, *operations: Operation) -> Any:
        return self.drive(self.writer.write(operations))

    def data(self, path: str) -> bytes | None:
        node = self.session.tree.nodes.get(path)
        return None if node is None else node.data

    def version(self, path: str) -> int:
        return self.session.tree.nodes[path].version


@pytest.fixture
def harness() -> Harness:
    return Harness()


SET = SetData("/a", b"new", 0)
MAKE = Create("/b", b"made")


def test_results_are_those_of_the_operations_without_the_check(harness: Harness) -> None:
    written = harness.write(SET, MAKE, Check("/a", 1))
    assert isinstance(written, Done)
    stat, path, checked = written.results
    assert isinstance(stat, Stat)
    assert (stat.version, path, checked) == (1, "/b", None)


@pytest.mark.parametrize("losses", [["lost"], ["done"], ["lost", "lost"], ["lost", "done"]])
@pytest.mark.parametrize("operations", [(SET,), (MAKE,), (SET, MAKE), (Delete("/a"), MAKE)])
def test_a_lost_multi_is_done_once(
    harness: Harness, losses: list[str], operations: tuple[Operation, ...]
) -> None:
    harness.session.script = list(losses)
    written = harness.write(*operations)
    assert isinstance(written, Done)
    if SET in operations:
        assert harness.version("/a") == 1
        stat = written.results[0]
        assert isinstance(stat, Stat)
        assert stat.version == 1
    if MAKE in operations:
        assert (harness.data("/b"), harness.version("/b")) == (b"made", 0)


@pytest.mark.parametrize("fate", ["lost", "done"])
def test_sequential_nodes_come_once_with_what_they_tell_of(harness: Harness, fate: str) -> None:
    harness.session.others(Create("/changes"))
    harness.session.script = [fate]
    written = harness.write(SET, Create("/changes/c_", b"told", sequential=True))
    assert isinstance(written, Done)
    assert len(harness.session.tree.nodes["/changes"].children) == 1


def test_others_were_first(harness: Harness) -> None:
    harness.session.others(SetData("/a", b"theirs"))
    written = harness.write(SET, MAKE)
    assert written == Changed(frozenset({"/a", "/b"}))
    assert harness.data("/b") is None


def test_lost_and_then_others_were_first(harness: Harness) -> None:
    """/b still is not there and /a is at a version that this multi never made."""
    harness.session.script = ["lost", lambda: harness.session.others(SetData("/a", b"theirs"))]
    written = harness.write(SET, SetData("/controller_epoch", b"x", 0))
    assert isinstance(written, Changed)  # /controller_epoch is at the version before: not done.
    assert harness.data("/a") == b"theirs"


def test_done_and_then_others_wrote_one_of_its_nodes(harness: Harness) -> None:
    harness.session.script = ["done", lambda: harness.session.others(SetData("/a", b"theirs"))]
    written = harness.write(SET, MAKE)
    assert isinstance(written, Done)  # /b has its data, and a multi is done whole.
    assert harness.data("/a") == b"theirs"
    stat = written.results[0]
    assert isinstance(stat, Stat)
    assert stat.version == 1  # What this multi made: writing at that version must fail again.
    assert isinstance(harness.write(SetData("/a", b"newer", stat.version)), Changed)


@pytest.mark.parametrize("fate", ["lost", "done"])
def test_nobody_can_tell_where_others_have_written_it_all_since(
    harness: Harness, fate: str
) -> None:
    def others() -> None:
        if fate == "lost":
            harness.session.others(SetData("/a", b"first"))
        harness.session.others(SetData("/a", b"theirs"))

    harness.session.script = [fate, others]
    written = harness.write(SET)
    assert isinstance(written, UnknownOutcome | Changed)
    assert written.paths == {"/a"}
    assert isinstance(written, UnknownOutcome)
    assert harness.data("/a") == b"theirs"


@pytest.mark.parametrize("fate", ["lost", "done", None])
def test_kafka_1096_nothing_is_written_once_the_epoch_has_moved(
    harness: Harness, fate: str | None
) -> None:
    elected = SetData(CONTROLLER_EPOCH, b"2")
    harness.session.script = [fate, lambda: harness.session.others(elected)] if fate else []
    if fate is None:
        harness.session.others(elected)
    assert harness.write(SET) == ControllerMoved()
    assert harness.data("/a") == (b"new" if fate == "done" else b"old")


def test_an_epoch_that_is_gone_deposes_too(harness: Harness) -> None:
    harness.session.others(Delete(CONTROLLER_EPOCH))
    assert harness.write(SET) == ControllerMoved()


def test_an_expired_session_deposes(harness: Harness) -> None:
    harness.session.script = ["lost", ZkCode.SESSION_EXPIRED]
    assert harness.write(SET) == ControllerMoved()


@pytest.mark.parametrize("code", [ZkCode.NO_AUTH, ZkCode.BAD_ARGUMENTS, ZkCode.SYSTEM_ERROR])
def test_other_refusals_are_exceptions(harness: Harness, code: ZkCode) -> None:
    harness.session.script = [code]
    with pytest.raises(ZkError):
        harness.write(SET)


def test_what_is_gone_needs_no_delete(harness: Harness) -> None:
    operations = [Delete(f"/gone{number}") for number in range(50)]
    written = harness.write(*operations[:25], Delete("/a"), *operations[25:])
    assert isinstance(written, Done)
    assert harness.data("/a") is None
    assert harness.session.multis == 2  # All that were gone are found in one look.


def test_parents_that_are_there_need_no_create(harness: Harness) -> None:
    harness.session.others(Create("/p"), Create("/p/1"), Create("/p/2"))
    written = harness.write(
        Create("/p"), Create("/p/1"), Create("/p/1/s", b"x"), Create("/p/2"), Create("/p/3")
    )
    assert isinstance(written, Done)
    assert written.results == ("/p", "/p/1", "/p/1/s", "/p/2", "/p/3")
    assert harness.session.multis == 2


def test_a_node_with_data_that_is_there_is_somebody_elses(harness: Harness) -> None:
    assert isinstance(harness.write(Create("/a", b"mine")), Changed)


def test_what_is_below_a_topic_goes_with_it(harness: Harness) -> None:
    make: Callable[[str], Create] = Create
    for path in ("", "/partitions", "/partitions/0", "/partitions/0/state", "/odd", "/odd/x"):
        harness.session.others(make(f"/brokers/topics/t{path}"))
    written = harness.write(
        Delete("/brokers/topics/t/partitions/0/state"), Delete("/brokers/topics/t")
    )
    assert isinstance(written, Done)
    assert harness.data("/brokers/topics/t") is None


def test_what_is_below_other_nodes_stays(harness: Harness) -> None:
    harness.session.others(Create("/a/child"))
    assert isinstance(harness.write(Delete("/a")), Changed)
    assert harness.data("/a/child") == b""
