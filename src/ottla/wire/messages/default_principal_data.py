"""DefaultPrincipalData: the principal inside an Envelope. Source: DefaultPrincipalData.json."""

from ottla.wire.schema import BOOL, STRING, field, message


@message(versions="0", flexible="0+")
class DefaultPrincipalData:
    type: str = field(STRING)
    name: str = field(STRING)
    token_authenticated: bool = field(BOOL)
