"""The markers of metadata transactions. Source: KIP-868.

Ottla's own steps are batches, which are atomic anyway, so it never writes them. Kafka writes them
around a cluster's bootstrap records.
"""

from ottla.wire.schema import STRING, field, record


@record(type=23, versions="0")
class BeginTransactionRecord:
    name: str | None = field(STRING, nullable="0+", tag=0, default=None)


@record(type=24, versions="0")
class EndTransactionRecord:
    pass


@record(type=25, versions="0")
class AbortTransactionRecord:
    reason: str | None = field(STRING, nullable="0+", tag=0, default=None)
