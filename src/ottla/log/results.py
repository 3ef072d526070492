"""What a log's appends and reads answer."""

from typing import NamedTuple

from ottla.log.slices import FileSlice


class AppendInfo(NamedTuple):
    """What became of an append.

    Fields: `log_append_time_ms`: -1 unless the topic stamps it; `duplicate`: nothing was written,
            the offsets are those of the first time; `flush_due`: `flush.messages` is reached, so
            an acknowledgement must wait for `PartitionLog.flush`.
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
    """What a read found. Whoever takes the slices releases them.

    Fields: `size`: bytes in all; `first_too_large`: there are records, but the first batch is
            larger than `max_bytes` and no batch had to be returned.
    """

    slices: tuple[FileSlice, ...]
    size: int
    first_too_large: bool = False


NOTHING = ReadResult((), 0)


class UnexpectedOffset(ValueError):
    """A replica was given batches that do not follow its log's end."""
