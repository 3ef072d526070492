"""The results of a log's appends and reads."""

from typing import NamedTuple

from ottla.base.errors import ApiError, Error
from ottla.log.file_cache import FileSlice, SliceCopy


class AppendInfo(NamedTuple):
    """The result of an append.

    Fields: `log_append_time_ms`: -1 unless the topic uses LogAppendTime; `duplicate`: nothing was
            written, the offsets are those of the first append; `flush_due`: `flush.messages` is
            reached, so the acknowledgement must wait for `PartitionLog.flush`.
    """

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool
    record_count: int
    size: int
    flush_due: bool


class ReadResult(NamedTuple):
    """The result of a read. The caller releases the slices.

    Fields: `size`: bytes in all; `first_too_large`: there are records, but the first batch is
            larger than `max_bytes` and no batch had to be returned.
    """

    slices: tuple[FileSlice | SliceCopy, ...]
    size: int
    first_too_large: bool = False


NOTHING = ReadResult((), 0)


class DamagedLog(ApiError):
    """A log cannot be truncated, or a transaction index cannot be read: a file is damaged. Nothing
    has changed.

    Fields: `path`: the file; `good_end`: the offset behind the last sound batch before the damage;
            of a transaction index, its segment's base offset.
    """

    def __init__(self, message: str, *, path: str, good_end: int) -> None:
        super().__init__(Error.CORRUPT_MESSAGE, message)
        self.path = path
        self.good_end = good_end


class UnexpectedOffset(ValueError):
    """A follower got batches that do not continue its log."""
