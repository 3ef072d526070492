"""The principal in an Envelope, in the form of Kafka's default serializer.

Source: DefaultKafkaPrincipalBuilder: the version in two bytes, then DefaultPrincipalData.
"""

import struct
from functools import lru_cache

from ottla.base.principal import Principal
from ottla.wire.codec import decode, encode
from ottla.wire.errors import WireError
from ottla.wire.messages.default_principal_data import DefaultPrincipalData

VERSION = 0

CACHED_PRINCIPALS_MAX = 1_000
"""Most requests of a broker's clients come from few principals."""


@lru_cache(CACHED_PRINCIPALS_MAX)
def _serialize(type_: str, name: str, token_authenticated: bool) -> bytes:
    data = DefaultPrincipalData(type=type_, name=name, token_authenticated=token_authenticated)
    return struct.pack(">h", VERSION) + encode(data, VERSION)


def serialize_principal(principal: Principal) -> bytes:
    """Return a principal as bytes."""
    return _serialize(principal.type, principal.name, principal.token_authenticated)


def deserialize_principal(data: bytes | None) -> Principal | None:
    """Return the principal; None where the data are not one."""
    if data is None or int.from_bytes(data[:2], "big") != VERSION:
        return None
    try:
        found: DefaultPrincipalData = decode(DefaultPrincipalData, data, VERSION, 2)
    except WireError:
        return None
    return Principal(found.type, found.name, found.token_authenticated)
