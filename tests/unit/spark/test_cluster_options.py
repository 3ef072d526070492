"""Addresses must parse as Kafka's clients take them. Method: tables."""

import pytest

from ottla.spark.cluster_options import Address, ClusterOptions, parse_bootstrap
from ottla.spark.errors import OptionError
from ottla.spark.raw_options import RawOptions


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost:9092", (("localhost", 9092),)),
        ("a:1, b:2", (("a", 1), ("b", 2))),
        ("PLAINTEXT://a:1", (("a", 1),)),
        ("[::1]:9092", (("::1", 9092),)),
    ],
)
def test_addresses(text: str, addresses: tuple[Address, ...]) -> None:
    assert parse_bootstrap(text) == addresses


@pytest.mark.parametrize("text", [None, "", "a", "a:", ":1", "a:x", "a:0", "a:65536", "a:1,"])
def test_wrong_addresses(text: str | None) -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers"):
        parse_bootstrap(text)


def test_defaults_are_those_of_kafka() -> None:
    options = ClusterOptions.of(RawOptions.of({"kafka.bootstrap.servers": "a:1"}))
    assert options.request_timeout_ms == 30_000
    assert options.api_timeout_ms == 60_000
    assert options.retry_backoff_ms == 100
