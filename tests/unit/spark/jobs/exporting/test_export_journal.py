"""An entry must follow only what it may follow, and be read back as it was written.

Method: all pairs of phases; hypothesis over entries; damaged and newer entries.
"""

import json
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.ids import Uuid
from ottla.spark.jobs.documents import JournalError, OffsetRange
from ottla.spark.jobs.exporting import export_journal as journal
from ottla.spark.jobs.exporting.export_journal import Entry, ExportedFile, Phase, Table

TABLE = Table(topic="t", topic_id=Uuid(b"i" * 16), format="parquet", partition_by="date")
OFFSETS = st.integers(0, 2**63 - 1)


def entry(phase: Phase, run: str = "r") -> Entry:
    return Entry(
        number=3,
        phase=phase,
        run=run,
        table=TABLE,
        offsets={0: 7, 2: 1},
        ranges=(OffsetRange(0, 7, 9), OffsetRange(1, 0, 4)),
    )


def test_a_run() -> None:
    first = journal.begun(None, "r", TABLE, {0: 7, 2: 1}, (OffsetRange(0, 7, 9),))
    assert (first.number, first.phase, dict(first.offsets)) == (0, Phase.BEGUN, {0: 7, 2: 1})
    done = journal.committed(first, (file(),))
    assert (done.number, dict(done.offsets), done.files) == (1, {0: 9, 2: 1}, (file(),))
    last = journal.published(done)
    assert (last.number, dict(last.offsets), last.files) == (2, {0: 9, 2: 1}, ())
    after = journal.discarded(journal.begun(last, "s", TABLE, {0: 9}, ()))
    assert (after.number, dict(after.offsets)) == (4, {0: 9})


@pytest.mark.parametrize(("before", "after"), list(product([None, *Phase], Phase)))
def test_what_may_follow(before: Phase | None, after: Phase) -> None:
    allowed = {
        (None, Phase.BEGUN),
        (Phase.BEGUN, Phase.COMMITTED),
        (Phase.BEGUN, Phase.DISCARDED),
        (Phase.COMMITTED, Phase.PUBLISHED),
        (Phase.PUBLISHED, Phase.BEGUN),
        (Phase.DISCARDED, Phase.BEGUN),
    }
    last = None if before is None else entry(before)
    following = entry(after, "s" if after is Phase.BEGUN else "r")
    if (before, after) in allowed:
        assert journal.follow(last, following) is following
    else:
        with pytest.raises(JournalError, match="does not follow"):
            journal.follow(last, following)


def test_entries_of_another_run() -> None:
    with pytest.raises(JournalError, match="run s committed follows another run"):
        journal.follow(entry(Phase.BEGUN), entry(Phase.COMMITTED, "s"))
    with pytest.raises(JournalError, match="run r begun follows"):
        journal.follow(entry(Phase.PUBLISHED), entry(Phase.BEGUN))


def file() -> ExportedFile:
    return ExportedFile(name="date=1/x", partition=0, start=7, end=9, rows=2, size_bytes=5)


@given(
    st.sampled_from(Phase),
    st.dictionaries(st.integers(0, 100), OFFSETS, max_size=3),
    st.lists(st.builds(OffsetRange, st.integers(0, 100), OFFSETS, OFFSETS), max_size=3),
    st.integers(0, 3),
)
def test_round_trip(
    phase: Phase, offsets: dict[int, int], ranges: list[OffsetRange], files: int
) -> None:
    some = replace(
        entry(phase), offsets=offsets, ranges=tuple(ranges), files=tuple([file()] * files)
    )
    assert journal.decode(3, journal.encode(some)) == some


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "has the version 2: this version of Ottla reads 1"),
        ({"phase": "done"}, "cannot be read"),
        ({"offsets": [1]}, "cannot be read"),
        ({"files": [["x"]]}, "cannot be read"),
        ({"topic_id": "x"}, "cannot be read"),
    ],
)
def test_what_cannot_be_read(change: dict[str, object], message: str) -> None:
    document = json.loads(journal.encode(entry(Phase.BEGUN))) | change
    with pytest.raises(JournalError, match=message):
        journal.decode(3, json.dumps(document).encode())
    for data in (b"", b"{}", b"[]", b"\xff"):
        with pytest.raises(JournalError, match=r"_ottla/journal/0*3\.json cannot be read"):
            journal.decode(3, data)
