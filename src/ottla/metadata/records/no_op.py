"""The record that says nothing: it lets the committed offset move. Source: KIP-835."""

from ottla.wire.schema import record


@record(type=20, versions="0")
class NoOpRecord:
    pass
