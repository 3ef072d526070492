"""DescribeDelegationToken (key 41). Source: DescribeDelegationToken{Request,Response}.json."""

from ottla.wire.schema import BYTES, INT16, INT32, INT64, STRING, array, field, message, struct_of


@struct_of
class DescribeDelegationTokenOwner:
    principal_type: str = field(STRING)
    principal_name: str = field(STRING)


@message(key=41, versions="0-3", flexible="2+")
class DescribeDelegationTokenRequest:
    owners: tuple[DescribeDelegationTokenOwner, ...] | None = field(
        array(DescribeDelegationTokenOwner), nullable="0+"
    )


@struct_of
class DescribedDelegationTokenRenewer:
    principal_type: str = field(STRING)
    principal_name: str = field(STRING)


@struct_of
class DescribedDelegationToken:
    principal_type: str = field(STRING)
    principal_name: str = field(STRING)
    token_requester_principal_type: str = field(STRING, versions="3+", default="")
    token_requester_principal_name: str = field(STRING, versions="3+", default="")
    issue_timestamp: int = field(INT64)
    expiry_timestamp: int = field(INT64)
    max_timestamp: int = field(INT64)
    token_id: str = field(STRING)
    hmac: bytes = field(BYTES)
    renewers: tuple[DescribedDelegationTokenRenewer, ...] = field(
        array(DescribedDelegationTokenRenewer)
    )


@message(key=41, versions="0-3", flexible="2+")
class DescribeDelegationTokenResponse:
    error_code: int = field(INT16)
    tokens: tuple[DescribedDelegationToken, ...] = field(array(DescribedDelegationToken))
    throttle_time_ms: int = field(INT32, default=0)
