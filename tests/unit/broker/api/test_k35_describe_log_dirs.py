"""DescribeLogDirs returns each log directory's logs and space, or its error."""

from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.broker.api.k35_describe_log_dirs import API
from ottla.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

from ..harness import BrokerHarness, batch

OTHER_ID = Uuid(b"o" * 16)
ALL = DescribeLogDirsRequest(topics=None)


@pytest.fixture
def harness() -> BrokerHarness:
    harness = BrokerHarness({"log.dirs": "/one,/two"})
    harness.add_broker()
    harness.add_topic("t", partitions=2)
    harness.add_topic("u", OTHER_ID)
    harness.broker.replicas.append("t", 0, batch("a"))
    return harness


def sizes(answer: Any) -> dict[str, dict[tuple[str, int], int]]:
    """Return the sizes of all logs by log directory."""
    return {
        result.log_dir: {
            (topic.name, part.partition_index): part.partition_size
            for topic in result.topics
            for part in topic.partitions
        }
        for result in answer.results
    }


@pytest.mark.parametrize("version", API.versions)
def test_all_logs(harness: BrokerHarness, version: int) -> None:
    answer = harness.ask(ALL, version)
    assert sizes(answer) == {
        "/one": {("t", 0): len(batch("a")), ("u", 0): 0},
        "/two": {("t", 1): 0},
    }
    first = answer.results[0]
    assert first.error_code == Error.NONE
    known = version >= 4
    assert (first.total_bytes > 0) is known
    assert (first.usable_bytes > 0) is known


def test_only_requested_partitions(harness: BrokerHarness) -> None:
    topic = DescribableLogDirTopic(topic="t", partitions=(1, 7))
    answer = harness.ask(DescribeLogDirsRequest(topics=(topic,)), 4)
    assert sizes(answer) == {"/one": {}, "/two": {("t", 1): 0}}


def test_an_offline_log_dir(harness: BrokerHarness) -> None:
    partition = harness.broker.replicas.partition("t", 0)
    harness.broker.replicas.storage_failed(partition, OSError(5, "broken"))
    answer = harness.ask(ALL, 4)
    assert [result.error_code for result in answer.results] == [Error.KAFKA_STORAGE_ERROR, 0]
    assert sizes(answer) == {"/one": {}, "/two": {("t", 1): 0}}
