"""The errors of malformed record batches, and their error codes.

`CorruptBatch` becomes CORRUPT_MESSAGE; of its subclasses, `InvalidRecord` becomes INVALID_RECORD,
`InvalidTimestamp` INVALID_TIMESTAMP, `RecordsTooLarge` MESSAGE_TOO_LARGE. `UnsupportedMagic`
becomes UNSUPPORTED_FOR_MESSAGE_FORMAT. Bytes from a peer or a disk raise nothing else.
"""


class RecordsError(ValueError):
    """The bytes cannot be taken as record batches of format version 2."""


class CorruptBatch(RecordsError):
    """The bytes are truncated, damaged or impossible."""


class InvalidRecord(CorruptBatch):
    """The batch is complete, but its records violate the format or the topic's rules."""


class InvalidTimestamp(InvalidRecord):
    """A timestamp is outside the range that readers can express."""


class RecordsTooLarge(CorruptBatch):
    """The records would decompress to more than the limit: possibly a decompression bomb."""


class UnsupportedMagic(RecordsError):
    """The batch has a message format below 2, which Kafka 4 does not support either."""
