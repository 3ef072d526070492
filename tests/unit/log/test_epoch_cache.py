"""Leader epochs: what is assigned, cut and answered.

Method: the cases of KIP-101's and KIP-279's answers by hand; the file byte for byte; a plain model
(the epoch of every offset) against any sequence of changes.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.dirs.checkpoints import MalformedFile
from ottla.log.epoch_cache import EpochCache, EpochEntry

CONTENT = b"0\n3\n1 0\n3 10\n7 25\n"


def cache(*entries: tuple[int, int]) -> EpochCache:
    return EpochCache(EpochEntry(*entry) for entry in entries)


def test_file() -> None:
    epochs = cache((1, 0), (3, 10), (7, 25))
    assert not epochs.dirty
    assert epochs.encode() == CONTENT
    assert EpochCache.decode(CONTENT).entries == epochs.entries


@pytest.mark.parametrize("data", [b"", b"1\n0\n", b"0\n1\n1\n", b"0\n1\n-1 0\n", b"0\n1\n1 x\n"])
def test_damaged_file(data: bytes) -> None:
    with pytest.raises(MalformedFile):
        EpochCache.decode(data)


def test_end_offsets() -> None:
    epochs = cache((2, 5), (3, 10), (7, 25))
    for asked, expected in {
        -1: (-1, -1),  # The asker knows no epoch.
        0: (0, 5),  # Older than all known: begin where the log does.
        2: (2, 10),
        3: (3, 25),
        5: (3, 25),  # Unknown in between: the largest below it.
        7: (7, 40),  # The current one goes on to the log's end.
        8: (-1, -1),  # Newer than all known.
    }.items():
        assert epochs.end_offset(asked, 40) == expected
    assert cache().end_offset(3, 40) == (-1, -1)


def test_assigning_the_same_again_changes_nothing() -> None:
    epochs = cache((1, 0))
    epochs.assign(1, 0)
    epochs.assign(1, 20)
    assert epochs.entries == ((1, 0),)
    assert not epochs.dirty


def test_a_contradiction_drops_what_it_contradicts() -> None:
    epochs = cache((1, 0), (3, 10), (7, 25))
    epochs.assign(8, 10)
    assert epochs.entries == ((1, 0), (8, 10))
    epochs = cache((1, 0), (3, 10))
    epochs.assign(2, 20)
    assert epochs.entries == ((1, 0), (2, 20))
    assert epochs.dirty
    epochs = cache((3, 10))
    epochs.assign(3, 4)
    assert epochs.entries == ((3, 4),)


def test_truncation_from_the_end() -> None:
    epochs = cache((1, 0), (3, 10), (7, 25))
    epochs.truncate_from_end(26)
    assert not epochs.dirty
    epochs.truncate_from_end(25)
    assert epochs.entries == ((1, 0), (3, 10))
    assert epochs.dirty
    epochs.truncate_from_end(0)
    assert epochs.latest_epoch == -1


def test_truncation_from_the_start() -> None:
    epochs = cache((1, 0), (3, 10), (7, 25))
    epochs.truncate_from_start(0)
    assert not epochs.dirty
    epochs.truncate_from_start(12)
    assert epochs.entries == ((3, 12), (7, 25))
    epochs.truncate_from_start(25)
    assert epochs.entries == ((7, 25),)
    epochs.truncate_from_start(90)
    assert epochs.entries == ((7, 90),)
    epochs.clear()
    assert epochs.entries == ()


def test_older_entries_are_added() -> None:
    epochs = EpochCache([EpochEntry(4, 50), EpochEntry(6, 60)])
    epochs.prepend([EpochEntry(1, 10), EpochEntry(2, 20), EpochEntry(4, 45), EpochEntry(6, 60)])
    assert epochs.entries == ((1, 10), (2, 20), (4, 50), (6, 60))
    assert epochs.dirty
    empty = EpochCache()
    empty.prepend([EpochEntry(1, 10), EpochEntry(2, 20)])
    assert empty.entries == ((1, 10), (2, 20))
    same = EpochCache([EpochEntry(1, 10)])
    same.prepend([EpochEntry(1, 10)])
    assert not same.dirty


def test_the_epochs_of_a_range() -> None:
    epochs = EpochCache([EpochEntry(1, 10), EpochEntry(2, 20), EpochEntry(4, 50)])
    assert epochs.between(15, 50) == ((1, 15), (2, 20))
    assert epochs.between(20, 21) == ((2, 20),)
    assert epochs.between(60, 70) == ((4, 60),)
    assert epochs.entries == ((1, 10), (2, 20), (4, 50))


def test_the_file_keeps_what_a_start_may_need() -> None:
    epochs = cache((1, 0), (3, 10), (7, 25), (8, 40))
    epochs.truncate_from_start(30, keep_in_file=True)
    epochs.truncate_from_start(45)
    assert epochs.entries == ((8, 45),)
    assert EpochCache.decode(epochs.encode()).entries == ((1, 0), (3, 10), (7, 25), (8, 40))
    epochs.start_durable(30)
    assert epochs.keeps_in_file
    assert epochs.has_dropped
    assert EpochCache.decode(epochs.encode()).entries == ((7, 25), (8, 40))
    epochs.start_durable(45)
    assert not epochs.keeps_in_file
    assert EpochCache.decode(epochs.encode()).entries == ((8, 45),)


def test_the_file_keeps_nothing_of_another_log() -> None:
    epochs = cache((1, 0), (3, 10), (7, 25))
    epochs.truncate_from_start(30, keep_in_file=True)
    epochs.truncate_from_end(12)
    assert EpochCache.decode(epochs.encode()).entries == ((1, 0), (3, 10))
    epochs.assign(2, 12)  # As a leader may have it whose log differs from there on.
    assert EpochCache.decode(epochs.encode()).entries == ((1, 0), (2, 12))
    epochs.clear()
    assert EpochCache.decode(epochs.encode()).entries == ()


def test_a_log_that_is_truncated_to_its_start_keeps_the_epochs_before_in_the_file() -> None:
    """The log start is durable at 1 only, and a crash takes it back there."""
    epochs = EpochCache()
    for epoch in (1, 2, 3):
        epochs.assign(epoch, epoch - 1)
    epochs.truncate_from_start(2, keep_in_file=True)
    epochs.truncate_from_end(2)
    epochs.start_durable(1)
    assert EpochCache.decode(epochs.encode()).entries == (EpochEntry(2, 1),)
    epochs.assign(4, 2)
    epochs.start_durable(2)
    assert EpochCache.decode(epochs.encode()).entries == (EpochEntry(4, 2),)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3)), max_size=30))
def test_the_epoch_of_each_offset_is_remembered(steps: list[tuple[int, int]]) -> None:
    """Leaders write some records in growing epochs, logs are cut at both ends."""
    epochs = EpochCache()
    whole: list[int] = []
    start = durable = 0
    for kind, count in steps:
        end = len(whole)
        if kind == 0:
            # The cache may be empty, with the log start right behind records of older epochs.
            epoch = (whole[-1] if whole else 0) + count
            epochs.assign(epoch, end)
            whole += [epoch] * count
        elif kind == 1 and end > start:
            del whole[max(start, end - count) :]
            epochs.truncate_from_end(len(whole))
        elif kind in (2, 3) and end - start > count:
            start += count
            # Once the file keeps some it keeps all that follow.
            epochs.truncate_from_start(start, keep_in_file=kind == 2)
            if not epochs.keeps_in_file:
                durable = start
        elif kind == 4:
            durable = min(start, durable + count)
            epochs.start_durable(durable)
        model = whole[start:]
        assert [epochs.epoch_of(start + index) for index in range(len(model))] == model
        for epoch in set(model):
            last = len(model) - model[::-1].index(epoch)
            assert epochs.end_offset(epoch, start + len(model)) == (epoch, start + last)
        if model:
            stored = EpochCache.decode(epochs.encode())
            assert [stored.epoch_of(at) for at in range(durable, len(whole))] == whole[durable:]
    assert epochs.epoch_of(-1) == -1
