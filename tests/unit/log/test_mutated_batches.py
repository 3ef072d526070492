"""A batch that a broker has stored stops no reader, and not the cleaner either.

Method: thousands of batches with something wrong in them are appended to a log in memory; what it
takes is read by Ottla's decoder, by Spark's, by those of kafka-python and aiokafka, and cleaned.
Real clients read a few hundred of them in tests/cluster.
"""

from collections import Counter
from typing import Any

import pytest
from aiokafka.record.memory_records import MemoryRecords as AioRecords
from kafka.record.memory_records import MemoryRecords

from kafka import codec
from ottla.base.errors import ApiError, Error
from ottla.log.config import LogConfig
from ottla.log.validation import Allowance, TooHeavy, examine
from ottla.records.batch import BatchHeader, parse_header
from ottla.records.columnar import decode
from ottla.records.compression import Codec
from ottla.records.record import read_records
from tests.mutations import by_hand, mutated, sound
from tests.unit.log.support import Environment

NOW_MS = 1_700_000_000_000
COUNT = 4_000
COLUMNS = ("key", "value", "offset", "timestamp", "timestampType", "headers")
CONFIGS = {
    "plain": LogConfig(),
    "compacted": LogConfig(compacts=True),
    "recompressed": LogConfig(codec=Codec.LZ4),
    "timed": LogConfig(timestamp_before_max_ms=10**9),
    "append time": LogConfig(log_append_time=True),
}
CAN_READ = {
    Codec.NONE: lambda: True,
    Codec.GZIP: codec.has_gzip,
    Codec.SNAPPY: codec.has_snappy,
    Codec.LZ4: codec.has_lz4,
    Codec.ZSTD: codec.has_zstd,
}
"""Of kafka-python, which needs packages of its own."""

ERRORS = {
    Error.CORRUPT_MESSAGE,
    Error.INVALID_RECORD,
    Error.INVALID_TIMESTAMP,
    Error.MESSAGE_TOO_LARGE,
    Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Error.INVALID_PRODUCER_EPOCH,
    Error.DUPLICATE_SEQUENCE_NUMBER,
}


def read_by_all(stored: bytes, header: BatchHeader) -> int:
    """Return how many records all decoders find; they must agree."""
    ours = read_records(stored, 0, header)
    times = [each.timestamp for each in ours]
    assert [each.offset for each in ours] == list(range(header.base_offset, header.next_offset))
    assert max(times) == header.max_timestamp
    spark = [row for part in decode(stored, columns=COLUMNS) for row in part.to_pylist()]
    assert len(spark) == len(ours)
    assert [row["value"] for row in spark] == [each.value for each in ours]
    for reader in (MemoryRecords, AioRecords):
        if reader is MemoryRecords and not CAN_READ[header.compression]():
            continue
        found = reader(stored)
        theirs: list[Any] = []
        while (part := found.next_batch()) is not None:
            assert part.validate_crc()
            theirs += list(part)
        assert [(each.offset, each.timestamp) for each in theirs] == [
            (each.offset, each.timestamp) for each in ours
        ]
        assert [(each.key, each.value) for each in theirs] == [
            (each.key, each.value) for each in ours
        ]
    return len(ours)


@pytest.mark.forms(2)
@pytest.mark.parametrize("settings", CONFIGS)
def test_what_is_stored_is_read_by_everybody(settings: str) -> None:
    config = CONFIGS[settings]
    env = Environment()
    env.clock.ms = NOW_MS
    log = env.open(config)
    outcomes: Counter[Any] = Counter()
    for name, data in mutated(7, COUNT if settings == "plain" else COUNT // 4, NOW_MS):
        before = log.log_end_offset
        sent = bytearray(data)
        try:
            try:
                info = log.append_as_leader(
                    sent, leader_epoch=0, now_ms=NOW_MS, allowance=Allowance()
                )
            except TooHeavy:
                outcomes["heavy"] += 1
                info = log.append_as_leader(
                    examine(sent, config, "t-0"), leader_epoch=0, now_ms=NOW_MS
                )
        except ApiError as refusal:
            outcomes[refusal.error] += 1
            if log.log_end_offset == before:
                continue
            raise
        if info.duplicate:
            continue
        stored = log.read(before, max_bytes=1, upper_bound=log.log_end_offset, at_least_one=True)
        kept = b"".join(piece.read() for piece in stored.slices)
        header = parse_header(kept)
        assert info.record_count == header.record_count == log.log_end_offset - before, name
        try:
            assert read_by_all(kept, header) == header.record_count
        except Exception as error:
            raise AssertionError(f"{name} was stored: {kept.hex()}") from error
        outcomes["stored"] += 1
    # Else the run proved nothing.
    assert outcomes.keys() - {"stored", "heavy"} <= ERRORS
    assert outcomes["stored"] > 50
    assert outcomes[Error.INVALID_RECORD] > 300
    assert outcomes[Error.INVALID_TIMESTAMP] > (0 if config.log_append_time else 5)


def test_sound_batches_are_stored() -> None:
    env = Environment()
    log = env.open(LogConfig())
    for name, data in sound(NOW_MS).items():
        assert log.append_as_leader(bytearray(data), leader_epoch=0, now_ms=NOW_MS), name


def test_what_is_made_by_hand_is_refused() -> None:
    log = Environment().open(LogConfig())
    taken = set()
    for name, data in by_hand(NOW_MS).items():
        try:
            log.append_as_leader(bytearray(data), leader_epoch=0, now_ms=NOW_MS)
        except ApiError:
            continue
        taken.add(name)
    assert taken == {
        "empty header key",
        "negative timestamp delta",
        "lz4 that says its size",
        "overlong varints",
        "raw snappy",
    }
