"""However much arrives, a turn of the loop stays short, and everybody gets on.

Method: turns run by hand, with a clock that only the work itself moves.
"""

from collections.abc import Callable

import pytest

from ottla.base.limits import LONG_SMALL_BYTES_MAX, LONG_SMALL_RUNNING_BYTES_MAX
from ottla.base.pending import Pending
from ottla.base.turns import HEAVY_NS, SLICE_NS, TURN_NS, Steps

from .scripted_turns import ScriptedTurns

MS = 1_000_000
LARGE = LONG_SMALL_BYTES_MAX + 1


@pytest.fixture
def turns() -> ScriptedTurns:
    return ScriptedTurns()


def work(turns: ScriptedTurns, name: str, steps: int, seen: list[str]) -> Callable[[], Steps[str]]:
    def begin() -> Steps[str]:
        for _ in range(steps):
            turns.now_ns += MS
            seen.append(name)
            yield
        return name

    return begin


def alive() -> Pending[None]:
    return Pending()


def test_short_work_is_done_at_once(turns: ScriptedTurns) -> None:
    done = turns.run(work(turns, "a", 2, []), size=LARGE, gone=alive())
    assert done.done
    assert done.value == "a"


def test_long_work_gets_a_slice_of_each_turn(turns: ScriptedTurns) -> None:
    done = turns.run(work(turns, "a", 100, []), size=LARGE, gone=alive())
    assert turns.now_ns <= SLICE_NS + MS
    while not done.done:
        before = turns.now_ns
        turns.turn()
        assert turns.now_ns - before <= SLICE_NS + MS
    assert done.value == "a"
    turns.run_all()
    assert turns.long_count == 0


def test_slices_go_round(turns: ScriptedTurns) -> None:
    seen: list[str] = []
    for name in "ab":
        turns.run(work(turns, name, 40, seen), size=LARGE, gone=alive())
    turns.run_all()
    both = "".join(seen).rindex("a") + 1, "".join(seen).rindex("b") + 1
    assert min(both) > len(seen) * 3 // 4, "the first must not end long before the second"


def test_only_so_much_is_begun(turns: ScriptedTurns) -> None:
    begun: list[int] = []
    kept: list[int] = []

    def begin(number: int) -> Steps[None]:
        begun.append(number)
        for _ in range(10):
            turns.now_ns += MS
            yield

    ended = [
        turns.run(
            lambda number=number: begin(number),  # type: ignore[misc]
            size=LARGE,
            gone=alive(),
            keep=lambda number=number: kept.append(number),  # type: ignore[misc]
        )
        for number in range(5)
    ]
    assert turns.long_count == 5
    while len(begun) < 2:
        turns.turn()
    turns.turn()
    assert begun == [0, 1], "a third one waits, though there are turns"
    assert kept == [1, 2, 3, 4], "all but the one that began at once keep their bytes"
    turns.run_all()
    assert begun == [0, 1, 2, 3, 4]
    assert all(each.done for each in ended)


def test_small_requests_do_not_wait_for_large_ones(turns: ScriptedTurns) -> None:
    seen: list[str] = []
    for _ in range(50):
        turns.run(work(turns, "L", 1000, seen), size=LARGE, gone=alive())
    done = turns.run(work(turns, "s", 8, seen), size=3000, gone=alive())
    for _ in range(10):
        turns.turn()
    assert done.done


def test_small_requests_are_bounded_by_their_bytes(turns: ScriptedTurns) -> None:
    seen: list[str] = []
    for number in range(50):
        turns.run(work(turns, str(number), 100, seen), size=LONG_SMALL_BYTES_MAX, gone=alive())
    for _ in range(100):
        turns.turn()
    assert len(set(seen)) == LONG_SMALL_RUNNING_BYTES_MAX // LONG_SMALL_BYTES_MAX
    turns.run_all()
    assert len(set(seen)) == 50


def test_work_for_those_who_are_gone_is_dropped(turns: ScriptedTurns) -> None:
    seen: list[str] = []
    gone = [alive() for _ in range(4)]
    done = [
        turns.run(work(turns, str(number), 100, seen), size=LARGE, gone=gone[number])
        for number in range(4)
    ]
    for each in gone[:3]:
        each.complete(None)
    turns.run_all()
    assert [each.done for each in done] == [False, False, False, True]
    assert seen.count("0") < 10
    assert seen.count("2") == 0
    assert turns.long_count == 0


def test_an_exception_is_the_outcome(turns: ScriptedTurns) -> None:
    def fail() -> Steps[None]:
        yield
        raise ValueError("no")

    assert isinstance(turns.run(fail, size=LARGE, gone=alive()).value, ValueError)
    assert turns.long_count == 0


def test_light_requests_wait_once_a_turn_is_spent(turns: ScriptedTurns) -> None:
    handled: list[int] = []
    for number in range(100):
        if turns.may_handle(heavy=False):
            turns.now_ns += MS
            turns.spend(MS)
            handled.append(number)
            continue

        def handle(number: int = number) -> None:
            turns.now_ns += MS
            turns.spend(MS)
            handled.append(number)

        turns.wait(handle, heavy=False)
    assert len(handled) <= TURN_NS // MS + 1
    while turns.calls:
        before = len(handled)
        turns.turn()
        assert len(handled) - before <= TURN_NS // MS + 1
    assert handled == list(range(100))


def test_heavy_ones_leave_room_for_light_ones(turns: ScriptedTurns) -> None:
    """A connection of slow requests waits in line; who is quick is served as it comes."""
    slow = 0

    def handle_slow() -> None:
        nonlocal slow
        slow += 1
        turns.now_ns += 5 * HEAVY_NS
        assert turns.spend(5 * HEAVY_NS)
        turns.wait(handle_slow, heavy=True)

    for _ in range(100):
        turns.wait(handle_slow, heavy=True)
    for _ in range(20):
        before = slow
        turns.turn()
        assert slow - before == 1
        assert turns.may_handle(heavy=False)
        assert not turns.may_handle(heavy=True)


def test_a_failing_listener_does_not_stop_the_others(turns: ScriptedTurns) -> None:
    def fail() -> None:
        raise ValueError("no")

    called: list[str] = []
    turns.wait(fail, heavy=False)
    turns.wait(lambda: called.append("b"), heavy=False)
    with pytest.raises(ValueError):
        turns.turn()
    turns.run_all()
    assert called == ["b"]


def test_the_nodes_own_work_has_a_slice_of_each_turn(turns: ScriptedTurns) -> None:
    seen: list[str] = []
    for name in "abcdefgh":
        turns.run(work(turns, name, 1_000, seen), size=LARGE, gone=alive())
    done = turns.run_own(work(turns, "own", 100, seen)(), gone=alive())
    count = 0
    while not done.done:
        before = turns.now_ns
        turns.turn()
        assert turns.now_ns - before <= 2 * (SLICE_NS + MS)
        count += 1
    assert done.value == "own"
    assert count <= 100 * MS // SLICE_NS + 1
    assert seen.count("a") < 1_000


def test_own_work_of_a_node_that_stops_is_dropped(turns: ScriptedTurns) -> None:
    seen: list[str] = []
    gone = alive()
    done = turns.run_own(work(turns, "own", 100, seen)(), gone=gone)
    turns.turn()
    gone.complete(None)
    before = len(seen)
    turns.run_all()
    assert len(seen) == before > 0
    assert not done.done


def test_an_exception_of_own_work_is_its_outcome(turns: ScriptedTurns) -> None:
    def broken() -> Steps[str]:
        yield
        raise OSError(28, "full")

    done = turns.run_own(broken(), gone=alive())
    turns.run_all()
    assert isinstance(done.value, OSError)
