"""A marker deletes the topic that it was written for, and no other.

Method: the markers over a back end in memory; reads are answered by the test; manual time.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from ottla.base.ids import Uuid
from ottla.base.pending import Pending, completed
from ottla.base.timers import Timers
from ottla.base.zookeeper import Delete, Operation, Stat, ZkCode, ZkError
from ottla.controller.brokers.liveness import BrokerLiveness
from ottla.controller.context import DecisionContext
from ottla.controller.retry_queue import RETRY_FIRST_MS, RETRY_MS_MAX
from ottla.host.controller.controller_runtime import ControllerRuntime
from ottla.host.zookeeper.marker_requests import MarkerRequests
from ottla.host.zookeeper.store.store_writing import Changed, Done, Written
from ottla.metadata.deletions import STARTED, DeletionImage, Policy, deletion_records
from ottla.metadata.records import ForgetDeletionRecord, RemoveTopicRecord, TopicRecord
from ottla.metadata.znodes import paths
from ottla.testing.memory_store import MemoryMetadata

from .controller_harness import a_config

OLD, NEW = Uuid(b"old-------------"), Uuid(b"new-------------")


class FakeClock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now


class Markers:
    """The markers of one term. `erased`: topics whose marker was deleted; `sought`: read;
    `removed`: reported as removed. `refusal`: the error of a deletion, None = it succeeds."""

    def __init__(self) -> None:
        nothing: Any = None
        self.stored = MemoryMetadata()
        self.clock, self.timers = FakeClock(), Timers()
        self.runtime = ControllerRuntime(self.stored.elect(), epoch=1, clock=self.clock)
        self.erased: list[Operation] = []
        self.removed: list[str] = []
        self.sought: dict[str, Pending[Any]] = {}
        self.refusal: Written | ZkError | None = None
        self.marked = {"t"}
        self.requests = MarkerRequests(
            self.runtime,
            DecisionContext(
                config=a_config(1, {}), cluster_id="c", dice=nothing, liveness=BrokerLiveness(1)
            ),
            clock=self.clock,
            timers=self.timers,
            change=self._change,
            exists=self._exists,
            marked=lambda: self.marked,
            on_removed=self.removed.extend,
            unreadable=dict,
        )
        self.runtime.subscribe(self.requests.changed)

    def _exists(self, path: str) -> Pending[Any]:
        assert path not in self.sought, "one look at a time"
        self.sought[path] = Pending()
        return self.sought[path]

    def _change(self, operations: Sequence[Operation]) -> Pending[Any]:
        if self.refusal is not None:
            return completed(self.refusal)
        self.erased += operations
        return completed(Done((None,) * len(operations)))

    def found(self, *, topic: int | None, marker: int | None) -> None:
        """Answer what is looked for; the numbers are of the writes that made it."""
        for path, czxid in ((paths.topic("t"), topic), (paths.marker("t"), marker)):
            stat = None if czxid is None else Stat(czxid, czxid, 0, 0, 0, 0, 0)
            self.sought.pop(path).complete(stat)

    def fail(self, code: ZkCode) -> None:
        """Have what is looked for not be read."""
        for path in (paths.topic("t"), paths.marker("t")):
            self.sought.pop(path).complete(ZkError(code, path))

    def wait(self, ms: int) -> None:
        """Let time pass."""
        self.clock.now += ms
        self.timers.run_due(self.clock.now)

    def is_queued(self) -> bool:
        return self.runtime.image.is_queued_for_deletion("t")


@pytest.fixture
def harness() -> Markers:
    return Markers()


def test_a_marker_of_an_unknown_topic_is_deleted(harness: Markers) -> None:
    harness.requests.process_markers(("t",))
    assert harness.erased == []
    harness.found(topic=None, marker=7)
    assert harness.erased == [Delete(paths.marker("t"))]


def test_a_marker_waits_for_a_topic_that_is_stored_already(harness: Markers) -> None:
    # Found by a random history: the topics had been read before it was made, the markers after.
    harness.requests.process_markers(("t",))
    harness.found(topic=6, marker=7)
    assert harness.erased == []
    harness.stored.observe(TopicRecord(name="t", topic_id=NEW))
    harness.found(topic=6, marker=7)
    assert harness.is_queued()


def test_a_topic_may_be_created_while_its_marker_is_processed(harness: Markers) -> None:
    harness.requests.process_markers(("t",))
    harness.stored.observe(TopicRecord(name="t", topic_id=NEW))
    harness.found(topic=6, marker=7)
    harness.found(topic=6, marker=7)
    assert harness.is_queued()
    assert harness.sought == {}


def test_a_marker_that_is_older_than_the_topic_is_erased(harness: Markers) -> None:
    harness.stored.observe(TopicRecord(name="t", topic_id=NEW))
    harness.found(topic=7, marker=6)
    assert harness.erased == [Delete(paths.marker("t"))]
    assert not harness.is_queued()


def test_a_marker_that_came_with_the_topic_is_for_it(harness: Markers) -> None:
    harness.stored.observe(TopicRecord(name="t", topic_id=NEW))
    harness.found(topic=7, marker=7)
    assert harness.is_queued()


def test_a_topic_re_created_while_its_marker_was_processed_is_another(
    harness: Markers,
) -> None:
    harness.stored.observe(TopicRecord(name="t", topic_id=OLD))
    harness.stored.observe(RemoveTopicRecord(topic_id=OLD), TopicRecord(name="t", topic_id=NEW))
    harness.found(topic=5, marker=6)
    assert not harness.is_queued()
    harness.found(topic=7, marker=6)
    assert harness.erased == [Delete(paths.marker("t"))]


def test_a_marker_that_was_removed_meanwhile_has_no_effect(harness: Markers) -> None:
    harness.stored.observe(TopicRecord(name="t", topic_id=NEW))
    harness.found(topic=6, marker=None)
    assert not harness.is_queued()
    assert harness.erased == []


@pytest.mark.parametrize("marker", [None, 7])
def test_a_removed_marker_is_reported_once_it_is_certain(
    harness: Markers, marker: int | None
) -> None:
    """A marker that is written again at once would be missed: the set of markers is the same."""
    harness.refusal = ZkError(ZkCode.NO_AUTH)
    harness.requests.process_markers(("t",))
    assert harness.removed == []
    harness.found(topic=None, marker=marker)
    assert harness.removed == ([] if marker else ["t"])
    harness.refusal = None
    harness.wait(RETRY_FIRST_MS)
    if marker:
        harness.found(topic=None, marker=marker)
    assert harness.removed == ["t"]
    assert harness.sought == {}


def test_an_existing_marker_is_not_reported_as_removed(harness: Markers) -> None:
    harness.stored.observe(TopicRecord(name="t", topic_id=NEW))
    harness.found(topic=6, marker=7)
    assert harness.is_queued()
    assert harness.removed == []


def test_a_marker_is_processed_when_its_previous_deletion_ends(harness: Markers) -> None:
    begun = DeletionImage(topic_id=OLD, name="t", policy=Policy.CLASSIC, asked_ms=5)
    begun = begun.with_status(1, STARTED, (0,))
    harness.stored.observe(TopicRecord(name="t", topic_id=OLD), *deletion_records(begun))
    assert harness.sought == {}, "it has a deletion"
    harness.stored.observe(RemoveTopicRecord(topic_id=OLD), TopicRecord(name="t", topic_id=NEW))
    harness.found(topic=7, marker=6)
    harness.erased.clear()  # Had that failed:
    harness.stored.observe(ForgetDeletionRecord(topic_id=OLD))
    harness.found(topic=7, marker=6)
    assert harness.erased == [Delete(paths.marker("t"))]


def test_many_markers_are_one_decision(harness: Markers) -> None:
    names = [f"t{number:03}" for number in range(700)]
    harness.stored.observe(
        *(TopicRecord(name=each, topic_id=Uuid(each.encode().ljust(16))) for each in names)
    )
    harness.requests.process_markers(names)
    while harness.sought:
        _path, answer = harness.sought.popitem()
        answer.complete(Stat(1, 1, 0, 0, 0, 0, 0))
    assert harness.stored.store is not None
    [step] = harness.stored.store.steps
    assert len(step.records) == len(names)


def test_a_failure_is_retried_after_a_backoff(harness: Markers) -> None:
    harness.stored.observe(TopicRecord(name="t", topic_id=NEW))
    harness.fail(ZkCode.SYSTEM_ERROR)
    harness.wait(RETRY_FIRST_MS - 1)
    assert harness.sought == {}
    harness.wait(1)
    harness.fail(ZkCode.SYSTEM_ERROR)
    harness.wait(2 * RETRY_FIRST_MS - 1)
    assert harness.sought == {}, "it fails again: the pause is longer"
    harness.wait(1)
    harness.found(topic=6, marker=7)
    assert harness.is_queued()
    assert len(harness.timers) == 0


def test_an_unexpected_exception_is_retried_too(
    harness: Markers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object, **_named: object) -> Any:
        raise KeyError("t")

    monkeypatch.setattr("ottla.host.zookeeper.marker_requests.read_each", fail)
    harness.stored.observe(TopicRecord(name="t", topic_id=NEW))
    monkeypatch.undo()
    harness.wait(RETRY_FIRST_MS)
    harness.found(topic=6, marker=7)
    assert harness.is_queued()


def test_a_marker_in_backoff_is_not_processed_before_its_end(harness: Markers) -> None:
    harness.stored.observe(TopicRecord(name="t", topic_id=NEW))
    harness.fail(ZkCode.SYSTEM_ERROR)
    harness.requests.process_markers(("t", "u"))
    assert sorted(harness.sought) == sorted((paths.topic("u"), paths.marker("u")))
    for path in (paths.topic("u"), paths.marker("u")):
        harness.sought.pop(path).complete(None)
    assert harness.sought == {}
    harness.wait(RETRY_FIRST_MS)
    harness.found(topic=6, marker=7)
    assert harness.is_queued()


@pytest.mark.parametrize(
    "refusal", [ZkError(ZkCode.NO_AUTH), Changed(frozenset({paths.marker("t")}))]
)
def test_a_marker_that_could_not_be_erased_is_erased_later(
    harness: Markers, refusal: Written | ZkError
) -> None:
    harness.refusal = refusal
    harness.requests.process_markers(("t",))
    harness.found(topic=None, marker=7)
    assert harness.erased == []
    harness.refusal = None
    harness.wait(RETRY_FIRST_MS)
    harness.found(topic=None, marker=7)
    assert harness.erased == [Delete(paths.marker("t"))]
    assert len(harness.timers) == 0


def test_a_marker_removed_during_the_backoff_is_dropped(harness: Markers) -> None:
    harness.stored.observe(TopicRecord(name="t", topic_id=NEW))
    harness.fail(ZkCode.SYSTEM_ERROR)
    harness.wait(RETRY_FIRST_MS)
    harness.found(topic=6, marker=None)
    harness.wait(RETRY_MS_MAX)
    assert harness.sought == {}
    assert not harness.is_queued()


def test_nothing_is_processed_once_the_term_is_over(harness: Markers) -> None:
    harness.requests.process_markers(("t",))
    harness.fail(ZkCode.SYSTEM_ERROR)
    harness.requests.stop()
    assert len(harness.timers) == 0
    harness.requests.process_markers(("t",))
    assert harness.sought == {}


def test_a_failure_as_the_term_ends_sets_no_timer(harness: Markers) -> None:
    harness.requests.process_markers(("t",))
    harness.requests.stop()
    harness.fail(ZkCode.SYSTEM_ERROR)
    assert len(harness.timers) == 0


def test_the_end_of_the_session_is_no_failure(harness: Markers) -> None:
    """The next controller looks at all markers."""
    harness.requests.process_markers(("t",))
    harness.fail(ZkCode.SESSION_EXPIRED)
    assert len(harness.timers) == 0
