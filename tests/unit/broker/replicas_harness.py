"""Several whole brokers in one process: they replicate over a network of messages in memory.

What is real: brokers, logs on disks in memory, codecs, handlers, and the controller's deciders.
What is not: time, which the test moves; the network, whose messages take a millisecond and
are lost where a link is cut; the metadata quorum, of which only what was committed is left.

`check` holds after every step: whatever lies below anybody's high watermark is the same on all
brokers and for ever, what was acknowledged stays in the log of who leads, and no producer state
has another batch there.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_LEADER, Uuid
from ottla.base.pending import Pending, completed
from ottla.base.timers import Timers
from ottla.broker.api.base import Context
from ottla.broker.core import Broker
from ottla.broker.partition import Partition
from ottla.broker.ports import Connection, Listener
from ottla.controller.brokers.brokers import UNFENCE, fencing_records, register_broker
from ottla.controller.brokers.liveness import BrokerLiveness
from ottla.controller.context import DecisionContext
from ottla.controller.elections.elections import Rules, elect_after_unfencing
from ottla.controller.elections.partition_change import Election, PartitionTarget, build_change
from ottla.controller.step import Decision
from ottla.log.config import LogConfig
from ottla.log.dirs.dir_loading import Verdict
from ottla.log.dirs.log_dirs import LogDirs
from ottla.log.partition_log import PartitionLog
from ottla.metadata.brokers import BrokerImage, Endpoint
from ottla.metadata.delta import delta_between, replay
from ottla.metadata.features import DEFAULT_LEVELS, SUPPORTED
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    PartitionRecord,
    Record,
    TopicRecord,
)
from ottla.metadata.topics import DIRECTORY_UNASSIGNED, PartitionImage
from ottla.records.record import iter_records
from ottla.testing.disk import MemoryDisk
from ottla.wire.codec import decode, encode
from ottla.wire.frames import RequestHeader
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.schema import spec_of

from .harness import (
    CLUSTER_ID,
    LOG_DIR,
    TOPIC_ID,
    FakeDice,
    FakeGroups,
    FakeWorkers,
    batch,
    config_record,
    node_config,
)
from .replicas_network import HOP_MS, Forwarder, Peers, Time

HANDLERS = {
    0: "k00_produce",
    1: "k01_fetch",
    2: "k02_list_offsets",
    23: "k23_offset_for_leader_epoch",
    56: "k56_alter_partition",
}


class Node:
    """One broker over one disk; `life` counts its processes."""

    def __init__(self, harness: "ReplicasHarness", node_id: int) -> None:
        self.harness = harness
        self.id = node_id
        self.disk = MemoryDisk(now_ms=harness.time.now_ms)
        self.disk.mkdir(LOG_DIR)
        self.config = node_config(
            {
                "node.id": str(node_id),
                "process.roles": "broker",
                "controller.quorum.voters": "100@localhost:9093",
                "listeners": "PLAINTEXT://localhost:9092",
                **harness.properties,
            }
        )
        self.life = 0
        self.up = False
        self.deaf = False
        self.timers = Timers()
        self.serving: dict[Pending[Any], Callable[[], None]] = {}

    def start(self) -> None:
        """Begin another process on what the disk has, register it, and let it serve."""
        harness = self.harness
        self.life += 1
        self.up, self.deaf = True, False
        self.timers = Timers()
        harness.time.heaps.append(self.timers)
        log_dirs = LogDirs(
            disk=self.disk,
            workers=FakeWorkers(),
            clock=harness.time,
            timers=self.timers,
            paths=list(self.config.log_dirs),
        )
        self.broker = Broker(
            config=self.config,
            cluster_id=CLUSTER_ID,
            clock=harness.time,
            dice=FakeDice(self.id),
            workers=FakeWorkers(),
            timers=self.timers,
            log_dirs=log_dirs,
            forwarder=cast(Any, Forwarder(self, self.life)),
            peers=Peers(self, self.life),
            groups=lambda broker: cast(Any, FakeGroups()),
        )
        self.broker.epoch = harness.register(self.id, self.life)
        loaded = log_dirs.load(
            lambda topic, index, topic_id: Verdict.KEEP, lambda topic: LogConfig()
        )
        assert loaded.value.problem is None
        self.broker.apply(delta_between(EMPTY, harness.image))
        self.broker.start_serving()
        harness.unfence(self.id)

    def kill(self) -> None:
        """End the process; what it wrote stays."""
        self.up = False
        self.harness.time.heaps.remove(self.timers)
        self.disk.kill()
        for fail in self.serving.values():
            self.harness.after(HOP_MS, fail)  # The connections break.
        self.serving.clear()

    def hear(self) -> None:
        """Apply the metadata up to now."""
        if self.up and not self.deaf and self.broker.image is not self.harness.image:
            self.broker.apply(delta_between(self.broker.image, self.harness.image))

    @property
    def partition(self) -> Partition:
        return self.broker.replicas.partition_by_id(TOPIC_ID, 0)

    @property
    def log(self) -> PartitionLog:
        log = self.partition.log
        assert log is not None
        return log

    def handle(self, request: Any, version: int, listener: Listener) -> Pending[Any]:
        """Serve a request as it came over the network."""
        key = spec_of(type(request)).key
        assert key is not None
        ctx = Context(
            header=RequestHeader(key, version, 7, "node"),
            connection=Connection("c", listener, "PLAINTEXT", "127.0.0.1", 5000),
            now_ms=self.harness.time.now_ms(),
            monotonic_ms=self.harness.time.monotonic_ms(),
            node=cast(Any, self.broker),
            broker_or_none=self.broker,
        )
        handler = importlib.import_module(f"ottla.broker.api.{HANDLERS[key]}")
        frame = bytearray(encode(request, version))
        answer = handler.handle(ctx, decode(type(request), memoryview(frame), version))
        return answer if isinstance(answer, Pending) else completed(answer)


@dataclass(slots=True)
class Written:
    """A produce request under way or answered. `producer_id`: each has one of its own."""

    value: str
    producer_id: int
    answer: tuple[int, int] | None = None
    """(error, offset)."""


class ReplicasHarness:
    """Brokers 1 to `count`, and partition 0 of topic t, whose replicas they all are."""

    def __init__(self, count: int = 3, *, min_isr: int = 2, **properties: str) -> None:
        self.properties = {name.replace("_", "."): value for name, value in properties.items()}
        self.time = Time()
        self.network = Timers()
        self.time.heaps.append(self.network)
        self.image: ClusterImage = EMPTY
        self.cut: set[frozenset[int]] = set()
        self.out_of_reach: set[int] = set()
        self.acknowledged: dict[int, str] = {}
        self.committed: dict[int, tuple[int, str]] = {}
        self.high_watermarks: dict[tuple[int, int, int], int] = {}
        self.written: list[Written] = []
        config = node_config()
        self.context = DecisionContext(
            config=config, cluster_id=CLUSTER_ID, dice=FakeDice(), liveness=BrokerLiveness(9_000)
        )
        self.nodes: dict[int, Node] = {}
        self.commit(
            *(
                FeatureLevelRecord(name=name, feature_level=level)
                for name, level in DEFAULT_LEVELS.items()
            )
        )
        for node_id in range(1, count + 1):
            self.nodes[node_id] = Node(self, node_id)
        for node in self.nodes.values():
            node.start()
        ids = tuple(self.nodes)
        self.commit(
            TopicRecord(name="t", topic_id=TOPIC_ID),
            PartitionRecord(
                partition_id=0,
                topic_id=TOPIC_ID,
                replicas=ids,
                isr=ids,
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=(DIRECTORY_UNASSIGNED,) * count,
            ),
            config_record("t", "min_insync_replicas", str(min_isr)),
        )
        self.run(10)

    # -- The controller --

    def commit(self, *records: Record) -> None:
        if records:
            offset, epoch = self.image.position
            offset = offset + len(records)
            self.image = replay(self.image, records, offset=offset, epoch=epoch).image
            for node in self.nodes.values():
                self.after(HOP_MS, node.hear)

    def decide(self, request: Any) -> Any:
        """Let the controller's own handler decide, at once and for good."""

        def run(decision: Callable[[ClusterImage], Decision[Any]]) -> Pending[Any]:
            try:
                made = decision(self.image)
            except ApiError as refusal:
                return completed(refusal)
            self.commit(*made.step.records)
            return completed(made.reply)

        handler = importlib.import_module(f"ottla.broker.api.{HANDLERS[56]}")
        ctx = SimpleNamespace(controller=SimpleNamespace(run=run, context=self.context))
        return handler.handle(ctx, request).value

    def register(self, node_id: int, life: int) -> int:
        broker = BrokerImage(
            id=node_id,
            epoch=-1,
            incarnation_id=Uuid(bytes(14) + bytes([node_id, life])),
            endpoints=(Endpoint("PLAINTEXT", f"host{node_id}", 9090 + node_id),),
            rack=f"rack{node_id}",
            features=SUPPORTED,
            log_dirs=(Uuid(bytes(14) + bytes([1, node_id])),),
        )
        self.context.liveness.forget(node_id)
        decision = register_broker(
            self.image,
            broker,
            cluster_id=CLUSTER_ID,
            next_offset=self.image.position[0] + 1,
            context=self.context,
            now_ms=self.time.elapsed_ms,
        )
        self.commit(*decision.step.records)
        return decision.reply

    def fence(self, node_id: int) -> None:
        """End a broker's session, whether it lives or not."""
        self.commit(*fencing_records(self.image, self.context.config, self.image.brokers[node_id]))

    def unfence(self, node_id: int) -> None:
        broker = self.image.brokers[node_id]
        if broker.fenced:
            self.commit(
                *elect_after_unfencing(self.image, self.context.config, node_id),
                BrokerRegistrationChangeRecord(
                    broker_id=node_id, broker_epoch=broker.epoch, fenced=UNFENCE
                ),
            )

    def prefer(self, node_id: int) -> None:
        """Move the leadership to a broker, if it is in sync."""
        state = self.state
        if node_id in state.isr and self.image.brokers[node_id].active and state.leader != node_id:
            others = [each for each in state.replicas if each != node_id]
            target = PartitionTarget(replicas=(node_id, *others), election=Election.PREFERRED)
            change_context = Rules(self.image, self.context.config).change_context("t")
            record = build_change(TOPIC_ID, 0, state, target, change_context)
            self.commit(*(() if record is None else (record,)))

    @property
    def state(self) -> PartitionImage:
        topic = self.image.topics.by_id(TOPIC_ID)
        assert topic is not None
        return topic.partitions[0]

    @property
    def leader(self) -> Node | None:
        """Return who leads as the controller sees it, once it knows that itself."""
        state = self.state
        if state.leader == NO_LEADER or not self.nodes[state.leader].up:
            return None
        node = self.nodes[state.leader]
        return node if node.partition.leader_epoch == state.leader_epoch else None

    # -- Time and the network --

    def after(self, ms: int, work: Callable[[], object]) -> None:
        self.network.at(self.time.elapsed_ms + ms, lambda: cast(None, work()))

    def linked(self, one: int, other: int) -> bool:
        return frozenset({one, other}) not in self.cut

    def run(self, ms: int) -> None:
        self.time.advance(ms)

    def heal(self) -> None:
        """Repair everything and give it time."""
        self.cut.clear()
        self.out_of_reach.clear()
        for node in self.nodes.values():
            node.deaf = False
            if not node.up:
                node.start()
            node.hear()
            self.unfence(node.id)
        self.run(2_000)

    # -- Clients --

    def produce(self, value: str, to: int | None = None, acks: int = -1) -> Written:
        """Send a record to a broker, to the leader unless said otherwise; answered later."""
        written = Written(value, len(self.written))
        self.written.append(written)
        self.send(written, to, acks)
        return written

    def send(self, written: Written, to: int | None = None, acks: int = -1) -> None:
        """Send a record, perhaps once more: it is its producer's first one each time."""
        value = written.value
        records = batch(value, producer_id=written.producer_id, producer_epoch=0, base_sequence=0)
        target = self.nodes.get(self.state.leader if to is None else to)
        if target is None or not target.up:
            return
        request = ProduceRequest(
            acks=acks,
            timeout_ms=1_000,
            topic_data=(
                TopicProduceData(
                    name="t",
                    partition_data=(PartitionProduceData(index=0, records=records),),
                ),
            ),
        )
        life = target.life

        def answered(response: Any) -> None:
            if target.life != life or not target.up:
                return
            (part,) = response.responses[0].partition_responses
            written.answer = (part.error_code, part.base_offset)
            if part.error_code == Error.NONE and acks == -1:
                self.acknowledged[part.base_offset] = value

        target.handle(request, 9, Listener.CLIENT).then(answered)

    def delete_records(self) -> None:
        """Move the leader's log start to its high watermark."""
        leader = self.leader
        if leader is not None:
            self.check()  # What is deleted is compared no more.
            leader.log.delete_records(-1)
            leader.broker.replicas.fetch_reader.hasten_follower_fetches(leader.partition)

    def begin_fetch(self, node_id: int, *, replica: int = -1) -> Pending[Any]:
        """Fetch what comes next from a broker, as a consumer or as a follower, once."""
        node = self.nodes[node_id]
        asked = FetchPartition(
            partition=0,
            current_leader_epoch=node.partition.leader_epoch,
            fetch_offset=node.log.log_end_offset,
            partition_max_bytes=1_000,
        )
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=replica),
            max_wait_ms=60_000,
            min_bytes=1,
            session_epoch=-1,
            topics=(FetchTopic(topic_id=TOPIC_ID, partitions=(asked,)),),
        )
        return node.handle(request, 17, Listener.CLIENT)

    # -- What must hold --

    def check(self) -> None:
        for node in self.nodes.values():
            if node.up:
                self._check(node)

    def _check(self, node: Node) -> None:
        partition, log = node.partition, node.log
        records = contents(log)
        for offset in range(log.log_start_offset, log.high_watermark):
            found = records[offset]
            assert self.committed.setdefault(offset, found) == found, (node.id, offset)
        if partition.is_leader:
            life = (node.id, node.life, partition.leader_epoch)
            assert log.high_watermark >= self.high_watermarks.get(life, 0)
            self.high_watermarks[life] = log.high_watermark
        for producer_id, entry in log.producers.entries.items():
            there, value = self.committed.get(entry.last_offset), self.written[producer_id].value
            if there is not None and entry.last_offset < log.high_watermark:
                assert there[1] == value, (node.id, entry.last_offset, value)
        if node is self.leader:
            for offset, value in self.acknowledged.items():
                found = records.get(offset)
                if offset < log.log_start_offset:
                    found = self.committed.get(offset)
                assert found is not None, (offset, value, node.id, records)
                assert found[1] == value, (offset, value, node.id)

    def check_agreement(self) -> None:
        """After healing: all logs are alike, all replicas in sync, all is committed."""
        self.check()
        leader = self.leader
        assert leader is not None
        assert sorted(self.state.isr) == sorted(self.nodes)
        for node in self.nodes.values():
            # A log start that was not in the checkpoint yet is lost with the process.
            start = node.log.log_start_offset
            shared = {at: found for at, found in contents(leader.log).items() if at >= start}
            assert contents(node.log) == shared
            assert node.log.high_watermark == leader.log.log_end_offset


def contents(log: PartitionLog) -> dict[int, tuple[int, str]]:
    """Return (leader epoch, value) by offset."""
    found: dict[int, tuple[int, str]] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(
            offset, max_bytes=1 << 30, upper_bound=log.log_end_offset, at_least_one=True
        )
        data = b"".join(piece.read() for piece in read.slices)
        for piece in read.slices:
            piece.release()
        for record in iter_records(data):
            assert record.value is not None
            found[record.offset] = (log.epoch_of(record.offset), bytes(record.value).decode())
            offset = record.offset + 1
    return found
