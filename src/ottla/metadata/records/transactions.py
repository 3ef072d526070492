"""The marks around records that hold together or not at all. Source: KIP-868.

Ottla's own steps are batches, which are atomic anyway, so it never writes them. Kafka puts them
around what it bootstraps a cluster with.
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
