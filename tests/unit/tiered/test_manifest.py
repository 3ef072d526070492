"""Following chains of manifests: holes, stale writers, floors, bases."""

from dataclasses import replace

import pytest

from ottla.tiered.manifest import Manifest, ManifestState, advance, first_to_read, follow
from ottla.tiered.read_plan import plan_reads
from tests.unit.tiered.support import (
    FINISHED,
    PARTITION,
    TOPIC,
    TOPIC_ID,
    number_of,
    segment,
    segment_id,
)


def manifest(
    sequence: int,
    added: tuple[int, ...] = (),
    removed: tuple[int, ...] = (),
    *,
    base: bool = False,
    leader_epoch: int = 1,
    tiered_epoch: int = 1,
    floor: int = 0,
) -> Manifest:
    """Return a manifest of segments of ten offsets, number n from 10 * n on."""
    return Manifest(
        topic=TOPIC,
        topic_id=TOPIC_ID,
        partition=PARTITION,
        sequence=sequence,
        leader_epoch=leader_epoch,
        tiered_epoch=tiered_epoch,
        floor=floor,
        log_start_offset=sequence,
        epochs=((1, 0),),
        is_base=base,
        added=tuple(
            segment(n, 10 * n, 10 * n + 9, state=FINISHED, tiered_epoch=tiered_epoch) for n in added
        ),
        removed=tuple(map(segment_id, removed)),
        partition_count=12 if base else None,
        configs={"retention.ms": str(sequence)} if base else None,
    )


def listed(state: ManifestState | None) -> tuple[int, set[int]] | None:
    return state and (state.sequence, set(map(number_of, state.segments.values())))


FIRST = manifest(0, (1, 2), base=True)


def test_a_chain() -> None:
    chain = [FIRST, manifest(1, (3,)), manifest(2, (4,), (1,))]
    state = follow(chain)
    assert listed(state) == (2, {2, 3, 4})
    assert listed(follow(reversed(chain))) == (2, {2, 3, 4})
    assert state is not None
    assert (state.log_start_offset, state.partition_count) == (2, 12)
    assert state.configs == {"retention.ms": "0"}
    advanced = follow(chain[:1])
    assert advanced is not None
    for each in chain[1:]:
        advanced = advance(advanced, each)
    assert advanced == state


def test_no_chain() -> None:
    assert follow([]) is None
    assert follow([manifest(1, (3,)), manifest(2, (4,))]) is None


def test_a_hole_ends_the_chain() -> None:
    chain = [FIRST, manifest(1, (3,)), manifest(3, (5,))]
    assert listed(follow(chain)) == (1, {1, 2, 3})
    # Behind the hole, what is gone is gone.
    assert listed(follow([*chain, manifest(4, (), (2,))])) == (1, {1, 3})
    assert listed(follow([*chain, manifest(4, (), tiered_epoch=2, floor=1)])) == (1, set())


def test_a_base_behind_a_hole() -> None:
    behind = [manifest(3, (2, 5), base=True), manifest(4, (6,))]
    assert listed(follow([FIRST, manifest(1, (3,)), *behind])) == (4, {2, 5, 6})


def test_a_base_replaces_what_was_before() -> None:
    found = follow([FIRST, manifest(1, (3,)), manifest(2, (3, 4), base=True), manifest(3, (5,))])
    assert listed(found) == (3, {3, 4, 5})
    assert found is not None
    assert found.configs == {"retention.ms": "2"}


@pytest.mark.parametrize("epochs", [{"leader_epoch": 1}, {"tiered_epoch": 1, "leader_epoch": 3}])
@pytest.mark.parametrize("base", [False, True])
def test_manifests_of_writers_that_were_replaced(epochs: dict[str, int], base: bool) -> None:
    newer = manifest(1, (3,), leader_epoch=2, tiered_epoch=2)
    stale = manifest(2, (9,), () if base else (3,), base=base, **epochs)
    last = manifest(3, (4,), leader_epoch=2, tiered_epoch=2)
    assert listed(follow([FIRST, newer, stale, last])) == (3, {1, 2, 3, 4})
    assert listed(follow([newer, stale, last])) is None
    # Also where a hole is in between; but what it removed is gone.
    expected = {1, 2, 3} if base else {1, 2}
    assert listed(follow([FIRST, newer, replace(stale, sequence=4)])) == (1, expected)


def test_floor() -> None:
    floor = manifest(1, (3,), tiered_epoch=2, floor=1)
    state = follow([FIRST, floor])
    assert listed(state) == (1, {3})
    assert state is not None
    # A later writer that does not know it does not undo it.
    state = advance(state, manifest(2, (4,), tiered_epoch=2, floor=0))
    assert (state.floor, listed(state)) == (1, (2, {3, 4}))


def test_which_to_read() -> None:
    assert [first_to_read(each) for each in (0, 5, 99, 100, 101, 250)] == [0, 0, 0, 100, 100, 200]


def test_reads_are_planned_from_manifests() -> None:
    state = follow([FIRST, manifest(1, (3,))])
    assert state is not None
    plan = plan_reads(state, state.lineage(), 15, 1_000)
    assert [(number_of(each.segment), each.end_offset) for each in plan.slices] == [
        (1, 20),
        (2, 30),
        (3, 40),
    ]
    assert plan.end_offset == 40
    empty = follow([manifest(0, base=True)])
    assert empty is not None
    assert plan_reads(empty, empty.lineage(), 0, 10).slices == ()
