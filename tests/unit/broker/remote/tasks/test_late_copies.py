"""What a copier does late, after tiered storage was turned off, brings nothing back.

Method: a leader copies two segments and is held at one operation of the second copy, one run for
each. Meanwhile the topic is disabled, with either policy, and perhaps enabled again: by a next
leader, while the first one has not heard of it, or by the same one, whose operations are executed
late. Then it goes on, and all brokers restart. Whoever replays the metadata has the same image;
what is readable is in the store, and nothing else is.
"""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from ottla.metadata.tiering import DisablePolicy, TieringState, TopicTiering
from ottla.tiered.segment_metadata import SegmentState
from tests.unit.broker.remote.copy_bench import ENABLED, HOUR_S, TOPIC_ID, Bench, BenchBroker
from tests.unit.broker.remote.tasks.late_copies import HeldCopier

EPOCH = 6
RETAIN = TopicTiering(
    topic_id=TOPIC_ID,
    state=TieringState.DISABLING,
    tiered_epoch=2,
    policy=DisablePolicy.RETAIN,
)
DELETE = TopicTiering(
    topic_id=TOPIC_ID,
    state=TieringState.DISABLING,
    tiered_epoch=2,
    policy=DisablePolicy.DELETE,
    remote_floor_epoch=1,
    purge_pending=True,
)
RETAINED_AND_ENABLED = TopicTiering(topic_id=TOPIC_ID, tiered_epoch=3)
DELETED_AND_ENABLED = TopicTiering(
    topic_id=TOPIC_ID, tiered_epoch=3, remote_floor_epoch=1, purge_pending=True
)


class Story(NamedTuple):
    """The tiering states that follow while the copier is held, and what is readable in the end."""

    states: tuple[TopicTiering, ...]
    readable: tuple[tuple[int, int], ...]


STORIES = {
    "retain": Story((RETAIN,), ((0, 10),)),
    "delete": Story((DELETE,), ()),
    "retain, enabled": Story((RETAIN, RETAINED_AND_ENABLED), ((0, 10), (10, 20))),
    "delete, enabled": Story((DELETE, DELETED_AND_ENABLED), ((0, 10), (10, 20))),
}


def next_leader(bench: Bench, copier: BenchBroker, states: tuple[TopicTiering, ...]) -> BenchBroker:
    """Another broker leads; the copier does not know of it yet."""
    leader = bench.broker(2)
    leader.copy_of(copier)
    leader.lead(EPOCH + 1, states[0])
    bench.run(10)
    for each in states[1:]:
        leader.retier(each)
        bench.run(10)
    return leader


def same_leader(bench: Bench, copier: BenchBroker, states: tuple[TopicTiering, ...]) -> BenchBroker:
    """The copier gets the new state, and ends its copy; what it has sent is executed later."""
    held = copier.life.environment.metadata
    assert isinstance(held, HeldCopier)
    held.hold_at = None
    for each in states:
        copier.retier(each)
        bench.run(10)
    return copier


Change = Callable[[Bench, BenchBroker, tuple[TopicTiering, ...]], BenchBroker]


def run(hold_at: int | None, story: Story, change: Change, *, is_over: bool = False) -> list[str]:
    """Return the names of the copier's operations. `is_over`: the copy is finished before it."""
    bench = Bench(metadata_lag_ms=30)
    copier = bench.broker(1)
    copier.fill(1)
    copier.lead(EPOCH)
    bench.run(10)
    assert bench.readable() == [(0, 10)]
    held = HeldCopier(copier.life, hold_at)
    copier.produce(7, epoch=EPOCH)
    copier.roll()
    bench.run(10)
    names = list(held.names)
    if hold_at is None:
        return names
    assert held.is_held
    leader = change(bench, copier, story.states)
    assert "DISABLING" in {each.state.name for each in story.states}
    held.release()
    bench.run(HOUR_S)
    for each in {copier, leader}:
        each.start()
    for each in {copier, leader} - {leader}:
        each.follow(story.states[-1])
    leader.lead(EPOCH + 2, story.states[-1])
    bench.run(HOUR_S)
    retains = RETAIN in story.states
    bench.check(leader, sorted({*story.readable, *([(10, 20)] if is_over and retains else [])}))
    images = {
        (each.life.reader.remote_log(TOPIC_ID, 0) or bench.metadata.replayed()).image()
        for each in (copier, leader)
    }
    assert images == {bench.metadata.replayed().image()}
    return names


@pytest.mark.forms(2)
@pytest.mark.parametrize("change", [next_leader, same_leader])
@pytest.mark.parametrize("name", STORIES)
def test_a_copier_that_is_held_at_each_operation(name: str, change: Change) -> None:
    names = run(None, STORIES[name], change)
    assert names[0] == "append SegmentMetadata"
    assert names.count("put") >= 5
    finished = names.index("append SegmentUpdate")
    for hold_at in range(len(names)):
        try:
            run(hold_at, STORIES[name], change, is_over=hold_at > finished)
        except AssertionError as error:
            raise AssertionError(f"held at {hold_at}, {names[hold_at]}: {error}") from error


def test_the_enumeration_has_copies_of_all_kinds() -> None:
    """Else a run that proves nothing would be green."""
    bench = Bench(metadata_lag_ms=30)
    copier = bench.broker(1)
    copier.fill(1)
    copier.lead(EPOCH)
    bench.run(10)
    held = HeldCopier(copier.life, 4)
    copier.produce(7, epoch=EPOCH)
    copier.roll()
    bench.run(10)
    next_leader(bench, copier, (DELETE,))
    states = {each.start_offset: each.state for each in bench.segments()}
    assert states == {0: SegmentState.DELETE_STARTED, 10: SegmentState.DELETE_STARTED}
    held.release()
    bench.run(10)
    late = [each for each in bench.model.history if each.client == "broker-1"]
    assert any(each.operation == "put" for each in late[-4:])
    assert ENABLED.tiered_epoch < DELETE.tiered_epoch
