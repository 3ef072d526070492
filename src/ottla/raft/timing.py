"""The timeouts of a quorum, with their random parts.

Without these two voters whose timeouts end together would split every vote.
Source: QuorumConfig, KafkaRaftClient; KIP-595.
"""

from dataclasses import dataclass

from ottla.base.ports import Dice


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumTiming:
    """Milliseconds, by the names of controller.quorum.*.

    Fields: `election_timeout_ms`: an election without a result ends after one to two of these.
            `fetch_timeout_ms`: a follower without a fetch response for that long, and a random
            part of up to a quarter, starts an election. `election_backoff_max_ms`: the longest
            pause after a lost vote. `retry_backoff_ms`: before a failed request is sent again.
    """

    election_timeout_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    election_backoff_max_ms: int = 1_000
    retry_backoff_ms: int = 20

    def __post_init__(self) -> None:
        assert min(self.election_timeout_ms, self.fetch_timeout_ms) > 0

    def election_ms(self, dice: Dice) -> int:
        """Return a random election timeout."""
        return self.election_timeout_ms + dice.below(self.election_timeout_ms)

    def fetch_ms(self, dice: Dice) -> int:
        """Return a random fetch timeout."""
        return self.fetch_timeout_ms + dice.below(self.fetch_timeout_ms // 4 + 1)

    def first_election_ms(self, dice: Dice) -> int:
        """Return the first election timeout of a voter that has just started without a leader.

        It is short, so that a quorum that starts as a whole elects a leader soon. A pre-vote does
        not disturb a leader that exists.
        """
        return self.election_timeout_ms // 10 + dice.below(self.election_timeout_ms * 3 // 10 + 1)

    def first_fetch_ms(self, dice: Dice) -> int:
        """Return the same for a voter with a stored leader: time for one delayed fetch."""
        return self.fetch_timeout_ms * 3 // 10 + dice.below(self.fetch_timeout_ms * 3 // 20 + 1)

    def backoff_ms(self, dice: Dice) -> int:
        """Return the pause after a lost vote."""
        return 1 + dice.below(max(1, self.election_backoff_max_ms))

    @property
    def check_quorum_ms(self) -> int:
        """Return how long a leader without a majority of fetching voters waits to resign."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def begin_epoch_ms(self) -> int:
        """Return how often a leader sends BeginQuorumEpoch to voters that do not fetch."""
        return max(1, self.fetch_timeout_ms // 2)

    def successor_ms(self, place: int, dice: Dice) -> int:
        """Return how long the preferred successor at `place` waits; -1 = it is not preferred."""
        if place < 0:
            return self.election_ms(dice)
        if place == 0:
            return 0
        return min(100 << min(place - 1, 10), max(1, self.election_backoff_max_ms))


NO_CHOICE = "a quorum of several voters needs dice"


class NoDice:
    """For members without elections, which need no random numbers: observers, and only voters."""

    def random_bytes(self, _count: int) -> bytes:
        """Refuse."""
        raise AssertionError(NO_CHOICE)

    def below(self, _bound: int) -> int:
        """Refuse."""
        raise AssertionError(NO_CHOICE)
