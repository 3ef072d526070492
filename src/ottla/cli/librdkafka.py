"""What both console commands need of librdkafka: its configuration and its errors in our words."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

from ottla.cli.errors import CommandError

TELL_SECONDS = 1.0

QUIET_LOG_LEVEL = 2
"""Critical only: librdkafka logs each refused connection otherwise."""

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
"""Properties of the Java clients without a counterpart that the console needs."""

RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
"""Properties of the Java clients that librdkafka calls otherwise."""


def translate(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return Java client properties as librdkafka takes them."""
    return {
        RENAMED.get(name, name): value for name, value in properties.items() if name not in IGNORED
    }


def base_config(bootstrap: str) -> dict[str, Any]:
    """Return the configuration that comes before all others."""
    return {
        "bootstrap.servers": bootstrap,
        "log_level": QUIET_LOG_LEVEL,
        "error_cb": _Complaints(),
    }


def make(kind: Callable[[dict[str, Any]], Any], config: dict[str, Any]) -> Any:
    """Return a client; raise CommandError for a property that librdkafka does not take."""
    from confluent_kafka import KafkaException

    try:
        return kind(config)
    except KafkaException as error:
        raise CommandError(f"client configuration: {reason_of(error)}") from None


def find_broker(client: Any, topic: str | None, bootstrap: str, timeout: float) -> None:
    """Wait until a broker answers; raise CommandError where none does in time."""
    if timeout > TELL_SECONDS:
        if _answers(client, topic, TELL_SECONDS):
            return
        print(f"waiting for a broker at {bootstrap}", file=sys.stderr, flush=True)
    if not _answers(client, topic, max(timeout - TELL_SECONDS, min(timeout, TELL_SECONDS))):
        raise CommandError(f"no broker answers at {bootstrap} within {timeout:g} s")


def _answers(client: Any, topic: str | None, timeout: float) -> bool:
    from confluent_kafka import KafkaError, KafkaException

    absent = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN)
    named = {} if topic is None else {"topic": topic}
    try:
        client.list_topics(timeout=timeout, **named)
    except KafkaException as error:
        if error.args[0].code() in absent:
            return False
        raise CommandError(reason_of(error)) from None
    return True


def reason_of(error: Any) -> str:
    """Return a KafkaException's or KafkaError's words with its code's name."""
    inner = error.args[0] if isinstance(error, Exception) and error.args else error
    return f"{inner.str()} ({inner.name().lstrip('_')})"


class _Complaints:
    """Says once that the brokers have gone, and again only after another complaint."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, error: Any) -> None:
        text = error.str()
        if error.name() == "_ALL_BROKERS_DOWN" and text != self._last:
            print(f"WARN: {text}: still trying", file=sys.stderr, flush=True)
            self._last = text
