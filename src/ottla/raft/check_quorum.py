"""How a leader announces its epoch, checks its quorum, and resigns.

It sends BeginQuorumEpoch to voters that do not fetch. It resigns when no majority has fetched for a
while; otherwise a leader that is cut off would go on for ever. When it resigns it sends
EndQuorumEpoch, with the voters that have most of its log as preferred successors.

Source: KIP-595, KAFKA-15489 (check-quorum); LeaderState, KafkaRaftClient of Kafka 4.
"""

from typing import TYPE_CHECKING

from ottla.raft.effects import SendBeginEpoch, SendEndEpoch

if TYPE_CHECKING:
    from ottla.raft.node import RaftNode
    from ottla.raft.progress import LeaderProgress


class CheckQuorum:
    """The timers of one leader epoch. An only voter needs none."""

    def __init__(self, node: "RaftNode") -> None:
        self._node = node
        self._check_at_ms: int | None = None
        self._announce_at_ms: int | None = None
        self._fetched_ms: dict[int, int] = {}
        self._fetched_since_check: set[int] = set()

    def begin(self) -> None:
        """Begin the epoch: announce it to all voters."""
        node = self._node
        if not node.elects:
            return
        self._fetched_ms = {}
        self._fetched_since_check = set()
        self._check_at_ms = node.now_ms + node.timing.check_quorum_ms
        self._announce()

    def end(self) -> None:
        """Stop: this member does not lead any more."""
        self._check_at_ms = self._announce_at_ms = None

    def fetched(self, voter_id: int) -> None:
        """Note a fetch of a voter."""
        node = self._node
        if not node.elects or voter_id not in node.others:
            return
        self._fetched_ms[voter_id] = node.now_ms
        self._fetched_since_check.add(voter_id)
        if len(self._fetched_since_check) + 1 >= node.majority:
            self._fetched_since_check = set()
            self._check_at_ms = node.now_ms + node.timing.check_quorum_ms

    def wake_at_ms(self) -> int | None:
        """Return when something is due."""
        moments = (self._check_at_ms, self._announce_at_ms)
        return min((at for at in moments if at is not None), default=None)

    def tick(self, now_ms: int) -> None:
        """Announce the epoch again; resign if no majority has fetched."""
        if self._check_at_ms is not None and self._check_at_ms <= now_ms:
            self._node.give_up_leadership()
            return
        if self._announce_at_ms is not None and self._announce_at_ms <= now_ms:
            self._announce()

    def _announce(self) -> None:
        node = self._node
        interval_ms = node.timing.begin_epoch_ms
        self._announce_at_ms = node.now_ms + interval_ms
        for voter in node.others:
            fetched_ms = self._fetched_ms.get(voter)
            if fetched_ms is None or node.now_ms - fetched_ms >= interval_ms:
                node.effects.append(SendBeginEpoch(voter_id=voter, epoch=node.epoch))

    def send_end_epoch(self, progress: "LeaderProgress") -> None:
        """Send EndQuorumEpoch to all voters, successors with the longest log first."""
        node = self._node
        best_first = sorted(
            node.others, key=lambda voter: (-progress.voters[voter].end_offset, voter)
        )
        for voter in node.others:
            node.effects.append(
                SendEndEpoch(voter_id=voter, epoch=node.epoch, successors=tuple(best_first))
            )
