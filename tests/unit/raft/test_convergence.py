"""A leader and two observers, through crashes, lost messages, snapshots and cleaning.

Method: hypothesis draws the history. Checked all along: epochs only grow and no epoch has two
leaders' records; what was committed anywhere stays, with one value per offset; an observer's
committed records are the leader's. At the end, with nothing failing any more, all are equal.
"""

from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ottla.base.errors import Error
from ottla.raft.effects import RespondToFetch, RespondToFetchSnapshot, SendFetch, SendFetchSnapshot
from ottla.raft.events import (
    CleanUp,
    FetchFailed,
    FetchRequestReceived,
    FetchResponseReceived,
    Propose,
    SnapshotRequestReceived,
    SnapshotResponseReceived,
    SnapshotStored,
    Tick,
)
from ottla.raft.log_view import Diverging, NeedsSnapshot
from ottla.raft.values import BatchSpan, OffsetAndEpoch, ReplicaKey
from tests.drawn import examples

from .member import Crash, Files, Member

OBSERVERS = (2, 3)
MARKS: Counter[str] = Counter()
SNAPSHOT_SIZE = 10


class Quorum(RuleBasedStateMachine):
    """One voter, 1, and observers whose questions and answers travel by hand."""

    @initialize()
    def begin(self) -> None:
        self.now_ms = 0
        self.tokens = 0
        self.value = 0
        self.truth: dict[int, tuple[int, bytes]] = {}
        self.epochs: dict[int, int] = {}
        self.asked: dict[int, int] = {}
        self.members: dict[int, Member] = {}
        for node_id in (1, *OBSERVERS):
            self._boot(node_id, Files())

    def _boot(self, node_id: int, files: Files, crash_after: int | None = None) -> None:
        member = Member(node_id, (1,), files)
        member.crash_after = crash_after
        self.members[node_id] = member
        self.asked = {t: who for t, who in self.asked.items() if who != node_id and node_id != 1}
        try:
            member.start(self.now_ms)
        except Crash:
            self._boot(node_id, member.durable.copy())
            return
        member.crash_after = None
        if node_id == 1:
            assert member.node.epoch > self.epochs.get(1, 0)
            # Requests to the old process get no response any more.
            for other in OBSERVERS:
                if other in self.members:
                    self._unstick(other)

    def _unstick(self, node_id: int) -> None:
        member = self.members[node_id]
        if member.asks:
            return
        if member.wake_at_ms is None:
            member.step(FetchFailed(now_ms=self.now_ms))

    # -- what the leader does --------------------------------------------------------------

    @rule(count=st.integers(1, 3))
    def propose(self, count: int) -> None:
        values = tuple(f"{self.value + index}".encode() for index in range(count))
        self.value += count
        self.members[1].step(Propose(values=values, wall_ms=self.now_ms))

    @precondition(lambda self: self.members[1].flushes)
    @rule()
    def flush(self) -> None:
        self.members[1].flush()
        self._note_committed()

    def _note_committed(self) -> None:
        leader = self.members[1]
        records = leader.files.records()
        for offset in range(leader.files.start_offset, max(leader.committed, 0)):
            assert self.truth.setdefault(offset, records[offset]) == records[offset]

    @precondition(lambda self: self.members[1].committed > 0)
    @rule()
    def snapshot(self) -> None:
        leader = self.members[1]
        ends = [b.next_offset for b in leader.files.batches if b.next_offset <= leader.committed]
        if not ends:
            return
        snapshot = OffsetAndEpoch(ends[-1], leader.files.records()[ends[-1] - 1][0])
        leader.step(SnapshotStored(snapshot=snapshot))
        for files in (leader.files, leader.durable):
            if snapshot not in files.snapshots:
                files.snapshots.append(snapshot)

    @precondition(lambda self: self.members[1].node.log.snapshots)
    @rule(data=st.data())
    def clean(self, data: st.DataObject) -> None:
        leader = self.members[1]
        leader.step(CleanUp(snapshot=data.draw(st.sampled_from(leader.node.log.snapshots))))

    # -- what observers do -----------------------------------------------------------------

    @rule(node_id=st.sampled_from(OBSERVERS), lost=st.booleans())
    def ask(self, node_id: int, lost: bool) -> None:
        member = self.members[node_id]
        if not member.asks:
            self._tick(member)
            return
        asked = member.asks.pop(0)
        if lost:
            member.step(FetchFailed(now_ms=self.now_ms))
            return
        self.tokens += 1
        self.asked[self.tokens] = node_id
        leader = self.members[1]
        if isinstance(asked, SendFetchSnapshot):
            leader.step(
                SnapshotRequestReceived(
                    token=self.tokens,
                    replica=ReplicaKey(node_id),
                    leader_epoch=asked.leader_epoch,
                    snapshot=asked.snapshot,
                    now_ms=self.now_ms,
                )
            )
            position = asked.position
            self._answer_all(position)
            return
        leader.step(self._fetch(node_id, asked))
        self._answer_all()

    def _fetch(self, node_id: int, asked: SendFetch) -> FetchRequestReceived:
        return FetchRequestReceived(
            token=self.tokens,
            replica=ReplicaKey(node_id),
            leader_epoch=asked.leader_epoch,
            fetch_offset=asked.fetch_offset,
            last_fetched_epoch=asked.last_fetched_epoch,
            now_ms=self.now_ms,
            wall_ms=self.now_ms,
            deadline_ms=self.now_ms + 50,
        )

    def _answer_all(self, position: int = 0) -> None:
        leader = self.members[1]
        answers, leader.answers = leader.answers, []
        for answer in answers:
            node_id = self.asked.pop(answer.token, None)
            if node_id is not None:
                self._answer(self.members[node_id], answer, position)

    def _answer(
        self, member: Member, answer: RespondToFetch | RespondToFetchSnapshot, position: int
    ) -> None:
        common: dict[str, Any] = {
            "error": answer.error,
            "leader_id": answer.leader_id,
            "leader_epoch": answer.leader_epoch,
            "now_ms": self.now_ms,
        }
        if isinstance(answer, RespondToFetchSnapshot):
            data = b"" if answer.error is not Error.NONE else b"half."
            member.step(
                SnapshotResponseReceived(
                    **common,
                    snapshot=answer.snapshot,
                    size=SNAPSHOT_SIZE,
                    position=position,
                    data=data,
                )
            )
            return
        batches = [
            batch
            for batch in self.members[1].files.batches
            if answer.start <= batch.base_offset and batch.next_offset <= answer.end
        ]
        member.on_wire |= {batch.base_offset: batch for batch in batches}
        verdict = answer.verdict
        member.step(
            FetchResponseReceived(
                **common,
                high_watermark=answer.high_watermark,
                diverging=verdict.end if isinstance(verdict, Diverging) else None,
                snapshot=verdict.snapshot if isinstance(verdict, NeedsSnapshot) else None,
                batches=tuple(BatchSpan(b.base_offset, b.next_offset, b.epoch) for b in batches),
                data=" ".join(str(b.base_offset) for b in batches).encode(),
            )
        )

    # -- time and death --------------------------------------------------------------------

    def _tick(self, member: Member) -> None:
        if member.wake_at_ms is not None and member.wake_at_ms <= self.now_ms:
            member.step(Tick(now_ms=self.now_ms))

    @rule(ms=st.integers(1, 2_000))
    def wait(self, ms: int) -> None:
        self.now_ms += ms
        for member in self.members.values():
            self._tick(member)
        self._answer_all()

    @rule(
        node_id=st.sampled_from((1, *OBSERVERS)),
        power=st.booleans(),
        crash_after=st.none() | st.integers(0, 4),
    )
    def restart(self, node_id: int, power: bool, crash_after: int | None) -> None:
        member = self.members[node_id]
        # An observer never flushes: after a loss of power it may have nothing.
        files = member.durable if power else member.files
        self._boot(node_id, files.copy(), crash_after)

    # -- what must hold --------------------------------------------------------------------

    @invariant()
    def epochs_only_grow(self) -> None:
        for node_id, member in self.members.items():
            assert member.node.epoch >= self.epochs.get(node_id, 0) or node_id != 1
            self.epochs[node_id] = max(self.epochs.get(node_id, 0), member.node.epoch)

    @invariant()
    def views_match_files(self) -> None:
        for member in self.members.values():
            view = member.files.view()
            assert member.node.log.end_offset == view.end_offset
            assert member.node.log.start_offset == view.start_offset
            assert member.node.log.epochs == view.epochs

    @invariant()
    def committed_records_are_the_leaders(self) -> None:
        for node_id in OBSERVERS:
            member = self.members[node_id]
            records = member.files.records()
            for offset in range(member.files.start_offset, max(member.committed, 0)):
                assert records[offset] == self.truth[offset]

    @invariant()
    def the_leader_lacks_nothing_that_was_committed(self) -> None:
        leader = self.members[1]
        records = leader.files.records()
        for offset, record in self.truth.items():
            if offset >= leader.files.start_offset:
                assert records[offset] == record

    def teardown(self) -> None:
        if not hasattr(self, "members"):
            return
        for _round in range(60):
            while self.members[1].flushes:
                self.flush()
            self._answer_all()
            for node_id in OBSERVERS:
                self.ask(node_id, False)
            self.wait(100)
        leader = self.members[1]
        for node_id in OBSERVERS:
            member = self.members[node_id]
            assert member.committed == leader.committed
            assert member.files.end_offset == leader.files.end_offset
        for member in self.members.values():
            MARKS.update(type(effect).__name__ for effect in member.effects)


PROOFS = ("AppendRecords", "AppendFetched", "AdoptSnapshot", "DeletePrefix")
"""Effects without which the histories proved nothing; the last one is in few of them."""


def test_any_history_converges() -> None:
    histories = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
    for _ in range(10):
        run_state_machine_as_test(Quorum, settings=histories)
        if all(MARKS[effect] > 0 for effect in PROOFS):
            return
    pytest.fail(f"600 histories had no {[each for each in PROOFS if MARKS[each] == 0]}")
