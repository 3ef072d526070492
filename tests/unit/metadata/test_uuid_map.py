"""A map by UUID is a map, and yields what comes after a key in order.

Method: hypothesis compares it with a plain dictionary that is sorted each time.
"""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.ids import NO_UUID, Uuid
from ottla.metadata.uuid_map import UuidMap

few_bytes = st.sampled_from([0, 1, 127, 255])
keys = st.builds(lambda first, last: Uuid(bytes([first, *[0] * 14, last])), few_bytes, few_bytes)
"""Few of them, so that they meet; several of one part, and of the first and last parts."""


@given(st.lists(st.tuples(keys, st.none() | st.integers())), keys)
def test_it_is_a_dictionary_that_is_sorted(
    changes: list[tuple[Uuid, int | None]], start: Uuid
) -> None:
    found: UuidMap[int] = UuidMap()
    expected: dict[Uuid, int] = {}
    for key, value in changes:
        if value is not None:
            found = found.set(key, value)
            expected[key] = value
        elif key in expected:
            found = found.delete(key)
            del expected[key]
        assert (key in found) == (key in expected)
        assert found.get(key) == expected.get(key)
    assert len(found) == len(expected)
    assert set(found.keys()) == set(expected)
    assert sorted(found) == sorted(expected.values())
    assert list(found.after(start)) == [expected[key] for key in sorted(expected) if key > start]
    assert list(found.after()) == [expected[key] for key in sorted(expected) if key != NO_UUID]


@given(st.lists(keys, unique=True), st.randoms())
def test_maps_of_the_same_values_are_equal_however_they_came_to_them(
    drawn: list[Uuid], chance: Random
) -> None:
    way: UuidMap[int] = UuidMap()
    other: UuidMap[int] = UuidMap().set(Uuid(b"passing through-"), 1)
    for key in drawn:
        way = way.set(key, 2)
    chance.shuffle(drawn)
    for key in drawn:
        other = other.set(key, 1).set(key, 2)
    assert way == other.delete(Uuid(b"passing through-"))


def test_what_is_not_there_cannot_be_deleted() -> None:
    with pytest.raises(KeyError):
        UuidMap().delete(NO_UUID)
