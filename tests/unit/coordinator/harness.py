"""A coordinator's shard with fakes: virtual time, seeded dice, a log in memory.

Time moves only in `advance`, from deadline to deadline. The journal can refuse writes, or hold
them back until they are released, as a leader does whose followers are slow.
"""

import random
from collections.abc import Iterable, Sequence
from functools import partial

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending, completed
from ottla.base.timers import Timers
from ottla.coordinator import groups, loading
from ottla.coordinator.group import Group
from ottla.coordinator.joining import join
from ottla.coordinator.records import RecordPair
from ottla.coordinator.shard import Shard, Written
from ottla.coordinator.syncing import sync
from ottla.coordinator.values import (
    GroupConfig,
    Join,
    JoinResponse,
    Protocols,
    Sync,
    SyncResponse,
)
from ottla.records.builder import encode_batch

WALL_MS = 1_700_000_000_000
GROUP = "g"
CONFIG = GroupConfig()


class FakeClock:
    """Both clocks, moved by the test."""

    def __init__(self) -> None:
        self.ms = 1_000

    def now_ms(self) -> int:
        return WALL_MS + self.ms

    def monotonic_ms(self) -> int:
        return self.ms


class SeededDice:
    """Chance from a seed."""

    def __init__(self, seed: int = 7) -> None:
        self._random = random.Random(seed)

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)


class FakeJournal:
    """A log in memory.

    `refuse`: the error of every append; `hold`: replication stands still; `bytes_max`: of a batch.
    """

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end_offset = 0
        self.refuse: Error | None = None
        self.bytes_max = 1_048_588
        self.hold = False
        self.held: list[Pending[Error]] = []

    def append(self, records: Iterable[RecordPair]) -> Written:
        if self.refuse is not None:
            raise ApiError(self.refuse)
        first = self.end_offset
        rows = [(key, value, (), WALL_MS) for key, value in records]
        batch = encode_batch(rows, base_offset=first)
        if len(batch) > self.bytes_max:
            raise ApiError(Error.MESSAGE_TOO_LARGE)
        self.batches.append(batch)
        self.end_offset += len(rows)
        if not self.hold:
            return Written(first, completed(Error.NONE))
        committed: Pending[Error] = Pending()
        self.held.append(committed)
        return Written(first, committed)

    def release(self, error: Error = Error.NONE) -> None:
        """Let everything that was held back end with `error`."""
        held, self.held = self.held, []
        for each in held:
            each.complete(error)


class Harness:
    """One shard and what surrounds it."""

    def __init__(self, config: GroupConfig = CONFIG, seed: int = 7) -> None:
        self.clock = FakeClock()
        self.timers = Timers()
        self.journal = FakeJournal()
        self.dice = SeededDice(seed)
        self.log_events: list[str] = []
        self.members_bytes_max = 1_000_000_000
        self.shard = self._new_shard(config)

    def _new_shard(self, config: GroupConfig) -> Shard:
        return Shard(
            config=config,
            clock=self.clock,
            timers=self.timers,
            dice=self.dice,
            journal=self.journal,
            log_event=self.log_events.append,
            memory_left=lambda: self.members_bytes_max - self.shard.memory.used_bytes,
        )

    def failover(self, *, loses_uncommitted: bool) -> None:
        """Let another leader take over, with or without what was not replicated yet."""
        groups.unload(self.shard)
        if loses_uncommitted and self.journal.held:
            del self.journal.batches[-len(self.journal.held) :]
        self.journal.release(Error.NOT_LEADER_OR_FOLLOWER)
        self.settle()
        self.shard = self._new_shard(self.shard.config)
        self._load(self.shard, self.journal.batches)
        groups.start(self.shard)

    def settle(self) -> None:
        """Run what is due now, as the loop does after each call."""
        while self.timers.run_due(self.clock.ms):
            pass

    def advance(self, ms: int) -> None:
        """Let time pass, from deadline to deadline."""
        target = self.clock.ms + ms
        while (due := self.timers.next_ms()) is not None and due <= target:
            self.clock.ms = max(self.clock.ms, due)
            self.timers.run_due(self.clock.ms)
        self.clock.ms = target

    @property
    def group(self) -> Group:
        return self.shard.groups[GROUP]

    def join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: Protocols = (("range", b"meta"),),
        protocol_type: str = "consumer",
        client_id: str = "client",
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 60_000,
        version: int = 9,
        group_id: str = GROUP,
        reason: str | None = None,
    ) -> Pending[JoinResponse]:
        """Send a JoinGroup."""
        answer = join(
            self.shard,
            Join(
                group_id=group_id,
                member_id=member_id,
                instance_id=instance_id,
                client_id=client_id,
                client_host="/127.0.0.1",
                session_timeout_ms=session_timeout_ms,
                rebalance_timeout_ms=rebalance_timeout_ms,
                protocol_type=protocol_type,
                protocols=protocols,
                reason=reason,
                requires_member_id=version >= 4,
                can_skip_assignment=version >= 9,
            ),
        )
        self.settle()
        return answer

    def new_id(self, **options: object) -> str:
        """Ask for a member id (KIP-394)."""
        answer = self.join(**options)  # type: ignore[arg-type]
        assert answer.value.error is Error.MEMBER_ID_REQUIRED
        return answer.value.member_id

    def sync(
        self,
        response: JoinResponse,
        assignments: Sequence[tuple[str, bytes]] = (),
        *,
        instance_id: str | None = None,
        group_id: str = GROUP,
        deliver: bool = True,
    ) -> Pending[SyncResponse]:
        """Send the SyncGroup that follows a join's answer; run what timers are due, or not."""
        answer = sync(
            self.shard,
            Sync(
                group_id=group_id,
                member_id=response.member_id,
                instance_id=instance_id,
                generation=response.generation,
                protocol_type=response.protocol_type,
                protocol_name=response.protocol_name,
                assignments=tuple(assignments),
            ),
        )
        if deliver:
            self.settle()
        return answer

    def stable_group(
        self, count: int = 2, *, instances: Sequence[str | None] = (), **options: object
    ) -> list[JoinResponse]:
        """Bring a group of new members to STABLE; return their join responses, leader first."""
        instances = list(instances) or [None] * count
        answers = []
        for instance_id in instances:
            member_id = "" if instance_id is not None else self.new_id(**options)
            send = partial(self.join, member_id, instance_id=instance_id)
            answers.append(send(**options))  # type: ignore[arg-type]
        while not all(answer.done for answer in answers):
            self.advance(self.shard.config.initial_rebalance_delay_ms)
        response = sorted((answer.value for answer in answers), key=lambda each: not each.members)
        assignments = [(each.member_id, each.member_id.encode()) for each in response[0].members]
        for each, instance_id in zip(response, self._instances(response), strict=True):
            mine = assignments if each is response[0] else ()
            assert not self.sync(each, mine, instance_id=instance_id).value.error
        return response

    def _instances(self, response: Sequence[JoinResponse]) -> list[str | None]:
        return [self.group.members[each.member_id].instance_id for each in response]

    def replayed(self) -> "Harness":
        """Return another harness whose shard was loaded from this one's log."""
        other = Harness(self.shard.config)
        other.clock.ms = self.clock.ms
        self._load(other.shard, self.journal.batches)
        return other

    @staticmethod
    def _load(shard: Shard, batches: Sequence[bytes]) -> None:
        loader = loading.Loader()
        for batch in batches:
            loading.apply(shard, loader.decode(batch))
        loading.finish(shard)


def durable(shard: Shard) -> object:
    """Return what of a shard must survive a change of the leader."""
    response = {}
    for group_id, group in shard.groups.items():
        members = {
            member.member_id: (
                member.instance_id,
                member.client_id,
                member.client_host,
                member.session_timeout_ms,
                member.rebalance_timeout_ms,
                member.metadata(group.protocol_name or ""),
                member.assignment,
            )
            for member in group.members.values()
        }
        response[group_id] = (
            group.state,
            group.generation,
            group.protocol_type,
            group.protocol_name,
            group.leader_id,
            group.subscribed_topics,
            group.static_members,
            members,
        )
    return response, shard.offsets.state()
