"""The map of offsets by key agrees with a dictionary, up to its last slot."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.log.cleaner.cleaner_map import SLOT_BYTES, OffsetMap

PUTS = st.lists(st.tuples(st.binary(max_size=3), st.integers(0, 2**62)), max_size=60)


@given(puts=PUTS, salt=st.binary(min_size=1, max_size=80))
def test_it_is_a_dictionary(puts: list[tuple[bytes, int]], salt: bytes) -> None:
    found = OffsetMap(1 << 20, 0.9, keys=len(puts), salt=salt)
    expected: dict[bytes, int] = {}
    for key, offset in puts:
        assert found.has_room_for(1)
        found.put(key, offset)
        expected[key] = offset
    assert found.size == len(expected)
    for key, _ in puts:
        assert found.get(key) == expected[key]
    assert found.get(b"what nobody put") == -1


@given(slots=st.integers(1, 200), load_factor=st.floats(0.1, 1.0))
def test_a_full_one_still_answers(slots: int, load_factor: float) -> None:
    found = OffsetMap(slots * SLOT_BYTES, load_factor, keys=10**6, salt=b"s")
    for number in range(found.capacity):
        assert found.has_room_for(1)
        found.put(b"%d" % number, number)
    assert not found.has_room_for(1)
    found.put(b"0", 7)
    assert found.get(b"0") == 7
    assert found.get(b"none") == -1


def test_its_memory_is_what_was_granted_and_no_more_than_needed() -> None:
    assert len(OffsetMap(24_000, 0.9, keys=10**9, salt=b"s")._data) <= 24_000
    assert len(OffsetMap(1 << 30, 0.9, keys=10, salt=b"s")._data) < 1000
