"""Whatever members do, a group without further faults becomes stable, and its log has that state.

Method: hypothesis draws scripts of joins, leaves, crashes, restarts of static members, lost
connections, refused and slow writes, changes of the coordinator, and passing time. Members are
small models of real clients: they act on each response, one request at a time. After every step
safety is checked; then the faults stop and the group must converge: one generation, one leader,
every live member assigned by it, at one time. At the end a new shard loaded from the log must agree
with the live one.
"""

from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.base.errors import Error
from ottla.base.pending import Pending
from ottla.coordinator.group_states import State
from ottla.coordinator.leaving import heartbeat, leave
from ottla.coordinator.member import MEMBER_BYTES
from ottla.coordinator.values import GroupConfig, JoinResponse, LeavingMember, SyncResponse
from tests.drawn import examples

from .harness import GROUP, Harness, durable

SESSION_MS = 10_000
CONFIG = GroupConfig(new_member_join_ms=20_000)


@dataclass
class Client:
    """A consumer: joins, syncs, beats, and starts again on errors that ask for it."""

    harness: Harness
    name: str
    instance_id: str | None = None
    version: int = 9
    member_id: str = ""
    generation: int = -1
    assignment: bytes | None = None
    alive: bool = True
    awaiting_join: Pending[JoinResponse] | None = None
    awaiting_sync: Pending[SyncResponse] | None = None
    response: JoinResponse | None = None
    fenced: bool = False
    seen: list[int] = field(default_factory=list)
    attempts: int = 0
    """How often it has assigned: no two of its assignments are the same."""

    def poll(self) -> None:
        """Do the next thing that a consumer would do."""
        if not self.alive or self.fenced:
            return
        if self.awaiting_join is not None:
            if self.awaiting_join.done:
                self._joined(self.awaiting_join.value)
        elif self.awaiting_sync is not None:
            if self.awaiting_sync.done:
                self._synced(self.awaiting_sync.value)
        elif self.assignment is None:
            self.join()
        else:
            self._beat()

    def join(self) -> None:
        self.assignment = None
        self.awaiting_join = self.harness.join(
            self.member_id,
            instance_id=self.instance_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=30_000,
            version=self.version,
        )

    def _joined(self, answer: JoinResponse) -> None:
        self.awaiting_join = None
        if answer.error is Error.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.join()
        elif answer.error is Error.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        elif answer.error is Error.FENCED_INSTANCE_ID:
            self.fenced = True
        elif not answer.error:
            self.member_id, self.generation, self.log_events = (
                answer.member_id,
                answer.generation,
                answer,
            )
            self.seen.append(answer.generation)
            assignments = []
            if answer.leader == answer.member_id and not answer.skip_assignment:
                self.attempts += 1
                assignments = [
                    (each.member_id, f"{each.member_id} {self.name} {self.attempts}".encode())
                    for each in answer.members
                ]
            self.awaiting_sync = self.harness.sync(
                answer, assignments, instance_id=self.instance_id
            )

    def _synced(self, answer: SyncResponse) -> None:
        self.awaiting_sync = None
        self._obey(answer.error)
        if not answer.error:
            self.assignment = answer.assignment

    def _beat(self) -> None:
        error = heartbeat(
            self.harness.shard,
            group_id=GROUP,
            member_id=self.member_id,
            instance_id=self.instance_id,
            generation=self.generation,
        )
        self.harness.settle()
        self._obey(error)

    def _obey(self, error: Error) -> None:
        if error is Error.NONE:
            return
        self.assignment = None
        if error in (Error.UNKNOWN_MEMBER_ID, Error.ILLEGAL_GENERATION):
            self.member_id = ""
        elif error is Error.FENCED_INSTANCE_ID:
            self.fenced = True

    def leave(self) -> None:
        if self.member_id:
            leave(self.harness.shard, GROUP, [LeavingMember(self.member_id, self.instance_id)])
            self.harness.settle()
        self.alive = False

    def reconnect(self) -> None:
        """Lose the connection, and the responses with it; join again, and sync if it may."""
        self.assignment, self.awaiting_join, self.awaiting_sync = None, None, None
        self.poll()
        self.poll()

    def restart(self) -> None:
        """Crash and come back: a static member keeps its instance id, nothing else."""
        self.member_id, self.assignment, self.awaiting_join, self.awaiting_sync = (
            "",
            None,
            None,
            None,
        )
        self.alive = True


ACTIONS = st.one_of(
    st.tuples(st.just("poll"), st.integers(0, 5)),
    st.tuples(st.just("poll"), st.integers(0, 5)),
    st.tuples(st.just("poll all"), st.integers(0, 3)),
    st.tuples(st.just("leave"), st.integers(0, 5)),
    st.tuples(st.just("crash"), st.integers(0, 5)),
    st.tuples(st.just("restart"), st.integers(0, 5)),
    st.tuples(st.just("reconnect"), st.integers(0, 5)),
    st.tuples(st.just("wait"), st.sampled_from([1, 500, 3_000, 11_000, 31_000])),
    st.tuples(st.just("refuse"), st.sampled_from([0, 1])),
    st.tuples(st.just("hold"), st.sampled_from([0, 1])),
    st.tuples(st.just("failover"), st.sampled_from([0, 1])),
)


def play(harness: Harness, clients: list[Client], action: str, number: int) -> None:
    client = clients[number % len(clients)]
    match action:
        case "poll":
            client.poll()
        case "poll all":
            for each in clients:
                each.poll()
        case "leave":
            client.leave()
        case "crash":
            client.alive = False
        case "restart":
            client.restart()
        case "reconnect":
            client.reconnect()
        case "wait":
            harness.advance(number)
        case "refuse":
            harness.journal.refuse = Error.NOT_ENOUGH_REPLICAS if number else None
        case "failover":
            harness.failover(loses_uncommitted=bool(number))
        case "hold":
            harness.journal.hold = bool(number)
            if not number:
                harness.journal.release()
                harness.settle()


def check_safety(harness: Harness) -> None:
    groups = harness.shard.groups.values()
    assert harness.shard.memory.used_bytes == sum(
        sum(member.size_bytes for member in group.members.values())
        + sum(MEMBER_BYTES + len(member_id) for member_id in group.pending_members)
        for group in groups
    )
    group = harness.shard.groups.get(GROUP)
    if group is None:
        return
    waiting = [member for member in group.members.values() if member.awaiting_join is not None]
    assert group.awaiting_join_count == len(waiting)
    assert (group.leader_id is None) == (not group.members)
    assert group.leader_id is None or group.leader_id in group.members
    assert set(group.static_members.values()) <= set(group.members)
    assert group.state not in (State.COMPLETING, State.STABLE) or group.members
    if group.state is State.EMPTY:
        assert not group.members
    if group.state is State.PREPARING:
        assert group.join_timer is not None
    if group.state is State.STABLE:
        assert not any(member.awaiting_sync for member in group.members.values())
    for member in group.members.values():
        # Whoever does not wait must have a session that can end, or it would stay for ever.
        assert member.session_timer is not None or member.outlives_session


def heal(harness: Harness, clients: list[Client]) -> None:
    """End the faults, and let the live clients work until nothing changes any more."""
    harness.journal.refuse, harness.journal.hold = None, False
    harness.journal.release()
    harness.settle()
    for _ in range(120):
        for client in clients:
            client.poll()
        harness.advance(1_000)
        check_safety(harness)


ASSIGNED_TWICE = [
    *[("poll all", 0)] * 2,
    *[("wait", 3_000)] * 2,
    ("hold", 1),
    ("poll all", 0),
    *[("reconnect", number) for number in range(2)],
    ("hold", 0),
]
"""The leader assigns, loses its connection, and assigns again before the first is replicated."""


@settings(max_examples=examples(150), deadline=None)
@example(script=ASSIGNED_TWICE, instances=[None, None], version=9)
@given(
    script=st.lists(ACTIONS, max_size=50),
    instances=st.lists(st.sampled_from([None, None, "i-1", "i-2"]), min_size=1, max_size=6),
    version=st.sampled_from([2, 4, 5, 9]),
)
def test_a_group_left_in_peace_is_stable(
    script: list[tuple[str, int]], instances: list[str | None], version: int
) -> None:
    harness = Harness(CONFIG)
    used: set[str] = set()
    clients = []
    for number, wanted in enumerate(instances):
        instance_id = wanted if wanted not in used and version >= 5 else None
        used |= {instance_id} if instance_id else set()
        clients.append(Client(harness, f"c{number}", instance_id, version))
    for action, number in script:
        play(harness, clients, action, number)
        check_safety(harness)
        # A generation that was never assigned is in no log: the next coordinator counts it again.
        if not any(each == "failover" for each, _ in script):
            assert all(client.seen == sorted(client.seen) for client in clients)
    heal(harness, clients)
    live = [client for client in clients if client.alive and not client.fenced]
    check_converged(harness, live)


def check_converged(harness: Harness, live: list[Client]) -> None:
    group = harness.shard.groups.get(GROUP)
    if not live:
        assert group is None or group.state is State.EMPTY
    else:
        assert group is not None
        assert group.state is State.STABLE
        assert set(group.members) == {client.member_id for client in live}
        assert {client.generation for client in live} == {group.generation}
        assert sum(client.member_id == group.leader_id for client in live) == 1
        attempts = set()
        for client in live:
            assert client.assignment
            assigned_id, attempt = client.assignment.split(b" ", 1)
            attempts.add(attempt)
            # A static member that came back keeps what its old id was assigned (KIP-814).
            if client.instance_id is None:
                assert assigned_id == client.member_id.encode()
        assert len(attempts) == 1
    # Groups that never had a generation are in no log, and need not be.
    if group is not None and not group.generation:
        del harness.shard.groups[GROUP]
    assert durable(harness.replayed().shard) == durable(harness.shard)
