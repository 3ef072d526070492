"""The metadata topic as a model, and brokers that write and read it over a faulty network.

What is real: everything of `RemoteLogMetadata` but the local leader (its partitions are led by
brokers 101 and up, which are the model), the messages and their codec.
What is not: time; the logs, which are lists of batches, committed at once; the network, which loses
requests and answers, and delays them, as the test says.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, cast

from ottla.base.errors import ApiError, Error
from ottla.base.ids import REMOTE_LOG_METADATA_TOPIC, Uuid
from ottla.base.pending import Pending, completed
from ottla.base.timers import Timers
from ottla.broker.remote.metadata.metadata_topic import MetadataTopicPorts, RemoteLogMetadata
from ottla.broker.remote.metadata.metadata_topic_creation import MetadataTopicSettings
from ottla.metadata.brokers import BrokerImage, Endpoint
from ottla.metadata.features import SUPPORTED
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.topics import DIRECTORY_UNASSIGNED, PartitionImage, TopicImage, TopicsImage
from ottla.records.batch import parse_header, restamp
from ottla.records.builder import encode_batch
from ottla.records.record import iter_records
from ottla.testing.disk import MemoryDisk
from ottla.tiered.metadata_partition import metadata_partition
from ottla.tiered.metadata_records import decode as decode_value
from ottla.tiered.metadata_records import encode as encode_value
from ottla.tiered.remote_log import RemoteLog
from ottla.tiered.segment_metadata import (
    Fence,
    MetadataRecord,
    SegmentMetadata,
    SegmentState,
    SegmentUpdate,
)
from ottla.wire.codec import decode, encode
from ottla.wire.messages import fetch, list_offsets, produce
from tests.unit.broker.harness import FakeClock, FakeDice, FakeForwarder, FakeWorkers

METADATA_TOPIC_ID = Uuid(b"m" * 16)
USER_TOPIC_ID = Uuid(b"u" * 16)
LEADERS = (101, 102)
LOG_DIR = "/logs"
HOP_MS = 1

User = tuple[Uuid, int]


def user(partition: int) -> User:
    """Return a user partition."""
    return USER_TOPIC_ID, partition


# -- Records --


def started(of: User, segment: int, *, leader_epoch: int = 1, tiered_epoch: int = 1) -> Any:
    """Return the COPY_STARTED record of segment number `segment`, of ten offsets."""
    return SegmentMetadata(
        topic="orders",
        topic_id=of[0],
        partition=of[1],
        segment_id=segment_id(segment),
        start_offset=10 * segment,
        end_offset=10 * segment + 9,
        max_timestamp_ms=1,
        broker_id=1,
        event_timestamp_ms=1,
        size_bytes=100,
        epochs=((0, 10 * segment),),
        state=SegmentState.COPY_STARTED,
        leader_epoch=leader_epoch,
        tiered_epoch=tiered_epoch,
    )


def update(of: User, segment: int, state: SegmentState) -> SegmentUpdate:
    """Return an update of a segment."""
    return SegmentUpdate(
        topic="orders",
        topic_id=of[0],
        partition=of[1],
        segment_id=segment_id(segment),
        state=state,
        broker_id=1,
        event_timestamp_ms=2,
        leader_epoch=1,
        tiered_epoch=1,
    )


def fence(of: User, leader_epoch: int) -> Fence:
    """Return a fence."""
    return Fence(
        topic="orders",
        topic_id=of[0],
        partition=of[1],
        broker_id=1,
        leader_epoch=leader_epoch,
        tiered_epoch=1,
        state=1,
        floor=0,
        event_timestamp_ms=3,
    )


def segment_id(segment: int) -> Uuid:
    """Return the id of segment number `segment`."""
    return Uuid(b"segment-" + segment.to_bytes(8, "big"))


def state_of(log: RemoteLog) -> Any:
    """Return what two logs of one user partition must agree on."""
    return list(log.segments()), log.fence, log.refused


# -- The metadata topic --


@dataclass(slots=True)
class Batch:
    base_offset: int
    epoch: int
    data: bytes
    count: int


@dataclass(slots=True)
class ModelPartition:
    """A metadata partition. `producers`: last sequence, its count and offset by producer id."""

    leader: int
    epoch: int = 0
    start: int = 0
    batches: list[Batch] = field(default_factory=list)
    producers: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    waiting: list[Callable[[], None]] = field(default_factory=list)

    @property
    def end(self) -> int:
        last = self.batches[-1] if self.batches else None
        return self.start if last is None else last.base_offset + last.count

    def append(self, data: bytes) -> int | Error:
        header = parse_header(data)
        if header.producer_id >= 0:
            known = self.producers.get(header.producer_id)
            if known is not None and header.base_sequence == known[0]:
                return known[2]
            expected = 0 if known is None else known[0] + known[1]
            if header.base_sequence != expected:
                return Error.UNKNOWN_PRODUCER_ID if known is None else Error(45)
        offset = self.end
        if header.producer_id >= 0:
            self.producers[header.producer_id] = (
                header.base_sequence,
                header.record_count,
                offset,
            )
        stamped = bytearray(data)
        restamp(stamped, 0, base_offset=offset, leader_epoch=self.epoch)
        self.batches.append(Batch(offset, self.epoch, bytes(stamped), header.record_count))
        waiting, self.waiting = self.waiting, []
        for wake in waiting:
            wake()
        return offset

    def truncate(self, offset: int) -> None:
        """Lose the records from an offset on, as after an unclean election."""
        self.batches = [each for each in self.batches if each.base_offset + each.count <= offset]
        self.producers.clear()

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch up to `epoch`, and where it ends."""
        found = -1
        for each in self.batches:
            if each.epoch > epoch:
                return found, each.base_offset
            found = each.epoch
        return found, self.end

    def values(self) -> Iterator[tuple[int, bytes]]:
        for each in self.batches:
            for record in iter_records(each.data):
                assert record.key is None
                assert record.value is not None
                yield record.offset, record.value


class Network:
    """The fate of each message: by default all arrive after one hop."""

    def __init__(self) -> None:
        self.random = Random(1)
        self.lose_request = 0.0
        self.lose_answer = 0.0
        self.slow = 0.0

    def heal(self) -> None:
        self.lose_request = self.lose_answer = self.slow = 0.0

    def draws(self, chance: float) -> bool:
        return chance > 0 and self.random.random() < chance

    def delay_ms(self) -> int:
        return self.random.randrange(200, 2_000) if self.draws(self.slow) else HOP_MS


class ProducerIds:
    """Hands out ids of all brokers."""

    def __init__(self) -> None:
        self.next = 0

    def grant(self, *, timeout_ms: int) -> Pending[int | Error]:
        self.next += 1
        return completed(self.next)


class MetadataCluster:
    """The metadata topic with `partitions` partitions, and brokers 1 to `brokers` that use it."""

    def __init__(
        self,
        *,
        partitions: int = 2,
        brokers: int = 1,
        topic_exists: bool = True,
        is_tiered: bool = True,
        **settings: int,
    ) -> None:
        self.timers = Timers()
        self.clock = FakeClock(self.timers)
        self.network = Network()
        self.topic_id = METADATA_TOPIC_ID
        self.partitions = [ModelPartition(LEADERS[at % 2]) for at in range(partitions)]
        self.settings = MetadataTopicSettings(**settings)
        self.producer_ids = ProducerIds()
        self.topic_exists = topic_exists
        self.is_tiered = is_tiered
        self.requests: list[tuple[int, Any]] = []
        self.nodes: dict[int, Node] = {}
        for node_id in range(1, brokers + 1):
            self.nodes[node_id] = Node(self, node_id)

    @property
    def image(self) -> ClusterImage:
        """Return the newest metadata."""
        brokers = EMPTY.brokers
        for node_id in self.nodes:
            brokers = brokers.set(node_id, _broker(node_id))
        topics = TopicsImage()
        if self.topic_exists:
            topic = TopicImage(name=REMOTE_LOG_METADATA_TOPIC, id=self.topic_id)
            for index, each in enumerate(self.partitions):
                topic = topic.with_partition(index, _partition_image(each))
            topics = topics.with_topic(topic)
        return replace(EMPTY, topics=topics, brokers=brokers)

    def publish(self) -> None:
        """Let all brokers apply the newest metadata."""
        for node in self.nodes.values():
            node.metadata.apply(self.image)

    def run(self, ms: int) -> None:
        self.clock.advance(ms)

    def move(self, index: int, leader: int, *, publish: bool = True) -> None:
        """Elect another leader of a metadata partition."""
        partition = self.partitions[index]
        partition.leader = leader
        partition.epoch += 1
        waiting, partition.waiting = partition.waiting, []
        for wake in waiting:
            wake()
        if publish:
            self.publish()

    def index_of(self, of: User) -> int:
        return metadata_partition(*of, len(self.partitions))

    def write(self, record: MetadataRecord | bytes) -> int:
        """Append as someone else: a record, or garbage to the first partition."""
        if isinstance(record, bytes):
            index, value = 0, record
        else:
            index = self.index_of((record.topic_id, record.partition))
            value = encode_value(record)
        offset = self.partitions[index].append(encode_batch([(None, value, (), 1)]))
        assert not isinstance(offset, Error)
        return offset

    def expected(self, of: User) -> RemoteLog:
        """Return the log that replaying the whole metadata partition yields."""
        log = RemoteLog()
        for record in self.records(of):
            log.replay(record)
        return log

    def records(self, of: User) -> Iterable[MetadataRecord]:
        for _, value in self.partitions[self.index_of(of)].values():
            try:
                record = decode_value(value)
            except ValueError:
                continue
            if record is not None and (record.topic_id, record.partition) == of:
                yield record

    # -- The leaders --

    def serve(self, broker_id: int, request: Any, answer: Callable[[Any], None]) -> None:
        self.requests.append((broker_id, request))
        if isinstance(request, produce.ProduceRequest):
            answer(self._produce(broker_id, request))
        elif isinstance(request, fetch.FetchRequest):
            self._fetch(broker_id, request, answer)
        else:
            assert isinstance(request, list_offsets.ListOffsetsRequest)
            answer(self._list_offsets(broker_id, request))

    def _check(self, broker_id: int, index: int, epoch: int = -1) -> Error:
        partition = self.partitions[index]
        if not self.topic_exists:
            return Error.UNKNOWN_TOPIC_ID
        if partition.leader != broker_id:
            return Error.NOT_LEADER_OR_FOLLOWER
        if epoch >= 0 and epoch != partition.epoch:
            fenced = epoch < partition.epoch
            return Error.FENCED_LEADER_EPOCH if fenced else Error.UNKNOWN_LEADER_EPOCH
        return Error.NONE

    def _produce(self, broker_id: int, request: produce.ProduceRequest) -> Any:
        assert request.acks == -1
        responses = []
        for topic in request.topic_data:
            for each in topic.partition_data:
                error, offset = self._check(broker_id, each.index), -1
                if not error:
                    found = self.partitions[each.index].append(bytes(cast(Any, each.records)))
                    error, offset = (found, -1) if isinstance(found, Error) else (error, found)
                responses.append(
                    produce.PartitionProduceResponse(
                        index=each.index, error_code=error, base_offset=offset
                    )
                )
        return produce.ProduceResponse(
            responses=(
                produce.TopicProduceResponse(
                    topic_id=self.topic_id, partition_responses=tuple(responses)
                ),
            )
        )

    def _list_offsets(self, broker_id: int, request: list_offsets.ListOffsetsRequest) -> Any:
        (topic,) = request.topics
        found = []
        for each in topic.partitions:
            index = each.partition_index
            error = self._check(broker_id, index, each.current_leader_epoch)
            partition = self.partitions[index]
            found.append(
                list_offsets.ListOffsetsPartitionResponse(
                    partition_index=index,
                    error_code=error,
                    offset=partition.start if each.timestamp == -2 else partition.end,
                )
            )
        return list_offsets.ListOffsetsResponse(
            topics=(
                list_offsets.ListOffsetsTopicResponse(name=topic.name, partitions=tuple(found)),
            )
        )

    def _fetch(
        self, broker_id: int, request: fetch.FetchRequest, answer: Callable[[Any], None]
    ) -> None:
        asked = [each for topic in request.topics for each in topic.partitions]
        done = False

        def attempt(*, last: bool) -> None:
            nonlocal done
            if done:
                return
            found = [self._read(broker_id, each) for each in asked]
            if last or any(part.records or part.error_code for part in found):
                done = True
                topic = fetch.FetchableTopicResponse(
                    topic_id=self.topic_id, partitions=tuple(found)
                )
                answer(fetch.FetchResponse(responses=(topic,)))
                return
            for each in asked:
                self.partitions[each.partition].waiting.append(lambda: attempt(last=False))

        due_ms = self.clock.monotonic_ms() + request.max_wait_ms
        attempt(last=request.max_wait_ms <= 0)
        self.timers.at(due_ms, lambda: attempt(last=True))

    def _read(self, broker_id: int, each: fetch.FetchPartition) -> fetch.PartitionData:
        partition = self.partitions[each.partition]
        error = self._check(broker_id, each.partition, each.current_leader_epoch)
        if not error and not partition.start <= each.fetch_offset <= partition.end:
            error = Error.OFFSET_OUT_OF_RANGE
        diverging = fetch.EpochEndOffset()
        records = b""
        if not error:
            if each.last_fetched_epoch >= 0:
                epoch, end = partition.epoch_end(each.last_fetched_epoch)
                if epoch < each.last_fetched_epoch or end < each.fetch_offset:
                    diverging = fetch.EpochEndOffset(epoch=max(epoch, 0), end_offset=end)
            if diverging.epoch < 0:
                for one in partition.batches:
                    fits = not records or len(records) + len(one.data) <= each.partition_max_bytes
                    if one.base_offset + one.count > each.fetch_offset and fits:
                        records += one.data
        return fetch.PartitionData(
            partition_index=each.partition,
            error_code=error,
            high_watermark=partition.end,
            diverging_epoch=diverging,
            records=records,
        )


class Node:
    """A broker over one disk; `life` counts its processes."""

    def __init__(self, cluster: MetadataCluster, node_id: int) -> None:
        self.cluster = cluster
        self.id = node_id
        self.disk = MemoryDisk()
        self.disk.mkdir(LOG_DIR)
        self.life = 0
        self.start()

    def start(self) -> None:
        """Begin a process. Its timers are the cluster's: a killed one's are told apart by life."""
        self.life += 1
        self.workers = FakeWorkers()
        self.forwarder = FakeForwarder()
        self.ready: list[User] = []
        cluster = self.cluster
        self.metadata = RemoteLogMetadata(
            cluster.settings,
            MetadataTopicPorts(
                node_id=self.id,
                replicas=cast(Any, None),
                producer_ids=cast(Any, cluster.producer_ids),
                forwarder=self.forwarder,
                peers=Peers(self, self.life),
                disk=self.disk,
                log_dir=LOG_DIR,
                workers=self.workers,
                clock=cluster.clock,
                timers=cluster.timers,
                dice=FakeDice(self.id),
            ),
            has_tiered_topics=lambda image: cluster.is_tiered,
        )
        self.metadata.on_ready(lambda topic_id, partition: self.ready.append((topic_id, partition)))
        self.metadata.apply(cluster.image)

    def stop(self) -> None:
        """End the process cleanly."""
        self.metadata.close()
        self.life += 1

    def kill(self) -> None:
        """End the process; nothing more is written."""
        self.life += 1
        self.workers.inline = False
        self.metadata.close()

    def log(self, of: User) -> RemoteLog:
        log = self.metadata.remote_log(*of)
        assert log is not None
        return log


@dataclass(slots=True)
class Peers:
    node: Node
    life: int

    def to(self, broker_id: int, lane: int = 0) -> "Link":
        return Link(self, broker_id)


@dataclass(slots=True)
class Link:
    peers: Peers
    to: int

    def send(self, request: Any, version: int, *, timeout_ms: int) -> Pending[Any]:
        pending: Pending[Any] = Pending()
        node, life = self.peers.node, self.peers.life
        cluster = node.cluster
        network = cluster.network
        message = decode(type(request), encode(request, version), version)

        def after(ms: int, work: Callable[[], None]) -> None:
            cluster.timers.at(cluster.clock.monotonic_ms() + ms, work)

        def fail() -> None:
            if node.life == life:
                pending.complete(ApiError(Error.NETWORK_EXCEPTION))

        def answer(response: Any) -> None:
            received = bytearray(encode(response, version))

            def arrive() -> None:
                if node.life == life:
                    pending.complete(decode(type(response), memoryview(received), version))
                    received[:] = bytes(len(received))  # The buffer is used again at once.

            after(network.delay_ms(), fail if network.draws(network.lose_answer) else arrive)

        if network.draws(network.lose_request):
            after(network.delay_ms(), fail)
        else:
            after(network.delay_ms(), lambda: cluster.serve(self.to, message, answer))
        return pending


def _partition_image(partition: ModelPartition) -> PartitionImage:
    return PartitionImage(
        replicas=LEADERS,
        isr=LEADERS,
        leader=partition.leader,
        leader_epoch=partition.epoch,
        partition_epoch=partition.epoch,
        directories=(DIRECTORY_UNASSIGNED,) * len(LEADERS),
    )


def _broker(node_id: int) -> BrokerImage:
    return BrokerImage(
        id=node_id,
        epoch=1,
        incarnation_id=Uuid(bytes(15) + bytes([node_id])),
        endpoints=(Endpoint("PLAINTEXT", f"host{node_id}", 9092),),
        rack=None,
        features=SUPPORTED,
        fenced=False,
    )
