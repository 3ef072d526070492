"""A broker for tests, with real logs on a disk in memory and real codecs around its handlers.

What it is not: the clock, the dice, the workers (inline), the controller (answers by hand), the
group coordinator (notes its calls). `BrokerHarness.ask` sends a request through the codec in the
version given, and brings the response back the same way, as a client would see it.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar, cast

from ottla.base.errors import ApiError
from ottla.base.ids import Uuid
from ottla.base.object_store import ObjectStore
from ottla.base.pending import Pending, completed
from ottla.base.timers import Timers
from ottla.broker.api.base import NO_ANSWER, Context
from ottla.broker.core import Broker
from ottla.broker.partition import Partition
from ottla.broker.ports import Connection, Forwarded, Listener, Listeners, Message
from ottla.log.config import LogConfig
from ottla.log.dirs.dir_loading import Verdict
from ottla.log.dirs.log_dirs import LogDirs
from ottla.log.file_cache import FileSlice
from ottla.metadata.configs import ResourceType
from ottla.metadata.delta import replay
from ottla.metadata.image import ClusterImage
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.records import (
    BrokerEndpoint,
    ConfigRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    TopicRecord,
)
from ottla.records.builder import encode_batch
from ottla.testing.disk import Fault, MemoryDisk
from ottla.wire.codec import decode, encode
from ottla.wire.frames import RequestHeader, decode_response, encode_response
from ottla.wire.messages.fetch import FetchResponse
from ottla.wire.schema import spec_of

T = TypeVar("T")

START_MS = 1_700_000_000_000
LOG_DIR = "/logs"
CLUSTER_ID = "ottla-test-cluster-id"
TOPIC_ID = Uuid(b"t" * 16)


@dataclass(slots=True)
class FakeClock:
    """Time that the test advances; the wall clock runs along from `START_MS`."""

    timers: Timers
    elapsed_ms: int = 0

    def now_ms(self) -> int:
        return START_MS + self.elapsed_ms

    def monotonic_ms(self) -> int:
        return self.elapsed_ms

    def advance(self, ms: int) -> None:
        """Let time pass, and run what is due at its own moment."""
        end = self.elapsed_ms + ms
        while (due := self.timers.next_ms()) is not None and due <= end:
            self.elapsed_ms = max(self.elapsed_ms, due)
            self.timers.run_due(due)
        self.elapsed_ms = end


class FakeDice:
    """Chance from a fixed seed."""

    def __init__(self, seed: int = 1) -> None:
        self._random = Random(seed)

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)


class FakeWorkers:
    """Does the work at once, on the spot; or, not `inline`, when the test says `run`."""

    def __init__(self) -> None:
        self.inline = True
        self._waiting: list[Callable[[], None]] = []

    def submit(
        self, work: Callable[[], T], done: Callable[[T | BaseException], None] | None = None
    ) -> None:
        def run() -> None:
            try:
                result: T | BaseException = work()
            except Exception as error:
                result = error
            if done is not None:
                done(result)

        self._waiting.append(run)
        if self.inline:
            self.run()

    def run(self) -> None:
        """Do all that waits, and what follows from it."""
        while self._waiting:
            self._waiting.pop(0)()


@dataclass(slots=True)
class FakeForwarder:
    """A controller channel whose responses the test gives: `calls` holds the requests."""

    calls: list[tuple[Any, Pending[Any]]] = field(default_factory=list)

    def forward(self, ctx: Context, frame: bytes) -> Pending[Forwarded]:
        raise AssertionError("handlers do not forward by themselves")

    def call(self, request: Message, *, timeout_ms: int) -> Pending[Message | ApiError]:
        pending: Pending[Any] = Pending()
        self.calls.append((request, pending))
        return pending

    def answer(self, response: Message | ApiError) -> Any:
        """Answer the oldest open call; return its request."""
        request, pending = self.calls.pop(0)
        pending.complete(response)
        return request


@dataclass(slots=True)
class FakeGroups:
    """Records the broker's calls of the group coordinator."""

    calls: list[tuple[str, object]] = field(default_factory=list)

    def became_leader(self, partition: int) -> None:
        self.calls.append(("became_leader", partition))

    def resigned(self, partition: int) -> None:
        self.calls.append(("resigned", partition))

    def topics_deleted(self, deleted: Mapping[Uuid, str]) -> None:
        self.calls.append(("topics_deleted", deleted))

    def full_metadata_received(self) -> None:
        self.calls.append(("full_metadata_received", None))

    def served(self) -> list[object]:
        return []

    def shutdown(self) -> None:
        self.calls.append(("shutdown", None))


@dataclass(slots=True)
class FakeSender:
    """A way to another broker whose answers the test gives: `sent` holds what is unanswered."""

    sent: list[tuple[Any, int, Pending[Any]]] = field(default_factory=list)

    def send(self, request: Message, version: int, *, timeout_ms: int) -> Pending[Any]:
        pending: Pending[Any] = Pending()
        # As it would come out of the other side: what a version lacks is gone.
        self.sent.append(
            (decode(type(request), encode(request, version), version), version, pending)
        )
        return pending

    def answer(self, response: Message | ApiError) -> Any:
        """Answer the oldest open request; return it."""
        request, _, pending = self.sent.pop(0)
        pending.complete(response)
        return request


@dataclass(slots=True)
class FakePeers:
    """The ways to other brokers, by broker and lane."""

    senders: dict[tuple[int, int], FakeSender] = field(default_factory=dict)

    def to(self, broker_id: int, lane: int = 0) -> FakeSender:
        return self.senders.setdefault((broker_id, lane), FakeSender())


@dataclass(slots=True)
class FakeQuorum:
    """A quorum port that notes its requests."""

    leader_id: int = 1
    nodes: dict[int, Listeners] = field(
        default_factory=lambda: {1: (("CONTROLLER", "quorum1", 9093),)}
    )
    asked: list[object] = field(default_factory=list)

    def fetch(self, ctx: Context, request: object) -> object:
        self.asked.append(request)
        return FetchResponse(responses=())

    def fetch_snapshot(self, ctx: Context, request: object) -> object:
        raise AssertionError("not asked for here")

    def describe(self, ctx: Context, request: object) -> object:
        raise AssertionError("not asked for here")


def node_config(properties: Mapping[str, str] | None = None) -> NodeConfig:
    """Return the configuration of broker 1, with Kafka's defaults but for `properties`."""
    return NodeConfig.parse(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": "1@localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "log.dirs": LOG_DIR,
            **(properties or {}),
        }
    )


class BrokerHarness:
    """Broker 1 of a cluster whose metadata the test writes."""

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        *,
        disk: MemoryDisk | None = None,
        store: ObjectStore | None = None,
    ) -> None:
        self.timers = Timers()
        self.clock = FakeClock(self.timers)
        self.controller = FakeForwarder()
        self.quorum = FakeQuorum()
        self.peers = FakePeers()
        self.groups = FakeGroups()
        self.disk = disk or MemoryDisk()
        self.config = node_config(properties)
        self.workers = workers = FakeWorkers()
        dice = FakeDice()
        self.log_dirs = LogDirs(
            disk=self.disk,
            workers=workers,
            clock=self.clock,
            timers=self.timers,
            paths=list(self.config.log_dirs),
        )
        self.broker = Broker(
            config=self.config,
            cluster_id=CLUSTER_ID,
            clock=self.clock,
            dice=dice,
            workers=workers,
            timers=self.timers,
            log_dirs=self.log_dirs,
            forwarder=self.controller,
            peers=self.peers,
            groups=lambda broker: cast(Any, self.groups),
            store=store,
        )
        self.offset = 0

    def load(self, image: ClusterImage) -> None:
        """Load the logs that `image` knows, as a node does before its broker begins."""

        def decide(topic: str, partition: int, topic_id: Uuid) -> Verdict:
            return Verdict.STRAY if image.topics.by_id(topic_id) is None else Verdict.KEEP

        result = self.log_dirs.load(decide, lambda topic: LogConfig())
        assert result.value.problem is None

    def fail_disk(self, operation: str, path: str = "") -> None:
        """Make an operation fail from now on."""
        self.disk.faults.append(Fault(operation=operation, path=path))

    # -- Metadata --

    def commit(self, *records: Record) -> None:
        """Apply committed records to the broker, as one delta."""
        self.offset += len(records)
        self.broker.apply(replay(self.broker.image, records, offset=self.offset, epoch=1))

    def add_broker(
        self,
        node_id: int = 1,
        *,
        fenced: bool = False,
        listener: str = "PLAINTEXT",
        epoch: int | None = None,
    ) -> None:
        """Register a broker, unfenced unless said otherwise."""
        record = RegisterBrokerRecord(
            broker_id=node_id,
            incarnation_id=Uuid(bytes(15) + bytes([node_id])),
            broker_epoch=node_id if epoch is None else epoch,
            end_points=(
                BrokerEndpoint(
                    name=listener, host=f"host{node_id}", port=9090 + node_id, security_protocol=0
                ),
            ),
            features=(),
            rack=f"rack{node_id}",
            fenced=fenced,
        )
        self.commit(record)

    def add_topic(
        self,
        name: str = "t",
        topic_id: Uuid = TOPIC_ID,
        *,
        partitions: int = 1,
        leader: int = 1,
        isr: tuple[int, ...] = (1,),
        replicas: tuple[int, ...] = (1,),
        **configs: str,
    ) -> None:
        """Create a topic; config names have _ for their dots."""
        self.commit(
            TopicRecord(name=name, topic_id=topic_id),
            *(
                PartitionRecord(
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=replicas,
                    isr=isr,
                    leader=leader,
                    leader_epoch=0,
                    partition_epoch=0,
                )
                for index in range(partitions)
            ),
            *(config_record(name, key, value) for key, value in configs.items()),
        )

    # -- What clients ask --

    def context(
        self,
        key: int,
        version: int,
        *,
        listener: Listener = Listener.CLIENT,
        client_id: str = "test",
        **parts: Any,
    ) -> Context:
        """Return the surroundings of one request; it comes over a `connection` of its own."""
        name = "CONTROLLER" if listener is Listener.CONTROLLER else "PLAINTEXT"
        self.connection = Connection("c", listener, name, "127.0.0.1", 5000)
        return Context(
            header=RequestHeader(key, version, 7, client_id),
            connection=self.connection,
            now_ms=self.clock.now_ms(),
            monotonic_ms=self.clock.monotonic_ms(),
            node=cast(Any, self),
            broker_or_none=self.broker,
            **{
                "controller_or_none": cast(Any, self.broker),
                "quorum_or_none": self.quorum,
                **parts,
            },
        )

    @property
    def cluster_id(self) -> str:
        return self.broker.cluster_id

    def begin(self, request: Any, version: int, **how: Any) -> Pending[Any]:
        """Ask; the promise is kept with the response as a client decodes it, or None."""
        key = spec_of(type(request)).key
        assert key is not None
        handler = importlib.import_module(f"ottla.broker.api.{HANDLERS[key]}")
        assert version in handler.API.versions
        ctx = self.context(key, version, **how)
        # Writable, as it lies in a connection's receive buffer.
        frame = bytearray(encode(request, version))
        answer = handler.handle(ctx, decode(type(request), memoryview(frame), version))
        frame[:] = bytes(len(frame))  # The buffer is used again at once.
        pending = answer if isinstance(answer, Pending) else completed(answer)
        return pending.map(
            lambda late: late if late in (None, NO_ANSWER) else received(late, version)
        )

    def ask(self, request: Any, version: int, **how: Any) -> Any:
        """Ask what is answered at once."""
        pending = self.begin(request, version, **how)
        assert pending.done
        return pending.value


HANDLERS = {
    0: "k00_produce",
    1: "k01_fetch",
    2: "k02_list_offsets",
    3: "k03_metadata",
    4: "k04_leader_and_isr",
    5: "k05_stop_replica",
    6: "k06_update_metadata",
    9: "k09_offset_fetch",
    10: "k10_find_coordinator",
    21: "k21_delete_records",
    22: "k22_init_producer_id",
    23: "k23_offset_for_leader_epoch",
    35: "k35_describe_log_dirs",
    60: "k60_describe_cluster",
    61: "k61_describe_producers",
    75: "k75_describe_topic_partitions",
    1001: "k1001_disable_remote_topic",
    1002: "k1002_delete_replicas",
    29: "k29_describe_acls",
    30: "k30_create_acls",
    31: "k31_delete_acls",
}


def config_record(topic: str, key: str, value: str) -> ConfigRecord:
    """Return the record that sets a topic's config; `key` has _ for its dots."""
    return ConfigRecord(
        resource_type=ResourceType.TOPIC,
        resource_name=topic,
        name=key.replace("_", "."),
        value=value,
    )


def received(response: Any, version: int) -> Any:
    """Return a response as its receiver decodes it; slices are read and released."""
    frame = bytearray()
    for chunk in encode_response(response, version, 7):
        if isinstance(chunk, FileSlice):
            frame += chunk.read()
            chunk.release()
        else:
            frame += chunk
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, message = decode_response(type(response), memoryview(frame)[4:], version)
    assert correlation_id == 7
    return message


def reach(partition: Partition, ends: Mapping[int, int]) -> bool:
    """Let followers have got so far; return whether that moved the high watermark."""
    for node, end in ends.items():
        partition.followers[node].log_end_offset = end
    return partition.advance_high_watermark()


def batch(*values: str, timestamp: int = START_MS, **how: Any) -> bytes:
    """Return a record batch of these values."""
    return encode_batch([(None, value.encode(), (), timestamp) for value in values], **how)
