"""The metadata log's batches are decoded once in a history, not once by each node and each start.

All nodes read the same bytes, and the product decodes them into frozen values. So nodes may share
these as long as the bytes are equal; what differs by a bit is decoded by itself. The checksum is
still verified by every reader.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from ottla.base.ports import Buffer
from ottla.host.kraft import quorum_replay
from ottla.raft import batches
from ottla.raft.batches import LogBatch
from ottla.records.batch import BatchHeader, parse_header

KEPT = 65_536
"""Batches, and records, that are kept."""


@contextmanager
def decoded_once() -> Iterator[None]:
    """Share decoded batches and metadata records of all nodes within this block."""
    # Their functions are replaced: the product has no use for such a cache.
    raft: Any = batches
    replay: Any = quorum_replay
    decode_batch, decode_entry = raft._batch, replay.decode_entry

    @lru_cache(maxsize=KEPT)
    def shared(data: bytes) -> LogBatch:
        made: LogBatch = decode_batch(data, 0, parse_header(data))
        return made

    def decoded(data: Buffer, position: int, header: BatchHeader) -> LogBatch:
        return shared(bytes(data[position : position + header.size_in_bytes]))

    raft._batch, replay.decode_entry = decoded, lru_cache(maxsize=KEPT)(decode_entry)
    try:
        yield
    finally:
        raft._batch, replay.decode_entry = decode_batch, decode_entry
