"""A follower learns where to begin behind remote records, whatever leader and store answer.

Method: the test is the leader and the object store, which answer at once or when it says so. By
hand: each answer there is. Then drawn histories of leaders, in which a follower must get the
leader's own epochs, an offset that the leader has, and producers of this offset.
"""

from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ApiError, Error
from ottla.base.object_store import Failure, ObjectStore
from ottla.base.pending import Pending
from ottla.base.timers import Timers
from ottla.broker.remote.aux_state_builder import BUILD_MS_MAX, BUILDS_MAX, AuxStateBuilder, Build
from ottla.broker.remote.reads.range_reads import RangeReads
from ottla.broker.remote.remote_metrics import RemoteMetrics
from ottla.broker.replication.remote_log_port import (
    AllLocal,
    AuxState,
    AuxStateFailed,
    AuxStateOutcome,
    LeaderStarts,
    Problem,
)
from ottla.log.epoch_cache import EpochCache, EpochEnd, EpochEntry
from ottla.log.partition_log import PartitionLog
from ottla.log.producers.producer_snapshot import decode_snapshot, encode_snapshot
from ottla.log.producers.producer_state import ProducerEntry
from ottla.log.remote_prefix import RemotePrefix
from ottla.tiered.object_names import ObjectKind, object_name
from ottla.tiered.segment_metadata import Epochs, SegmentMetadata
from tests.unit.broker.harness import FakeClock
from tests.unit.broker.remote.harness import HeldStore
from tests.unit.broker.remote.support import RemoteLog
from tests.unit.tiered.support import DELETING, FINISHED, STARTED, TOPIC_ID, segment


def epochs_of(entries: Epochs) -> EpochCache:
    return EpochCache(EpochEntry(*each) for each in entries)


def snapshot(offset: int) -> bytes:
    """Return a producer snapshot that tells its offset."""
    return encode_snapshot([ProducerEntry(producer_id=offset, epoch=0, last_timestamp=1)])


@dataclass
class Leader:
    """The leader's log. `refusal`: answers from question number `refused_from` on."""

    epochs: EpochCache
    start: int
    local_start: int
    end: int
    refusal: ApiError | None = None
    refused_from: int = 0
    held: bool = False
    asked: list[object] = field(default_factory=list)
    waiting: list[tuple[Pending[Any], Any]] = field(default_factory=list)

    def starts(self) -> Pending[LeaderStarts | ApiError]:
        epoch = self.epochs.epoch_of(self.local_start)
        return self._answer("starts", LeaderStarts(self.start, self.local_start, epoch))

    def epoch_end(self, epoch: int) -> Pending[EpochEnd | ApiError]:
        return self._answer(epoch, self.epochs.end_offset(epoch, self.end))

    def _answer(self, question: object, answer: Any) -> Pending[Any]:
        refused = self.refusal is not None and len(self.asked) >= self.refused_from
        self.asked.append(question)
        promise: Pending[Any] = Pending()
        self.waiting.append((promise, self.refusal if refused else answer))
        if not self.held:
            self.answer()
        return promise

    def answer(self) -> None:
        promise, answer = self.waiting.pop(0)
        promise.complete(answer)


class Bench:
    """A builder, the remote segments that its broker knows, and their objects."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.clock = FakeClock(self.timers)
        self.store = HeldStore()
        self.remote: RemoteLog | None = RemoteLog()
        self.metrics = RemoteMetrics()
        reads = RangeReads(cast(ObjectStore, self.store), self.clock, self.timers)
        self.builder = AuxStateBuilder(
            reads,
            lambda topic_id, partition: self.remote,
            self.metrics,
            self.clock,
            self.timers,
        )
        self.log = cast(PartitionLog, Log())

    def copy(self, number: int, start: int, end: int, epochs: EpochCache) -> SegmentMetadata:
        """Copy [start, end] of a log with these epochs to the store."""
        assert self.remote is not None
        own = tuple(tuple(each) for each in epochs.between(start, end + 1))
        made = segment(number, start, end, cast(Epochs, own), state=FINISHED)
        self.remote.known.append(made)
        until = EpochCache(epochs.entries)
        until.truncate_from_end(end + 1)
        self.put(made, ObjectKind.LEADER_EPOCHS, until.encode())
        self.put(made, ObjectKind.PRODUCER_SNAPSHOT, snapshot(end + 1))
        return made

    def put(self, of: SegmentMetadata, kind: ObjectKind, data: bytes) -> None:
        self.store.objects[object_name(of, kind)] = data

    def begin(self, leader: Leader) -> Build:
        return self.builder.build(self.log, leader)

    def built(self, leader: Leader) -> AuxStateOutcome:
        build = self.begin(leader)
        self.clock.advance(BUILD_MS_MAX + 1)
        assert build.outcome.done
        assert self.timers.next_ms() is None
        return build.outcome.value

    def failed(self, leader: Leader) -> Problem:
        outcome = self.built(leader)
        assert isinstance(outcome, AuxStateFailed), outcome
        return outcome.problem

    @property
    def counted(self) -> tuple[int, int]:
        of_topic = self.metrics.of_topic("orders")
        return of_topic.build_aux_state_requests, of_topic.build_aux_state_errors


class Log:
    """What a builder asks of a log: whose it is."""

    topic = "orders"
    topic_id = TOPIC_ID
    partition = 0


EPOCHS: Epochs = ((0, 0), (2, 30), (5, 70))


def leader_of(
    epochs: Epochs = EPOCHS, *, start: int = 10, local: int = 60, end: int = 100
) -> Leader:
    return Leader(epochs_of(epochs), start, local, end)


def copied(bench: Bench, *ends: int, epochs: Epochs = EPOCHS) -> list[SegmentMetadata]:
    """Copy segments up to these ends, the first from offset 0 on."""
    starts = (0, *(end + 1 for end in ends))
    cache = epochs_of(epochs)
    return [
        bench.copy(number, start, end, cache)
        for number, (start, end) in enumerate(zip(starts, ends, strict=False), start=1)
    ]


def state(outcome: AuxStateOutcome) -> tuple[int, int, tuple[EpochEntry, ...], int | None]:
    """Return offset, log start, epochs, and the offset of the producers' state."""
    assert isinstance(outcome, AuxState), outcome
    prefix: RemotePrefix = outcome.prefix
    producers = None
    if prefix.producers is not None:
        (entry,) = decode_snapshot(prefix.producers)
        producers = entry.producer_id
    assert prefix.epochs is not None
    return outcome.offset, prefix.log_start_offset, prefix.epochs, producers


# --- where to begin ---------------------------------------------------------------------------


def test_a_follower_begins_where_the_local_log_of_its_leader_does() -> None:
    bench, leader = Bench(), leader_of()
    copied(bench, 19, 39, 59, 79)
    assert state(bench.built(leader)) == (60, 10, ((0, 10), (2, 30)), 60)
    assert leader.asked == ["starts", 1]
    assert bench.counted == (1, 0)


@pytest.mark.parametrize(
    ("local", "epochs", "asked"),
    [
        (30, ((0, 10),), 1),  # The record before is of the epoch before.
        (70, ((0, 10), (2, 30)), 4),
        (71, ((0, 10), (2, 30), (5, 70)), 4),
        (100, ((0, 10), (2, 30), (5, 70)), 4),  # Nothing is local.
    ],
)
def test_the_epoch_of_the_record_before(local: int, epochs: Epochs, asked: int) -> None:
    bench, leader = Bench(), leader_of(local=local)
    copied(bench, local - 1)
    assert state(bench.built(leader)) == (local, 10, epochs, local)
    assert leader.asked == ["starts", asked]


def test_epoch_0_has_none_before() -> None:
    bench, leader = Bench(), leader_of(((0, 0),))
    copied(bench, 59, epochs=((0, 0),))
    assert state(bench.built(leader)) == (60, 10, ((0, 10),), 60)
    assert leader.asked == ["starts"]


def test_a_segment_that_ends_later_is_not_copied_again() -> None:
    """A former leader rolled it elsewhere; the producers' state is that of its end."""
    bench, leader = Bench(), leader_of()
    copied(bench, 39, 79)
    assert state(bench.built(leader)) == (80, 10, ((0, 10), (2, 30), (5, 70)), 80)
    assert leader.asked == ["starts", 1, 5]


def test_of_several_segments_the_one_that_ends_next_is_taken() -> None:
    bench, leader = Bench(), leader_of()
    cache = epochs_of(EPOCHS)
    for number, (start, end) in enumerate([(0, 90), (20, 65), (50, 80)]):
        bench.copy(number, start, end, cache)
    assert state(bench.built(leader))[0] == 66


@pytest.mark.parametrize(
    "epochs",
    [
        ((0, 0), (2, 30), (6, 62)),  # Epoch 5 is not the leader's.
        ((0, 0), (2, 30), (5, 62), (6, 70)),  # It ended sooner.
    ],
)
def test_records_that_the_leader_lacks_are_left_out(epochs: Epochs) -> None:
    """After an unclean election; a producer's retry of such a record must be appended."""
    bench, leader = Bench(), leader_of(epochs)
    copied(bench, 39, 79, epochs=((0, 0), (2, 30), (5, 62)))
    assert state(bench.built(leader)) == (60, 10, ((0, 10), (2, 30)), None)


def test_nothing_is_built_where_all_records_are_local() -> None:
    bench, leader = Bench(), leader_of(local=10)
    assert bench.built(leader) == AllLocal(10)
    assert bench.counted == (1, 0)


def test_the_epochs_before_the_segments_own_are_the_leaders() -> None:
    """Its leader's log began at offset 50, in memory, when it failed."""
    bench = Bench()
    leader = leader_of(((1, 0), (2, 15), (4, 30), (5, 55)), start=10)
    bench.copy(1, 40, 59, epochs_of(((4, 50), (5, 55))))
    expected = ((1, 10), (2, 15), (4, 30), (5, 55))
    assert state(bench.built(leader)) == (60, 10, expected, 60)
    assert leader.asked == ["starts", 4, 3, 1, 0]


def test_a_log_start_that_moves_meanwhile_is_asked_again() -> None:
    bench = Bench()
    leader = leader_of(((2, 25), (4, 30), (5, 55)), start=10)
    bench.copy(1, 40, 59, epochs_of(((4, 50), (5, 55))))
    assert bench.failed(leader) is Problem.LEADER


# --- failures -----------------------------------------------------------------------------------


def test_metadata_that_are_not_read_yet() -> None:
    """KAFKA-19523: the leader need not be asked."""
    bench, leader = Bench(), leader_of()
    bench.remote = None
    assert bench.failed(leader) is Problem.NOT_READY
    assert leader.asked == []
    assert bench.counted == (1, 1)


def test_metadata_that_are_read_again_meanwhile() -> None:
    bench, leader = Bench(), leader_of()
    leader.held = True
    build = bench.begin(leader)
    bench.remote = None
    while leader.waiting:
        leader.answer()
    assert build.outcome.value == AuxStateFailed(Problem.NOT_READY)


@pytest.mark.parametrize("question", [0, 1, 2])
@pytest.mark.parametrize(
    "error",
    [
        Error.FENCED_LEADER_EPOCH,
        Error.UNKNOWN_LEADER_EPOCH,
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.KAFKA_STORAGE_ERROR,
        Error.REQUEST_TIMED_OUT,
        Error.NETWORK_EXCEPTION,
    ],
)
def test_a_leader_that_refuses(question: int, error: Error) -> None:
    bench, leader = Bench(), leader_of()
    leader.refusal, leader.refused_from = ApiError(error), question
    copied(bench, 39, 79)
    outcome = bench.built(leader)
    assert isinstance(outcome, AuxStateFailed)
    assert outcome.problem is Problem.LEADER
    assert error.name in str(outcome)
    assert bench.store.count == 0


def test_a_leader_without_the_epoch_of_its_local_start() -> None:
    bench = Bench()
    copied(bench, 59)
    assert bench.failed(leader_of(((7, 90),))) is Problem.LEADER


@pytest.mark.parametrize("what", ["none", "started", "deleting", "another epoch", "earlier"])
def test_no_segment(what: str) -> None:
    bench = Bench()
    (only,) = copied(bench, 49 if what == "earlier" else 59)
    assert bench.remote is not None
    bench.remote.known = {
        "none": [],
        "started": [replace(only, state=STARTED)],
        "deleting": [replace(only, state=DELETING)],
        "another epoch": [replace(only, epochs=((0, 0), (3, 30)), state=FINISHED)],
        "earlier": [only],
    }[what]
    assert bench.failed(leader_of()) is Problem.NO_SEGMENT


@pytest.mark.parametrize("kind", [ObjectKind.LEADER_EPOCHS, ObjectKind.PRODUCER_SNAPSHOT])
def test_a_missing_object(kind: ObjectKind) -> None:
    bench = Bench()
    (only,) = copied(bench, 59)
    del bench.store.objects[object_name(only, kind)]
    assert bench.failed(leader_of()) is Problem.MISSING
    assert bench.counted == (1, 1)


@pytest.mark.parametrize("failure", [Failure.UNAVAILABLE, Failure.DENIED, Failure.TIMED_OUT])
def test_a_store_that_fails(failure: Failure) -> None:
    bench = Bench()
    copied(bench, 59)
    bench.store.failure = failure
    assert bench.failed(leader_of()) is Problem.STORE
    assert bench.store.count > 1, "it was tried again"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(100),
        b"0\n1\n",
        b"0\n1\n0 0\n",  # Of another segment: epoch 2 is missing.
        b"0\n2\n0 0\n2 31\n",
        b"0\n2\n0 0\n3 30\n",
        b"0\n3\n0 0\n2 30\n4 50\n",
        b"0\n1\n-1 0\n",
        "0\n1\n\u00e9 0\n".encode("latin-1"),
    ],
)
def test_damaged_leader_epochs(data: bytes) -> None:
    bench = Bench()
    (only,) = copied(bench, 59)
    bench.put(only, ObjectKind.LEADER_EPOCHS, data)
    assert bench.failed(leader_of()) is (Problem.DAMAGED if data else Problem.STORE)


def test_a_damaged_producer_snapshot() -> None:
    bench = Bench()
    (only,) = copied(bench, 59)
    whole = snapshot(60)
    for data in (whole[:-1], whole[:10] + b"\x01" + whole[11:], b"\0\2" + whole[2:], b"x"):
        bench.put(only, ObjectKind.PRODUCER_SNAPSHOT, data)
        assert bench.failed(leader_of()) is Problem.DAMAGED


@pytest.mark.parametrize("who", ["leader", "store"])
def test_what_does_not_answer_is_given_up(who: str) -> None:
    bench, leader = Bench(), leader_of()
    copied(bench, 59)
    leader.held, bench.store.held = who == "leader", who == "store"
    build = bench.begin(leader)
    bench.clock.advance(BUILD_MS_MAX - 1)
    assert not build.outcome.done
    bench.clock.advance(1)
    assert build.outcome.value == AuxStateFailed(Problem.TIMED_OUT)
    assert bench.store.calls == [], "it was cancelled"
    for promise, answer in leader.waiting:
        promise.complete(answer)  # Too late.


def test_a_bug_is_a_failure_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    monkeypatch.setattr(bench.remote, "segments", None)
    assert bench.failed(leader_of()) is Problem.BUG
    assert state_after_failures(bench)


# --- several at once ----------------------------------------------------------------------------


def state_after_failures(bench: Bench) -> bool:
    """Tell whether as many may be built at once as at the beginning."""
    bench.remote = RemoteLog()
    copied(bench, 59)
    leaders = [leader_of() for _ in range(BUILDS_MAX)]
    for each in leaders:
        each.held = True
        bench.begin(each)
    return all(each.asked == ["starts"] for each in leaders)


def test_a_limited_number_is_built_at_once() -> None:
    bench = Bench()
    copied(bench, 59)
    leaders = [leader_of() for _ in range(BUILDS_MAX + 2)]
    for each in leaders:
        each.held = True
    builds = [bench.begin(each) for each in leaders]
    assert [len(each.asked) for each in leaders] == [1] * BUILDS_MAX + [0, 0]
    builds[-2].cancel()
    builds[0].cancel()
    assert [len(each.asked) for each in leaders[-2:]] == [0, 1]
    assert not builds[0].outcome.done
    for each in leaders[1:]:
        each.held = False
        while each.waiting:
            each.answer()
    assert [build.outcome.done for build in builds] == [False, *[True] * 9, False, True]
    assert bench.timers.next_ms() is None
    assert state_after_failures(bench)


@pytest.mark.parametrize("at", ["leader", "store"])
def test_a_cancelled_build_leaves_nothing(at: str) -> None:
    bench, leader = Bench(), leader_of()
    copied(bench, 59)
    leader.held, bench.store.held = at == "leader", True
    build = bench.begin(leader)
    build.cancel()
    build.cancel()
    assert (bench.store.calls, bench.timers.next_ms()) == ([], None)
    for promise, answer in leader.waiting:
        promise.complete(answer)
    assert not build.outcome.done
    assert bench.counted == (1, 0)
    bench.store.held = False
    assert state_after_failures(bench)


# --- histories ----------------------------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[list[int]], int, list[tuple[int, int, int]]]:
    """Draw logs of leaders (the epoch of each offset), who leads, and who copied which segments."""
    logs: list[list[int]] = [[0] * draw(st.integers(1, 10))]
    for epoch in range(1, draw(st.integers(2, 6))):
        before = draw(st.sampled_from(logs))
        kept = draw(st.integers(0, len(before)))
        logs.append(before[:kept] + [epoch] * draw(st.integers(1, 8)))
    copies: list[tuple[int, int, int]] = []
    for number, log in enumerate(logs):
        start = draw(st.integers(0, len(log) - 1))
        while start < len(log):
            end = draw(st.integers(start, len(log) - 1))
            copies.append((number, start, end))
            start = end + 1
    return logs, draw(st.integers(0, len(logs) - 1)), copies


def cache_of(log: list[int], start: int = 0) -> EpochCache:
    cache = EpochCache()
    for offset in range(start, len(log)):
        cache.assign(log[offset], offset)
    return cache


@given(histories(), st.data())
def test_histories(
    history: tuple[list[list[int]], int, list[tuple[int, int, int]]], data: st.DataObject
) -> None:
    logs, leads, copies = history
    own = logs[leads]
    start = data.draw(st.integers(0, len(own) - 1))
    local = data.draw(st.integers(start + 1, len(own)))
    bench = Bench()
    known_from = {number: data.draw(st.integers(0, 3)) for number in range(len(logs))}
    for number, (by, first, last) in enumerate(copies):
        if first >= known_from[by]:
            bench.copy(number, first, last, cache_of(logs[by], known_from[by]))
    leader = Leader(cache_of(own, start), start, local, len(own))
    outcome = bench.built(leader)
    has_segment = any(
        first <= local - 1 <= last and logs[by][local - 1] == own[local - 1]
        for by, first, last in copies
        if first >= known_from[by]
    )
    if isinstance(outcome, AuxStateFailed):
        assert outcome.problem is Problem.NO_SEGMENT
        assert not has_segment
        return
    assert has_segment
    offset, log_start, epochs, producers = state(outcome)
    assert log_start == start
    assert local <= offset <= len(own)
    expected = cache_of(own[:offset], start)
    assert epochs == expected.entries
    if producers is None:
        assert offset == local
    else:
        assert producers == offset
