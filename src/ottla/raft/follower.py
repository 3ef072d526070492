"""The follower's side: fetch, append, truncate, load snapshots.

An observer fetches from its start on, from any voter while it knows no leader. A voter fetches
while it is a follower, and sends the next fetch only once its whole log is durable.

One request is in flight at a time; responses to requests of an earlier role are ignored. After a
failure the next request waits for a backoff, which doubles. After a response the next fetch is sent
at once, since the leader delays a fetch for which it has no new records.

Source: KIP-595 (fetch, truncation), KIP-630 (snapshots); KafkaRaftClient's handling of
FetchResponse and FetchSnapshotResponse.
"""

from typing import TYPE_CHECKING

from ottla.base.errors import Error
from ottla.raft.effects import (
    AdoptSnapshot,
    AdvanceHighWatermark,
    AppendFetched,
    SendFetch,
    SendFetchSnapshot,
    TruncateLog,
    WriteSnapshot,
)
from ottla.raft.election import NOBODY
from ottla.raft.events import (
    ANY_SERIAL,
    FetchFailed,
    FetchResponseReceived,
    SnapshotResponseReceived,
)
from ottla.raft.roles import Role
from ottla.raft.values import OffsetAndEpoch

if TYPE_CHECKING:
    from ottla.raft.node import RaftNode

RETRY_BACKOFF_MS = 20
"""controller.quorum.retry.backoff.ms"""

RETRY_BACKOFF_MAX_MS = 1_000
assert RETRY_BACKOFF_MS <= RETRY_BACKOFF_MAX_MS


class CommittedDataLost(Exception):
    """The leader lacks committed records: its disk was lost or replaced."""


class Follower:
    """Keeps a member's log a copy of the leader's."""

    def __init__(self, node: "RaftNode") -> None:
        self._node = node
        self._running = False
        self._in_flight = False
        self._serial = 0
        self._fetch_when_flushed = False
        self._retry_at_ms: int | None = None
        self._failures = 0
        self._snapshot: OffsetAndEpoch | None = None
        self._position = 0
        self.leader_high_watermark: int | None = None
        """The high watermark in this epoch's last fetch response; the own one may lag behind it."""

    def begin(self, _now_ms: int) -> None:
        """Start to fetch."""
        self.stop()
        self._running = True
        self._failures = 0
        self._send_fetch()

    def stop(self) -> None:
        """Stop fetching; a response that comes later is ignored."""
        self._running = self._in_flight = self._fetch_when_flushed = False
        self._retry_at_ms = None
        self._serial += 1
        self.forget_snapshot()

    def flushed(self) -> None:
        """Send the fetch that waited for the flush."""
        if not self._node.flushing.is_done:
            if self._fetch_when_flushed:
                self._node.flushing.begin()
        elif self._fetch_when_flushed:
            self._send_fetch()

    def leader_changed(self) -> None:
        """Drop the state of the previous leader."""
        self.forget_snapshot()
        self.leader_high_watermark = None

    def forget_snapshot(self) -> None:
        """Drop a snapshot that is being fetched: another leader may have other ones."""
        self._snapshot = None

    def wake_at_ms(self) -> int | None:
        """Return when the next retry is due."""
        return self._retry_at_ms

    def tick(self, now_ms: int) -> None:
        """Retry when the backoff is over."""
        if self._retry_at_ms is not None and self._retry_at_ms <= now_ms:
            self._send_fetch()

    def _send_fetch(self) -> None:
        if not self._running:
            return
        assert not self._in_flight
        node = self._node
        self._retry_at_ms = None
        self._fetch_when_flushed = node.elects and not node.flushing.is_done
        if self._fetch_when_flushed:
            node.flushing.begin()
            return
        self._in_flight = True
        self._serial += 1
        if self._snapshot is not None:
            node.effects.append(
                SendFetchSnapshot(
                    leader_id=node.leader_id,
                    leader_epoch=node.epoch,
                    snapshot=self._snapshot,
                    position=self._position,
                    serial=self._serial,
                )
            )
            return
        node.effects.append(
            SendFetch(
                leader_id=self._fetch_target(),
                leader_epoch=node.epoch,
                fetch_offset=node.log.end_offset,
                last_fetched_epoch=node.log.last_epoch,
                serial=self._serial,
            )
        )

    def _fetch_target(self) -> int:
        """Return the leader; after a failure an observer tries one voter after another."""
        node = self._node
        if not node.is_voter and len(node.voters) > 1 and self._failures > 0:
            return NOBODY
        return node.leader_id

    def _is_stale(
        self, event: FetchResponseReceived | SnapshotResponseReceived | FetchFailed
    ) -> bool:
        return not self._in_flight or event.serial not in (ANY_SERIAL, self._serial)

    def _retry_later(self, now_ms: int) -> None:
        delay_ms = min(RETRY_BACKOFF_MS << min(self._failures, 16), RETRY_BACKOFF_MAX_MS)
        self._failures += 1
        self._retry_at_ms = now_ms + delay_ms

    def handle_fetch_failure(self, event: FetchFailed) -> None:
        """Schedule a retry."""
        if self._is_stale(event):
            return
        self._in_flight = False
        self._retry_later(event.now_ms)

    def _is_from_leader(self, event: FetchResponseReceived | SnapshotResponseReceived) -> bool:
        """Take over the response's leader and epoch; return whether to use its content."""
        node = self._node
        if self._is_stale(event):
            return False
        self._in_flight = False
        if event.leader_epoch < node.epoch:
            self._retry_later(event.now_ms)
            return False
        was = (node.epoch, node.leader_id)
        node.observe_leader(event.leader_id, event.leader_epoch)
        if node.elects and (node.epoch, node.leader_id) != was:
            return False  # A new role has begun and sends its own requests.
        if event.error is Error.NONE and node.role is Role.FOLLOWER:
            self._failures = 0
            node.candidate.leader_responded()
            return True
        if (node.epoch, node.leader_id) != was and node.role is Role.FOLLOWER:
            self._failures = 0  # The response named the leader: fetch from it at once.
            self._send_fetch()
        else:
            self._retry_later(event.now_ms)
        return False

    def handle_fetch_response(self, event: FetchResponseReceived) -> None:
        """Bring the log closer to the leader's."""
        if not self._is_from_leader(event):
            return
        if event.diverging is not None:
            self._truncate(event.diverging)
        elif event.snapshot is not None:
            self._snapshot, self._position = event.snapshot, 0
        else:
            if not self._fits(event):
                self._retry_later(event.now_ms)
                return
            self._append(event)
            self._commit(event.high_watermark)
        self._send_fetch()

    def _truncate(self, leader_end: OffsetAndEpoch) -> None:
        node = self._node
        offset = node.log.truncation_point(leader_end)
        if offset < max(node.high_watermark or 0, node.log.start_offset):
            raise CommittedDataLost(
                f"the log of leader {node.leader_id} of epoch {node.epoch} diverges from this "
                f"node's at offset {offset}, below the high watermark {node.high_watermark}"
            )
        node.log.truncated_to(offset)
        node.flushing.truncated_to(offset)
        node.effects.append(TruncateLog(offset=offset))

    def _fits(self, event: FetchResponseReceived) -> bool:
        """Return whether the batches continue the log, with epochs that do not decrease."""
        log = self._node.log
        offset, epoch = log.end_offset, log.last_epoch
        for span in event.batches:
            if span.base_offset != offset or span.next_offset <= offset:
                return False
            if not epoch <= span.epoch <= self._node.epoch:
                return False
            offset, epoch = span.next_offset, span.epoch
        return True

    def _append(self, event: FetchResponseReceived) -> None:
        log = self._node.log
        for span in event.batches:
            log.appended(
                base_offset=span.base_offset, next_offset=span.next_offset, epoch=span.epoch
            )
        if event.batches:
            self._node.effects.append(AppendFetched(data=event.data, next_offset=log.end_offset))

    def _commit(self, leaders_high_watermark: int) -> None:
        node = self._node
        if leaders_high_watermark >= 0:
            self.leader_high_watermark = leaders_high_watermark
        offset = min(leaders_high_watermark, node.log.end_offset)
        if offset >= 0 and offset > (-1 if node.high_watermark is None else node.high_watermark):
            node.high_watermark = offset
            node.effects.append(AdvanceHighWatermark(offset=offset))

    def handle_snapshot_response(self, event: SnapshotResponseReceived) -> None:
        """Write the chunk; after the last one load the snapshot."""
        if not self._is_from_leader(event):
            # The leader may have deleted the snapshot: the next fetch returns the current one.
            if event.error is not Error.NONE:
                self.forget_snapshot()
            return
        expected = (self._snapshot, self._position)
        whole = event.position + len(event.data)
        if (event.snapshot, event.position) != expected or whole > event.size or not event.data:
            self.forget_snapshot()
            self._retry_later(event.now_ms)
            return
        node = self._node
        node.effects.append(
            WriteSnapshot(snapshot=event.snapshot, position=event.position, data=event.data)
        )
        self._position = whole
        if whole == event.size:
            self._adopt(event.snapshot)
        self._send_fetch()

    def _adopt(self, snapshot: OffsetAndEpoch) -> None:
        node = self._node
        self._snapshot = None
        if snapshot.offset < (node.high_watermark or 0):
            raise CommittedDataLost(
                f"the leader {node.leader_id} of epoch {node.epoch} has a snapshot up to offset "
                f"{snapshot.offset}, below the high watermark {node.high_watermark}"
            )
        node.log.restarted_at(snapshot)
        node.flushing.restarted_at(snapshot.offset)
        node.effects.append(AdoptSnapshot(snapshot=snapshot))
        if node.high_watermark is None or snapshot.offset > node.high_watermark:
            node.high_watermark = snapshot.offset
            node.effects.append(AdvanceHighWatermark(offset=snapshot.offset))
