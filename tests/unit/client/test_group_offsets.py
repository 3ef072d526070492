"""Offsets are committed for a group as tools do it; what is refused is named.

Method: a fake broker that answers OffsetCommit.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.client.cluster import ClientConfig, ClusterClient
from ottla.client.errors import Refusal
from ottla.client.group_offsets import commit
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tests.unit.client.fake_broker import FakeBroker


@pytest.fixture
def client() -> Iterator[tuple[FakeBroker, ClusterClient]]:
    broker = FakeBroker()
    with ClusterClient(ClientConfig(bootstrap=broker.address)) as found:
        yield broker, found
    broker.disconnect()
    broker.close()


def answering(*codes: int) -> Any:
    def answer(request: OffsetCommitRequest) -> OffsetCommitResponse:
        [topic] = request.topics
        rows = tuple(
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each, code in zip(topic.partitions, codes, strict=True)
        )
        return OffsetCommitResponse(
            topics=(OffsetCommitResponseTopic(name=topic.name, partitions=rows),)
        )

    return answer


def test_commits(client: tuple[FakeBroker, ClusterClient]) -> None:
    broker, cluster = client
    broker.answer(OffsetCommitRequest, answering(0, 0))
    commit(cluster, "g", {("t", 1): 7, ("t", 0): 5})
    [request] = broker.requests(OffsetCommitRequest)
    assert (request.group_id, request.generation_id_or_member_epoch) == ("g", -1)
    [topic] = request.topics
    assert topic.name == "t"
    assert [(each.partition_index, each.committed_offset) for each in topic.partitions] == [
        (0, 5),
        (1, 7),
    ]


def test_a_refused_partition(client: tuple[FakeBroker, ClusterClient]) -> None:
    broker, cluster = client
    broker.answer(OffsetCommitRequest, answering(0, Error.UNKNOWN_TOPIC_OR_PARTITION))
    with pytest.raises(Refusal, match=r"group g, partition t-1: .*UNKNOWN_TOPIC_OR_PARTITION"):
        commit(cluster, "g", {("t", 1): 7, ("t", 0): 5})
