"""An auditor records which coordinator returned an offset, also when it asks two at once.

Method: two coordinators with offsets of their own; the first one responds later.
"""

from typing import Any

from ottla.base.errors import ApiError
from ottla.base.pending import Pending
from ottla.testing.sim_clients.offset_auditor import OffsetAuditor
from ottla.wire.messages import offset_fetch as wire

from .fake import PARTITION, TOPIC, TOPIC_ID, FakeCluster

COMMITTED = {1: 5, 2: 9}
DELAY_MS = {1: 50, 2: 10}


class Coordinators:
    """Two nodes, each of which has another offset."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def send(
        self, to: int, request: object, version: int, timeout_ms: int
    ) -> Pending[Any | ApiError]:
        partition = wire.OffsetFetchResponsePartitions(
            partition_index=0, committed_offset=COMMITTED[to], metadata="", error_code=0
        )
        topic = wire.OffsetFetchResponseTopics(topic_id=TOPIC_ID, partitions=(partition,))
        group = wire.OffsetFetchResponseGroup(group_id="g", topics=(topic,))
        answer: Pending[Any | ApiError] = Pending()
        at_ms = self._cluster.steps.ms + DELAY_MS[to]
        response = wire.OffsetFetchResponse(groups=(group,))
        self._cluster.steps.timers.at(at_ms, lambda: answer.complete(response) and None)
        return answer

    def close(self) -> None:
        pass


def test_each_response_is_recorded_with_its_node() -> None:
    cluster = FakeCluster()
    auditor = OffsetAuditor(
        cluster.client("a"), Coordinators(cluster), "g", TOPIC, interval_ms=1_000
    )
    auditor.client.refresh()
    cluster.steps.run(100)
    for node in COMMITTED:
        auditor.ask_now(node)
    cluster.steps.run(100)
    fetches = cluster.history.groups.fetches
    assert {fetch.partition for fetch in fetches} == {PARTITION}
    assert [(fetch.node, fetch.offset) for fetch in fetches] == [(2, 9), (1, 5)]
