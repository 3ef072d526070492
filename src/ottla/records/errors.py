"""What can be wrong with bytes that claim to be record batches.

The broker turns these into error codes: `CorruptBatch` into CORRUPT_MESSAGE, its children
`InvalidRecord` into INVALID_RECORD, its child `InvalidTimestamp` into INVALID_TIMESTAMP,
`RecordsTooLarge` into MESSAGE_TOO_LARGE,
`UnsupportedMagic` into UNSUPPORTED_FOR_MESSAGE_FORMAT.
Bytes from a peer or a disk raise nothing else.
"""


class RecordsError(ValueError):
    """The bytes cannot be taken as record batches of format version 2."""


class CorruptBatch(RecordsError):
    """The bytes are truncated, damaged or absurd."""


class InvalidRecord(CorruptBatch):
    """The batch arrived whole, but its records break the rules of the format or of the topic."""


class InvalidTimestamp(InvalidRecord):
    """A timestamp is beyond what any reader can express."""


class RecordsTooLarge(CorruptBatch):
    """The records would decompress to more than the reader takes: a bomb, or nearly one."""


class UnsupportedMagic(RecordsError):
    """The batch has a message format older than 2, which Kafka 4 no longer takes either."""
