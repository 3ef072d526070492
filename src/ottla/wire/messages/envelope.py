"""Envelope (key 58). Source: Envelope{Request,Response}.json.

Ottla's own: a tagged field of the response. Others ignore it; Kafka's controllers do not send it.
"""

from typing import Final

from ottla.wire.schema import BYTES, INT16, INT64, field, message

COMMITTED_OFFSET_TAG: Final = 10004
"""Above all tags that Kafka has given out."""


@message(key=58, versions="0", flexible="0+")
class EnvelopeRequest:
    request_data: bytes = field(BYTES)
    request_principal: bytes | None = field(BYTES, nullable="0+")
    client_host_address: bytes = field(BYTES)


@message(key=58, versions="0", flexible="0+")
class EnvelopeResponse:
    response_data: bytes | None = field(BYTES, nullable="0+", default=None)
    error_code: int = field(INT16)
    committed_offset: int = field(
        INT64, versions="0+", tag=COMMITTED_OFFSET_TAG, default=-1, ignorable=True
    )
    """The last metadata record that was committed when the controller answered; -1 = not told."""
