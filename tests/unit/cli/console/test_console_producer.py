"""What `ottla console-producer` does with lines that no broker has seen yet.

Method: librdkafka's own mock broker, in this process.
"""

from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.cli.console.console_producer import _send
from ottla.cli.console.line_reader import LineReader
from ottla.cli.errors import CommandError

KIB = 1024


def test_a_line_that_the_queue_can_never_hold_is_refused() -> None:
    """It would be tried for ever."""
    settings: dict[str, Any] = {
        "test.mock.num.brokers": 1,
        "queue.buffering.max.kbytes": 16,
        "message.max.bytes": KIB * KIB,
    }
    producer = Producer(settings)
    reports: list[Any] = []
    record = LineReader().read(bytes(64 * KIB), 1)
    with pytest.raises(CommandError, match=r"line 7 was not sent: .*--max-memory-bytes"):
        _send(producer, "t", record, 7, lambda *report: reports.append(report))
    assert not reports
