"""A split in the object store: every offset exactly once, as Arrow batches; gaps are reported.

The object is read in ranges of a bounded size, the next ones while one is decoded. What comes from
the store is checked: structure, offsets, leader epochs, checksums. Order: offsets ascend.
"""

from collections.abc import Iterator
from typing import Any, Final

from ottla.base.ports import Buffer
from ottla.records.aborted import AbortedTransactions
from ottla.records.batch import iter_headers
from ottla.records.columnar import decode
from ottla.records.errors import CorruptBatch, RecordsError
from ottla.spark.losses import missing_records, report_losses
from ottla.spark.options import ReadOptions
from ottla.spark.reading import ConstantColumns, measure
from ottla.spark.schema import record_columns
from ottla.spark.splits import RemotePlace, Split
from ottla.spark.tiers.store_session import Read, StoreSession

READS_AT_ONCE: Final = 3
"""Ranges in memory: one is decoded, two are read ahead."""
BEHIND_BYTES: Final = 64 * 1024
"""The first read behind what the index says is needed; each one after it is twice as large."""


class RemoteSplitReader:
    """Reads one split. `offset`: the first one that was not yielded yet.

    Raises: ObjectMissingError, RemoteStorageError; DataLossError where records are missing, unless
            `failOnDataLoss` is false; CorruptBatch.
    """

    def __init__(
        self, split: Split, session: StoreSession, options: ReadOptions, columns: tuple[str, ...]
    ) -> None:
        assert split.remote is not None
        self.offset = split.start
        self._split = split
        self._place = split.remote
        self._session = session
        self._options = options
        self._columns = columns
        self._aborted = AbortedTransactions(split.remote.aborted)
        self._epoch = -1

    def batches(self) -> Iterator[Any]:
        """Yield the records as batches of the columns."""
        constants = ConstantColumns(self._split, self._columns)
        try:
            for records in self._decoded():
                yield constants.add_to(records)
        except RecordsError as error:
            raise CorruptBatch(f"{self._place.name}: {error}") from error

    def _decoded(self) -> Iterator[Any]:
        split, options = self._split, self._options
        rest: Buffer = b""
        is_first = True
        for data in object_data(self._session, self._place, options.fetch_bytes):
            buffer = memoryview(b"".join((rest, data)) if len(rest) else data)
            if is_first:
                self._check_begin(buffer)
                is_first = False
            coverage = measure(
                buffer,
                self.offset,
                split.end,
                epoch=self._epoch,
                contiguous=split.contiguous,
                may_precede=True,
            )
            report_losses(missing_records(split, coverage.gaps), fail=options.fail_on_data_loss)
            yield from decode(
                buffer[: coverage.size],
                lo=self.offset,
                hi=coverage.next_offset,
                columns=record_columns(self._columns),
                aborted=self._aborted,
                verify_crc=options.verify_crc,
            )
            self.offset, self._epoch = coverage.next_offset, coverage.epoch
            if self.offset == split.end:
                return
            rest = buffer[coverage.size :]
        if len(rest):
            raise CorruptBatch(f"the batch behind offset {self.offset} is cut")
        gap = [(self.offset, split.end)] if split.contiguous else []
        report_losses(missing_records(split, gap), fail=options.fail_on_data_loss)
        self.offset = split.end

    def _check_begin(self, buffer: Buffer) -> None:
        """Refuse an index that leads behind the split's start: records would be left out."""
        first = next(iter_headers(buffer, allow_partial=True), None)
        if self._place.position and first is not None and first[1].base_offset > self.offset:
            raise CorruptBatch(f"the index leads {self.offset} to {first[1].base_offset}")


def object_data(session: StoreSession, place: RemotePlace, size: int) -> Iterator[Buffer]:
    """Yield an object's bytes from a place's position to the object's end, in ranges of a size.

    Up to the place's end they are read ahead; what is behind is hardly ever needed.
    Raises: ObjectMissingError, RemoteStorageError; CorruptBatch where the object is too short.
    """
    begin, end = place.position, min(place.end_position, place.size_bytes)
    planned = list(_ranges(place.name, begin, end, size))
    found = session.read_ahead(planned, READS_AT_ONCE)
    for (_, _, length), data in zip(planned, found, strict=True):
        yield _whole(data, length)
    position, size_behind = end, min(BEHIND_BYTES, size)
    while position < place.size_bytes:
        length = min(size_behind, place.size_bytes - position)
        yield _whole(session.read(place.name, position, length), length)
        position, size_behind = position + length, min(2 * size_behind, size)


def _whole(data: Buffer, length: int) -> Buffer:
    if len(data) != length:
        raise CorruptBatch(f"a range of {length} bytes has {len(data)}: the object is cut")
    return data


def _ranges(name: str, begin: int, end: int, size: int) -> Iterator[Read]:
    for start in range(begin, end, size):
        yield name, start, min(size, end - start)
