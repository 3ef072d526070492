"""Addresses must parse as Kafka's clients take them. Method: tables."""

import pytest

from ottla.client.addresses import Address, parse_addresses


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("a:1, b:2", [("a", 1), ("b", 2)]),
        ("[::1]:9092", [("::1", 9092)]),
        ("PLAINTEXT://a:1", [("a", 1)]),
    ],
)
def test_addresses(text: str, addresses: list[Address]) -> None:
    assert parse_addresses(text) == addresses


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost",
        "localhost:",
        ":9092",
        "a:b",
        "a:0",
        "a:70000",
        "a..b:1",
        "a" * 64 + ":1",
        "a:" + "9" * 5000,
    ],
)
def test_invalid_addresses(text: str) -> None:
    with pytest.raises(ValueError, match="expected HOST:PORT"):
        parse_addresses(text)
