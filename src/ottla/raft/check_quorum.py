"""When a leader announces its epoch, and whether a majority still fetches from it.

It sends BeginQuorumEpoch to voters that do not fetch. It resigns when no majority has fetched for a
while; otherwise a leader that is cut off would go on for ever.

Source: KIP-595, KAFKA-15489 (check-quorum); LeaderState, KafkaRaftClient of Kafka 4.
"""

from ottla.raft.timing import QuorumTiming


class CheckQuorum:
    """The timers of one leader epoch. An only voter needs none."""

    def __init__(self, others: tuple[int, ...], majority: int, timing: QuorumTiming) -> None:
        self._others = others
        self._majority = majority
        self._timing = timing
        self._check_at_ms: int | None = None
        self._announce_at_ms: int | None = None
        self._fetched_ms: dict[int, int] = {}
        self._fetched_since_check: set[int] = set()

    def begin(self, now_ms: int) -> None:
        """Begin the epoch; the caller announces it."""
        self._fetched_ms = {}
        self._fetched_since_check = set()
        self._check_at_ms = now_ms + self._timing.check_quorum_ms

    def end(self) -> None:
        """Stop: this member does not lead any more."""
        self._check_at_ms = self._announce_at_ms = None

    def fetched(self, voter_id: int, now_ms: int) -> None:
        """Note a Fetch or FetchSnapshot of a voter."""
        if voter_id not in self._others:
            return
        self._fetched_ms[voter_id] = now_ms
        self._fetched_since_check.add(voter_id)
        if len(self._fetched_since_check) + 1 >= self._majority:
            self._fetched_since_check = set()
            self._check_at_ms = now_ms + self._timing.check_quorum_ms

    def wake_at_ms(self) -> int | None:
        """Return when something is due."""
        moments = (self._check_at_ms, self._announce_at_ms)
        return min((at for at in moments if at is not None), default=None)

    def is_lost(self, now_ms: int) -> bool:
        """Return whether no majority has fetched for too long."""
        return self._check_at_ms is not None and self._check_at_ms <= now_ms

    def is_announcement_due(self, now_ms: int) -> bool:
        """Return whether to announce the epoch again."""
        return self._announce_at_ms is not None and self._announce_at_ms <= now_ms

    def announce(self, now_ms: int) -> list[int]:
        """Return the voters to send BeginQuorumEpoch to; the next time is in a while."""
        interval_ms = self._timing.begin_epoch_ms
        self._announce_at_ms = now_ms + interval_ms
        recent = {
            voter for voter, at_ms in self._fetched_ms.items() if now_ms - at_ms < interval_ms
        }
        return [voter for voter in self._others if voter not in recent]
