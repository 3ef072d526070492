"""A small cluster for copies and deletions: brokers with logs, one metadata log, one store.

    bench = Bench(seed=1)
    broker = bench.broker(1)
    broker.fill(segments=3)
    broker.lead(epoch=5)
    bench.run(seconds=60)
    bench.check()

Time is virtual, the store is the simulator's model with its faults, the logs are real ones on disks
in memory. The metadata log is one list of records, in the order of their arrival; each broker
replays it with a delay. A broker crashes at one of its steps (`crash_at`): before an operation is
sent, right after it, or when its result comes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.base.object_store import Call, SettableCall
from ottla.base.pending import Pending
from ottla.broker.remote.environment import (
    RemoteEnvironment,
    RemoteLogManagerConfig,
    TopicFacts,
)
from ottla.broker.remote.metadata.settled import is_settled
from ottla.broker.remote.remote_log_manager import RemoteLogManager
from ottla.broker.remote.store_calls import StoreCalls
from ottla.log.config import LogConfig
from ottla.log.file_cache import FileCache
from ottla.log.opening import open_log
from ottla.log.partition_log import LogPorts, PartitionLog
from ottla.metadata.tiering import RestoredPartition, TopicTiering
from ottla.testing.disk import MemoryDisk
from ottla.testing.sim.object_store import ModelStore, ObjectStoreFaults, ObjectStoreModel
from ottla.testing.sim.scheduler import (
    START_MS,
    Process,
    ProcessDied,
    Scheduler,
    SimClock,
    SimDice,
    SimTimers,
)
from ottla.tiered.manifest import ManifestState, follow
from ottla.tiered.manifest_codec import decode_manifest
from ottla.tiered.metadata_records import decode, encode
from ottla.tiered.object_names import (
    ObjectKind,
    object_name,
    parse_manifest_name,
    parse_object_name,
)
from ottla.tiered.remote_log import RemoteLog
from ottla.tiered.segment_metadata import MetadataRecord, SegmentMetadata, SegmentState
from tests.unit.log.support import InlineWorkers, append, batch, produced

TOPIC = "topic"
TOPIC_ID = Uuid(bytes(range(16)))
DIRECTORY = "/data/topic-0"
ENABLED = TopicTiering(topic_id=TOPIC_ID)
RECORDS_PER_SEGMENT = 10
HOUR_S = 3_600


def log_config(**config: Any) -> LogConfig:
    """Return a configuration without time limits but those given."""
    options = {"timestamp_after_max_ms": 2**62, "segment_ms": 2**62, "retention_ms": -1}
    return LogConfig(remote_storage=True, **{**options, **config})


class MetadataTopic:
    """The order of all records. `faults`: what becomes of the next appends, one each."""

    def __init__(self, scheduler: Scheduler, random: Random) -> None:
        self.scheduler = scheduler
        self.random = random
        self.values: list[bytes] = []
        self.readers: list[MetadataReader] = []
        self.is_down = False
        self.lost_answers = 0.0

    def records(self) -> list[MetadataRecord]:
        found = [decode(value) for value in self.values]
        return [each for each in found if each is not None]

    def replayed(self) -> RemoteLog:
        """Return the remote log as everyone will see it."""
        remote = RemoteLog()
        for each in self.records():
            if each.partition == 0:
                remote.replay(each)
        return remote

    def arrived(self, value: bytes) -> int:
        self.values.append(value)
        for reader in self.readers:
            reader.poll()
        return len(self.values)


class MetadataReader:
    """One broker's RemoteLogMetadata."""

    def __init__(self, topic: MetadataTopic, process: Process, *, lag_ms: int = 20) -> None:
        self.topic = topic
        self.process = process
        self.lag_ms = lag_ms
        self.position = 0
        self.ready_at = len(topic.values)
        self.logs: dict[int, RemoteLog] = {}
        self.changed: Callable[[int], object] = lambda partition: None
        self._waiting: list[tuple[int, Pending[ApiError | None]]] = []
        topic.readers.append(self)
        self.poll()

    def append(self, record: MetadataRecord) -> Pending[ApiError | None]:
        done: Pending[ApiError | None] = Pending()
        topic, value = self.topic, encode(record)

        def fail() -> None:
            done.complete(ApiError(Error.REQUEST_TIMED_OUT))

        def arrive() -> None:
            if topic.is_down:
                topic.scheduler.after(1_000, fail, self.process)
                return
            end = topic.arrived(value)
            if topic.random.random() < topic.lost_answers:
                topic.scheduler.after(1_000, fail, self.process)
            else:
                self._waiting.append((end, done))
                self._complete()

        topic.scheduler.after(topic.random.randrange(1_000, 20_000), arrive)
        return done

    def remote_log(self, topic_id: Uuid, partition: int) -> RemoteLog | None:
        if self.position < self.ready_at:
            return None
        return self.logs.setdefault(partition, RemoteLog())

    def poll(self) -> None:
        self.topic.scheduler.after(self.lag_ms * 1000, self._replay, self.process)

    def _replay(self) -> None:
        for value in self.topic.values[self.position :]:
            record = decode(value)
            assert record is not None
            self.logs.setdefault(record.partition, RemoteLog()).replay(record)
            self.position += 1
        self._complete()
        for partition in sorted(self.logs):
            self.changed(partition)

    def _complete(self) -> None:
        ready = [done for end, done in self._waiting if end <= self.position]
        self._waiting = [each for each in self._waiting if each[0] > self.position]
        for done in ready:
            done.complete(None)


class Steps:
    """Counts the steps of a process, and ends it at one of them."""

    def __init__(self, process: Process, crash_at: int | None) -> None:
        self.process = process
        self.crash_at = crash_at
        self.count = 0
        self.names: list[str] = []

    def step(self, name: str) -> None:
        self.count += 1
        self.names.append(name)
        if self.count == self.crash_at:
            self.process.alive = False
            raise ProcessDied


class SteppedStore:
    """A store whose operations are steps."""

    def __init__(self, store: ModelStore, steps: Steps) -> None:
        self._store = store
        self._steps = steps

    def __getattr__(self, operation: str) -> Callable[..., Call[Any]]:
        begin = getattr(self._store, operation)

        def call(*args: Any, **options: Any) -> Call[Any]:
            self._steps.step(f"before {operation}")
            inner = begin(*args, **options)
            self._steps.step(f"sent {operation}")
            outer: SettableCall[Any] = SettableCall()
            outer.on_cancel(inner.cancel)

            def came(result: Any) -> None:
                if not outer.result.done:
                    self._steps.step(f"after {operation}")
                    outer.result.complete(result)

            inner.result.then(came)
            return outer

        return call


class SteppedMetadata:
    """Segment metadata whose appends are steps."""

    def __init__(self, reader: MetadataReader, steps: Steps, broker: "BenchBroker") -> None:
        self._reader = reader
        self._steps = steps
        self._broker = broker

    def append(self, record: MetadataRecord) -> Pending[ApiError | None]:
        self._steps.step("before append")
        inner = self._reader.append(record)
        self._steps.step("sent append")
        outer: Pending[ApiError | None] = Pending()

        def came(result: ApiError | None) -> None:
            self._steps.step("after append")
            outer.complete(result)

        inner.then(came)
        return outer

    def remote_log(self, topic_id: Uuid, partition: int) -> RemoteLog | None:
        found = self._reader.remote_log(topic_id, partition)
        restored = self._broker.bench.restored
        tiering = self._broker.tiering
        if restored is not None and tiering is not None:
            tiering = replace(tiering, restored=(restored,))
        return found if found is not None and is_settled(found, tiering, partition) else None

    def replayed(self, topic_id: Uuid, partition: int) -> RemoteLog | None:
        return self._reader.remote_log(topic_id, partition)


@dataclass(slots=True)
class Life:
    """One process of a broker."""

    process: Process
    manager: RemoteLogManager
    environment: RemoteEnvironment
    reader: MetadataReader
    steps: Steps
    published: list[int] = field(default_factory=list)


class BenchBroker:
    """A broker with one log; its process can be replaced."""

    def __init__(self, bench: "Bench", node_id: int, config: LogConfig) -> None:
        self.bench = bench
        self.node_id = node_id
        self.clock = SimClock(bench.scheduler)
        self.disk = MemoryDisk(now_ms=self.clock.now_ms)
        self.disk.mkdir("/data")
        self.disk.sync_dir("/")
        self.log: PartitionLog = self.open_log(0, config)
        self.incarnation = 0
        self.tiering: TopicTiering | None = None
        """As of the broker's metadata image."""
        self.life = self.start()

    def open_log(self, partition: int, config: LogConfig) -> PartitionLog:
        ports = LogPorts(
            disk=self.disk,
            files=FileCache(self.disk, 100),
            workers=InlineWorkers(),
            timers=SimTimers(self.bench.scheduler, self.clock),
            clock=self.clock,
        )
        return open_log(
            ports,
            f"/data/{TOPIC}-{partition}",
            topic=TOPIC,
            partition=partition,
            topic_id=TOPIC_ID,
            config=config,
        )

    def start(
        self, *, crash_at: int | None = None, config: RemoteLogManagerConfig | None = None
    ) -> Life:
        """Begin a process; the one before is dead from now on."""
        if self.incarnation:
            self.life.process.alive = False
        self.incarnation += 1
        bench = self.bench
        process = Process(f"broker-{self.node_id}", self.incarnation)
        steps = Steps(process, crash_at)
        reader = MetadataReader(bench.metadata, process, lag_ms=bench.metadata_lag_ms)
        store = bench.model.client(process, clock=self.clock, read_file=self.disk.read_bytes)
        dice = SimDice(bench.random)
        life_published: list[int] = []
        environment = RemoteEnvironment(
            node_id=self.node_id,
            metadata=SteppedMetadata(reader, steps, self),
            calls=StoreCalls(SteppedStore(store, steps), self.clock, dice),
            clock=self.clock,
            timers=SimTimers(bench.scheduler, self.clock, process),
            workers=InlineWorkers(),
            dice=dice,
            topic_facts=lambda topic_id: TopicFacts(1, {}),
            publish_log_start=lambda log, offset: self.publish(life_published, steps, offset),
            restored=lambda topic_id, partition: bench.restored,
            config=config or RemoteLogManagerConfig(),
        )
        manager = RemoteLogManager(environment)
        reader.changed = lambda partition: manager.metadata_changed(TOPIC_ID, partition)
        self.life = Life(process, manager, environment, reader, steps, life_published)
        return self.life

    def publish(self, published: list[int], steps: Steps, offset: int) -> Pending[ApiError | None]:
        done: Pending[ApiError | None] = Pending()
        steps.step("before publish")

        def arrived() -> None:
            steps.step("after publish")
            published.append(offset)
            self.bench.published.append(offset)
            done.complete(None)

        self.bench.scheduler.after(50_000, arrived, steps.process)
        return done

    def do(self, action: Callable[[], object]) -> None:
        """Act within the process, which may end there."""
        try:
            action()
        except ProcessDied:
            assert not self.life.process.alive

    def lead(self, epoch: int, tiering: TopicTiering = ENABLED, partition: int = 0) -> None:
        """Become the leader."""
        assert partition == 0
        self.tiering = tiering
        if epoch > self.log.latest_epoch:
            self.log.assign_epoch(epoch)
        self.do(
            lambda: self.life.manager.become_leader(self.log, leader_epoch=epoch, tiering=tiering)
        )

    def follow(self, tiering: TopicTiering = ENABLED) -> None:
        """Become a follower."""
        self.tiering = tiering
        self.do(lambda: self.life.manager.become_follower(self.log, tiering=tiering))

    def retier(self, tiering: TopicTiering) -> None:
        """Receive another tiering state of the topic."""
        self.tiering = tiering
        config = replace(self.log.config, remote_storage=tiering.copies)
        self.do(lambda: self.log.reconfigure(config))
        self.do(lambda: self.life.manager.tiering_changed(tiering))

    def produce(
        self, records: int = RECORDS_PER_SEGMENT, *, epoch: int = 0, size: int = 50, **fields: Any
    ) -> None:
        """Append committed records."""
        timestamp = fields.pop("timestamp", self.clock.now_ms())
        for _ in range(records):
            append(self.log, batch(1, size=size, timestamp=timestamp, **fields), epoch=epoch)
        self.log.advance_high_watermark(self.log.log_end_offset)

    def roll(self) -> None:
        """Seal the active segment, and say so."""
        self.log.roll(self.clock.now_ms())
        self.do(lambda: self.life.manager.segment_rolled(TOPIC_ID, 0))

    def fill(self, segments: int, *, epoch: int = 0, **options: Any) -> None:
        """Produce sealed segments, and a few records in the active one."""
        for _ in range(segments):
            self.produce(epoch=epoch, **options)
            self.roll()
        self.produce(3, epoch=epoch, **options)

    def begin_transaction(self) -> None:
        append(self.log, produced(7, 0, 0, transactional=True))
        self.log.advance_high_watermark(self.log.log_end_offset)

    def copy_of(self, leader: "BenchBroker") -> None:
        """Replicate a leader's log, with segments of the same offsets."""
        for segment in leader.log.local_segments():
            if segment.base_offset > self.log.log_end_offset:
                continue
            if self.log.log_end_offset > self.log.segments.active.base_offset:
                self.log.roll(self.clock.now_ms())
            data = leader.disk.read_bytes(f"{leader.log.directory}/{segment.base_offset:020d}.log")
            self.log.append_as_follower(bytearray(data), now_ms=self.clock.now_ms())
        self.log.advance_high_watermark(self.log.log_end_offset)

    def delete_local(self, base_offset: int) -> None:
        """Have local retention delete what is below a segment."""
        self.log.offsets.local_log_start_offset = base_offset
        self.log.delete_expired_segments(base_offset)


class Bench:
    """See the module. `lost`: exceptions that reached the loop. `restored`: where the partition
    began, of a topic that was restored.
    """

    def __init__(
        self,
        seed: int = 1,
        *,
        faults: ObjectStoreFaults | None = None,
        metadata_lag_ms: int = 20,
    ) -> None:
        self.random = Random(seed)
        self.lost: list[BaseException] = []
        self.scheduler = Scheduler(lambda name, error: self.lost.append(error))
        self.model = ObjectStoreModel(self.scheduler, self.random, faults)
        self.metadata = MetadataTopic(self.scheduler, self.random)
        self.metadata_lag_ms = metadata_lag_ms
        self.published: list[int] = []
        self.restored: RestoredPartition | None = None

    def broker(self, node_id: int, **config: Any) -> BenchBroker:
        return BenchBroker(self, node_id, log_config(**config))

    def run(self, seconds: float = 60) -> None:
        """Let time pass."""
        self.scheduler.run_until(self.scheduler.now_us + int(seconds * 1_000_000))
        if self.lost:
            raise self.lost[0]

    # -- what is there -------------------------------------------------------------------------

    def segments(self) -> list[SegmentMetadata]:
        return list(self.metadata.replayed().segments())

    def readable(self) -> list[tuple[int, int]]:
        """Return the offsets, half-open, of the readable segments."""
        return [
            (each.start_offset, each.end_offset + 1)
            for each in self.segments()
            if each.state is SegmentState.COPY_FINISHED
        ]

    def manifest(self) -> ManifestState | None:
        found = [
            decode_manifest(data)
            for name, data in self.model.objects.items()
            if parse_manifest_name(name) is not None
        ]
        return follow(found)

    def segment_objects(self) -> set[str]:
        return {name for name in self.model.objects if parse_object_name(name) is not None}

    # -- checks --------------------------------------------------------------------------------

    def check(self, broker: BenchBroker, expected: Sequence[tuple[int, int]] | None = None) -> None:
        """Check metadata, objects and manifest against each other, and against a broker's log."""
        segments = self.segments()
        states = {each.state for each in segments}
        assert states <= {SegmentState.COPY_FINISHED}, segments
        assert len({each.start_offset for each in segments}) == len(segments)
        if expected is not None:
            assert self.readable() == list(expected)
        for before, after in zip(self.readable(), self.readable()[1:], strict=False):
            assert before[1] == after[0], self.readable()
        names: set[str] = set()
        for each in segments:
            without = {ObjectKind.TXN_INDEX} if each.txn_index_empty else set()
            kinds = [kind for kind in ObjectKind if kind not in without]
            names |= {object_name(each, kind) for kind in kinds}
            self._check_log_object(broker, each)
        assert self.segment_objects() == names
        state = self.manifest()
        listed = {} if state is None else state.segments
        assert set(listed) == {each.segment_id for each in segments}

    def _check_log_object(self, broker: BenchBroker, segment: SegmentMetadata) -> None:
        path = f"{broker.log.directory}/{segment.start_offset:020d}.log"
        data = self.model.objects[object_name(segment, ObjectKind.LOG)]
        assert len(data) == segment.size_bytes
        if broker.disk.exists(path):
            assert data == broker.disk.read_bytes(path)


__all__ = ["ENABLED", "HOUR_S", "START_MS", "TOPIC_ID", "Bench", "BenchBroker", "log_config"]
