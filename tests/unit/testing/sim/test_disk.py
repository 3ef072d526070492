"""A loss of power keeps all that was synced, and any part of what was not.

Method: many seeds over one small sequence; invariants are asserted for each seed, each possible
outcome for some seed.
"""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.testing.sim.disk import SimDisk, _torn
from ottla.testing.sim.scheduler import ProcessDied

SEEDS = range(200)


def disk() -> SimDisk:
    made = SimDisk()
    made.mkdir("/d")
    made.settle()
    return made


def content(place: SimDisk, path: str) -> bytes | None:
    return place.read_bytes(path) if place.exists(path) else None


def test_what_was_synced_stays_and_what_follows_may() -> None:
    found = set()
    for seed in SEEDS:
        place = disk()
        file = place.open("/d/log", create=True)
        file.append([b"a" * 1000])
        file.sync()
        place.sync_dir("/d")
        file.append([b"b" * 3000])
        place.lose_power(Random(seed))
        data = place.read_bytes("/d/log")
        assert data[:1000] == b"a" * 1000
        assert set(data[1000:]) <= {0, ord("b")}
        found.add((len(data), data.count(b"b")))
    lengths = {length for length, _ in found}
    assert {1000, 4000} < lengths
    assert any(length == 4000 and 0 < kept < 3000 for length, kept in found), "holes of zeros"


@given(st.binary(max_size=40), st.binary(max_size=40), st.integers(0, 2**32))
def test_the_part_that_both_share_is_never_lost(data: bytes, synced: bytes, seed: int) -> None:
    same = 0
    while same < min(len(data), len(synced)) and data[same] == synced[same]:
        same += 1
    assert _torn(data, synced, Random(seed))[:same] == data[:same]


def test_names_that_were_not_synced_are_as_before_or_as_after() -> None:
    found = set()
    for seed in SEEDS:
        place = disk()
        for name in ("old", "gone"):
            place.write_atomic(f"/d/{name}", name.encode())
        place.rename("/d/old", "/d/new")
        place.remove("/d/gone")
        place.open("/d/made", create=True).append([b"made"])
        assert place.lose_power(Random(seed)) > 0
        names = set(place.listdir("/d"))
        assert len(names & {"old", "new"}) == 1, "a rename is one change"
        found.add(frozenset(names))
    assert len(found) == 8, "each change for itself"


def test_a_replaced_file_is_the_old_or_the_new_one() -> None:
    found = set()
    for seed in SEEDS:
        place = disk()
        place.write_atomic("/d/a", b"old")
        file = place.open("/d/b", create=True)
        file.append([b"new"])
        file.sync()
        place.sync_dir("/d")
        place.rename("/d/b", "/d/a")
        place.lose_power(Random(seed))
        found.add((content(place, "/d/a"), content(place, "/d/b")))
    assert found == {(b"new", None), (b"old", b"new")}


def test_what_was_written_over_or_cut_may_be_back() -> None:
    found = set()
    for seed in SEEDS:
        place = disk()
        file = place.open("/d/log", create=True)
        file.append([b"abcd"])
        file.sync()
        place.sync_dir("/d")
        file.truncate(2)
        file.append([b"xy"])
        place.lose_power(Random(seed))
        found.add(place.read_bytes("/d/log"))
    assert {b"abcd", b"abxy"} <= found
    assert all(data[:2] == b"ab" for data in found)


def test_settled_and_after_a_loss_all_is_durable() -> None:
    place = disk()
    place.mkdir("/d/e")
    place.open("/d/e/f", create=True).append([b"x"])
    place.settle()
    assert place.lose_power(Random(1)) == 0
    assert place.read_bytes("/d/e/f") == b"x"
    assert place.used_bytes() == 1


def test_a_failed_sync_drops_what_it_was_to_write() -> None:
    """As Linux does: the data can be read, no later sync writes it, and it does not survive."""
    place = disk()
    file = place.open("/d/f", create=True)
    file.append([b"old "])
    file.sync()
    place.sync_dir("/d")
    file.append([b"lost "])
    place.fail("sync", times=1)
    with pytest.raises(OSError, match="sync failed"):
        file.sync()
    assert place.read_bytes("/d/f") == b"old lost "
    file.append([b"new"])
    file.sync()
    place.kill()
    assert place.read_bytes("/d/f") == b"old \0\0\0\0\0new"


def test_what_is_only_written_over_is_never_shorter() -> None:
    """Two slots that are written in turn: a torn write leaves one of them whole."""
    found = set()
    for seed in SEEDS:
        place = disk()
        file = place.open("/d/notes", create=True)
        file.append([b"a" * 30 + b"b" * 30])
        file.sync()
        place.sync_dir("/d")
        file.write_at(0, b"c" * 30)
        file.write_at(30, b"d" * 30)
        place.lose_power(Random(seed))
        data = place.read_bytes("/d/notes")
        assert len(data) == 60
        halves = (data[:30], data[30:])
        assert any(len(set(each)) == 1 for each in halves)
        found.add(halves)
    assert len(found) > 3


def test_what_was_cut_may_be_shorter() -> None:
    lengths = set()
    for seed in SEEDS:
        place = disk()
        file = place.open("/d/log", create=True)
        file.append([b"a" * 100])
        file.sync()
        place.sync_dir("/d")
        file.truncate(40)
        file.append([b"b" * 30])
        place.lose_power(Random(seed))
        lengths.add(len(place.read_bytes("/d/log")))
    assert {70, 100} < lengths
    assert min(lengths) >= 40


@pytest.mark.parametrize("power", [False, True])
def test_a_process_that_dies_in_an_operation_has_done_a_part_of_it(power: bool) -> None:
    lengths, left, temporary = set(), set(), set()
    for seed in SEEDS:
        place = disk()
        place.mkdir("/d/gone-delete")
        for name in "abc":
            place.write_atomic(f"/d/gone-delete/{name}", b"x")
        place.sync_dir("/d")
        file = place.open("/d/log", create=True)
        file.append([b"a" * 100])
        file.sync()
        place.sync_dir("/d")

        def dies(operation: str, path: str, place: SimDisk = place, seed: int = seed) -> None:
            place.interrupted = Random(seed)
            raise ProcessDied

        for act in (
            lambda file=file: file.append([b"b" * 50, b"b" * 50]),
            lambda place=place: place.rmtree("/d/gone-delete"),
            lambda place=place: place.write_atomic("/d/vote", b"v" * 20),
        ):
            place.on_operation = dies
            with pytest.raises(ProcessDied):
                act()
            place.on_operation = None
        if power:
            place.lose_power(Random(seed))
        else:
            place.kill()
        data = place.read_bytes("/d/log")
        assert data[:100] == b"a" * 100
        lengths.add(len(data))
        assert not place.exists("/d/vote")
        temporary.add(content(place, "/d/vote.tmp"))
        left.add(tuple(place.listdir("/d/gone-delete")))
    assert {100, 200} < lengths
    assert {("a", "b", "c"), (), ("b",), ("a", "c")} <= left
    assert len(temporary) > 5
