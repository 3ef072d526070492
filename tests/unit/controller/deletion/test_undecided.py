"""Events of deletions are kept until they are decided, and one topic waits for no other.

Method: notes on topics, taken as a controller does that cannot write some of them; time by hand.
"""

import sys
from collections.abc import Callable, Collection, Sequence
from types import FrameType

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.controller.deletion.deletion_manager import Undecided
from ottla.controller.deletion.deletion_policy import Replica
from ottla.controller.retry_queue import (
    RETRY_FIRST_MS,
    RETRY_MS_MAX,
    TAKEN_MAX,
    Pause,
    RetryQueue,
)
from tests.unit.controller.builders import uuid

TOPICS = sorted(uuid(f"t{number}") for number in range(64))


def drain(notes: Undecided, *, bad: Collection[Uuid] = (), now_ms: int = 0) -> list[list[Uuid]]:
    """Decide all that can be taken; what contains a bad topic is refused. Return what was taken."""
    rounds = []
    while notes.queue.has_any:
        taken = list(notes.take())
        rounds.append(taken)
        if set(taken).isdisjoint(bad):
            notes.decided()
        else:
            notes.refused(now_ms)
    return rounds


def test_a_topic_that_is_refused_is_found_by_halving_and_the_others_are_decided() -> None:
    notes = Undecided()
    notes.schedule(TOPICS)
    rounds = drain(notes, bad=TOPICS[:1])
    assert rounds[0] == TOPICS
    assert len(rounds) == 1 + 2 * 6
    alone = [each for each in rounds if set(each).isdisjoint(TOPICS[:1])]
    assert sorted(topic for each in alone for topic in each) == TOPICS[1:]
    assert notes.queue.due_ms == RETRY_FIRST_MS


def test_what_was_refused_alone_is_taken_alone_after_a_pause_that_grows() -> None:
    notes = Undecided()
    notes.schedule(TOPICS[:2])
    drain(notes, bad=TOPICS[:1])
    now_ms, pauses = 0, []
    for _ in range(9):
        due_ms = notes.queue.due_ms
        assert due_ms is not None
        pauses.append(due_ms - now_ms)
        notes.schedule(TOPICS)
        assert drain(notes) == [TOPICS[1:]], "it has its backoff, whatever events come"
        now_ms = due_ms
        notes.queue.end_pauses(now_ms)
        assert drain(notes, bad=TOPICS[:1], now_ms=now_ms) == [TOPICS[:1]]
    assert pauses[:3] == [RETRY_FIRST_MS, 2 * RETRY_FIRST_MS, 4 * RETRY_FIRST_MS]
    assert pauses[-1] == RETRY_MS_MAX
    assert notes.queue.due_ms is not None
    notes.queue.end_pauses(notes.queue.due_ms)
    assert drain(notes) == [TOPICS[:1]]
    assert notes.queue.due_ms is None


def test_events_before_and_after_a_refusal_are_decided_together() -> None:
    notes = Undecided()
    first, second = (Replica(broker_id, TOPICS[0], 0) for broker_id in (1, 2))
    notes.of(TOPICS[0]).results[first] = Error.NONE
    notes.of(TOPICS[0]).lost.add(second)
    notes.take()
    notes.of(TOPICS[0]).results[second] = Error.KAFKA_STORAGE_ERROR
    notes.of(TOPICS[0]).lost.add(first)
    notes.refused(0)
    notes.queue.end_pauses(RETRY_FIRST_MS)
    [note] = notes.take().values()
    assert note.results == {first: Error.NONE, second: Error.KAFKA_STORAGE_ERROR}
    assert note.lost == {first, second}


def test_events_during_a_decision_are_decided_after_it() -> None:
    notes = Undecided()
    notes.schedule(TOPICS[:1])
    notes.take()
    lost = Replica(1, TOPICS[0], 0)
    notes.of(TOPICS[0]).lost.add(lost)
    notes.decided()
    [note] = notes.take().values()
    assert note.lost == {lost}


def test_events_during_a_decision_after_a_backoff_wait_for_no_other_backoff() -> None:
    notes = Undecided()
    notes.schedule(TOPICS[:1])
    drain(notes, bad=TOPICS[:1])
    notes.schedule(TOPICS[:1])
    assert not notes.queue.has_any
    notes.queue.end_pauses(RETRY_FIRST_MS)
    assert list(notes.take()) == TOPICS[:1]
    notes.schedule(TOPICS[:2])
    notes.decided()
    assert drain(notes) == [TOPICS[:2]]
    assert notes.queue.due_ms is None


def test_pauses_end_each_in_its_time() -> None:
    notes = Undecided()
    for now_ms, topic_id in enumerate(TOPICS[:3]):
        notes.schedule([topic_id])
        drain(notes, bad=[topic_id], now_ms=now_ms)
    assert notes.queue.due_ms == RETRY_FIRST_MS
    notes.queue.end_pauses(RETRY_FIRST_MS + 1)
    assert notes.queue.due_ms == RETRY_FIRST_MS + 2
    assert sorted(drain(notes)) == [[each] for each in TOPICS[:2]]
    notes.queue.end_pauses(RETRY_FIRST_MS + 1)
    assert not notes.queue.has_any


def test_what_an_event_costs_does_not_grow_with_what_is_paused() -> None:
    def one_event(paused: int) -> int:
        notes = Undecided()
        bad = [uuid(f"bad{number}") for number in range(paused)]
        notes.schedule(bad)
        drain(notes, bad=bad)
        notes.schedule(TOPICS[:1])

        def event() -> None:
            notes.queue.end_pauses(0)
            assert (notes.queue.has_any, notes.queue.due_ms) == (True, RETRY_FIRST_MS)
            assert list(notes.take()) == TOPICS[:1]
            notes.decided()
            assert not notes.queue.has_any

        return calls_of(event)

    assert one_event(300) == one_event(3)


def calls_of(act: Callable[[], None]) -> int:
    """Return how many functions run, or generators go on, while something is done."""
    calls = 0

    def count(_frame: FrameType, _event: str, _argument: object) -> None:
        nonlocal calls
        calls += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(before)
    return calls


def test_a_result_waits_until_it_is_taken() -> None:
    notes, replica = Undecided(), Replica(1, TOPICS[0], 0)
    assert not notes.has_result(replica)
    notes.of(TOPICS[0]).results[replica] = Error.NONE
    assert notes.has_result(replica)
    assert not notes.has_result(replica._replace(partition=1))
    notes.take()
    assert not notes.has_result(replica)
    notes.refused(0)
    assert notes.has_result(replica)


def test_a_decision_is_of_so_many_topics_at_most() -> None:
    notes = Undecided()
    notes.schedule(uuid(f"t{number}") for number in range(TAKEN_MAX + 1))
    assert [len(each) for each in drain(notes)] == [TAKEN_MAX, 1]


def test_keys_of_different_size_are_taken_by_what_they_are_together() -> None:
    """What is left of a part that failed stays apart from the others."""
    queue: RetryQueue[int] = RetryQueue()

    def count(keys: Sequence[int]) -> int:
        return min(2, len(keys))

    queue.add(range(5))
    taken = queue.take(count)
    assert taken == [0, 1]
    queue.failed(taken, 0)
    assert [queue.take(count) for _ in range(2)] == [[0], [1]]
    queue.add(range(5, 12))
    failed = queue.take()
    assert failed == list(range(2, 12))
    queue.failed(failed, 0)
    found = []
    while queue.has_any:
        found.append(queue.take(count))
    assert found == [[2, 3], [4, 5], [6], [7, 8], [9, 10], [11]]


def test_a_pause_is_short_again_once_an_attempt_did_not_fail() -> None:
    pause = Pause()
    for _ in range(3):
        pause.begin(0)
        assert pause.due_ms is not None
        pause.end(pause.due_ms)
    pause.begin(RETRY_MS_MAX)
    assert pause.due_ms == RETRY_MS_MAX + 8 * RETRY_FIRST_MS
    ended_ms = pause.due_ms
    pause.end(ended_ms)
    pause.begin(ended_ms + RETRY_MS_MAX + 1)
    assert pause.due_ms == ended_ms + RETRY_MS_MAX + 1 + RETRY_FIRST_MS
