"""The record of an allocated block of producer ids. Source: ProducerIdsRecord; KIP-730."""

from ottla.wire.schema import INT32, INT64, field, record


@record(type=15, versions="0")
class ProducerIdsRecord:
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)
    next_producer_id: int = field(INT64)
    """The first id of the next block."""
