"""Handles the metadata quorum's requests: Fetch of the metadata log, FetchSnapshot, DescribeQuorum.

Those of elections are in `quorum_elections`. Translation only: raft decides, the storage reads. A
fetch that raft delays is answered when its effect comes; it is dropped when its connection closes.
A snapshot is inspected when its first piece is requested: none of a damaged one is sent.

Source: KafkaRaftClient.handle{Fetch,FetchSnapshot,DescribeQuorum}Request, RaftUtil.
"""

import itertools
import logging
from collections.abc import Callable

from ottla.base.errors import Error
from ottla.base.ids import METADATA_TOPIC, METADATA_TOPIC_ID, NO_LEADER, NO_UUID
from ottla.base.pending import Pending
from ottla.base.ports import Clock
from ottla.broker.api.base import Answer, Context
from ottla.broker.ports import Listeners
from ottla.host.kraft.quorum_driver import QuorumDriver
from ottla.host.kraft.quorum_elections import Answered, ElectionServer
from ottla.host.kraft.quorum_storage import READ_BYTES_MAX
from ottla.raft.effects import RespondToFetch
from ottla.raft.events import Event, FetchAbandoned, FetchRequestReceived, SnapshotRequestReceived
from ottla.raft.log_view import Diverging, NeedsSnapshot, Valid
from ottla.raft.progress import ReplicaProgress
from ottla.raft.snapshots import CorruptSnapshot
from ottla.raft.values import OffsetAndEpoch, ReplicaKey
from ottla.wire.messages import describe_quorum as describe_wire
from ottla.wire.messages import fetch as fetch_wire
from ottla.wire.messages import fetch_snapshot as snapshot_wire

log = logging.getLogger(__name__)

TOPIC_IDS_FROM = 13
"""The version of Fetch that names topics by id."""

PARTITION = 0


class QuorumServer:
    """Handles the requests to one member. See `ottla.broker.api.base.QuorumPort`.

    `replace_snapshot`: begins a snapshot in place of a damaged one. `nodes`: the voters' listeners
    for DescribeQuorum, by node id.
    """

    def __init__(
        self,
        driver: QuorumDriver,
        replace_snapshot: Callable[[OffsetAndEpoch], None],
        *,
        cluster_id: str,
        clock: Clock,
        nodes: Callable[[], dict[int, Listeners]] = dict,
    ) -> None:
        self._driver = driver
        self._cluster_id = cluster_id
        self._clock = clock
        self._nodes = nodes
        self._replace_snapshot = replace_snapshot
        self._tokens = itertools.count()
        self._waiting: dict[int, Callable[[Answered], None]] = {}
        elections = ElectionServer(
            self._step_now, local_id=driver.node.local.id, cluster_id=cluster_id
        )
        self.vote = elections.vote
        self.begin_epoch = elections.begin_epoch
        self.end_epoch = elections.end_epoch
        self._of_connection: dict[str, set[int]] = {}
        driver.answer = self._answered

    @property
    def leader_id(self) -> int:
        """Return the quorum's leader as far as this node knows, or -1."""
        return self._driver.node.leader_id

    @property
    def committed_offset(self) -> int:
        """Return the offset of the last metadata record that is known to be committed, or -1."""
        return (self._driver.node.high_watermark or 0) - 1

    @property
    def nodes(self) -> dict[int, Listeners]:
        """Return the listeners of each voter, by node id."""
        return self._nodes()

    def _answered(self, effect: Answered) -> None:
        on_answer = self._waiting.pop(effect.token, None)
        if on_answer is not None:
            on_answer(effect)

    def _step_now(self, event_of: Callable[[int], Event]) -> Answered | None:
        """Step raft and return its immediate answer; None = this member has stopped."""
        token = next(self._tokens)
        answers: list[Answered] = []
        self._waiting[token] = answers.append
        self._driver.step(event_of(token))
        self._waiting.pop(token, None)
        return answers[0] if answers else None

    # -- Fetch ---------------------------------------------------------------------------------

    def fetch(self, ctx: Context, request: fetch_wire.FetchRequest) -> Answer:
        """Answer a Fetch of the metadata log, or delay it."""
        if request.cluster_id is not None and request.cluster_id != self._cluster_id:
            return _fetch_refusal(Error.INCONSISTENT_CLUSTER_ID)
        if not self._driver.alive:
            return _fetch_refusal(Error.BROKER_NOT_AVAILABLE)
        if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
            return _fetch_refusal(Error.INVALID_REQUEST)
        topic = request.topics[0]
        requested = topic.partitions[0]
        by_id = ctx.version >= TOPIC_IDS_FROM
        if by_id and topic.topic_id != METADATA_TOPIC_ID:
            return _fetch_answer(topic, _partition_refusal(requested, Error.UNKNOWN_TOPIC_ID))
        if requested.partition != PARTITION or (not by_id and topic.topic != METADATA_TOPIC):
            unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
            return _fetch_answer(topic, _partition_refusal(requested, unknown))
        if requested.last_fetched_epoch < 0 or requested.current_leader_epoch < 0:
            return _fetch_refusal(Error.INVALID_REQUEST)
        return self._submit_fetch(ctx, request, requested)

    def _submit_fetch(
        self, ctx: Context, request: fetch_wire.FetchRequest, requested: fetch_wire.FetchPartition
    ) -> Answer:
        answer: Pending[fetch_wire.FetchResponse] = Pending()
        token = next(self._tokens)
        topic = request.topics[0]
        bytes_max = min(request.max_bytes, requested.partition_max_bytes, READ_BYTES_MAX)

        def answered(effect: Answered) -> None:
            assert isinstance(effect, RespondToFetch)
            self._of_connection.get(ctx.connection.id, set()).discard(token)
            answer.complete(_fetch_answer(topic, self._partition_data(effect, bytes_max)))

        self._waiting[token] = answered
        replica_id = max(request.replica_id, request.replica_state.replica_id)
        self._driver.step(
            FetchRequestReceived(
                token=token,
                replica=ReplicaKey(replica_id, requested.replica_directory_id),
                leader_epoch=requested.current_leader_epoch,
                fetch_offset=requested.fetch_offset,
                last_fetched_epoch=requested.last_fetched_epoch,
                now_ms=ctx.monotonic_ms,
                wall_ms=ctx.now_ms,
                deadline_ms=ctx.monotonic_ms + max(0, request.max_wait_ms),
            )
        )
        if answer.done:
            return answer.value
        self._note_connection(ctx, token)
        return answer

    def _note_connection(self, ctx: Context, token: int) -> None:
        connection = ctx.connection
        if connection.id not in self._of_connection:
            # Once per connection: it carries one fetch after the other for months.
            self._of_connection[connection.id] = set()
            connection.closed.then(lambda _none: self._abandon(connection.id))
        self._of_connection.get(connection.id, set()).add(token)

    def _abandon(self, connection_id: str) -> None:
        for token in sorted(self._of_connection.pop(connection_id, ())):
            self._waiting.pop(token, None)
            self._driver.step(FetchAbandoned(token=token))

    def _partition_data(self, effect: RespondToFetch, bytes_max: int) -> fetch_wire.PartitionData:
        leader = fetch_wire.LeaderIdAndEpoch(
            leader_id=effect.leader_id, leader_epoch=effect.leader_epoch
        )
        diverging = fetch_wire.EpochEndOffset()
        snapshot = fetch_wire.SnapshotId()
        records = b""
        match effect.verdict:
            case Diverging(end):
                diverging = fetch_wire.EpochEndOffset(epoch=end.epoch, end_offset=end.offset)
            case NeedsSnapshot(needed):
                snapshot = fetch_wire.SnapshotId(end_offset=needed.offset, epoch=needed.epoch)
            case Valid():
                if effect.start < effect.end:
                    records = self._driver.storage.log.read(effect.start, effect.end, bytes_max)
            case None:
                assert effect.error is not Error.NONE
        return fetch_wire.PartitionData(
            partition_index=PARTITION,
            error_code=effect.error,
            high_watermark=effect.high_watermark,
            last_stable_offset=effect.high_watermark,
            log_start_offset=self._driver.node.log.start_offset,
            diverging_epoch=diverging,
            current_leader=leader,
            snapshot_id=snapshot,
            records=records,
        )

    # -- FetchSnapshot -------------------------------------------------------------------------

    def fetch_snapshot(self, ctx: Context, request: snapshot_wire.FetchSnapshotRequest) -> Answer:
        """Answer with a piece of a snapshot."""
        if request.cluster_id is not None and request.cluster_id != self._cluster_id:
            return _snapshot_refusal(Error.INCONSISTENT_CLUSTER_ID)
        if not self._driver.alive:
            return _snapshot_refusal(Error.BROKER_NOT_AVAILABLE)
        if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
            return _snapshot_refusal(Error.INVALID_REQUEST)
        topic = request.topics[0]
        requested = topic.partitions[0]
        if topic.name != METADATA_TOPIC or requested.partition != PARTITION:
            return self._snapshot_error(topic.name, requested, Error.UNKNOWN_TOPIC_OR_PARTITION)
        snapshot = OffsetAndEpoch(requested.snapshot_id.end_offset, requested.snapshot_id.epoch)
        answer = self._step_now(
            lambda token: SnapshotRequestReceived(
                token=token,
                replica=ReplicaKey(request.replica_id, requested.replica_directory_id),
                leader_epoch=requested.current_leader_epoch,
                snapshot=snapshot,
                now_ms=ctx.monotonic_ms,
            )
        )
        if answer is None:
            return _snapshot_refusal(Error.BROKER_NOT_AVAILABLE)
        if answer.error is not Error.NONE:
            return self._snapshot_error(topic.name, requested, answer.error)
        return self._snapshot_piece(requested, request.max_bytes)

    def _snapshot_piece(
        self, requested: snapshot_wire.RequestPartitionSnapshot, bytes_max: int
    ) -> Answer:
        snapshot = OffsetAndEpoch(requested.snapshot_id.end_offset, requested.snapshot_id.epoch)
        if requested.position < 0 or bytes_max <= 0:
            return self._snapshot_error(METADATA_TOPIC, requested, Error.POSITION_OUT_OF_RANGE)
        storage = self._driver.storage
        try:
            if requested.position == 0:
                storage.inspect_snapshot(snapshot)
            data, size = storage.read_snapshot_piece(snapshot, requested.position, bytes_max)
        except (CorruptSnapshot, OSError) as damage:
            log.error("metadata snapshot not sent to replicas: %s; writing a new one", damage)
            self._replace_snapshot(snapshot)
            return self._snapshot_error(METADATA_TOPIC, requested, Error.SNAPSHOT_NOT_FOUND)
        if requested.position >= size:
            return self._snapshot_error(METADATA_TOPIC, requested, Error.POSITION_OUT_OF_RANGE)
        return self._snapshot_answer(METADATA_TOPIC, requested, Error.NONE, data, size)

    def _snapshot_error(
        self, topic: str, requested: snapshot_wire.RequestPartitionSnapshot, error: Error
    ) -> snapshot_wire.FetchSnapshotResponse:
        return self._snapshot_answer(topic, requested, error, b"", 0)

    def _snapshot_answer(
        self,
        topic: str,
        requested: snapshot_wire.RequestPartitionSnapshot,
        error: Error,
        data: bytes,
        size: int,
    ) -> snapshot_wire.FetchSnapshotResponse:
        node = self._driver.node
        partition = snapshot_wire.ResponsePartitionSnapshot(
            index=requested.partition,
            error_code=error,
            snapshot_id=requested.snapshot_id,
            current_leader=snapshot_wire.LeaderIdAndEpoch(
                leader_id=node.leader_id, leader_epoch=node.epoch
            ),
            size=size,
            position=requested.position,
            unaligned_records=data,
        )
        listed = snapshot_wire.ResponseTopicSnapshot(name=topic, partitions=(partition,))
        return snapshot_wire.FetchSnapshotResponse(error_code=Error.NONE, topics=(listed,))

    # -- DescribeQuorum ------------------------------------------------------------------------

    def describe(self, ctx: Context, request: describe_wire.DescribeQuorumRequest) -> Answer:
        """Answer leader, high watermark, voters and observers, for every requested topic."""
        topics = tuple(
            describe_wire.ResponseTopicData(
                topic_name=topic.topic_name,
                partitions=tuple(
                    self._described(topic.topic_name, partition.partition_index)
                    for partition in topic.partitions
                ),
            )
            for topic in request.topics
        )
        nodes = tuple(
            describe_wire.Node(
                node_id=node_id,
                listeners=tuple(
                    describe_wire.Listener(name=name, host=host, port=port)
                    for name, host, port in listeners
                ),
            )
            for node_id, listeners in sorted(self._nodes().items())
        )
        return describe_wire.DescribeQuorumResponse(
            error_code=Error.NONE, topics=topics, nodes=nodes if ctx.version >= 2 else ()
        )

    def _described(self, topic: str, partition: int) -> describe_wire.ResponsePartitionData:
        node = self._driver.node
        progress = node.progress
        error = Error.NONE
        if topic != METADATA_TOPIC or partition != PARTITION:
            error = Error.UNKNOWN_TOPIC_OR_PARTITION
        elif progress is None or not self._driver.alive:
            error = Error.NOT_LEADER_OR_FOLLOWER
        if error is not Error.NONE or progress is None:
            return describe_wire.ResponsePartitionData(
                partition_index=partition,
                error_code=error,
                error_message=error.message,
                leader_id=NO_LEADER,
                leader_epoch=-1,
                high_watermark=-1,
                current_voters=(),
                observers=(),
            )
        wall_ms = self._clock.now_ms()
        return describe_wire.ResponsePartitionData(
            partition_index=partition,
            error_code=Error.NONE,
            leader_id=node.leader_id,
            leader_epoch=node.epoch,
            high_watermark=-1 if node.high_watermark is None else node.high_watermark,
            current_voters=tuple(
                self._replica_state(voter, wall_ms) for voter in progress.voters.values()
            ),
            observers=tuple(
                self._replica_state(each, wall_ms) for each in progress.live_observers(wall_ms)
            ),
        )

    def _replica_state(self, progress: ReplicaProgress, wall_ms: int) -> describe_wire.ReplicaState:
        node = self._driver.node
        if progress.key.id == node.local.id:
            return describe_wire.ReplicaState(
                replica_id=node.local.id,
                replica_directory_id=NO_UUID,
                log_end_offset=node.log.end_offset,
                last_fetch_timestamp=wall_ms,
                last_caught_up_timestamp=wall_ms,
            )
        return describe_wire.ReplicaState(
            replica_id=progress.key.id,
            replica_directory_id=NO_UUID,
            log_end_offset=progress.end_offset,
            last_fetch_timestamp=progress.last_fetch_ms,
            last_caught_up_timestamp=progress.last_caught_up_ms,
        )


def _fetch_refusal(error: Error) -> fetch_wire.FetchResponse:
    return fetch_wire.FetchResponse(error_code=error, responses=())


def _partition_refusal(
    requested: fetch_wire.FetchPartition, error: Error
) -> fetch_wire.PartitionData:
    return fetch_wire.PartitionData(
        partition_index=requested.partition, error_code=error, high_watermark=-1, records=b""
    )


def _fetch_answer(
    topic: fetch_wire.FetchTopic, partition: fetch_wire.PartitionData
) -> fetch_wire.FetchResponse:
    answered = fetch_wire.FetchableTopicResponse(
        topic=topic.topic, topic_id=topic.topic_id, partitions=(partition,)
    )
    return fetch_wire.FetchResponse(responses=(answered,))


def _snapshot_refusal(error: Error) -> snapshot_wire.FetchSnapshotResponse:
    return snapshot_wire.FetchSnapshotResponse(error_code=error, topics=())
