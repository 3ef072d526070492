"""A quorum member's requests to the leader, over a channel: Fetch and FetchSnapshot.

Every request ends in one event: a valid response, or `FetchFailed`. Checksums are checked here, so
that raft may append, or adopt, what it gets.

Source: KafkaRaftClient.build{Fetch,FetchSnapshot}Request, handleFetchResponse; KIP-595, KIP-630.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from ottla.base.errors import ApiError, Error, error_of
from ottla.base.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from ottla.base.ports import Clock
from ottla.broker.ports import Sender
from ottla.host.kraft.quorum_storage import READ_BYTES_MAX
from ottla.raft.batches import read_spans
from ottla.raft.effects import SendBeginEpoch, SendEndEpoch, SendFetch, SendFetchSnapshot, SendVote
from ottla.raft.events import Event, FetchFailed, FetchResponseReceived, SnapshotResponseReceived
from ottla.raft.snapshots import CorruptSnapshot, inspect_snapshot
from ottla.raft.values import OffsetAndEpoch, ReplicaKey
from ottla.records.errors import RecordsError
from ottla.wire.codec import records_view
from ottla.wire.messages import fetch as fetch_wire
from ottla.wire.messages import fetch_snapshot as snapshot_wire

log = logging.getLogger(__name__)

FETCH_VERSION = 17
SNAPSHOT_VERSION = 1

FETCH_WAIT_MS = 500
"""The max wait of a fetch in the leader's purgatory (KafkaRaftClient)."""

REQUEST_TIMEOUT_MS = 2_000
"""controller.quorum.request.timeout.ms"""

EXPECTED = frozenset({Error.NONE, Error.FENCED_LEADER_EPOCH, Error.NOT_LEADER_OR_FOLLOWER})
"""Errors of a fetch in normal operation. UNKNOWN_LEADER_EPOCH is not among them: a controller with
an older epoch than its followers has lost its disk."""

Address = tuple[str, int]

Chunks = dict[int, bytes]
"""What is fetched of a snapshot, by position. A download begins after a Fetch."""

Outcome = FetchResponseReceived | SnapshotResponseReceived | FetchFailed


class ControllerEndpoints:
    """The controllers' addresses: the configured voters, or bootstrap servers to try in turn."""

    def __init__(
        self, *, voters: Mapping[int, Address], bootstrap: tuple[Address, ...] = ()
    ) -> None:
        self._voters = dict(voters)
        self._all = tuple(dict.fromkeys((*self._voters.values(), *bootstrap)))
        self._turn = 0
        self.leader_id = -1

    def choose(self) -> Address | None:
        """Return the leader's address, or the next one to try; None where there is none."""
        if self.leader_id in self._voters:
            return self._voters[self.leader_id]
        if not self._all:
            return None
        self._turn += 1
        return self._all[(self._turn - 1) % len(self._all)]


class BootstrapServers:
    """Servers of controllers whose ids are not known, for one channel: one after another is tried.

    `is_connected`: tells whether the channel is connected. Then the next server is only named, and
    its turn comes when the channel connects again.
    """

    def __init__(self, servers: tuple[Address, ...], is_connected: Callable[[], bool]) -> None:
        self._servers = tuple(dict.fromkeys(servers))
        self._is_connected = is_connected
        self._turn = -1

    def choose(self) -> Address:
        """Return the server after the one that was tried last."""
        following = (self._turn + 1) % len(self._servers)
        if not self._is_connected():
            self._turn = following
        return self._servers[following]


class ChannelPeers:
    """The requests of one member. See `ottla.host.kraft.quorum_driver.Peers`.

    `sender_to`: returns the channel to a voter by its id, -1 = any.
    """

    def __init__(
        self,
        sender_to: Callable[[int], Sender],
        *,
        cluster_id: str,
        replica: ReplicaKey,
        clock: Clock,
    ) -> None:
        self._sender_to = sender_to
        self._cluster_id = cluster_id
        self._replica = replica
        self._clock = clock
        self._last_error: Error | None = None
        self._chunks: Chunks = {}

    # -- Fetch ---------------------------------------------------------------------------------

    def send_fetch(self, effect: SendFetch, on_event: Callable[[Event], None]) -> None:
        """Fetch the records after the end of this member's log."""
        self._chunks = {}
        partition = fetch_wire.FetchPartition(
            partition=0,
            current_leader_epoch=effect.leader_epoch,
            fetch_offset=effect.fetch_offset,
            last_fetched_epoch=effect.last_fetched_epoch,
            partition_max_bytes=READ_BYTES_MAX,
            replica_directory_id=self._replica.directory_id,
        )
        topic = fetch_wire.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=(partition,))
        request = fetch_wire.FetchRequest(
            cluster_id=self._cluster_id,
            replica_state=fetch_wire.ReplicaState(replica_id=self._replica.id),
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=0,
            max_bytes=READ_BYTES_MAX,
            topics=(topic,),
        )
        pending = self._sender_to(effect.leader_id).send(
            request, FETCH_VERSION, timeout_ms=FETCH_WAIT_MS + REQUEST_TIMEOUT_MS
        )
        pending.then(lambda response: on_event(_with_serial(self._fetch_event(response), effect)))

    def _fetch_event(self, response: fetch_wire.FetchResponse | ApiError) -> Outcome:
        if isinstance(response, ApiError):
            return self._failed()
        if response.error_code:
            return self._refused(response.error_code)
        if len(response.responses) != 1 or len(response.responses[0].partitions) != 1:
            return self._malformed("a Fetch response is not about the metadata log alone")
        partition = response.responses[0].partitions[0]
        try:
            error = Error(partition.error_code)
            data = records_view(partition.records)
            spans, size = read_spans(data)
        except (ValueError, RecordsError) as problem:
            return self._malformed(f"a Fetch response cannot be used: {problem}")
        if data and not spans:
            return self._malformed("a Fetch response holds no whole batch")
        self._log_error(error)
        diverging, snapshot = partition.diverging_epoch, partition.snapshot_id
        return FetchResponseReceived(
            error=error,
            leader_id=partition.current_leader.leader_id,
            leader_epoch=partition.current_leader.leader_epoch,
            now_ms=self._clock.monotonic_ms(),
            high_watermark=partition.high_watermark,
            diverging=(
                OffsetAndEpoch(diverging.end_offset, diverging.epoch)
                if diverging.epoch >= 0
                else None
            ),
            snapshot=(
                OffsetAndEpoch(snapshot.end_offset, snapshot.epoch)
                if snapshot.epoch >= 0 and snapshot.end_offset >= 0
                else None
            ),
            batches=spans,
            data=memoryview(bytes(data[:size])),  # The channel uses its buffer again.
        )

    # -- FetchSnapshot -------------------------------------------------------------------------

    def send_fetch_snapshot(
        self, effect: SendFetchSnapshot, on_event: Callable[[Event], None]
    ) -> None:
        """Fetch the next piece of a snapshot."""
        wanted = snapshot_wire.RequestPartitionSnapshot(
            partition=0,
            current_leader_epoch=effect.leader_epoch,
            snapshot_id=snapshot_wire.SnapshotId(
                end_offset=effect.snapshot.offset, epoch=effect.snapshot.epoch
            ),
            position=effect.position,
            replica_directory_id=self._replica.directory_id,
        )
        topic = snapshot_wire.RequestTopicSnapshot(name=METADATA_TOPIC, partitions=(wanted,))
        request = snapshot_wire.FetchSnapshotRequest(
            cluster_id=self._cluster_id,
            replica_id=self._replica.id,
            max_bytes=READ_BYTES_MAX,
            topics=(topic,),
        )
        pending = self._sender_to(effect.leader_id).send(
            request, SNAPSHOT_VERSION, timeout_ms=REQUEST_TIMEOUT_MS
        )
        chunks = self._chunks  # The response may come when another download has begun.
        pending.then(
            lambda response: on_event(_with_serial(self._snapshot_event(response, chunks), effect))
        )

    def _snapshot_event(
        self, response: snapshot_wire.FetchSnapshotResponse | ApiError, chunks: Chunks
    ) -> Outcome:
        if isinstance(response, ApiError):
            return self._failed()
        if response.error_code:
            return self._refused(response.error_code)
        if len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
            return self._malformed("a FetchSnapshot response is not about one snapshot")
        partition = response.topics[0].partitions[0]
        try:
            error = Error(partition.error_code)
        except ValueError as problem:
            return self._malformed(f"a FetchSnapshot response cannot be used: {problem}")
        data = bytes(records_view(partition.unaligned_records))
        event = SnapshotResponseReceived(
            error=error,
            leader_id=partition.current_leader.leader_id,
            leader_epoch=partition.current_leader.leader_epoch,
            now_ms=self._clock.monotonic_ms(),
            snapshot=OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch),
            size=partition.size,
            position=partition.position,
            data=data,
        )
        if error is Error.NONE:
            chunks[partition.position] = data
            if partition.position + len(data) >= partition.size:
                return _inspected(event, chunks)
        return event

    # -- elections, only of voters -------------------------------------------------------------

    def send_vote(self, effect: SendVote, on_event: Callable[[Event], None]) -> None:
        """Never called: an observer is no candidate."""
        raise AssertionError("an observer does not send Vote")

    def send_begin_epoch(self, effect: SendBeginEpoch, on_event: Callable[[Event], None]) -> None:
        """Never called, as `send_vote`."""
        raise AssertionError("an observer does not lead")

    def send_end_epoch(self, effect: SendEndEpoch, on_event: Callable[[Event], None]) -> None:
        """Never called, as `send_vote`."""
        raise AssertionError("an observer does not lead")

    # -- failures ------------------------------------------------------------------------------

    def _failed(self) -> FetchFailed:
        return FetchFailed(now_ms=self._clock.monotonic_ms())

    def _malformed(self, problem: str) -> FetchFailed:
        log.warning("%s", problem)
        return self._failed()

    def _refused(self, code: int) -> FetchFailed:
        self._log_error(error_of(code))
        return self._failed()

    def _log_error(self, error: Error) -> None:
        """Log an error, once while it is the same: the request is repeated every second."""
        if error in EXPECTED:
            self._last_error = None
        elif error is not self._last_error:
            self._last_error = error
            log.error("fetch of the metadata log failed: %s", error.name)


def _with_serial(event: Outcome, effect: SendFetch | SendFetchSnapshot) -> Outcome:
    return replace(event, serial=effect.serial)


def _inspected(event: SnapshotResponseReceived, chunks: Chunks) -> SnapshotResponseReceived:
    """Inspect the snapshot whose last chunk `event` brings."""
    try:
        inspect_snapshot(b"".join(chunks.values()))
    except CorruptSnapshot as damage:
        log.warning(
            "rejected metadata snapshot at offset %d, epoch %d, from controller %d: %s; retrying",
            *event.snapshot,
            event.leader_id,
            damage,
        )
        return replace(event, error=Error.CORRUPT_MESSAGE)
    return event
