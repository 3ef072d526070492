"""A controller has replicas deleted over real sockets, while the broker dies and comes back.

Method: the controller's side is its channels over `Channel`, the broker's a `Server` with the
real dispatcher and a broker on a disk in memory, both on one loop, on a free port of 127.0.0.1.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.base.timers import Timers
from ottla.broker.api.base import Context
from ottla.broker.dispatch import Dispatcher, load_apis, read_header
from ottla.broker.ports import Connection, Listener
from ottla.controller.zookeeper.request_batch import BrokerRequest
from ottla.host.controller.controller_channel import (
    Answered,
    ChannelEvent,
    ControllerChannels,
    Dropped,
    links_of_image,
)
from ottla.host.net.channel import Channel
from ottla.host.net.dialer import AsyncioDialer
from ottla.host.net.server import Server
from ottla.host.system_ports import LoopTimers, SystemClock
from ottla.metadata.brokers import BrokerImage, Endpoint
from ottla.metadata.deletions import DeletionImage, Policy, header_record
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.records import Record, RemoveTopicRecord
from ottla.testing.disk import MemoryDisk
from ottla.wire.messages.delete_replicas import (
    DeleteReplicasRequest,
    DeleteReplicasResponse,
    DeleteReplicasTopic,
)
from tests.unit.base.scripted_turns import ScriptedTurns

from ...broker.harness import TOPIC_ID, BrokerHarness

TERM = 7
OTHER_ID = Uuid(b"o" * 16)
DEADLINE_SECONDS = 30


class Broker:
    """One process of broker 1 at a time; its disk outlives it.

    `lost_answers`: how many answers are to be lost, with their connections.
    """

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.port = 0
        self.epoch = 0
        self.served = 0
        self.lost_answers = 0

    def start(self, epoch: int) -> None:
        self.epoch = epoch
        self.harness = BrokerHarness(disk=self.disk)
        self.harness.log_dirs.acquire(node_id=1, cluster_id=None)
        self.harness.load(self.harness.broker.image)
        self.harness.broker.epoch = epoch
        self.harness.add_broker()
        self.dispatcher = Dispatcher(load_apis(), timers=Timers(), turns=ScriptedTurns())

    async def listen(self) -> None:
        self.server = Server(asyncio.get_running_loop(), self.handle)
        self.port = await self.server.listen("127.0.0.1", self.port, Listener.CLIENT, "PLAINTEXT")

    def handle(self, connection: Connection, frame: memoryview) -> Any:
        header, body_at = read_header(frame)
        ctx = Context(
            header,
            connection,
            0,
            0,
            node=cast(Any, self.harness),
            broker_or_none=self.harness.broker,
        )
        outcome = self.dispatcher.dispatch(ctx, frame, body_at)
        if isinstance(outcome, Pending) and outcome.done:
            outcome = outcome.value  # Its workers act at once.
        self.served += 1
        if self.lost_answers:
            self.lost_answers -= 1
            asyncio.get_running_loop().call_soon(self.hang_up)
            return Pending[Any]()
        return outcome

    def hang_up(self) -> None:
        for connection in list(self.server.connections):
            connection.close("scripted")

    async def kill(self) -> None:
        """Lose the process: the port is closed, what is on the disk stays."""
        await self.server.close()
        self.disk.kill()

    def node_dirs(self) -> list[str]:
        return [name for name in self.disk.listdir("/logs") if name.startswith("t-")]


class Controller:
    """The channels of a controller that knows of broker 1."""

    def __init__(self, broker: Broker) -> None:
        loop = asyncio.get_running_loop()
        clock = SystemClock()
        self.timers = LoopTimers(loop, clock)
        self.events: list[ChannelEvent] = []
        self.image: ClusterImage = EMPTY
        self.broker = broker

        def connect(choose: Any, **how: Any) -> Channel:
            return Channel(AsyncioDialer(loop), choose, backoff_ms=5, backoff_max_ms=20, **how)

        self.channels = ControllerChannels(
            links_of_image(
                cast(Any, connect),
                lambda: self.image,
                listener_name="PLAINTEXT",
                client_id="controller-9",
            ),
            clock=clock,
            timers=self.timers.timers,
            on_event=self.events.append,
            retry_ms=5,
        )
        self.channels.begin_epoch(TERM)

    def registered(self, epoch: int) -> None:
        """Learn from the metadata that broker 1 has registered."""
        there = BrokerImage(
            id=1,
            epoch=epoch,
            incarnation_id=Uuid(bytes(16)),
            endpoints=(Endpoint("PLAINTEXT", "127.0.0.1", self.broker.port),),
        )
        self.image = ClusterImage(brokers=EMPTY.brokers.set(1, there))
        self.channels.set_brokers([(1, epoch)])

    def delete(self, epoch: int, *partitions: int, topic_id: Uuid = TOPIC_ID) -> None:
        request = DeleteReplicasRequest(
            controller_id=9,
            controller_epoch=TERM,
            broker_epoch=epoch,
            topics=(DeleteReplicasTopic(topic_id=topic_id, partitions=partitions),),
        )
        self.channels.send(
            [
                BrokerRequest(
                    broker_id=1,
                    broker_epoch=epoch,
                    controller_epoch=TERM,
                    request=request,
                    version=0,
                )
            ]
        )

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not holds():
                self.broker.harness.clock.advance(1)  # Its answers wait for its timers.
                await asyncio.sleep(0.002)

    def errors(self) -> list[dict[int, Error] | Error]:
        """Return what each event says: errors by partition, or of the whole."""
        return [_errors(each) for each in self.events]


def _errors(event: ChannelEvent) -> dict[int, Error] | Error:
    if isinstance(event, Dropped):
        return event.error
    response = event.response
    assert isinstance(response, DeleteReplicasResponse)
    if response.error_code:
        return Error(response.error_code)
    return {
        each.partition_index: Error(each.error_code)
        for topic in response.topics
        for each in topic.partitions
    }


def entry(topic_id: Uuid) -> Record:
    """Return the beginning of a deletion's entry in the ledger."""
    return header_record(
        DeletionImage(topic_id=topic_id, name="t", policy=Policy.AT_ONCE, asked_ms=1)
    )


def deletion() -> tuple[Record, ...]:
    """Return what the topic's deletion begins with."""
    return RemoveTopicRecord(topic_id=TOPIC_ID), entry(TOPIC_ID)


def run(test: Callable[[Broker, Controller], Coroutine[Any, Any, None]]) -> None:
    async def around() -> None:
        broker = Broker()
        broker.start(40)
        await broker.listen()
        controller = Controller(broker)
        controller.registered(40)
        try:
            await test(broker, controller)
        finally:
            controller.channels.resign()
            controller.timers.close()
            await broker.server.close()

    asyncio.run(around())


def test_replicas_are_deleted_and_confirmed() -> None:
    async def test(broker: Broker, controller: Controller) -> None:
        broker.harness.add_topic(partitions=2)
        controller.delete(40, 0)
        await controller.until(lambda: broker.served == 1)
        assert controller.events == [], "the broker waits for the metadata: the topic is there"
        broker.harness.commit(*deletion(), entry(OTHER_ID))
        controller.delete(40, 0, 1)
        controller.delete(40, 5, topic_id=OTHER_ID)
        await controller.until(lambda: len(controller.events) == 3)
        assert controller.errors() == [
            {0: Error.NONE},
            {0: Error.NONE, 1: Error.NONE},
            {5: Error.NONE},
        ]
        assert all(name.endswith("-delete") for name in broker.node_dirs())
        assert broker.served == 3

    run(test)


def test_a_request_with_a_lost_response_is_retried() -> None:
    """The broker has done it; only its response was lost, three times. The request is retried."""

    async def test(broker: Broker, controller: Controller) -> None:
        broker.harness.add_topic(partitions=2)
        broker.harness.commit(*deletion())
        broker.lost_answers = 3
        controller.delete(40, 0)
        controller.delete(40, 1)
        await controller.until(lambda: len(controller.events) == 2)
        assert controller.errors() == [{0: Error.NONE}, {1: Error.NONE}]
        assert broker.served == 5
        assert controller.channels.metrics[1].retries == 3

    run(test)


def test_a_broker_that_restarts_loses_no_response_and_restores_no_replica() -> None:
    async def test(broker: Broker, controller: Controller) -> None:
        broker.harness.add_topic(partitions=2)
        await broker.kill()
        controller.delete(40, 0)
        controller.delete(40, 1)
        # Long enough to be tried in vain; nothing ends.
        await controller.until(lambda: not controller.channels._channels[1]._link.connected)  # type: ignore[attr-defined]
        assert controller.events == []
        assert controller.channels.queue_size(1) == 1

        # It restarts, and its logs are not in its metadata: they are renamed to strays and kept.
        broker.start(41)
        assert sorted(broker.node_dirs()) == [
            f"t-{number}.{TOPIC_ID.hex()}-stray" for number in range(2)
        ]
        await broker.listen()
        controller.registered(41)
        stale = Error.STALE_BROKER_EPOCH
        assert controller.errors() == [stale, stale]

        # On a request with its new epoch, it deletes them once it knows of the deletion.
        broker.harness.commit(entry(TOPIC_ID))
        controller.delete(41, 0, 1)
        await controller.until(lambda: len(controller.events) == 3)
        assert controller.errors()[2] == {0: Error.NONE, 1: Error.NONE}
        broker.disk.crash()
        assert all(name.endswith("-delete") for name in broker.node_dirs())

    run(test)


def test_a_broker_that_was_unreachable_answers_queued_requests() -> None:
    """Its port was closed and opened again by the same process, without a new registration."""

    async def test(broker: Broker, controller: Controller) -> None:
        broker.harness.add_topic(partitions=2)
        broker.harness.commit(*deletion())
        await broker.server.close()
        controller.delete(40, 0)
        controller.delete(40, 1)
        await broker.listen()
        await controller.until(lambda: len(controller.events) == 2)
        assert controller.errors() == [{0: Error.NONE}, {1: Error.NONE}]
        assert all(isinstance(each, Answered) for each in controller.events)

    run(test)


def test_a_fenced_controller_gets_the_error() -> None:
    async def test(broker: Broker, controller: Controller) -> None:
        broker.harness.add_topic()
        broker.harness.commit(*deletion())
        broker.harness.broker.controller_epoch = TERM + 1
        controller.delete(40, 0)
        await controller.until(lambda: len(controller.events) == 1)
        assert controller.errors() == [Error.STALE_CONTROLLER_EPOCH]

    run(test)
