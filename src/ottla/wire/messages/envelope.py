"""Envelope (key 58). Source: Envelope{Request,Response}.json.

Ottla's own: tagged fields of the response. Others ignore them; Kafka's controllers send none.
"""

from typing import Final

from ottla.wire.schema import BOOL, BYTES, INT16, INT64, field, message

COMMITTED_OFFSET_TAG: Final = 10004
"""Above all tags that Kafka has given out."""

UNTOUCHED_TAG: Final = 10005


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
    """The last metadata record that was committed when the controller answered; -1 = not given."""
    untouched: bool = field(BOOL, versions="0+", tag=UNTOUCHED_TAG, default=False, ignorable=True)
    """With an error: nothing was done of the request. False = not given."""
