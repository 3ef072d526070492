"""Nodes share decoded batches of the metadata log, and nothing that differs by a bit.

Method: batches read twice within the block, whole, changed and damaged; the block undoes itself.
"""

from typing import Any

import pytest

from ottla.base.ids import Uuid
from ottla.host.kraft import quorum_replay
from ottla.host.kraft.quorum_replay import records_of
from ottla.host.kraft.quorum_storage import MetadataDamaged
from ottla.metadata.records import NoOpRecord, TopicRecord, encode_record
from ottla.raft import batches
from ottla.raft.batches import LogBatch, read_batches, records_batch
from ottla.records.errors import CorruptBatch
from ottla.testing.sim.shared_decoding import decoded_once

ID = Uuid(b"\1" * 16)


def batch(*names: str, base_offset: int = 5) -> bytes:
    values = [encode_record(TopicRecord(name=name, topic_id=ID)) for name in names]
    return records_batch(values, base_offset=base_offset, epoch=2, timestamp=7)


def read(data: bytes) -> list[LogBatch]:
    return list(read_batches(data))


def test_equal_bytes_are_decoded_once() -> None:
    data = batch("a", "b") + batch("c", base_offset=7)
    plain = read(data)
    with decoded_once():
        first, second = read(data), read(b"" + data)
        assert first == second == plain
        assert all(one is other for one, other in zip(first, second, strict=True))
        records = zip(records_of(first[0]), records_of(second[0]), strict=True)
        assert [one is other for one, other in records] == [True, True]
    assert records_of(plain[0]) == [TopicRecord(name=name, topic_id=ID) for name in "ab"]


def test_what_differs_is_decoded_by_itself() -> None:
    with decoded_once():
        (a,), (b,) = (records_of(*read(batch(name))) for name in "ab")
        assert (a, b) == tuple(TopicRecord(name=name, topic_id=ID) for name in "ab")
        offsets = [each.base_offset for at in (5, 6) for each in read(batch("a", base_offset=at))]
        assert offsets == [5, 6]


def test_the_checksum_of_each_copy_is_verified() -> None:
    data = batch("a")
    damaged = data[:-1] + bytes([data[-1] ^ 1])
    with decoded_once():
        read(data)
        for _ in range(2):
            with pytest.raises(CorruptBatch):
                read(damaged)


def test_a_record_that_cannot_be_decoded_fails_each_time() -> None:
    data = records_batch([b"\x01\xff\x7f"], base_offset=0, epoch=0, timestamp=0)
    with decoded_once():
        for _ in range(2):
            with pytest.raises(MetadataDamaged):
                records_of(*read(data))


def test_the_product_decodes_by_itself_afterwards() -> None:
    replay: Any = quorum_replay
    plain = batches._batch, replay.decode_entry
    with decoded_once():
        assert batches._batch is not plain[0]
        assert replay.decode_entry is not plain[1]
    assert (batches._batch, replay.decode_entry) == plain
    data = records_batch([encode_record(NoOpRecord())], base_offset=0, epoch=0, timestamp=0)
    assert read(data)[0] is not read(data)[0]
