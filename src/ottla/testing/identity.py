"""How a history tells records apart: by unique values, which tombstones have in a header."""

from ottla.records.record import Record


def identity(record: Record) -> bytes:
    """Return what names a record in a history; empty = nobody sent it with a name."""
    if record.value is not None:
        return record.value
    return next((value for _, value in record.headers if value is not None), b"")
