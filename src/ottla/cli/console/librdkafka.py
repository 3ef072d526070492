"""librdkafka's configuration and errors, for the console and performance commands."""

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from ottla.cli.encode_errors import is_text
from ottla.cli.errors import CommandError, UsageError, shortened, shown
from ottla.cli.options import (
    choose_config,
    key_values,
    read_property_file,
    warn_deprecated,
)
from ottla.client.errors import seconds_text
from ottla.metadata.topic_names import fault_of

REPORT_SECONDS = 1.0
TRY_SECONDS = 0.5
"""Limit of one call into librdkafka: Ctrl-C is handled between two calls."""

QUIET_LOG_LEVEL = 2
"""Critical only: below that librdkafka logs each refused connection."""

IGNORED = frozenset(
    {
        "buffer.memory",
        "default.api.timeout.ms",
        "interceptor.classes",
        "key.deserializer",
        "key.serializer",
        "max.block.ms",
        "max.poll.records",
        "metric.reporters",
        "partitioner.class",
        "value.deserializer",
        "value.serializer",
    }
)
"""Properties of the Java clients without an equivalent in librdkafka; ignored."""

RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
"""Properties of the Java clients that have another name in librdkafka."""


PYTHON_ONLY = frozenset(
    {
        "default.topic.config",
        "delivery.report.only.error",
        "error_cb",
        "logger",
        "oauth_cb",
        "stats_cb",
        "throttle_cb",
    }
)
"""Properties whose values are Python objects. Text for them raises arbitrary exceptions."""


def is_valid_text(text: str) -> bool:
    """Tell whether the text is UTF-8 without NUL bytes, as librdkafka's C strings need."""
    return is_text(text) and "\0" not in text


def check_topic(name: str) -> None:
    """Raise UsageError for an invalid topic name: librdkafka aborts on some of them."""
    fault = fault_of(name)
    if fault is not None:
        raise UsageError(f"--topic {shown(shortened(name))}: {fault}")


def client_properties(pairs: list[str], option: str) -> dict[str, str]:
    """Return `NAME=VALUE` arguments. Raises: UsageError, naming `option`."""
    for pair in pairs:
        if not is_valid_text(pair):
            raise UsageError(f"{option} {shown(shortened(pair))}: expected text in UTF-8")
    return key_values(pairs, option)


def given_properties(
    kind: str,
    command_config: str | None,
    command_property: list[str],
    former_config: str | None,
    former_property: list[str],
    *,
    former_name: str | None = None,
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the client properties of the options: those in a file, and single ones, which win.

    `kind`: producer or consumer, as in the options' names before Kafka 4.2 (KIP-1147).
    Raises: UsageError where a former and a current name are used together.
    """
    config = choose_config("--command-config", command_config, f"--{kind}.config", former_config)
    name, former = "--command-property", former_name or f"--{kind}-property"
    if command_property and former_property:
        raise UsageError(f"Options {name} and {former} cannot be specified together.")
    if former_property:
        warn_deprecated(former, name)
        return read_property_file(config), client_properties(former_property, former)
    return read_property_file(config), client_properties(command_property, name)


def translate(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return Java client properties under librdkafka's names."""
    return {
        RENAMED.get(name, name): value for name, value in properties.items() if name not in IGNORED
    }


def base_config(bootstrap: str) -> dict[str, Any]:
    """Return the configuration that overrides all other properties."""
    return {
        "bootstrap.servers": bootstrap,
        "log_level": QUIET_LOG_LEVEL,
        "error_cb": _ErrorReporter(),
    }


def make(kind: Callable[[dict[str, Any]], Any], config: dict[str, Any]) -> Any:
    """Return a client; raise CommandError for a property that librdkafka rejects."""
    from confluent_kafka import KafkaException

    for name, value in config.items():
        if not isinstance(value, str):
            continue
        subject = f"client configuration: {shown(shortened(f'{name}={value}'))}"
        if not is_valid_text(name + value):
            raise CommandError(f"{subject}: expected text in UTF-8")
        if name in PYTHON_ONLY:
            raise CommandError(f"{subject}: expected a property that text can set")
    try:
        return kind(config)
    except KafkaException as error:
        raise CommandError(f"client configuration: {reason_of(error)}") from None


def find_broker(
    client: Any, topic: str | None, config: Mapping[str, Any], timeout: float
) -> dict[str, int]:
    """Wait until a broker responds; return the partition count of each topic in its metadata.

    Raises CommandError at the timeout.
    """
    bootstrap = config["bootstrap.servers"]
    began = time.monotonic()
    is_reported = False
    while True:
        found = _list_topics(client, topic, min(timeout, TRY_SECONDS))
        if found is not None:
            return found
        waited = time.monotonic() - began
        if waited >= timeout:
            reason = config["error_cb"].reason(client)
            raise CommandError(
                f"no broker answers at {bootstrap} within {seconds_text(timeout)}{reason}"
            )
        if not is_reported and waited >= REPORT_SECONDS:
            print(f"waiting for a broker at {bootstrap}", file=sys.stderr, flush=True)
            is_reported = True


def _list_topics(client: Any, topic: str | None, timeout: float) -> dict[str, int] | None:
    from confluent_kafka import KafkaError, KafkaException

    absent = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN)
    named = {} if topic is None else {"topic": topic}
    try:
        response = client.list_topics(timeout=timeout, **named)
    except KafkaException as error:
        if error.args[0].code() in absent:
            return None
        raise CommandError(reason_of(error)) from None
    return {name: len(each.partitions) for name, each in response.topics.items()}


def reason_of(error: Any) -> str:
    """Return the message of a KafkaException or KafkaError, with its code's name."""
    inner = error.args[0] if isinstance(error, Exception) and error.args else error
    return f"{' '.join(inner.str().split())} ({inner.name().lstrip('_')})"


class _ErrorReporter:
    """Prints "all brokers down" once, and again only after another error."""

    def __init__(self) -> None:
        self._last = ""
        self._reason = ""
        self._is_silent = False

    def __call__(self, error: Any) -> None:
        text = error.str()
        if error.name() != "_ALL_BROKERS_DOWN":
            self._reason = text
        elif text != self._last and not self._is_silent:
            print(f"WARN: {text}; retrying", file=sys.stderr, flush=True)
            self._last = text

    def reason(self, client: Any) -> str:
        """Return the last connection error as a suffix of a message; "" if there was none."""
        self._is_silent = True
        client.poll(0)  # Runs the error callback.
        self._is_silent = False
        text = " ".join(self._reason.partition(" (after ")[0].split())
        return f": {text}" if text else ""
