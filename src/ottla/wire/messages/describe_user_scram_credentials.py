"""DescribeUserScramCredentials (key 50). Source:
DescribeUserScramCredentials{Request,Response}.json.
"""

from ottla.wire.schema import INT8, INT16, INT32, STRING, array, field, message, struct_of


@struct_of
class UserName:
    name: str = field(STRING)


@message(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    users: tuple[UserName, ...] | None = field(array(UserName), nullable="0+")


@struct_of
class CredentialInfo:
    mechanism: int = field(INT8)
    iterations: int = field(INT32)


@struct_of
class DescribeUserScramCredentialsResult:
    user: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    credential_infos: tuple[CredentialInfo, ...] = field(array(CredentialInfo))


@message(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    results: tuple[DescribeUserScramCredentialsResult, ...] = field(
        array(DescribeUserScramCredentialsResult)
    )
