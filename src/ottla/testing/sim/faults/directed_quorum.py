"""Directed faults of the metadata quorum: scripts around one vote, one commit, or some elections.

- A split vote: the leader crashes, and the two other voters cannot reach each other. Both become
  candidates in one epoch. The restarted voter grants its vote to the first; as it stores the vote,
  or a moment later, it loses power, and gets the VoteRequest of the other candidate. If the vote
  was not durable before the response, there are two leaders in one epoch.
- A commit: its leader loses power, and a voter that has the record is cut off. The restarted leader
  and the third voter elect a leader. If the leader counted its own copy before it was flushed, the
  committed record is lost: mostly its disk is slow, and the third voter was cut off from it.
- Short leaderships, as those of a partition in KIP-279: the leader is cut off from both other
  voters and goes on appending. The next one is cut off as soon as it is elected: its log ends with
  records of its own epoch, which nobody else has. Meanwhile the two others reach each other again,
  and one of them is elected, with records of an epoch that the one cut off lacks. After two to four
  such leaderships the links are healed, and the voters must truncate what differs. Listeners for
  brokers and clients stay open. All draws are of a stream of their own, so that the other directed
  faults of a seed stay the same.
"""

from collections.abc import Callable
from random import Random

from ottla.raft.election import FILE_NAME as QUORUM_STATE
from ottla.testing.sim.faults.directed_faults import (
    MINUTE_US,
    DirectedFaults,
    Part,
    links_between,
)
from ottla.testing.sim.net import MS
from ottla.testing.sim.ports import SimulatedNode
from ottla.testing.sim.watch.observations import MetadataCommitted, Observation, QuorumLed

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
LEADERSHIPS = (2, 2, 3, 3, 4)
"""How many leaders are cut off, one after the other."""
ALONE_DELAYS_MS = (0, 0, 0, 2, 20)
"""How long after its election a leader is cut off. Later than at once, some records get through."""
ELECTED_MAX_MS = 8_000
"""How long to wait for the next leader."""
LOOK_MS = 200
"""How often to look for an active controller, where there is none when the script begins."""
CRASH_SHARE = 0.25
"""The share of the leaders that also crash, before or after their first records are on disk."""
CRASH_DELAYS_MS = (1, 30, 500)
DOWN_MS = (50, 1_500)


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


class QuorumLeaderships(_QuorumPart):
    """The script of short leaderships; see the module. `rate`: times a minute."""

    def __init__(self, faults: DirectedFaults, random: Random, rate: float) -> None:
        super().__init__(faults)
        self._random = random
        self._rate = rate
        self._left = 0
        """How many leaders are still to be cut off; 0 = the script does not run."""
        self._leader = -1
        """The one that was cut off last."""
        self._links: set[tuple[int, int]] = set()
        """What this script has cut."""
        self._step = 0
        """Counts what happens, so that a delayed call knows whether it still applies."""

    def begin(self) -> None:
        """Run the script at random intervals."""
        self._schedule()

    def _schedule(self) -> None:
        delay_us = int(self._random.expovariate(self._rate) * MINUTE_US)
        self._faults.later(delay_us, self._first)

    def _first(self) -> None:
        """Cut the active controller off."""
        voters = self._well_voters()
        if not voters:
            self._faults.later(LOOK_MS * MS, self._first)
            return
        self._faults.sim.mark("directed-quorum-leaderships")
        self._left = self._random.choice(LEADERSHIPS)
        self._cut_off(voters[0])

    def observe(self, observation: Observation) -> None:
        """Cut the elected leader off; after the last one, heal all links."""
        if not self._left or not isinstance(observation, QuorumLed):
            return
        if observation.node == self._leader:
            return  # It was elected again before it was cut off.
        self._left -= 1
        if not self._left:
            self._end()
            return
        node = self._faults.sim.nodes[observation.node]
        delay_ms = self._random.choice(ALONE_DELAYS_MS)
        if not delay_ms:
            self._cut_off(node)
            return
        step = self._step = self._step + 1

        def cut_off() -> None:
            if self._step == step:
                self._cut_off(node)

        self._faults.later(delay_ms * MS, cut_off)

    def _cut_off(self, leader: SimulatedNode) -> None:
        """Cut a leader off from the other voters, which reach each other; wait for the next one."""
        net = self._faults.sim.net
        others = [each.id for each in self._voters() if each is not leader]
        links = links_between(leader.id, others)
        net.cut -= self._links - links
        self._links = (self._links & links) | (links - net.cut)
        net.cut |= links
        self._leader = leader.id
        step = self._step = self._step + 1
        self._maybe_crash(leader)

        def no_leader() -> None:
            if self._step == step:
                self._end()

        self._faults.later(ELECTED_MAX_MS * MS, no_leader)

    def _maybe_crash(self, leader: SimulatedNode) -> None:
        """Perhaps crash the leader, also with a loss of power; it comes back soon."""
        faults, random = self._faults, self._random
        if random.random() >= CRASH_SHARE:
            return
        delay_us = random.randrange(random.choice(CRASH_DELAYS_MS) * MS)
        down_us, loses_power = random.randrange(*DOWN_MS) * MS, random.random() < 0.5
        incarnation = leader.incarnation

        def crash() -> None:
            assert faults.fault_injector is not None
            if not leader.alive or leader.paused or leader.incarnation != incarnation:
                return
            loses = loses_power and faults.may_lose_power(leader)
            if loses:
                faults.fault_injector.note_loss(leader)
            leader.crash(lose_unflushed=loses)
            faults.later(down_us, leader.restart)

        faults.later(delay_us, crash)

    def _end(self) -> None:
        """Heal what is cut; the next run comes in a while."""
        self._step += 1
        self._left, self._leader = 0, -1
        self._faults.sim.net.cut -= self._links
        self._links = set()
        self._schedule()
