"""Envelope (key 58). Source: Envelope{Request,Response}.json."""

from ottla.wire.schema import BYTES, INT16, field, message


@message(key=58, versions="0", flexible="0+")
class EnvelopeRequest:
    request_data: bytes = field(BYTES)
    request_principal: bytes | None = field(BYTES, nullable="0+")
    client_host_address: bytes = field(BYTES)


@message(key=58, versions="0", flexible="0+")
class EnvelopeResponse:
    response_data: bytes | None = field(BYTES, nullable="0+", default=None)
    error_code: int = field(INT16)
