"""The metadata of remote segments, kept in the topic `__remote_log_metadata`.

This is KIP-405's topic-based RemoteLogMetadataManager. Whoever copies or deletes remote segments
appends records; every broker reads the metadata partitions to which its user partitions map, and
replays them into one `RemoteLog` for each. All readers see the records in the order of the topic,
so all come to the same state.

    append -> MetadataProducer -> leader of the metadata partition
                                        |
    remote_log <- MetadataReader <------+   (metadata_partition_reader.py)

An append completes when the record is replayed here (read-your-write): what is decided next sees
it. Where that takes longer than `consume_wait_ms` the append fails with REQUEST_TIMED_OUT, and the
record may be in the topic all the same: a caller repeats it, or reads what has become of it.

Requests go to the leaders of the metadata partitions, by `leader_requests`, on three connections
for each leader: one for Produce, one for the long polls of Fetch, one for reading what is old.

Not done: the partition count must stay as it was at the topic's creation. With another count user
partitions map to other metadata partitions, where their earlier records are not found; Kafka has
the same limit.

Source: KIP-405; Kafka's TopicBasedRemoteLogMetadataManager.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.base.backoff import Backoff
from ottla.base.errors import ApiError, Error
from ottla.base.ids import REMOTE_LOG_METADATA_TOPIC, Uuid
from ottla.base.limits import REMOTE_METADATA_WAITING_MAX
from ottla.base.pending import Pending, completed
from ottla.base.ports import Clock, Dice, Disk, Workers
from ottla.base.timers import Timers
from ottla.broker.leader_requests import CLOSED, LeaderApi, LeaderRequests, P, R
from ottla.broker.ports import (
    METADATA_CATCH_UP_LANE,
    METADATA_PRODUCE_LANE,
    METADATA_TAIL_LANE,
    Forwarder,
    Peers,
)
from ottla.broker.produce.producer_ids import ProducerIds
from ottla.broker.remote.metadata.leader_apis import (
    FetchApi,
    Fetched,
    FetchFrom,
    ListOffsetsApi,
    ProduceApi,
)
from ottla.broker.remote.metadata.metadata_chunks import UserPartition
from ottla.broker.remote.metadata.metadata_partition_reader import ReaderCounters, ReaderPorts
from ottla.broker.remote.metadata.metadata_producer import PRODUCER_ID_TIMEOUT_MS, MetadataProducer
from ottla.broker.remote.metadata.metadata_reader import MetadataReader
from ottla.broker.remote.metadata.metadata_topic_creation import (
    MetadataTopicCreation,
    MetadataTopicSettings,
)
from ottla.broker.remote.metadata.reader_checkpoint import CheckpointFiles
from ottla.broker.remote.metadata.settled import is_settled
from ottla.broker.replica_manager import ReplicaManager
from ottla.metadata.image import ClusterImage
from ottla.metadata.tiering import TopicTiering
from ottla.tiered.metadata_partition import metadata_partition
from ottla.tiered.metadata_records import encode
from ottla.tiered.remote_log import RemoteLog
from ottla.tiered.segment_metadata import MetadataRecord

logger = logging.getLogger(__name__)

TAIL_WAIT_MS: Final = 500
"""fetch.max.wait.ms of Kafka's consumers."""
TAIL_PARTITION_BYTES_MAX: Final = 128 * 1024
TAIL_RESPONSE_BYTES_MAX: Final = 128 * 1024
"""Decoded in one turn of the loop, some 15 ms."""
CATCH_UP_WAIT_MS: Final = 50
"""A new leader's high watermark may be behind for a moment."""
CATCH_UP_PARTITION_BYTES_MAX: Final = 256 * 1024
CATCH_UP_RESPONSE_BYTES_MAX: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataTopicPorts:
    """What `RemoteLogMetadata` needs of its broker.

    Fields: `log_dir`: the log directory that has the checkpoints.
    """

    node_id: int
    replicas: ReplicaManager
    producer_ids: ProducerIds
    forwarder: Forwarder
    peers: Peers
    disk: Disk
    log_dir: str
    workers: Workers
    clock: Clock
    timers: Timers
    dice: Dice


class _Lanes(NamedTuple):
    """The requests to leaders, by kind. `catch_up` and `offsets` share connections."""

    produce: LeaderRequests[bytes, int]
    tail: LeaderRequests[FetchFrom, Fetched]
    catch_up: LeaderRequests[FetchFrom, Fetched]
    offsets: LeaderRequests[int, int]


class RemoteLogMetadata:
    """See the module. `apply` must be called with each new image, in order.

    `has_tiered_topics` tells whether an image has any: then the metadata topic is created.
    """

    def __init__(
        self,
        settings: MetadataTopicSettings,
        ports: MetadataTopicPorts,
        *,
        has_tiered_topics: Callable[[ClusterImage], bool],
    ) -> None:
        self._settings = settings
        self._has_tiered_topics = has_tiered_topics
        self._clock = clock = ports.clock
        self._timers = timers = ports.timers
        self._topic_id: Uuid | None = None
        self._count = 0
        self._tiering: Mapping[Uuid, TopicTiering] = {}
        self._early: list[tuple[MetadataRecord, Pending[int | ApiError]]] = []
        """Appends before the topic exists."""
        self._listeners: list[Callable[[Uuid, int], None]] = []
        self._replay_listeners: list[Callable[[Uuid, int], None]] = []
        self._closed: Pending[None] = Pending()
        self._stopped: Pending[None] | None = None
        self.counters = ReaderCounters()
        self._lanes = _lanes(ports, self._closed)
        self._creation = MetadataTopicCreation(
            settings, forwarder=ports.forwarder, clock=clock, timers=timers, dice=ports.dice
        )
        self._producer = MetadataProducer(
            REMOTE_LOG_METADATA_TOPIC,
            self._lanes.produce,
            grant=lambda: ports.producer_ids.grant(timeout_ms=PRODUCER_ID_TIMEOUT_MS),
            clock=clock,
            timers=timers,
            dice=ports.dice,
        )
        reader_ports = ReaderPorts(
            topic=REMOTE_LOG_METADATA_TOPIC,
            tail=self._lanes.tail,
            catch_up=self._lanes.catch_up,
            offsets=self._lanes.offsets,
            files=CheckpointFiles(disk=ports.disk, workers=ports.workers, log_dir=ports.log_dir),
            workers=ports.workers,
            clock=clock,
            timers=timers,
            dice=ports.dice,
            backoff=Backoff(max_ms=30_000),
            on_ready=self._ready,
            on_replayed=self._replayed,
            counters=self.counters,
        )
        self._reader = MetadataReader(
            reader_ports, checkpoint_interval_ms=settings.checkpoint_interval_ms
        )

    # -- What happens --

    def apply(self, image: ClusterImage) -> None:
        """Follow the metadata: the topic, and the leaders of its partitions."""
        if self._closed.done:
            return
        for requests in self._lanes:
            requests.update(image)
        self._tiering = image.tiering
        topic = image.topics.by_name(REMOTE_LOG_METADATA_TOPIC)
        topic_id, count = (None, 0) if topic is None else (topic.id, len(topic.partitions))
        if (topic_id, count) != (self._topic_id, self._count):
            self._follow(topic_id, count)
        self._creation.update(image, wanted=self._has_tiered_topics(image))

    def _follow(self, topic_id: Uuid | None, count: int) -> None:
        before, before_count = self._topic_id, self._count
        self._topic_id, self._count = topic_id, count
        if before is not None and topic_id != before:
            logger.error(
                "topic %s was deleted: the remote segments recorded in it are no longer known",
                REMOTE_LOG_METADATA_TOPIC,
            )
            self._producer.drop(before)
        elif before is not None:
            logger.error(
                "topic %s has %d partitions instead of %d: remote segments recorded before are no"
                " longer found",
                *(REMOTE_LOG_METADATA_TOPIC, count, before_count),
            )
        self._reader.follow(topic_id, count)
        early, self._early = self._early, []
        for record, written in early:
            self._write(record, written)

    def close(self) -> Pending[None]:
        """Stop; return the promise that the checkpoints are written."""
        if self._stopped is not None:
            return self._stopped
        self._stopped = self._reader.close()
        self._creation.close()
        self._producer.close()
        early, self._early = self._early, []
        for _, written in early:
            written.complete(ApiError(Error.BROKER_NOT_AVAILABLE, CLOSED))
        for requests in self._lanes:
            requests.close()
        self._closed.complete(None)
        return self._stopped

    # -- Writing --

    def append(self, record: MetadataRecord) -> Pending[ApiError | None]:
        """Append a record; completed with None once it is replayed here.

        Records of one user partition land in the order of their appends. For a user partition
        that is not assigned here it completes once the record is committed.

        Errors: REQUEST_TIMED_OUT after `consume_wait_ms`, or where the metadata partition is read
        again from its start: the record may be in the topic. BROKER_NOT_AVAILABLE while the
        broker stops, with the same doubt. THROTTLING_QUOTA_EXCEEDED where too many wait: it is
        not written. Others of Produce.
        """
        if self._closed.done:
            return completed(ApiError(Error.BROKER_NOT_AVAILABLE, CLOSED))
        user = record.topic_id, record.partition
        answer: Pending[ApiError | None] = Pending()
        written: Pending[int | ApiError] = Pending()

        def expire() -> None:
            late = ApiError(
                Error.REQUEST_TIMED_OUT,
                f"not read back from {REMOTE_LOG_METADATA_TOPIC} within"
                f" {self._settings.consume_wait_ms} ms",
            )
            written.complete(late)
            answer.complete(late)

        def written_at(offset: int | ApiError) -> None:
            if isinstance(offset, ApiError):
                answer.complete(offset)
            else:
                self._reader.when_read(user, offset).then(lambda error: _complete(answer, error))

        deadline_ms = self._clock.monotonic_ms() + self._settings.consume_wait_ms
        timer = self._timers.at(deadline_ms, expire)
        answer.then(lambda _: timer.cancel())
        written.then(written_at)
        self._write(record, written)
        return answer

    def _write(self, record: MetadataRecord, written: Pending[int | ApiError]) -> None:
        if self._topic_id is not None:
            index = metadata_partition(record.topic_id, record.partition, self._count)
            self._producer.append((self._topic_id, index), encode(record), written)
        elif len(self._early) < REMOTE_METADATA_WAITING_MAX:
            self._early.append((record, written))
        else:
            written.complete(ApiError(Error.THROTTLING_QUOTA_EXCEEDED))

    # -- Reading --

    def assign(self, partitions: Iterable[UserPartition]) -> None:
        """Read for these user partitions (topic id, partition) from now on, too."""
        self._reader.assign(partitions)

    def unassign(self, partitions: Iterable[UserPartition]) -> None:
        """Stop reading for these: this broker no longer hosts them."""
        self._reader.unassign(partitions)

    def remote_log(self, topic_id: Uuid, partition: int) -> RemoteLog | None:
        """Return the remote segments of an assigned user partition; None while it is not ready, or
        not settled: being restored, or without the fence of the topic's floor.

        The object changes with each record, and is another one after everything was read again:
        it must not be kept.
        """
        found = self._reader.remote_log((topic_id, partition))
        is_known = found is not None and is_settled(found, self._tiering.get(topic_id), partition)
        return found if is_known else None

    def replayed(self, topic_id: Uuid, partition: int) -> RemoteLog | None:
        """Return the same, also of a partition that is not settled: of which only a part of the
        segments may be known, and dead ones may still seem readable."""
        return self._reader.remote_log((topic_id, partition))

    def is_ready(self, topic_id: Uuid, partition: int) -> bool:
        """Tell whether all that was written before the assignment is replayed."""
        return self.remote_log(topic_id, partition) is not None

    def on_ready(self, listener: Callable[[Uuid, int], None]) -> None:
        """Call `listener` whenever a user partition becomes ready, also once more after a reset."""
        self._listeners.append(listener)

    def on_replayed(self, listener: Callable[[Uuid, int], None]) -> None:
        """Call `listener` whenever records of a user partition that is ready were replayed."""
        self._replay_listeners.append(listener)

    def _replayed(self, user: UserPartition) -> None:
        for listener in self._replay_listeners:
            listener(*user)

    def _ready(self, user: UserPartition) -> None:
        for listener in self._listeners:
            listener(*user)

    # -- Metrics --

    @property
    def lag(self) -> int:
        """Return the committed records, as far as known, that are not replayed yet."""
        return self._reader.lag

    @property
    def unready(self) -> int:
        """Return how many assigned user partitions are not ready."""
        return sum(self._reader.remote_log(user) is None for user in self._reader.assigned)

    @property
    def waiting(self) -> int:
        """Return how many appended records are not acknowledged yet."""
        return self._producer.waiting + len(self._early)


def _complete(answer: Pending[ApiError | None], error: ApiError | None) -> None:
    answer.complete(error)


def _lanes(ports: MetadataTopicPorts, closed: Pending[None]) -> _Lanes:
    """Return the requests to leaders. `closed` ends those that wait locally."""

    def requests(api: LeaderApi[P, R], lane: int, *, abandons: bool = True) -> LeaderRequests[P, R]:
        return LeaderRequests(
            api,
            node_id=ports.node_id,
            peers=ports.peers,
            lane=lane,
            clock=ports.clock,
            timers=ports.timers,
            dice=ports.dice,
            abandons=abandons,
        )

    replicas, workers = ports.replicas, ports.workers
    tail = FetchApi(
        replicas,
        workers,
        closed,
        max_wait_ms=TAIL_WAIT_MS,
        partition_bytes_max=TAIL_PARTITION_BYTES_MAX,
        response_bytes_max=TAIL_RESPONSE_BYTES_MAX,
    )
    catch_up = FetchApi(
        replicas,
        workers,
        closed,
        max_wait_ms=CATCH_UP_WAIT_MS,
        partition_bytes_max=CATCH_UP_PARTITION_BYTES_MAX,
        response_bytes_max=CATCH_UP_RESPONSE_BYTES_MAX,
    )
    return _Lanes(
        # A batch must not be in flight twice: it may be appended by the former leader, too.
        produce=requests(ProduceApi(replicas, closed), METADATA_PRODUCE_LANE, abandons=False),
        tail=requests(tail, METADATA_TAIL_LANE),
        catch_up=requests(catch_up, METADATA_CATCH_UP_LANE),
        offsets=requests(ListOffsetsApi(replicas), METADATA_CATCH_UP_LANE),
    )
