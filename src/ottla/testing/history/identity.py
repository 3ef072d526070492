"""Identifies records in a history: by unique values, which tombstones carry in a header."""

from ottla.records.record import Record


def identity(record: Record) -> bytes:
    """Return a record's unique value; empty = it has none."""
    if record.value is not None:
        return record.value
    return next((value for _, value in record.headers if value is not None), b"")
