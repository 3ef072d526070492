"""A quorum in virtual time: one seed draws all that goes wrong, and the history that follows.

Messages are lost, late, twice and out of order; links break one way or both; processes are
paused, killed (the files stay) or lose power (what was not synced goes, or partly stays, and
what was truncated may be back). After `heal` nothing fails any more.
"""

import heapq
import random
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from ottla.base.errors import Error
from ottla.raft import effects as fx
from ottla.raft import events as ev
from ottla.raft.log_view import Diverging, NeedsSnapshot
from ottla.raft.roles import Role
from ottla.raft.timing import QuorumTiming
from ottla.raft.values import BatchSpan, OffsetAndEpoch, ReplicaKey

from .checkers import History
from .faults import HASTY, Faults, SeededDice, draw_faults
from .member import Batch, Files, Member, end_of

REQUEST_TIMEOUT_MS = 2_500
SHORT_TIMEOUT_MS = 30
FETCH_WAIT_MS = 100
SNAPSHOT = b"snapshot"


class SimulatedMember(Member):
    """A process; effects that reach others go to `send`."""

    def __init__(self, sim: "Simulation", node_id: int, life: int, files: Files) -> None:
        super().__init__(node_id, sim.voters, files, SeededDice(sim.rng))
        self.node.timing = sim.timing
        self.sim, self.node_id, self.life = sim, node_id, life
        self.paused_until = 0
        self.silent = False
        self.asked = 0
        self.open: list[tuple[int, bytes, int]] = []
        sim.tamper(self)

    def _run(self, effect: fx.Effect) -> None:
        sim, was = self.sim, self.committed
        match effect:
            case fx.TruncateLog():
                assert effect.offset >= self.committed
                # What is durable stays as it was, until the next flush.
                self.files.batches = [
                    each for each in self.files.batches if each.next_offset <= effect.offset
                ]
                assert self.files.end_offset == effect.offset
                return
            case fx.FlushLog():
                sim.after(sim.rng.randrange(1, 15), partial(sim.flushed, self, effect))
                return
            case fx.LeaderChanged():
                if self.node.is_leader and effect.leader_id == self.node_id:
                    sim.history.leaders.append((effect.epoch, self.node_id))
                    sim.perhaps_kill(self, sim.faults.election_crash)
            case fx.SendVote() | fx.SendBeginEpoch() | fx.SendEndEpoch():
                sim.ask(self, effect.voter_id, effect)
                return
            case fx.SendFetch() | fx.SendFetchSnapshot():
                to = effect.leader_id
                if to < 0:
                    to = next((each for each in sim.voters if each > self.asked), 1)
                self.asked = to
                sim.ask(self, to, effect)
                return
            case (
                fx.RespondToFetch()
                | fx.RespondToFetchSnapshot()
                | fx.RespondToVote()
                | fx.RespondToEpoch()
            ):
                sim.answer(self, effect)
                if isinstance(effect, fx.RespondToVote) and effect.granted:
                    sim.perhaps_kill(self, sim.faults.vote_crash)
                return
        super()._run(effect)
        if self.committed > was:
            sim.note_commits(self, max(was, 0))
            if self.node.is_leader:
                sim.perhaps_kill(self, sim.faults.commit_crash)


@dataclass(slots=True)
class Question:
    """One request: who asked what of whom, and whether it was answered."""

    asker: SimulatedMember
    to: int
    effect: fx.Effect
    answered: bool = False


class Simulation:
    """The harness of one seed. `tamper` breaks a member, for tests of the checkers."""

    def __init__(
        self,
        seed: int,
        *,
        voters: int,
        observers: int = 1,
        faults: Faults | None = None,
        tamper: Callable[[Member], None] = lambda member: None,
    ) -> None:
        self.rng = random.Random(seed)
        self.faults = faults or draw_faults(self.rng)
        self.timing = HASTY if self.faults.hasty else QuorumTiming()
        # A snapshot may be short, or take longer than a leader waits for a majority.
        self.pieces = self.rng.choice((1, len(SNAPSHOT)))
        self.piece_ms = self.rng.choice((0, self.timing.fetch_timeout_ms // 4))
        assert len(SNAPSHOT) * self.timing.fetch_timeout_ms // 4 > self.timing.check_quorum_ms
        self.voters = tuple(range(1, voters + 1))
        self.tamper = tamper
        self.history = History()
        self.now_ms = 0
        self.steps = 0
        self._order = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._questions: dict[int, Question] = {}
        self._cut: set[tuple[int, int]] = set()
        self._values = 0
        self._tokens = 0
        self.wire: dict[str, Batch] = {}
        self.members: dict[int, SimulatedMember | None] = {}
        self.gone: set[int] = set()
        for node_id in range(1, voters + observers + 1):
            self._boot(node_id, 1, Files())
        self.after(0, self._client)
        self.after(0, self._mischief)

    # -- time ------------------------------------------------------------------------------

    def after(self, ms: int, call: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._heap, (self.now_ms + ms, self._order, call))

    def run(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while self._heap and self._heap[0][0] <= end_ms:
            self.now_ms, _order, call = heapq.heappop(self._heap)
            self.steps += 1
            call()
        self.now_ms = end_ms

    def heal(self) -> None:
        """Let nothing fail from now on.

        A minority of the voters may stay down for good, the followers with the longest logs. The
        others begin their logs with snapshots then: all that lag behind have to load one.
        """
        self.faults = Faults()
        followers = [each for each in self.living() if each.node.role is Role.FOLLOWER]
        followers.sort(key=lambda each: (-each.files.end_offset, each.node_id))
        voters = [each.node_id for each in followers if each.node.is_voter]
        self.gone = set(voters[: self.rng.randrange(len(self.voters) // 2 + 1)])
        for node_id in self.gone:
            self.members[node_id] = None
        self._cut.clear()
        for member in self.living():
            member.paused_until = self.now_ms
            if self.gone:
                self._take_snapshot(member)

    # -- processes -------------------------------------------------------------------------

    def _boot(self, node_id: int, life: int, files: Files) -> None:
        if node_id in self.gone:
            return
        latest = max(files.snapshots, key=lambda each: each.rank, default=None)
        last_epoch = files.batches[-1].epoch if files.batches else 0
        if latest is not None and latest.rank > (last_epoch, files.end_offset):
            # A snapshot outlived the records that it covers (see QuorumStorage).
            files.start_offset, files.batches, files.snapshots = latest.offset, [], [latest]
        member = SimulatedMember(self, node_id, life, files)
        self.members[node_id] = member
        self.step(member, ev.Start(now_ms=self.now_ms, wall_ms=self.now_ms))

    def is_alive(self, member: SimulatedMember) -> bool:
        return self.members[member.node_id] is member

    def step(self, member: SimulatedMember, event: ev.Event) -> None:
        if not self.is_alive(member):
            return
        before = member.wake_at_ms
        member.step(event)
        self._acknowledge(member)
        wake_ms = member.wake_at_ms
        if wake_ms is not None and (wake_ms != before or wake_ms <= self.now_ms):
            self.after(max(1, wake_ms - self.now_ms), partial(self._tick, member, wake_ms))

    def _tick(self, member: SimulatedMember, wake_ms: int) -> None:
        if not self.is_alive(member) or member.wake_at_ms != wake_ms:
            return
        if self._later(member, partial(self._tick, member, wake_ms)):
            return
        member.wake_at_ms = None
        self.step(member, ev.Tick(now_ms=self.now_ms))

    def _later(self, member: SimulatedMember, call: Callable[[], None]) -> bool:
        """Put off what a paused process would do."""
        if member.paused_until <= self.now_ms:
            return False
        self.after(member.paused_until - self.now_ms, call)
        return True

    def flushed(self, member: SimulatedMember, flush: fx.FlushLog) -> None:
        if not self.is_alive(member) or self._later(member, partial(self.flushed, member, flush)):
            return
        member.durable.start_offset = member.files.start_offset
        member.durable.batches = member.files.batches_within(0, flush.end_offset)
        self.step(member, ev.Flushed(end_offset=flush.end_offset, epoch=flush.epoch))

    def _die(self, member: SimulatedMember) -> None:
        """Kill the process, with the machine or without; it comes back after a while."""
        files = member.files
        if self.rng.random() < 0.5:
            files = member.durable.copy()
            unsynced = member.files.batches[len(files.batches) :]
            if unsynced and member.files.batches[: len(files.batches)] == files.batches:
                files.batches += unsynced[: self.rng.randrange(len(unsynced) + 1)]
        self.members[member.node_id] = None
        boot = partial(self._boot, member.node_id, member.life + 1, files.copy())
        away_ms = 3_000
        if self.faults.hasty:
            away_ms = self.rng.choice((40, 400))
        self.after(self.rng.randrange(1, away_ms), boot)

    def perhaps_kill(self, member: SimulatedMember, chance: float) -> None:
        """Kill a member at a critical moment, before its messages are sent."""
        if chance and self.rng.random() < chance:
            member.silent = True
            self.after(0, lambda: self._die(member) if self.is_alive(member) else None)

    # -- messages --------------------------------------------------------------------------

    def _send(
        self, source: int, to: int, call: Callable[[SimulatedMember], None], extra_ms: int = 0
    ) -> None:
        faults, rng = self.faults, self.rng
        if (source, to) in self._cut or rng.random() < faults.drop:
            return
        for _copy in range(2 if rng.random() < faults.twice else 1):
            delay_ms = rng.randrange(1, 20)
            if rng.random() < faults.slow:
                delay_ms = rng.randrange(20, 3_000)
            self.after(extra_ms + delay_ms, partial(self._arrive, to, call))

    def _arrive(self, to: int, call: Callable[[SimulatedMember], None]) -> None:
        member = self.members.get(to)
        if member is not None and not self._later(member, partial(self._arrive, to, call)):
            call(member)

    def ask(self, asker: SimulatedMember, to: int, effect: fx.Effect) -> None:
        question = Question(asker, to, effect)
        if not asker.silent:
            self._send(asker.node_id, to, partial(self._asked, question))
        is_short = self.faults.hasty and not isinstance(effect, fx.SendFetch | fx.SendFetchSnapshot)
        timeout_ms = SHORT_TIMEOUT_MS if is_short else REQUEST_TIMEOUT_MS
        self.after(timeout_ms, partial(self._unanswered, question))

    def _asked(self, question: Question, member: SimulatedMember) -> None:
        self._tokens += 1
        self._questions[self._tokens] = question
        self.step(member, self._request(question, self._tokens))

    def _request(self, question: Question, token: int) -> ev.Event:
        asker_id, now_ms = question.asker.node_id, self.now_ms
        match question.effect:
            case fx.SendVote() as ask:
                return ev.VoteRequestReceived(
                    token=token,
                    candidate=ReplicaKey(asker_id),
                    epoch=ask.epoch,
                    log_end=ask.log_end,
                    pre_vote=ask.pre_vote,
                    now_ms=now_ms,
                )
            case fx.SendBeginEpoch() as ask:
                return ev.BeginEpochRequestReceived(
                    token=token, leader_id=asker_id, leader_epoch=ask.epoch, now_ms=now_ms
                )
            case fx.SendEndEpoch() as ask:
                return ev.EndEpochRequestReceived(
                    token=token,
                    leader_id=asker_id,
                    leader_epoch=ask.epoch,
                    successors=ask.successors,
                    now_ms=now_ms,
                )
            case fx.SendFetchSnapshot() as ask:
                return ev.SnapshotRequestReceived(
                    token=token,
                    replica=ReplicaKey(asker_id),
                    leader_epoch=ask.leader_epoch,
                    snapshot=ask.snapshot,
                    now_ms=now_ms,
                )
            case fx.SendFetch() as ask:
                return ev.FetchRequestReceived(
                    token=token,
                    replica=ReplicaKey(asker_id),
                    leader_epoch=ask.leader_epoch,
                    fetch_offset=ask.fetch_offset,
                    last_fetched_epoch=ask.last_fetched_epoch,
                    now_ms=now_ms,
                    wall_ms=now_ms,
                    deadline_ms=now_ms + FETCH_WAIT_MS,
                )
        raise AssertionError(question.effect)

    def answer(
        self,
        member: SimulatedMember,
        effect: fx.RespondToFetch
        | fx.RespondToFetchSnapshot
        | fx.RespondToVote
        | fx.RespondToEpoch,
    ) -> None:
        question = self._questions.pop(effect.token)
        batches: list[Batch] = []
        if isinstance(effect, fx.RespondToFetch):
            batches = member.files.batches_within(effect.start, effect.end)
        deliver = partial(self._answered, question, effect, tuple(batches))
        if member.silent and not isinstance(effect, fx.RespondToVote):
            return
        extra_ms = self.piece_ms if isinstance(effect, fx.RespondToFetchSnapshot) else 0
        self._send(member.node_id, question.asker.node_id, deliver, extra_ms)

    def _answered(
        self,
        question: Question,
        effect: fx.Effect,
        batches: tuple[Batch, ...],
        member: SimulatedMember,
    ) -> None:
        if member is not question.asker:
            return
        question.answered = True
        member.on_wire |= {each.base_offset: each for each in batches}
        event = self._response(question, effect, batches)
        self.step(member, event)

    def _response(
        self, question: Question, effect: fx.Effect, batches: tuple[Batch, ...]
    ) -> ev.Event:
        ask, now_ms = question.effect, self.now_ms
        match effect:
            case fx.RespondToVote():
                assert isinstance(ask, fx.SendVote)
                return ev.VoteResponseReceived(
                    voter_id=question.to,
                    epoch=ask.epoch,
                    pre_vote=ask.pre_vote,
                    error=effect.error,
                    granted=effect.granted,
                    leader_id=effect.leader_id,
                    leader_epoch=effect.leader_epoch,
                    now_ms=now_ms,
                    wall_ms=now_ms,
                )
            case fx.RespondToEpoch():
                return ev.EpochResponseReceived(
                    error=effect.error,
                    leader_id=effect.leader_id,
                    leader_epoch=effect.leader_epoch,
                    now_ms=now_ms,
                )
            case fx.RespondToFetchSnapshot():
                assert isinstance(ask, fx.SendFetchSnapshot)
                piece = SNAPSHOT[ask.position : ask.position + len(SNAPSHOT) // self.pieces]
                return ev.SnapshotResponseReceived(
                    error=effect.error,
                    leader_id=effect.leader_id,
                    leader_epoch=effect.leader_epoch,
                    now_ms=now_ms,
                    snapshot=effect.snapshot,
                    size=len(SNAPSHOT),
                    position=ask.position,
                    data=piece if effect.error is Error.NONE else b"",
                    serial=ask.serial,
                )
        assert isinstance(effect, fx.RespondToFetch)
        assert isinstance(ask, fx.SendFetch)
        verdict = effect.verdict
        return ev.FetchResponseReceived(
            error=effect.error,
            leader_id=effect.leader_id,
            leader_epoch=effect.leader_epoch,
            now_ms=now_ms,
            high_watermark=effect.high_watermark,
            diverging=verdict.end if isinstance(verdict, Diverging) else None,
            snapshot=verdict.snapshot if isinstance(verdict, NeedsSnapshot) else None,
            batches=tuple(BatchSpan(b.base_offset, b.next_offset, b.epoch) for b in batches),
            data=" ".join(str(b.base_offset) for b in batches).encode(),
            serial=ask.serial,
        )

    def _unanswered(self, question: Question) -> None:
        if question.answered or not self.is_alive(question.asker):
            return
        if self._later(question.asker, partial(self._unanswered, question)):
            return
        question.answered = True
        match question.effect:
            case fx.SendVote() as ask:
                event: ev.Event = ev.VoteFailed(
                    voter_id=question.to, epoch=ask.epoch, pre_vote=ask.pre_vote, now_ms=self.now_ms
                )
            case fx.SendFetch() | fx.SendFetchSnapshot() as ask:
                event = ev.FetchFailed(now_ms=self.now_ms, serial=ask.serial)
            case _:
                return
        self.step(question.asker, event)

    # -- clients and faults ----------------------------------------------------------------

    def _client(self) -> None:
        self.after(self.rng.randrange(20, 120), self._client)
        leaders = [each for each in self.members.values() if each and each.node.is_leader]
        if not leaders:
            return
        leader = self.rng.choice(leaders)
        if leader.paused_until > self.now_ms:
            return
        self._values += 1
        value = str(self._values).encode()
        leader.open.append((leader.node.epoch, value, leader.node.log.end_offset))
        self.step(leader, ev.Propose(values=(value,), wall_ms=self.now_ms))

    def _acknowledge(self, member: SimulatedMember) -> None:
        """Tell clients whose records the leader that took them has committed."""
        while member.open:
            epoch, value, offset = member.open[0]
            if not member.node.is_leader or member.node.epoch != epoch:
                member.open.clear()
                return
            if offset >= member.committed:
                return
            self.history.acknowledged.append((offset, (epoch, value)))
            del member.open[0]

    def note_commits(self, member: SimulatedMember, since: int) -> None:
        self.history.watermarks.append(((member.node_id, member.life), member.committed))
        first = max(since, member.files.start_offset)
        batches = member.files.batches
        for number in range(bisect_right(batches, first, key=end_of), len(batches)):
            batch = batches[number]
            if batch.base_offset >= member.committed:
                break
            for index, value in enumerate(batch.values):
                offset = batch.base_offset + index
                if first <= offset < member.committed:
                    entry = (member.node_id, offset, (batch.epoch, value))
                    self.history.committed.append(entry)

    def _mischief(self) -> None:
        self.after(100, self._mischief)
        rng, faults = self.rng, self.faults
        alive = [each for each in self.members.values() if each is not None]
        if alive and rng.random() < faults.crash:
            self._die(self._victim(alive))
        elif alive and rng.random() < faults.pause:
            self._victim(alive).paused_until = self.now_ms + rng.randrange(100, 6_000)
        if rng.random() < faults.cut:
            self._cut_links()
        if alive and rng.random() < faults.snapshot:
            self._take_snapshot(rng.choice(alive))

    def _victim(self, alive: list[SimulatedMember]) -> SimulatedMember:
        leaders = [each for each in alive if each.node.is_leader]
        return self.rng.choice(leaders if leaders and self.rng.random() < 0.5 else alive)

    def _cut_links(self) -> None:
        rng = self.rng
        victim = rng.choice(list(self.members))
        others = [each for each in self.members if each != victim and rng.random() < 0.8]
        ways = rng.choice(((0,), (1,), (0, 1)))
        links = {((victim, each), (each, victim))[way] for each in others for way in ways}
        self._cut |= links
        self.after(rng.randrange(100, 6_000), lambda: self._cut.difference_update(links))

    def _take_snapshot(self, member: SimulatedMember) -> None:
        ends = [each for each in member.files.batches if each.next_offset <= member.committed]
        if not ends or member.node.role is Role.RESIGNED:
            return
        snapshot = OffsetAndEpoch(ends[-1].next_offset, ends[-1].epoch)
        for files in (member.files, member.durable):
            if snapshot not in files.snapshots:
                files.snapshots.append(snapshot)
        self.step(member, ev.SnapshotStored(snapshot=snapshot))
        if member.durable.end_offset >= snapshot.offset:
            self.step(member, ev.CleanUp(snapshot=snapshot))

    # -- what is there ---------------------------------------------------------------------

    def living(self) -> list[SimulatedMember]:
        return [each for each in self.members.values() if each is not None]

    @staticmethod
    def without_votes(effect: fx.StoreElection) -> fx.StoreElection:
        return fx.StoreElection(state=replace(effect.state, voted_id=-1))
