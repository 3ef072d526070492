"""DeleteTopics in a ZooKeeper cluster queues topics, and waits until its broker knows them no more.

Method: the handler with the real decider on an image in memory; the broker's image is the test's.
"""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.base.pending import Pending
from ottla.base.timers import Timers
from ottla.broker.api import k20_delete_topics as k20
from ottla.broker.api.base import Context
from ottla.broker.ports import Connection, Listener
from ottla.broker.purgatory import Purgatory
from ottla.controller.mode_policy import ZOOKEEPER_MODE
from ottla.metadata.image import EMPTY
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.records import TopicRecord
from ottla.wire.frames import RequestHeader
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

from ..controller_harness import Controller

ID = Uuid(b"topic-----------")
NOW_MS = 1_000


class Cluster:
    """A controller and its own broker. `forget`: the broker's metadata drops the topic."""

    def __init__(self, **given: str) -> None:
        self.controller = Controller(mode=ZOOKEEPER_MODE)
        properties = {"broker.id": "1", "zookeeper.connect": "localhost:2181", **given}
        config = NodeConfig.parse(properties)
        object.__setattr__(self.controller.context, "config", config)
        self.controller.write(TopicRecord(name="t", topic_id=ID))
        self.timers = Timers()
        self.broker: Any = SimpleNamespace(
            image=self.controller.image, topic_deletion_purgatory=Purgatory(self.timers)
        )
        self.closed: Pending[None] = Pending()

    def ask(self, *names: str, timeout_ms: int = 500, version: int = 6) -> Pending[Any]:
        request = DeleteTopicsRequest(
            topics=tuple(DeleteTopicState(name=each, topic_id=NO_UUID) for each in names),
            timeout_ms=timeout_ms,
        )
        connection = Connection(
            id="1",
            listener=Listener.CLIENT,
            listener_name="PLAINTEXT",
            client_host="localhost",
            client_port=1,
            closed=self.closed,
        )
        context = Context(
            header=RequestHeader(20, version, 1, "test"),
            connection=connection,
            now_ms=NOW_MS,
            monotonic_ms=NOW_MS,
            node=SimpleNamespace(),  # type: ignore[arg-type]
            broker_or_none=self.broker,
            controller_or_none=self.controller,
        )
        answer = k20.handle(context, request)
        assert isinstance(answer, Pending)
        return answer

    def forget(self) -> None:
        self.broker.image = EMPTY
        self.broker.topic_deletion_purgatory.wake_each([ID])

    def is_queued(self) -> bool:
        return self.controller.image.is_queued_for_deletion("t")


def errors(answer: Pending[Any]) -> list[Error]:
    return [Error(each.error_code) for each in answer.value.responses]


def test_it_waits_until_its_broker_has_removed_the_topic() -> None:
    cluster = Cluster()
    answer = cluster.ask("t", "nobody")
    assert cluster.is_queued()
    assert not answer.done
    cluster.forget()
    assert errors(answer) == [Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION]
    assert answer.value.responses[0].topic_id == ID


def test_the_deletion_goes_on_when_the_wait_is_over() -> None:
    cluster = Cluster()
    answer = cluster.ask("t", "nobody", timeout_ms=500)
    cluster.timers.run_due(NOW_MS + 499)
    assert not answer.done
    cluster.timers.run_due(NOW_MS + 500)
    assert errors(answer) == [Error.REQUEST_TIMED_OUT, Error.UNKNOWN_TOPIC_OR_PARTITION]
    assert cluster.is_queued()


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_no_time_to_wait_is_no_reason_not_to_delete(timeout_ms: int) -> None:
    cluster = Cluster()
    assert errors(cluster.ask("t", timeout_ms=timeout_ms)) == [Error.REQUEST_TIMED_OUT]
    assert cluster.is_queued()


def test_a_repeated_request_joins_the_wait() -> None:
    cluster = Cluster()
    first = cluster.ask("t")
    before = cluster.controller.image
    second = cluster.ask("t")
    assert cluster.controller.image.deletions == before.deletions
    cluster.forget()
    assert errors(first) == errors(second) == [Error.NONE]


def test_kafka_5975_there_is_no_wait_where_deletion_is_disabled() -> None:
    cluster = Cluster(**{"delete.topic.enable": "false"})
    assert errors(cluster.ask("t")) == [Error.TOPIC_DELETION_DISABLED]
    assert not cluster.is_queued()


def test_the_request_is_dropped_when_the_connection_closes() -> None:
    cluster = Cluster()
    cluster.ask("t")
    cluster.closed.complete(None)
    assert cluster.broker.topic_deletion_purgatory.count == 0
