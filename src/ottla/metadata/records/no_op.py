"""The record without content: it lets the committed offset advance. Source: KIP-835."""

from ottla.wire.schema import record


@record(type=20, versions="0")
class NoOpRecord:
    pass
