"""Directed faults of the metadata quorum: scripts around one vote, or one commit.

- A split vote: the leader crashes, and the two other voters cannot reach each other. Both become
  candidates in one epoch. The restarted voter grants its vote to the first; as it stores the vote,
  or a moment later, it loses power, and gets the VoteRequest of the other candidate. If the vote
  was not durable before the response, there are two leaders in one epoch.
- A commit: its leader loses power, and a voter that has the record is cut off. The restarted leader
  and the third voter elect a leader. If the leader counted its own copy before it was flushed, the
  committed record is lost: mostly its disk is slow, and the third voter was cut off from it.
"""

from collections.abc import Callable

from ottla.raft.election import FILE_NAME as QUORUM_STATE
from ottla.testing.sim.faults.directed_faults import DirectedFaults, Part
from ottla.testing.sim.net import MS
from ottla.testing.sim.ports import SimulatedNode
from ottla.testing.sim.watch.observations import MetadataCommitted, Observation

VOTERS = 3
STORY_MS = 6_000
"""How long the split vote script lasts: two election timeouts."""
ANSWERED_MS = 30
"""By when a response that was sent before a crash has arrived."""
BACK_MS = 60
VOTE_DELAYS_US = (0, 1_000, 3_000, 10_000)
STORED = frozenset({"write_atomic", "rename"})
APART_MS = (2_000, 6_000)
COMMIT_DELAYS_US = (0, 300, 2_000)
BEHIND_SHARE = 0.7
BEHIND_US, SLOW_US = 1_500 * MS, 80 * MS


class _QuorumPart(Part):
    """Common to both scripts: the voters, and their leader."""

    def __init__(self, faults: DirectedFaults) -> None:
        self._faults = faults

    def _voters(self) -> list[SimulatedNode]:
        return [each for each in self._faults.sim.nodes.values() if each.is_controller]

    def _well_voters(self) -> list[SimulatedNode]:
        """Return the voters, the active controller first; empty = the script cannot run now."""
        voters = self._voters()
        if len(voters) != VOTERS or any(not each.alive or each.paused for each in voters):
            return []
        active = [each for each in voters if each.runtime is not None and each.runtime.active]
        return [active[0], *(each for each in voters if each is not active[0])] if active else []

    def _cut(self, one: int, other: int, duration_us: int) -> Callable[[], None]:
        """Cut the link between two nodes for so long; return a function that heals it earlier."""
        net = self._faults.sim.net
        links = {(one, other), (other, one)} - net.cut
        net.cut |= links

        def heal() -> None:
            net.cut -= links

        self._faults.later(duration_us, heal)
        return heal


class SplitVotes(_QuorumPart):
    """The split vote script; see the module."""

    def __init__(self, faults: DirectedFaults) -> None:
        super().__init__(faults)
        self._voter = -1
        self._until_us = 0

    def begin(self) -> None:
        """Run the script at random intervals."""
        self._faults.every_so_often(self._faults.rates.split_votes, self._split_vote)

    def _split_vote(self) -> None:
        faults, voters = self._faults, self._well_voters()
        if not voters:
            return
        faults.sim.mark("split-vote")
        voter, one, other = voters
        self._cut(one.id, other.id, STORY_MS * MS)
        self._voter, self._until_us = voter.id, faults.sim.scheduler.now_us + STORY_MS * MS
        voter.crash(lose_unflushed=False)
        faults.later(faults.random.randrange(5, 300) * MS, voter.restart)

    def disk_used(self, node: SimulatedNode, operation: str, path: str) -> None:
        """Crash the voter as it stores its vote, or after its response."""
        faults = self._faults
        if node.id != self._voter or operation not in STORED or QUORUM_STATE not in path:
            return
        candidate = faults.vote_candidates.get(node.id)
        if faults.sim.scheduler.now_us > self._until_us:
            self._voter = -1
        elif candidate is not None and candidate in {each.id for each in self._voters()}:
            self._voter = -1
            faults.sim.mark("split-vote-lost")
            left_us = self._until_us - faults.sim.scheduler.now_us

            def part() -> None:
                self._cut(candidate, node.id, left_us)

            faults.later(ANSWERED_MS * MS, part)
            delay_us, incarnation = faults.random.choice(VOTE_DELAYS_US), node.incarnation
            if not delay_us:
                faults.crash(node, within_operations=1, back_ms=BACK_MS)
                return

            def die() -> None:
                if node.alive and node.incarnation == incarnation:
                    faults.crash(node, back_ms=BACK_MS)

            faults.later(delay_us, die)


class QuorumCommits(_QuorumPart):
    """The commit script; see the module."""

    def __init__(self, faults: DirectedFaults) -> None:
        super().__init__(faults)
        self._is_due = False
        self._behind: SimulatedNode | None = None
        """The voter that lacks the last records."""
        self._reach_behind: Callable[[], None] = lambda: None

    def begin(self) -> None:
        """Run the script at random intervals."""
        self._faults.every_so_often(self._faults.rates.quorum_commits, self._prepare)

    def _prepare(self) -> None:
        faults, voters = self._faults, self._well_voters()
        self._is_due, self._behind = True, None
        if not voters or faults.random.random() >= BEHIND_SHARE:
            return
        leader, *others = voters
        self._behind = faults.random.choice(others)
        self._reach_behind = self._cut(leader.id, self._behind.id, BEHIND_US)
        pace = leader.pace
        pace.slowest_us = max(pace.slowest_us, SLOW_US)

        def mend() -> None:
            pace.slowest_us = 4 * MS

        faults.later(BEHIND_US, mend)

    def observe(self, observation: Observation) -> None:
        """Inject the fault at the leader's next commit."""
        if (
            not self._is_due
            or not isinstance(observation, MetadataCommitted)
            or observation.batch.control
        ):
            return
        faults, voters = self._faults, self._well_voters()
        if not voters or voters[0].id != observation.node or not faults.may_lose_power(voters[0]):
            return
        self._is_due, leader = False, voters[0]
        incarnation, delay_us = leader.incarnation, faults.random.choice(COMMIT_DELAYS_US)
        faults.later(delay_us, lambda: self._strike(leader, incarnation))

    def _strike(self, leader: SimulatedNode, incarnation: int) -> None:
        faults = self._faults
        fault_injector, random, voters = faults.fault_injector, faults.random, self._well_voters()
        if (
            fault_injector is None
            or not voters
            or voters[0] is not leader
            or leader.incarnation != incarnation
        ):
            return
        faults.sim.mark("quorum-commit-struck")
        apart = random.choice([each for each in voters[1:] if each is not self._behind])
        self._reach_behind()
        apart_us = random.randrange(*APART_MS) * MS
        for each in voters:
            if each is not apart:
                self._cut(apart.id, each.id, apart_us)
        fault_injector.note_loss(leader)
        leader.crash(lose_unflushed=True)
        faults.later(random.randrange(5, 400) * MS, leader.restart)
