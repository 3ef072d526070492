"""`ottla console-consumer`: its group has read what it has printed, and nothing else.

Method: librdkafka's mock broker has the records and the group's offsets. The consumer is the
command's, but assigned: joining a group of the mock broker takes seconds.
"""

import io
import signal
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from ottla.cli.console import librdkafka
from ottla.cli.console.console_consumer import INTERRUPTED, _Printer, _read, consumer_settings
from ottla.cli.console.record_text import RecordText, Shown, record_text
from ottla.cli.errors import CommandError

VALUES = [b"\0\0", b"\0\1", b"not a short", b"\0\3", b"\0\4"]
BAD = 2
"""The offset of the value that is no short."""

SHORTS = {"value.deserializer": "org.apache.kafka.common.serialization.ShortDeserializer"}


@pytest.fixture
def bootstrap() -> Iterator[str]:
    """The address of a broker whose topic t has VALUES in partition 0."""
    producer = Producer(
        {"log_level": 0, "bootstrap.servers": "of.the.mock", "test.mock.num.brokers": 1}
    )
    for value in VALUES:
        producer.produce("t", value, partition=0)
    assert producer.flush(10) == 0
    (broker,) = producer.list_topics(timeout=10).brokers.values()
    yield f"{broker.host}:{broker.port}"
    producer.flush(0)  # The broker lives as long as its client.


def read(bootstrap: str, *, skip: bool = False, count: int | None = None) -> int:
    """Read the topic from its start as the group g; return the exit code."""
    consumer: Any = librdkafka.make(Consumer, consumer_settings(bootstrap, {}, "g", True))
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    return _read(consumer, _Printer(record_text(SHORTS), skip), count, None)


def committed(bootstrap: str) -> int:
    """Return the group's offset; negative = none."""
    consumer: Any = Consumer({"log_level": 0, "bootstrap.servers": bootstrap, "group.id": "g"})
    try:
        (found,) = consumer.committed([TopicPartition("t", 0)], timeout=10)
    finally:
        consumer.close()
    offset: int = found.offset
    return offset


def test_all_that_is_printed_or_skipped_is_committed(
    bootstrap: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert read(bootstrap, skip=True, count=len(VALUES)) == 0
    assert capfdbinary.readouterr().out == b"0\n1\n3\n4\n"
    assert committed(bootstrap) == len(VALUES)


def test_records_behind_an_unreadable_one_are_not_committed(
    bootstrap: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    with pytest.raises(CommandError, match=f"^t-0, offset {BAD}: "):
        read(bootstrap)
    assert capfdbinary.readouterr().out == b"0\n1\n"
    assert committed(bootstrap) == BAD


def test_records_that_a_signal_keeps_from_being_printed_are_not_committed(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    line = RecordText.line

    def line_or_signal(text: RecordText, record: Shown) -> bytes:
        if record.offset == BAD:
            signal.raise_signal(signal.SIGTERM)
        return line(text, record)

    monkeypatch.setattr(RecordText, "line", line_or_signal)
    assert read(bootstrap) == INTERRUPTED
    assert capfdbinary.readouterr().out == b"0\n1\n"
    assert committed(bootstrap) == BAD


def test_records_that_a_closed_pipe_does_not_take_are_not_committed(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Closed(io.BytesIO):
        def flush(self) -> None:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=Closed()))
    assert read(bootstrap, skip=True) == 0
    assert committed(bootstrap) < 0
