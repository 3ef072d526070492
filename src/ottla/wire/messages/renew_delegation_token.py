"""RenewDelegationToken (key 39). Source: RenewDelegationToken{Request,Response}.json."""

from ottla.wire.schema import BYTES, INT16, INT32, INT64, field, message


@message(key=39, versions="0-2", flexible="2+")
class RenewDelegationTokenRequest:
    hmac: bytes = field(BYTES)
    renew_period_ms: int = field(INT64)


@message(key=39, versions="0-2", flexible="2+")
class RenewDelegationTokenResponse:
    error_code: int = field(INT16)
    expiry_timestamp_ms: int = field(INT64)
    throttle_time_ms: int = field(INT32, default=0)
