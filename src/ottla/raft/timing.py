"""How long members of a quorum wait for each other, and the chance in it.

Without chance two voters whose timeouts end together would split every vote.
Source: QuorumConfig, KafkaRaftClient; KIP-595.
"""

from dataclasses import dataclass

from ottla.base.ports import Dice


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumTiming:
    """Milliseconds, by the names of controller.quorum.*.

    Fields: `election_timeout_ms`: an election without an outcome is given up after one to two
            of these. `fetch_timeout_ms`: a leader unheard of for that long is given up; chance
            adds up to a quarter. `election_backoff_max_ms`: the longest pause after a lost vote.
            `retry_backoff_ms`: before a question without an answer is put again.
    """

    election_timeout_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    election_backoff_max_ms: int = 1_000
    retry_backoff_ms: int = 20

    def __post_init__(self) -> None:
        assert min(self.election_timeout_ms, self.fetch_timeout_ms) > 0

    def election_ms(self, dice: Dice) -> int:
        """Return how long an election may take this time."""
        return self.election_timeout_ms + dice.below(self.election_timeout_ms)

    def fetch_ms(self, dice: Dice) -> int:
        """Return how long the leader may be silent this time."""
        return self.fetch_timeout_ms + dice.below(self.fetch_timeout_ms // 4 + 1)

    def first_election_ms(self, dice: Dice) -> int:
        """Return how long a voter that has just started and knows no leader waits for one.

        Nobody can have given such a leader up, and a pre-vote disturbs none that there is; so a
        quorum that starts as a whole need not sit out an election's full time first.
        """
        return self.election_timeout_ms // 10 + dice.below(self.election_timeout_ms * 3 // 10 + 1)

    def first_fetch_ms(self, dice: Dice) -> int:
        """Return the same for one that knows a leader from before: time for one parked fetch."""
        return self.fetch_timeout_ms * 3 // 10 + dice.below(self.fetch_timeout_ms * 3 // 20 + 1)

    def backoff_ms(self, dice: Dice) -> int:
        """Return the pause after a lost vote."""
        return 1 + dice.below(max(1, self.election_backoff_max_ms))

    @property
    def check_quorum_ms(self) -> int:
        """Return for how long a leader without a majority of fetching voters leads on."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def begin_epoch_ms(self) -> int:
        """Return how often a leader tells voters that do not fetch that it leads."""
        return max(1, self.fetch_timeout_ms // 2)

    def successor_ms(self, place: int, dice: Dice) -> int:
        """Return how long the successor in this place waits; -1 = it is no preferred one."""
        if place < 0:
            return self.election_ms(dice)
        if place == 0:
            return 0
        return min(100 << min(place - 1, 10), max(1, self.election_backoff_max_ms))


NO_CHOICE = "a quorum of several voters needs dice"


class NoDice:
    """The dice of members that have nothing to leave to chance: observers, and only voters."""

    def random_bytes(self, _count: int) -> bytes:
        """Refuse."""
        raise AssertionError(NO_CHOICE)

    def below(self, _bound: int) -> int:
        """Refuse."""
        raise AssertionError(NO_CHOICE)
