"""The cache never exceeds its limit, and forgets what was used least recently.

Method: hypothesis compares it with a list in the order of use.
"""

from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.remote.reads.byte_cache import ENTRY_BYTES, ByteCache

STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "get", "drop"]), st.integers(0, 5), st.integers(0, 900))
)


@given(STEPS, st.integers(1, 3_000))
def test_it_keeps_what_was_used_last(steps: list[tuple[str, int, int]], bytes_max: int) -> None:
    cache: ByteCache[int] = ByteCache(bytes_max)
    model: list[tuple[int, bytes]] = []  # The least recently used first.
    for step, key, size in steps:
        found = next((each for each in model if each[0] == key), None)
        if step == "get":
            assert cache.get(key) == (found and found[1])
            if found is not None:
                model.remove(found)
                model.append(found)
            continue
        if found is not None:
            model.remove(found)
        if step == "drop":
            cache.drop(key)
        else:
            cache.put(key, bytes(size))
            if size + ENTRY_BYTES <= bytes_max:
                model.append((key, bytes(size)))
            while sum(len(data) + ENTRY_BYTES for _, data in model) > bytes_max:
                model.pop(0)
        assert cache.bytes == sum(len(data) + ENTRY_BYTES for _, data in model) <= bytes_max
        assert [key in cache for key in range(6)] == [key in dict(model) for key in range(6)]
        assert len(cache) == len(model)


def test_a_smaller_limit_forgets_what_was_used_least() -> None:
    cache: ByteCache[int] = ByteCache(4 * (ENTRY_BYTES + 10))
    for key in range(4):
        cache.put(key, bytes(10))
    cache.get(0)
    cache.resize(2 * (ENTRY_BYTES + 10))
    assert [key in cache for key in range(4)] == [True, False, False, True]
    cache.resize(4 * (ENTRY_BYTES + 10))
    cache.put(1, bytes(10))
    assert len(cache) == 3
    cache.resize(0)
    assert (len(cache), cache.bytes) == (0, 0)
