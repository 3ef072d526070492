"""AlterUserScramCredentials (key 51). Source: AlterUserScramCredentials{Request,Response}.json."""

from ottla.wire.schema import BYTES, INT8, INT16, INT32, STRING, array, field, message, struct_of


@struct_of
class ScramCredentialDeletion:
    name: str = field(STRING)
    mechanism: int = field(INT8)
    """1 = SCRAM-SHA-256, 2 = SCRAM-SHA-512."""


@struct_of
class ScramCredentialUpsertion:
    name: str = field(STRING)
    mechanism: int = field(INT8)
    """1 = SCRAM-SHA-256, 2 = SCRAM-SHA-512."""
    iterations: int = field(INT32)
    salt: bytes = field(BYTES)
    salted_password: bytes = field(BYTES)


@message(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest:
    deletions: tuple[ScramCredentialDeletion, ...] = field(array(ScramCredentialDeletion))
    upsertions: tuple[ScramCredentialUpsertion, ...] = field(array(ScramCredentialUpsertion))


@struct_of
class AlterUserScramCredentialsResult:
    user: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


@message(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    results: tuple[AlterUserScramCredentialsResult, ...] = field(
        array(AlterUserScramCredentialsResult)
    )
