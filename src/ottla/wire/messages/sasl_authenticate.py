"""SaslAuthenticate (key 36). Source: SaslAuthenticate{Request,Response}.json."""

from ottla.wire.schema import BYTES, INT16, INT64, STRING, field, message


@message(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    auth_bytes: bytes = field(BYTES)


@message(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    auth_bytes: bytes = field(BYTES)
    session_lifetime_ms: int = field(INT64, versions="1+", default=0, ignorable=True)
