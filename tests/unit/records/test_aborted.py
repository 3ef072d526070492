"""A reader of committed records must see each batch of a transaction exactly if it committed.

Method: short logs of interleaved transactions with their markers; the aborted ones named as a
broker names them; expected offsets by hand.
"""

import pytest

from ottla.records.aborted import AbortedTransactions
from ottla.records.batch import iter_headers
from ottla.records.builder import concatenate, encode_batch
from ottla.records.control import build_marker
from ottla.records.errors import CorruptBatch


def write(producer_id: int, *, transactional: bool = True) -> bytes:
    return encode_batch(
        [(None, b"%d" % producer_id, (), 0)] * 2,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=transactional,
    )


def end(producer_id: int, *, committed: bool) -> bytes:
    return build_marker(
        committed=committed,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=0,
    )


def kept(log: bytes, aborted: AbortedTransactions) -> list[int]:
    """Return the base offsets of the data batches that stay."""
    dropped = [aborted.drops(log, at, header) for at, header in iter_headers(log)]
    return [
        header.base_offset
        for (_, header), drop in zip(iter_headers(log), dropped, strict=True)
        if not drop and not header.is_control
    ]


# Offsets: 0-1 A, 2-3 B, 4-5 A, 6 A aborts, 7-8 B, 9 B commits, 10-11 A again, 12 A commits.
LOG = concatenate(
    [
        write(1),
        write(2),
        write(1),
        end(1, committed=False),
        write(2),
        end(2, committed=True),
        write(1),
        end(1, committed=True),
    ],
    base_offset=0,
)


def test_only_the_aborted_transaction_goes() -> None:
    assert kept(LOG, AbortedTransactions([(1, 0)])) == [2, 7, 10]
    assert kept(LOG, AbortedTransactions()) == [0, 2, 4, 7, 10]


def test_state_goes_on_in_the_next_buffer() -> None:
    """A fetch ends anywhere; the next one continues the same transactions."""
    cuts = [at for at, _ in iter_headers(LOG)]
    for cut in cuts:
        aborted = AbortedTransactions([(1, 0)])
        assert kept(LOG[:cut], aborted) + kept(LOG[cut:], aborted) == [2, 7, 10]


def test_a_producer_that_aborts_twice() -> None:
    log = concatenate(
        [
            write(1),
            end(1, committed=False),
            write(1),
            end(1, committed=True),
            write(1),
            end(1, committed=False),
        ],
        base_offset=0,
    )
    assert kept(log, AbortedTransactions([(1, 6), (1, 0)])) == [3]


def test_a_transaction_that_began_before_the_buffer() -> None:
    log = concatenate([write(1), end(1, committed=False), write(1)], base_offset=100)
    assert kept(log, AbortedTransactions([(1, 40)])) == [103]


def test_batches_outside_transactions_stay() -> None:
    log = concatenate(
        [write(1, transactional=False), write(-1, transactional=False)], base_offset=0
    )
    assert kept(log, AbortedTransactions([(1, 0)])) == [0, 2]


def test_a_damaged_marker_is_corrupt() -> None:
    log = bytearray(concatenate([write(1), end(1, committed=False)], base_offset=0))
    log[-12] = 0xFF
    with pytest.raises(CorruptBatch):
        kept(bytes(log), AbortedTransactions([(1, 0)]))
