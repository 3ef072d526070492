"""A split must be read within bounded memory, and damage must not become missing rows.

Method: one segment in a directory, read with ranges of all sizes, from positions that are good,
early, late or wrong; reads are counted.
"""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.base.ids import Uuid
from ottla.records.errors import CorruptBatch
from ottla.spark.errors import DataLossError
from ottla.spark.options import ReadOptions
from ottla.spark.splits import RemotePlace, Split
from ottla.spark.tiers.remote_reading import READS_AT_ONCE, RemoteSplitReader, object_data
from ottla.spark.tiers.store_session import StoreSession
from tests.drawn import examples
from tests.unit.spark.fake_broker import ID, TOPIC
from tests.unit.spark.test_reading import batch, expected

NAME = "t/0/segment.log"
COUNTS = (3, 1, 4, 2, 6, 1, 3)
BATCHES = [batch(sum(COUNTS[:number]), count) for number, count in enumerate(COUNTS)]
OBJECT = b"".join(BATCHES)
END = sum(COUNTS)


def options(root: Path, fetch_bytes: int, **raw: str) -> ReadOptions:
    return ReadOptions.of(
        {
            "subscribe": TOPIC,
            "ottla.remote.storage.uri": root.as_uri(),
            "kafka.max.partition.fetch.bytes": str(fetch_bytes),
        }
        | raw
    )


def split_of(
    start: int, end: int, position: int = 0, end_position: int = len(OBJECT), **changes: Any
) -> Split:
    place = RemotePlace(
        segment_id=Uuid(bytes(16)),
        name=NAME,
        size_bytes=changes.get("size", len(OBJECT)),
        position=position,
        end_position=end_position,
    )
    return Split(TOPIC, ID, 0, start, end, changes.get("contiguous", True), remote=place)


def write(root: Path, content: bytes = OBJECT) -> None:
    path = root / NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def rows(root: Path, split: Split, fetch_bytes: int = 200, **raw: str) -> list[tuple[int, bytes]]:
    with StoreSession(root.as_uri(), timeout_ms=2_000) as session:
        chosen = options(root, fetch_bytes, **raw)
        reader = RemoteSplitReader(split, session, chosen, ("offset", "value", "topic"))
        found = [
            (row["offset"], row["value"]) for each in reader.batches() for row in each.to_pylist()
        ]
        assert reader.offset == split.end
        return found


@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data(), st.integers(1, 600))
def test_each_offset_once(tmp_path: Path, data: st.DataObject, fetch_bytes: int) -> None:
    write(tmp_path)
    start = data.draw(st.integers(0, END - 1))
    end = data.draw(st.integers(start + 1, END))
    begin = 0
    positions = [0]
    for number, each in enumerate(BATCHES):
        begin += len(each)
        if sum(COUNTS[: number + 1]) <= start:
            positions.append(begin)
    position = data.draw(st.sampled_from(positions))
    # Where the index says that the split ends is only a hint.
    end_position = data.draw(st.integers(position, len(OBJECT)))
    found = rows(tmp_path, split_of(start, end, position, end_position), fetch_bytes)
    assert found == expected(start, end)


def test_only_the_bytes_between_the_positions_are_read(tmp_path: Path) -> None:
    write(tmp_path)
    first, second = len(BATCHES[0]), len(BATCHES[0] + BATCHES[1] + BATCHES[2])
    reads: list[tuple[int, int]] = []

    class Counting(StoreSession):
        def _begin(self, read: tuple[str, int, int]) -> Any:
            reads.append(read[1:])
            return super()._begin(read)

    with Counting(tmp_path.as_uri(), timeout_ms=2_000) as session:
        split = split_of(3, 8, first, second)
        reader = RemoteSplitReader(split, session, options(tmp_path, 50), ("offset",))
        assert sum(each.num_rows for each in reader.batches()) == 5
        assert all(length <= 50 for _, length in reads)
        assert min(start for start, _ in reads) == first
        assert max(start + length for start, length in reads) == second
        # No more are begun than are read ahead.
        del reads[:]
        assert split.remote is not None
        data = object_data(session, split.remote, 10)
        next(data)
        assert len(reads) == READS_AT_ONCE
        data.close()  # type: ignore[attr-defined]


def test_an_index_that_leads_too_far(tmp_path: Path) -> None:
    write(tmp_path)
    beyond = len(BATCHES[0] + BATCHES[1])
    with pytest.raises(CorruptBatch, match=f"{NAME}: the index leads 2 to 4"):
        rows(tmp_path, split_of(2, 8, beyond))
    with pytest.raises(CorruptBatch):
        rows(tmp_path, split_of(2, 8, 7))


def test_an_object_that_is_too_short(tmp_path: Path) -> None:
    write(tmp_path, OBJECT[:-5])
    with pytest.raises(CorruptBatch, match="the object is cut"):
        rows(tmp_path, split_of(0, END))
    write(tmp_path, OBJECT[:-5])
    with pytest.raises(CorruptBatch, match="the batch behind offset 17 is cut"):
        rows(tmp_path, split_of(0, END, size=len(OBJECT) - 5, end_position=len(OBJECT) - 5))


def test_damaged_bytes(tmp_path: Path) -> None:
    damaged = bytearray(OBJECT)
    damaged[len(BATCHES[0]) - 2] ^= 1
    write(tmp_path, bytes(damaged))
    with pytest.raises(CorruptBatch, match="CRC"):
        rows(tmp_path, split_of(0, END))
    assert rows(tmp_path, split_of(3, END)) == expected(3, END)


def test_missing_records_are_named(tmp_path: Path) -> None:
    content = b"".join((BATCHES[0], *BATCHES[2:-1]))
    write(tmp_path, content)
    size = {"size": len(content), "end_position": len(content)}
    with pytest.raises(DataLossError, match="missing among offsets 3 to 3 of"):
        rows(tmp_path, split_of(0, 6, **size))
    with pytest.raises(DataLossError, match=f"missing among offsets 17 to {END - 1} of"):
        rows(tmp_path, split_of(4, END, **size))
    there = expected(0, 3) + expected(4, 17)
    assert rows(tmp_path, split_of(0, END, **size), failOnDataLoss="false") == there
    assert rows(tmp_path, split_of(0, END, contiguous=False, **size)) == there
