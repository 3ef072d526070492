"""Batches whose records do not decode are kept as they are, and all others are cleaned.

Method: mutated batches are put into a compacted log as a follower gets them, which checks no
records, as logs from before that check hold them; real cleanings on a disk in memory.
"""

import logging

import pytest

from ottla.log.cleaner.cleaner_job import UNREADABLE_NAMED_MAX
from ottla.records.batch import HEADER_SIZE, BatchHeader, iter_headers, parse_header, restamp
from ottla.records.builder import seal
from ottla.records.compression import Codec, compress
from ottla.records.errors import RecordsError
from ottla.records.record import read_records
from tests.mutations import mutated
from tests.unit.log.cleaner_storage import Storage
from tests.unit.log.support import batch, content

NOW_MS = 1_000_000


def unreadable(codec: Codec = Codec.NONE, **fields: int) -> bytes:
    header = parse_header(batch())._replace(attributes=codec, **fields)
    return seal(header, compress(codec, b"these are no records"))


def store(storage: Storage, data: bytes) -> int:
    """Append as a follower does; return the offset."""
    offset = storage.log.log_end_offset
    stored = bytearray(data)
    restamp(stored, 0, base_offset=offset, leader_epoch=storage.epoch)
    storage.log.append_as_follower(stored, now_ms=NOW_MS)
    storage.log.advance_high_watermark(storage.log.log_end_offset)
    return offset


def batches(storage: Storage) -> dict[int, tuple[BatchHeader, bytes]]:
    data = content(storage.log)
    return {
        header.base_offset: (header, bytes(data[at : at + header.size_in_bytes]))
        for at, header in iter_headers(data)
    }


@pytest.mark.parametrize("codec", Codec)
def test_other_batches_are_cleaned(codec: Codec, caplog: pytest.LogCaptureFixture) -> None:
    storage = Storage()
    for _ in range(5):
        storage.append(batch([b"old"], key=b"a"))
    at = store(storage, unreadable(codec))
    for _ in range(5):
        storage.append(batch([b"new"], key=b"a"))
    before = batches(storage)
    with caplog.at_level(logging.WARNING):
        storage.clean()
    after = batches(storage)
    assert after[at] == before[at]
    values = {offset for offset in after if offset != at and after[offset][0].record_count}
    assert values == {10}
    assert storage.log.clean_offset == 11
    assert "t-0: 1 batches cannot be decoded" in caplog.text
    assert f"base offsets {at}" in caplog.text
    assert "uncleanable" not in caplog.text


def test_one_warning_for_as_long_as_they_are_the_same(caplog: pytest.LogCaptureFixture) -> None:
    storage = Storage()
    for _ in range(UNREADABLE_NAMED_MAX + 5):
        store(storage, unreadable())
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            for _ in range(5):
                storage.append(batch([b"v"], key=b"a"))
            storage.clean()
        assert caplog.text.count("cannot be decoded") == 1
        assert f"{UNREADABLE_NAMED_MAX + 5} batches" in caplog.text
        store(storage, unreadable())
        storage.append(batch([b"v"], key=b"a"))
        storage.clean()
        assert caplog.text.count("cannot be decoded") == 2


def test_a_count_that_is_not_true_takes_no_memory() -> None:
    """The map of keys is made for as many records as the batches have."""
    storage = Storage()
    store(storage, unreadable(Codec.ZSTD, record_count=2**31 - 2, last_offset_delta=100))
    storage.append(batch([b"v"], key=b"a"))
    storage.append(batch([b"w"], key=b"a"))
    storage.clean()
    assert 0 in batches(storage)
    assert storage.log.clean_offset == storage.log.log_end_offset


def test_damage_makes_a_log_uncleanable_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage = Storage()
    for _ in range(5):
        storage.append(batch([b"v"], key=b"a"))
    file = storage.log.segments.active.log.file()
    file.write_at(70, b"\xee\xee")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            storage.clean()
    assert caplog.text.count("the partition is uncleanable") == 1


def test_so_does_a_damaged_transaction_index(caplog: pytest.LogCaptureFixture) -> None:
    storage = Storage()
    for _ in range(5):
        storage.append(batch([b"v"], key=b"a"))
    path = storage.log.segments.active.path(".txnindex")
    storage.roll()
    storage.disk.write_atomic(path, b"0123456789")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            storage.cleaner.start_cleanings()
    assert caplog.text.count("the partition is uncleanable") == 1
    assert not storage.log.failed


def test_mutated_batches_do_not_stop_the_cleaner(caplog: pytest.LogCaptureFixture) -> None:
    storage = Storage()
    bad: list[int] = []
    for _, data in mutated(11, 400, NOW_MS):
        try:
            header = parse_header(data)
            if header.is_control or header.is_transactional or header.last_offset_delta > 10**6:
                continue  # Only a coordinator writes them, or the log does not have it.
            if len(data) == HEADER_SIZE:
                continue  # Reads begin behind it, as behind what compaction has emptied.
            offset = store(storage, data)
        except RecordsError:
            continue
        try:
            read_records(data, 0, header)
        except RecordsError:
            bad.append(offset)
    for _ in range(3):
        storage.append(batch([b"v"], key=b"last"))
    assert len(bad) > 50
    before = batches(storage)
    storage.clean()
    after = batches(storage)
    assert storage.log.clean_offset == storage.log.segments.active.base_offset
    assert "uncleanable" not in caplog.text
    for offset in bad:
        assert after[offset] == before[offset]
    assert sum(len(data) for _, data in after.values()) < sum(
        len(data) for _, data in before.values()
    )
