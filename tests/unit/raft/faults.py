"""What goes wrong in a simulated quorum, and the dice that decide it."""

import random
from dataclasses import dataclass

from ottla.raft.timing import QuorumTiming

HASTY = QuorumTiming(election_timeout_ms=150, fetch_timeout_ms=300, election_backoff_max_ms=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Probabilities: for each message, vote, won election or commit, and per 100 ms of the cluster.

    `hasty`: timeouts are short and processes are back soon, so that elections follow each other.
    """

    drop: float = 0.0
    twice: float = 0.0
    slow: float = 0.0
    crash: float = 0.0
    pause: float = 0.0
    cut: float = 0.0
    snapshot: float = 0.0
    vote_crash: float = 0.0
    election_crash: float = 0.0
    commit_crash: float = 0.0
    hasty: bool = False


def draw_faults(rng: random.Random) -> Faults:
    """Return a mix: each fault is off in some histories, and frequent in others."""

    def some(most: float) -> float:
        return rng.choice((0.0, most / 4, most))

    return Faults(
        drop=some(0.2),
        twice=some(0.1),
        slow=some(0.1),
        crash=some(0.12),
        pause=some(0.06),
        cut=some(0.12),
        snapshot=some(0.1),
        vote_crash=some(0.3),
        election_crash=some(0.3),
        commit_crash=some(0.02),
        hasty=rng.random() < 0.5,
    )


class SeededDice:
    """Dice whose throws are the simulation's."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def random_bytes(self, count: int) -> bytes:
        return self._rng.randbytes(count)

    def below(self, bound: int) -> int:
        return self._rng.randrange(bound)
