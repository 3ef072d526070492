"""CreateDelegationToken (key 38). Source: CreateDelegationToken{Request,Response}.json."""

from ottla.wire.schema import BYTES, INT16, INT32, INT64, STRING, array, field, message, struct_of


@struct_of
class CreatableRenewers:
    principal_type: str = field(STRING)
    principal_name: str = field(STRING)


@message(key=38, versions="0-3", flexible="2+")
class CreateDelegationTokenRequest:
    owner_principal_type: str | None = field(STRING, versions="3+", nullable="3+", default=None)
    owner_principal_name: str | None = field(STRING, versions="3+", nullable="3+", default=None)
    renewers: tuple[CreatableRenewers, ...] = field(array(CreatableRenewers))
    max_lifetime_ms: int = field(INT64)


@message(key=38, versions="0-3", flexible="2+")
class CreateDelegationTokenResponse:
    error_code: int = field(INT16)
    principal_type: str = field(STRING)
    principal_name: str = field(STRING)
    token_requester_principal_type: str = field(STRING, versions="3+", default="")
    token_requester_principal_name: str = field(STRING, versions="3+", default="")
    issue_timestamp_ms: int = field(INT64)
    expiry_timestamp_ms: int = field(INT64)
    max_timestamp_ms: int = field(INT64)
    token_id: str = field(STRING)
    hmac: bytes = field(BYTES)
    throttle_time_ms: int = field(INT32, default=0)
