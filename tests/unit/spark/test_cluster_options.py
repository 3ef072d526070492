"""Addresses must parse as Kafka's clients take them; defaults are Kafka's."""

import pytest

from ottla.spark.cluster_options import client_config
from ottla.spark.errors import OptionError
from ottla.spark.raw_options import RawOptions

SERVERS = "kafka.bootstrap.servers"


@pytest.mark.parametrize("text", ["", "a", "a:", ":1", "a:x", "a:0", "a:65536", "a:1,"])
def test_wrong_addresses(text: str) -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers.*expected HOST:PORT\["):
        client_config(RawOptions.of({SERVERS: text}))


def test_no_addresses() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing"):
        client_config(RawOptions.of({}))


def test_defaults_are_those_of_kafka() -> None:
    config = client_config(RawOptions.of({SERVERS: "a:1"}))
    assert (config.request_s, config.retry_s, config.backoff_s) == (30, 60, 0.1)
    assert config.bootstrap_s == 15


def test_times_are_milliseconds() -> None:
    names = ("request.timeout", "default.api.timeout", "retry.backoff")
    times = {f"kafka.{name}.ms": str(number) for number, name in enumerate(names, 1)}
    config = client_config(RawOptions.of({SERVERS: "a:1", **times}))
    assert (config.request_s, config.retry_s, config.backoff_s) == (0.001, 0.002, 0.003)
    assert config.bootstrap_s == 0.002
