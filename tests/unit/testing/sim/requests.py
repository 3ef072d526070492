"""A small client for tests of the simulator: creates a topic, produces, records the responses."""

from typing import Any

from ottla.base.errors import ApiError
from ottla.records.builder import encode_batch
from ottla.testing.sim import Sim
from ottla.wire.messages import create_topics as create_wire
from ottla.wire.messages import produce as produce_wire

TOPIC = "t"


class Writer:
    """Creates the topic, then sends a batch to its leader every `pause_ms`."""

    def __init__(
        self, sim: Sim, *, copies: int = -1, partitions: int = 2, pause_ms: int = 200
    ) -> None:
        self.acknowledged = 0
        self.failed = 0
        self._sim = sim
        self._copies = copies
        self._partitions = partitions
        self._pause_ms = pause_ms
        self._port = sim.client_port("writer")
        self._sent = 0
        self._after(500, self._create)

    def _after(self, ms: int, call: Any) -> None:
        self._sim.timers.at(self._sim.clock.monotonic_ms() + ms, call)

    def _create(self) -> None:
        request = create_wire.CreateTopicsRequest(
            topics=(
                create_wire.CreatableTopic(
                    name=TOPIC,
                    num_partitions=self._partitions,
                    replication_factor=self._copies,
                    assignments=(),
                    configs=(),
                ),
            ),
            timeout_ms=5_000,
        )
        node_id = min(node.id for node in self._sim.nodes.values() if node.is_broker)
        self._port.send(node_id, request, 5, 8_000).then(self._created)

    def _created(self, answer: Any) -> None:
        made = not isinstance(answer, ApiError) and answer.topics[0].error_code in (0, 36)
        self._after(self._pause_ms, self._write if made else self._create)

    def _write(self) -> None:
        self._after(self._pause_ms, self._write)
        topic = self._sim.image.topics.by_name(TOPIC)
        if topic is None:
            return
        partition = self._sim.dice.below(self._partitions)
        leader = topic.partitions[partition].leader
        if leader < 0:
            return
        self._sent += 1
        batch = encode_batch(
            [(None, b"%d" % self._sent, (), self._sim.clock.now_ms())],
            base_offset=0,
            leader_epoch=-1,
        )
        request = produce_wire.ProduceRequest(
            acks=-1,
            timeout_ms=3_000,
            topic_data=(
                produce_wire.TopicProduceData(
                    name=TOPIC,
                    partition_data=(
                        produce_wire.PartitionProduceData(index=partition, records=batch),
                    ),
                ),
            ),
        )
        self._port.send(leader, request, 9, 5_000).then(self._written)

    def _written(self, answer: Any) -> None:
        if isinstance(answer, ApiError) or answer.responses[0].partition_responses[0].error_code:
            self.failed += 1
        else:
            self.acknowledged += 1
