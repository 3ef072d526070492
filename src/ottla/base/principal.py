"""Who sent a request. Source: Kafka's KafkaPrincipal."""

from dataclasses import dataclass, field

USER_TYPE = "User"


@dataclass(frozen=True, slots=True)
class Principal:
    """The identity of a client or node, as its connection has authenticated it.

    `token_authenticated`: with a delegation token; it is the same principal without.
    """

    type: str
    name: str
    token_authenticated: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal(USER_TYPE, "ANONYMOUS")
"""Whoever is connected to a listener without authentication, as PLAINTEXT is."""
