"""SaslHandshake (key 17). Source: SaslHandshake{Request,Response}.json."""

from ottla.wire.schema import INT16, STRING, array, field, message


@message(key=17, versions="0-1")
class SaslHandshakeRequest:
    mechanism: str = field(STRING)


@message(key=17, versions="0-1")
class SaslHandshakeResponse:
    error_code: int = field(INT16)
    mechanisms: tuple[str, ...] = field(array(STRING))
