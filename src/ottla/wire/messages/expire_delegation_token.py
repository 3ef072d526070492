"""ExpireDelegationToken (key 40). Source: ExpireDelegationToken{Request,Response}.json."""

from ottla.wire.schema import BYTES, INT16, INT32, INT64, field, message


@message(key=40, versions="0-2", flexible="2+")
class ExpireDelegationTokenRequest:
    hmac: bytes = field(BYTES)
    expiry_time_period_ms: int = field(INT64)


@message(key=40, versions="0-2", flexible="2+")
class ExpireDelegationTokenResponse:
    error_code: int = field(INT16)
    expiry_timestamp_ms: int = field(INT64)
    throttle_time_ms: int = field(INT32, default=0)
