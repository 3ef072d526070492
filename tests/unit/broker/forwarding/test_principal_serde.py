"""The principal of an Envelope is in the form of Kafka's default serializer.

Method: bytes as Kafka writes them, by hand; there and back; and what is no principal.
"""

import pytest

from ottla.base.principal import ANONYMOUS, Principal
from ottla.broker.forwarding.principal_serde import deserialize_principal, serialize_principal

ALICE = Principal("User", "alice")
BY_TOKEN = Principal("User", "alice", token_authenticated=True)


@pytest.mark.parametrize(
    ("principal", "data"),
    [
        (ANONYMOUS, b"\0\0\5User\012ANONYMOUS\0\0"),
        (ALICE, b"\0\0\5User\6alice\0\0"),
        (BY_TOKEN, b"\0\0\5User\6alice\1\0"),
        (Principal("Service", "é"), b"\0\0\x08Service\3\xc3\xa9\0\0"),
    ],
    ids=str,
)
def test_a_principal_goes_there_and_back(principal: Principal, data: bytes) -> None:
    assert serialize_principal(principal) == data
    found = deserialize_principal(data)
    assert found == principal
    assert found is not None
    assert found.token_authenticated == principal.token_authenticated


def test_a_token_makes_no_other_principal() -> None:
    assert ALICE == BY_TOKEN
    assert serialize_principal(ALICE) != serialize_principal(BY_TOKEN)


@pytest.mark.parametrize("data", [None, b"", b"\0", b"\0\1\5User\6alice\0\0", b"\0\0\5Us"])
def test_other_data_is_no_principal(data: bytes | None) -> None:
    assert deserialize_principal(data) is None
