"""A simulated cluster with remote storage, as the tests of Kafka's scenarios ask for it.

    cluster = Cluster()
    cluster.create("t", [(1, 2)], TIERED)
    cluster.produce("t", 3)
    cluster.until(lambda: cluster.copied("t") == [0, 1])
    assert cluster.read("t", 1) == [1, 2]

Segments hold one record unless a topic says otherwise, and local disks keep the active segment
only. The value of a record is its offset. What brokers read in the store is in its history.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from ottla.base.errors import Error
from ottla.base.ids import Uuid, uuid_text
from ottla.broker.partition import Partition
from ottla.metadata.tiering import TieringState
from ottla.records.batch import iter_headers
from ottla.records.builder import encode_batch
from ottla.records.record import iter_records
from ottla.testing.sim import Sim
from ottla.testing.sim.node import SimNode
from ottla.tiered.object_names import ObjectKind, parse_object_name
from ottla.wire.messages import alter_partition_reassignments as reassign_wire
from ottla.wire.messages import create_partitions as partitions_wire
from ottla.wire.messages import create_topics as create_wire
from ottla.wire.messages import delete_records as delete_wire
from ottla.wire.messages import fetch as fetch_wire
from ottla.wire.messages import incremental_alter_configs as configs_wire
from ottla.wire.messages import list_offsets as offsets_wire
from ottla.wire.messages import produce as produce_wire

CONFIG: Final = {
    "remote.log.storage.system.enable": "true",
    "ottla.remote.storage.uri": "file:///store",
    "log.initial.task.delay.ms": "200",
    "log.retention.check.interval.ms": "500",
    "remote.log.manager.task.interval.ms": "500",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
}
"""All partitions share one partition of the metadata topic."""

VALUE_BYTES: Final = 200
ONE_RECORD: Final = "300"
"""Bytes of a segment that holds one record."""
TWO_RECORDS: Final = "600"
PLAIN: Final = {"internal.segment.bytes": ONE_RECORD, "file.delete.delay.ms": "0"}
TIERED: Final = PLAIN | {"remote.storage.enable": "true", "local.retention.bytes": "1"}

EARLIEST: Final = -2
EARLIEST_LOCAL: Final = -4
TOPIC_RESOURCE: Final = 2


class Cluster:
    """Brokers 1, 2 and 3; in KRaft mode a controller beside them.

    `late`: brokers that do not start yet: the cluster does not know of them.
    """

    def __init__(
        self, *, zookeeper: bool = False, seed: int = 1, late: Collection[int] = ()
    ) -> None:
        self.sim = sim = Sim(seed, brokers=3, controllers=1, zookeeper=zookeeper, config=CONFIG)
        self.port = sim.client_port("somebody")
        waiting = {sim.nodes[each] for each in late}
        while waiting:
            self.until(lambda: any(each.alive for each in waiting))
            started = next(each for each in waiting if each.alive)
            started.crash()
            waiting.remove(started)
        early = [each for each in sim.nodes.values() if each.id not in late]
        self.until(
            lambda: len(sim.image.brokers) == 3 - len(late) and all(each.serves for each in early)
        )

    def until(self, holds: Callable[[], bool], limit_ms: int = 120_000) -> None:
        self.sim.run_until(holds, limit_ms=limit_ms)

    def ask(self, node: int, request: object, version: int) -> Any:
        """Return the answer of a broker; an ApiError where its connection has failed."""
        answer = self.port.send(node, request, version, 8_000)
        self.until(lambda: answer.done)
        return answer.value

    # -- administration ------------------------------------------------------------------------

    @property
    def broker(self) -> int:
        """A broker that serves."""
        return next(each.id for each in self.sim.nodes.values() if each.is_broker and each.serves)

    def create(
        self, topic: str, replicas: Sequence[Sequence[int]], config: Mapping[str, str]
    ) -> Uuid:
        """Create a topic with the replicas of each partition; return its id."""
        placed = tuple(
            create_wire.CreatableReplicaAssignment(
                partition_index=number, broker_ids=tuple(brokers)
            )
            for number, brokers in enumerate(replicas)
        )
        configs = tuple(
            create_wire.CreatableTopicConfig(name=name, value=value)
            for name, value in config.items()
        )
        created = create_wire.CreatableTopic(
            name=topic,
            num_partitions=-1,
            replication_factor=-1,
            assignments=placed,
            configs=configs,
        )
        request = create_wire.CreateTopicsRequest(topics=(created,), timeout_ms=5_000)
        answer = self.ask(self.broker, request, 5)
        assert answer.topics[0].error_code == 0, answer
        self.until(lambda: topic in self.sim.image.topics)
        return self.topic_id(topic)

    def topic_id(self, topic: str) -> Uuid:
        found = self.sim.image.topics.id_of(topic)
        assert found is not None
        return found

    def configure(self, topic: str, **config: str) -> None:
        """Set properties of a topic, with _ for each dot."""
        changes = tuple(
            configs_wire.AlterableConfig(
                name=name.replace("_", "."), config_operation=0, value=value
            )
            for name, value in config.items()
        )
        resource = configs_wire.AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configs=changes
        )
        request = configs_wire.IncrementalAlterConfigsRequest(
            resources=(resource,), validate_only=False
        )
        [answer] = self.ask(self.broker, request, 1).responses
        assert answer.error_code == 0, answer

    def delete_records(self, topic: str, offset: int, partition: int = 0) -> None:
        """Delete what is below an offset."""
        wanted = delete_wire.DeleteRecordsPartition(partition_index=partition, offset=offset)
        named = delete_wire.DeleteRecordsTopic(name=topic, partitions=(wanted,))
        request = delete_wire.DeleteRecordsRequest(topics=(named,), timeout_ms=5_000)
        answer = self.ask(self.leader(topic, partition).id, request, 2)
        [part] = answer.topics[0].partitions
        assert part.error_code == 0, part

    def tiering(self, topic: str) -> set[TieringState | None]:
        """Return the topic's tiering state as each broker knows it."""
        images = [each.broker.image for each in self.sim.nodes.values() if each.broker is not None]
        found = [image.tiering.get(self.topic_id(topic)) for image in images]
        return {None if each is None else each.state for each in found}

    def expand(self, topic: str, *added: int) -> None:
        """Add a partition on each of these brokers."""
        known = self.sim.image.topics.by_name(topic)
        assert known is not None
        count = len(known.partitions) + len(added)
        change = partitions_wire.CreatePartitionsTopic(
            name=topic,
            count=count,
            assignments=tuple(
                partitions_wire.CreatePartitionsAssignment(broker_ids=(each,)) for each in added
            ),
        )
        request = partitions_wire.CreatePartitionsRequest(
            topics=(change,), timeout_ms=5_000, validate_only=False
        )
        [answer] = self.ask(self.broker, request, 3).results
        assert answer.error_code == 0, answer
        self.until(lambda: all(self.leads(topic, number) for number in range(count)))

    def reassign(self, topic: str, *replicas: int) -> None:
        """Move partition 0 to these brokers, and wait until it is there, led by the first one."""
        wanted = reassign_wire.ReassignablePartition(partition_index=0, replicas=replicas)
        request = reassign_wire.AlterPartitionReassignmentsRequest(
            topics=(reassign_wire.ReassignableTopic(name=topic, partitions=(wanted,)),)
        )
        answer = self.ask(self.broker, request, 0)
        assert answer.error_code == 0, answer
        assert answer.responses[0].partitions[0].error_code == 0, answer

        def is_there() -> bool:
            known = self.sim.image.topics.by_name(topic)
            assert known is not None
            now = known.partitions[0]
            return sorted(now.isr) == sorted(now.replicas) == sorted(replicas)

        self.until(is_there)

    def bounce(self, node_id: int) -> None:
        """Kill a broker, and wait until it is back."""
        node = self.sim.nodes[node_id]
        node.crash(lose_unflushed=False)
        self.sim.run(1_000)
        node.restart()
        self.until(lambda: node.serves)

    # -- partitions ----------------------------------------------------------------------------

    def replica(self, topic: str, partition: int, node_id: int) -> Partition | None:
        """Return a broker's replica, or None."""
        core = self.sim.nodes[node_id].broker
        hosted = () if core is None else core.replicas.hosted()
        return next(
            (each for each in hosted if (each.topic, each.partition_id) == (topic, partition)),
            None,
        )

    def leads(self, topic: str, partition: int = 0) -> SimNode | None:
        """Return the leader, if there is one that knows that it is."""
        known = self.sim.image.topics.by_name(topic)
        found = None if known is None else known.partitions.get(partition)
        node = None if found is None else self.sim.nodes.get(found.leader)
        replica = None if node is None else self.replica(topic, partition, node.id)
        return node if replica is not None and replica.is_leader else None

    def leader(self, topic: str, partition: int = 0) -> SimNode:
        self.until(lambda: self.leads(topic, partition) is not None)
        found = self.leads(topic, partition)
        assert found is not None
        return found

    def log(self, topic: str, partition: int = 0) -> Any:
        """Return the leader's log."""
        replica = self.replica(topic, partition, self.leader(topic, partition).id)
        assert replica is not None
        return replica.log

    def produce(
        self, topic: str, count: int, partition: int = 0, *, timestamp: int | None = None
    ) -> None:
        """Produce so many records, a batch each."""
        for _ in range(count):
            offset = self.log(topic, partition).log_end_offset
            leader = self.leader(topic, partition)
            value = b"%06d" % offset + bytes(VALUE_BYTES)
            at_ms = leader.clock.now_ms() if timestamp is None else timestamp
            data = produce_wire.PartitionProduceData(
                index=partition, records=encode_batch([(None, value, (), at_ms)])
            )
            named = produce_wire.TopicProduceData(name=topic, partition_data=(data,))
            request = produce_wire.ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=(named,))
            [answer] = self.ask(leader.id, request, 9).responses
            part = answer.partition_responses[0]
            assert (part.error_code, part.base_offset) == (0, offset), part

    def read(self, topic: str, start: int, partition: int = 0) -> list[int]:
        """Return the offsets that a consumer reads from `start` to the end, without a gap.

        A broker that is asked for an offset that it has never answers OFFSET_OUT_OF_RANGE.
        """
        found: list[int] = []
        end, failures = self.log(topic, partition).log_end_offset, 0
        while (offset := start + len(found)) < end:
            wanted = fetch_wire.FetchPartition(
                partition=partition, fetch_offset=offset, partition_max_bytes=1_000_000
            )
            named = fetch_wire.FetchTopic(topic_id=self.topic_id(topic), partitions=(wanted,))
            request = fetch_wire.FetchRequest(
                max_wait_ms=500, min_bytes=1, max_bytes=1_000_000, topics=(named,)
            )
            reply = self.ask(self.leader(topic, partition).id, request, 13)
            parts = [each for named in getattr(reply, "responses", ()) for each in named.partitions]
            error = parts[0].error_code if parts else Error.NETWORK_EXCEPTION
            assert error != Error.OFFSET_OUT_OF_RANGE, offset
            data = b"" if error else bytes(parts[0].records or b"")
            size = sum(head.size_in_bytes for _, head in iter_headers(data, allow_partial=True))
            for record in iter_records(data[:size]):
                if record.offset >= offset:
                    assert record.offset == start + len(found)
                    assert bytes(record.value or b"")[:6] == b"%06d" % record.offset
                    found.append(record.offset)
            failures = failures + 1 if start + len(found) == offset else 0
            assert failures < 100, (offset, Error(error).name)
            self.sim.run(100)
        return found

    def offset(self, topic: str, timestamp: int, partition: int = 0) -> int:
        """Return the leader's answer to ListOffsets."""
        wanted = offsets_wire.ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = offsets_wire.ListOffsetsRequest(
            replica_id=-1,
            topics=(offsets_wire.ListOffsetsTopic(name=topic, partitions=(wanted,)),),
        )
        answer = self.ask(self.leader(topic, partition).id, request, 8)
        [part] = answer.topics[0].partitions
        assert part.error_code == 0, part
        found: int = part.offset
        return found

    # -- the store -----------------------------------------------------------------------------

    def copied(self, topic: str, partition: int = 0) -> list[int]:
        """Return the start offsets of the segment objects in the store."""
        directory = f"{topic}-{uuid_text(self.topic_id(topic))}/{partition}/"
        return self._starts(
            name for name in self.sim.object_store.objects if name.startswith(directory)
        )

    def fetched(self, topic: str, since: int) -> list[int]:
        """Return the start offsets of the segments that brokers have read since the store had a
        history of so many events."""
        directory = f"{topic}-{uuid_text(self.topic_id(topic))}/"
        found = {
            name
            for event in self.sim.object_store.history[since:]
            if event.operation == "get_range"
            for name in event.names
            if name.startswith(directory)
        }
        return self._starts(found)

    @property
    def events(self) -> int:
        """How many operations the store has executed."""
        return len(self.sim.object_store.history)

    @staticmethod
    def _starts(names: Iterable[str]) -> list[int]:
        parsed = [parse_object_name(name) for name in names]
        return sorted(each.start_offset for each in parsed if each and each.kind is ObjectKind.LOG)
