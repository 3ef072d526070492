"""A member of a classic consumer group: joins, syncs, heartbeats, reads, commits and leaves.

Its process may leave cleanly, crash, or pause for longer than its session timeout and come back as
a zombie that first commits its positions. Once it has a new member id or generation it sometimes
commits with the previous one, which the coordinator must reject. All responses are recorded in the
history; each commit has a unique token as its metadata, so that a fetched offset identifies it.

Source: Kafka's ConsumerCoordinator and AbstractCoordinator (eager rebalancing); KIP-345, KIP-394.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_EPOCH, Uuid
from ottla.testing.history.groups import (
    AssignmentReceived,
    AssignmentSent,
    MemberJoined,
    NamedPartition,
    OffsetCommit,
)
from ottla.testing.history.history import Progress
from ottla.testing.history.topics import Outcome, TopicPartition
from ottla.testing.sim_clients import assigning
from ottla.testing.sim_clients.client import Port, SimClient
from ottla.testing.sim_clients.coordinator import BACKOFF_MS, Coordinator
from ottla.testing.sim_clients.dialogue import Dialogue
from ottla.testing.sim_clients.offset_queries import EARLIEST, fetch_offsets, list_offset
from ottla.testing.sim_clients.reader import Reader
from ottla.wire.messages import heartbeat as heartbeat_wire
from ottla.wire.messages import join_group as join_wire
from ottla.wire.messages import leave_group as leave_wire
from ottla.wire.messages import offset_commit as commit_wire
from ottla.wire.messages import sync_group as sync_wire

JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 9, 5, 4, 5

NO_GENERATION = -1
STALE_ONE_IN = 2
"""One of so many members with a new identity also acts with the previous one."""

REFRESH_ONE_IN = 3
"""At one of so many commits the group leader looks for new partitions."""

FAILED = frozenset(
    {
        Error.ILLEGAL_GENERATION,
        Error.UNKNOWN_MEMBER_ID,
        Error.FENCED_INSTANCE_ID,
        Error.GROUP_ID_NOT_FOUND,
        Error.REBALANCE_IN_PROGRESS,
        Error.COORDINATOR_LOAD_IN_PROGRESS,
        Error.UNKNOWN_TOPIC_ID,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors of commits that were not stored."""

NEW_IDENTITY = frozenset({Error.UNKNOWN_MEMBER_ID, Error.FENCED_INSTANCE_ID})


class Identity(NamedTuple):
    """A member id and generation."""

    member: str = ""
    generation: int = NO_GENERATION


class Position(NamedTuple):
    """The next offset to read, and the leader epoch of the last record."""

    offset: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConfig:
    """A consumer's settings.

    Fields: `instance`: group.instance.id, None = a dynamic member; `reset`: the start without a
            committed offset, EARLIEST or LATEST; `poll_ms`: the mean pause after each fetch.
            `commit_version`: of OffsetCommit and OffsetFetch; from 10 on they use topic ids.
    """

    topics: tuple[str, ...]
    instance: str | None = None
    rack: str = ""
    reset: int = EARLIEST
    session_ms: int = 6_000
    rebalance_ms: int = 8_000
    heartbeat_ms: int = 1_500
    poll_ms: int = 900
    commit_ms: int = 2_500
    commit_version: int = 10


class GroupMember:
    """One member, through all incarnations of its process.

    Fields: `on_answer`: called with what was acknowledged ("commit", "assignment") and by which
            node. `is_done`: it was stopped, and has left.
    """

    def __init__(
        self, client: SimClient, coordinator_port: Port, group: str, config: MemberConfig
    ) -> None:
        self.client = client
        self.group = group
        self.config = config
        self.coordinator = Coordinator(client, coordinator_port, group)
        self.reader = Reader(client, rack=config.rack)
        self.on_answer: Callable[[str, int], None] = lambda what, node: None
        self.is_done = False
        self._identity = Identity()
        self._assigned: tuple[NamedPartition, ...] = ()
        self._committed: dict[TopicPartition, int] = {}
        self._counts: dict[str, int] = {}
        """The number of partitions of each topic when this member, as leader, assigned them."""
        self._held = Identity()
        """Its identity when it got its assignment."""
        self._former: tuple[Identity, dict[TopicPartition, Position]] = (Identity(), {})
        """Its previous identity, and its positions then."""
        self._tokens = 0
        self._incarnation = 0
        self._paused_until_ms = 0
        self._stopped = False
        self._leaving = False
        for topic in config.topics:
            client.follow(topic)

    # -- process -------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start a new process."""
        self._incarnation += 1
        self._forget()
        self._identity = Identity()
        self._leaving = False
        self.client.run(self._live(self._incarnation))

    def die(self) -> None:
        """Crash the process: its connections end, its session goes on."""
        self._incarnation += 1
        self._forget()
        self.coordinator.close()
        self.client.port.close()

    def pause(self, ms: int) -> None:
        """Pause so long; responses to earlier requests still arrive."""
        self._paused_until_ms = self.client.now_ms + ms

    def leave(self) -> None:
        """Leave the group after this round; `begin` starts a new process."""
        self._leaving = True

    def commit_now(self) -> None:
        """Commit concurrently; do nothing if this member has no assignment."""
        if self._assigned and self._paused_until_ms <= self.client.now_ms:
            self.client.run(self._commit())

    def stop(self) -> None:
        """Commit and leave for good."""
        self._stopped = True

    @property
    def name(self) -> str:
        """Its name in the history."""
        return self.client.name

    @property
    def _goes_on(self) -> bool:
        return not self._stopped and not self._leaving

    def _live(self, incarnation: int) -> Dialogue[None]:
        # The steps of a process are driven here, so that a crash ends it wherever it waits.
        work = self._work()
        value: Any = None
        while True:
            try:
                wanted = work.send(value)
            except StopIteration:
                break
            value = yield wanted
            if self._incarnation != incarnation:
                work.close()
                return
        if self._stopped:
            self.is_done = True

    def _work(self) -> Dialogue[None]:
        while self._goes_on:
            if (yield from self._enter()):
                yield from self._consume()
            else:
                yield BACKOFF_MS
                yield from self._wake()
        yield from self._commit()
        yield from self._leave()

    def _wake(self) -> Dialogue[None]:
        while (left_ms := self._paused_until_ms - self.client.now_ms) > 0:
            yield left_ms

    def _ask(
        self, request: object, version: int, timeout_ms: int = 3_000
    ) -> Dialogue[Any | ApiError]:
        yield from self._wake()
        return (yield from self.coordinator.ask(request, version, timeout_ms))

    def _forget(self) -> None:
        if self.reader.positions:
            self._former = (self._held, self._positions())
        self._assigned = ()
        self._committed.clear()
        self.reader.forget()

    # -- joining -------------------------------------------------------------------------------

    def _enter(self) -> Dialogue[bool]:
        """Join and sync; tell whether this member has an assignment."""
        self._forget()
        joined = yield from self._join()
        if joined is None:
            return False
        assignments: dict[str, tuple[NamedPartition, ...]] = {}
        if joined.leader == joined.member_id and not joined.skip_assignment:
            assignments = yield from self._assign(joined)
        if not (yield from self._sync(assignments)):
            return False
        yield from self._act_as_before()
        return True

    def _join(self) -> Dialogue[join_wire.JoinGroupResponse | None]:
        config = self.config
        protocol = join_wire.JoinGroupRequestProtocol(
            name=assigning.PROTOCOL, metadata=assigning.encode_subscription(config.topics)
        )
        sent_ms = self.client.now_ms
        request = join_wire.JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=config.session_ms,
            rebalance_timeout_ms=config.rebalance_ms,
            member_id=self._identity.member,
            group_instance_id=config.instance,
            protocol_type=assigning.PROTOCOL_TYPE,
            protocols=(protocol,),
        )
        answer: join_wire.JoinGroupResponse | ApiError = yield from self._ask(
            request, JOIN_VERSION, config.rebalance_ms + 3_000
        )
        if isinstance(answer, ApiError):
            return None
        error = Error(answer.error_code)
        if error is Error.MEMBER_ID_REQUIRED:
            self._identity = Identity(answer.member_id)
            again: join_wire.JoinGroupResponse | None = yield from self._join()
            return again
        if error:
            self._refused(error)
            return None
        self._identity = Identity(answer.member_id, answer.generation_id)
        self.client.history.groups.joins.append(
            MemberJoined(
                client=self.name,
                group=self.group,
                member=answer.member_id,
                generation=answer.generation_id,
                instance=config.instance,
                leader=answer.leader,
                members=tuple((each.member_id, each.group_instance_id) for each in answer.members),
                node=self.coordinator.answered_by,
                sent_ms=sent_ms,
                at_ms=self.client.now_ms,
            )
        )
        return answer

    def _assign(
        self, joined: join_wire.JoinGroupResponse
    ) -> Dialogue[dict[str, tuple[NamedPartition, ...]]]:
        yield self.client.refresh()
        known = {
            topic: [number for _, number in self.client.partitions_of(topic)]
            for topic in self.config.topics
        }
        self._counts = {topic: len(numbers) for topic, numbers in known.items()}
        return assigning.assign_ranges((each.member_id for each in joined.members), known)

    def _sync(self, assignments: dict[str, tuple[NamedPartition, ...]]) -> Dialogue[bool]:
        identity, client = self._identity, self.client
        yield from self._wake()
        if assignments:
            client.history.groups.sent.append(
                AssignmentSent(self.name, self.group, *identity, assignments, client.now_ms)
            )
        answer = yield from self._send_sync(identity, assignments)
        if isinstance(answer, Error):
            self._refused(answer)
            return False
        self._assigned, self._held = answer, identity
        self.on_answer("assignment", self.coordinator.answered_by)
        return True

    def _send_sync(
        self, identity: Identity, assignments: dict[str, tuple[NamedPartition, ...]]
    ) -> Dialogue[tuple[NamedPartition, ...] | Error]:
        """Send one SyncGroup and record the assignment."""
        request = sync_wire.SyncGroupRequest(
            group_id=self.group,
            generation_id=identity.generation,
            member_id=identity.member,
            group_instance_id=self.config.instance,
            protocol_type=assigning.PROTOCOL_TYPE,
            protocol_name=assigning.PROTOCOL,
            assignments=tuple(
                sync_wire.SyncGroupRequestAssignment(
                    member_id=member, assignment=assigning.encode_assignment(owned)
                )
                for member, owned in sorted(assignments.items())
            ),
        )
        sent_ms = self.client.now_ms
        answer = yield from self._ask(request, SYNC_VERSION, self.config.rebalance_ms + 3_000)
        if isinstance(answer, ApiError):
            return answer.error
        if answer.error_code:
            return Error(answer.error_code)
        assigned = assigning.decode_assignment(answer.assignment)
        self.client.history.groups.received.append(
            AssignmentReceived(
                client=self.name,
                group=self.group,
                member=identity.member,
                generation=identity.generation,
                partitions=assigned,
                instance=self.config.instance,
                node=self.coordinator.answered_by,
                sent_ms=sent_ms,
                at_ms=self.client.now_ms,
            )
        )
        return assigned

    def _act_as_before(self) -> Dialogue[None]:
        """Sometimes send a request with the previous identity."""
        former, read = self._former
        below = self.client.dice.below
        if not read or former == self._identity or below(STALE_ONE_IN):
            return
        yield 1 + below(100)  # Later than what made it stale.
        if below(3):
            yield from self._send_commit(read, former, stale=True)
        else:
            yield from self._send_sync(Identity(self._identity.member, former.generation), {})

    def _refused(self, error: Error) -> None:
        """Update the identity, or the coordinator, after an error."""
        self.coordinator.note_error(error)
        if error in NEW_IDENTITY:
            self._identity = Identity()
        elif error is Error.ILLEGAL_GENERATION:
            self._identity = Identity(self._identity.member)

    # -- within a generation -------------------------------------------------------------------

    def _consume(self) -> Dialogue[None]:
        """Read and commit until the group rebalances, or this member leaves."""
        config, client = self.config, self.client
        beat_ms = commit_ms = client.now_ms
        while self._goes_on:
            was_paused = self._paused_until_ms > client.now_ms
            yield from self._wake()
            if was_paused and not (yield from self._commit()):
                return  # A zombie: its partitions have another owner.
            if client.now_ms - beat_ms >= config.heartbeat_ms:
                beat_ms = client.now_ms
                if not (yield from self._heartbeat()):
                    return
            keys = self._keys()
            yield from self._position(keys)
            fine = yield from self.reader.fetch(
                each for each in keys if each in self.reader.positions
            )
            placed = sum(key in self.reader.positions for key in keys)
            if not fine or placed < len(self._assigned):
                yield client.refresh()
            if client.now_ms - commit_ms >= config.commit_ms:
                commit_ms = client.now_ms
                if not (yield from self._commit()) or (yield from self._has_grown()):
                    return
            yield 1 + client.dice.below(2 * config.poll_ms)

    def _keys(self) -> list[TopicPartition]:
        """Return the assigned partitions, with the current topic ids, that are in the metadata."""
        ids, known = self.client.ids, self.client.leaders
        keys = [(ids[topic], number) for topic, number in self._assigned if topic in ids]
        return [key for key in keys if key in known]

    def _has_grown(self) -> Dialogue[bool]:
        """Tell whether this member is the group leader and the number of partitions has changed."""
        if not self._counts or self.client.dice.below(REFRESH_ONE_IN):
            return False
        yield self.client.refresh()
        counts = {topic: len(self.client.partitions_of(topic)) for topic in self._counts}
        if counts == self._counts:
            return False
        self._counts = {}
        return True

    def _position(self, keys: Sequence[TopicPartition]) -> Dialogue[None]:
        """Start at the committed offsets."""
        missing = [key for key in keys if key not in self.reader.positions]
        if not missing:
            return
        yield from self._wake()
        found = yield from fetch_offsets(self.coordinator, missing, self.config.commit_version)
        if not isinstance(found, dict):
            return  # Retried in the next round.
        for key, offset in found.items():
            if offset >= 0:
                self.reader.seek(key, offset)
                self._committed[key] = offset
                continue
            begin = yield from list_offset(self.client, key, self.config.reset)
            if begin is not None:
                self.reader.seek(key, begin.offset)

    def _heartbeat(self) -> Dialogue[bool]:
        identity = self._identity
        request = heartbeat_wire.HeartbeatRequest(
            group_id=self.group,
            generation_id=identity.generation,
            member_id=identity.member,
            group_instance_id=self.config.instance,
        )
        answer = yield from self._ask(request, HEARTBEAT_VERSION)
        if isinstance(answer, ApiError):
            return True
        error = Error(answer.error_code)
        if error is Error.NONE:
            self._alive(is_served(self.name, self.group))
            return True
        if error is Error.REBALANCE_IN_PROGRESS:
            yield from self._commit()  # As on revocation.
            return False
        self._refused(error)
        return error not in NEW_IDENTITY and error is not Error.ILLEGAL_GENERATION

    def _alive(self, what: str) -> None:
        history = self.client.history
        if history.healed_ms is not None:  # Not needed before.
            history.progress.append(Progress(what, self.client.now_ms))

    def _leave(self) -> Dialogue[None]:
        identity = self._identity
        if identity.member:
            member = leave_wire.MemberIdentity(
                member_id=identity.member, group_instance_id=self.config.instance
            )
            request = leave_wire.LeaveGroupRequest(group_id=self.group, members=(member,))
            yield from self._ask(request, LEAVE_VERSION)
        self._identity = Identity()

    # -- committing ----------------------------------------------------------------------------

    def _commit(self) -> Dialogue[bool]:
        """Commit the positions; tell whether this member is still in its generation."""
        # A commit without an answer may have been stored: then the end is reached without another.
        self._note_ends(self.reader.ends)
        read = self._positions()
        fresh = {
            key: read[key]
            for key in self._keys()
            if key in read and self._committed.get(key) != read[key].offset
        }
        if not fresh or self._identity.generation == NO_GENERATION:
            return True
        ends = dict(self.reader.ends)
        errors = yield from self._send_commit(fresh, self._identity)
        for key, error in errors.items():
            if error is Error.NONE:
                self._committed[key] = fresh[key].offset
        self._note_ends(ends)
        worst = next((each for each in errors.values() if each is not Error.NONE), Error.NONE)
        self._refused(worst)
        return worst not in NEW_IDENTITY and worst is not Error.ILLEGAL_GENERATION

    def _note_ends(self, ends: dict[TopicPartition, int]) -> None:
        for key, offset in self._committed.items():
            if offset >= ends.get(key, offset + 1):
                self._alive(end_committed(self.group, self._name_of(key[0]), key[1]))

    def _positions(self) -> dict[TopicPartition, Position]:
        epochs = self.reader.epochs
        return {
            key: Position(offset, epochs.get(key, NO_EPOCH))
            for key, offset in self.reader.positions.items()
        }

    def _send_commit(
        self,
        positions: dict[TopicPartition, Position],
        identity: Identity,
        *,
        stale: bool = False,
    ) -> Dialogue[dict[TopicPartition, Error]]:
        """Send one OffsetCommit; return the error of each partition."""
        client = self.client
        yield from self._wake()
        self._tokens += 1
        token = f"{self.name}:{self._tokens}"
        request = self._commit_request(positions, identity, token)
        sent_ms, errors = client.now_ms, dict.fromkeys(positions, Error.NETWORK_EXCEPTION)
        outcomes = dict.fromkeys(positions, Outcome.UNKNOWN)
        try:
            answer = yield from self._ask(request, self.config.commit_version)
            if isinstance(answer, ApiError):
                errors = dict.fromkeys(positions, answer.error)
            else:
                codes = (each.error_code for topic in answer.topics for each in topic.partitions)
                errors = dict(zip(sorted(positions), map(Error, codes), strict=True))
                outcomes = {key: _outcome(error) for key, error in errors.items()}
        finally:  # Also where the process dies while it waits.
            client.history.groups.commits += [
                OffsetCommit(
                    client=self.name,
                    group=self.group,
                    member=identity.member,
                    generation=identity.generation,
                    partition=key,
                    offset=position.offset,
                    token=token,
                    epoch=position.epoch,
                    outcome=outcomes[key],
                    error=errors[key].name,
                    node=self.coordinator.answered_by,
                    sent_ms=sent_ms,
                    ended_ms=client.now_ms,
                    stale=stale,
                )
                for key, position in positions.items()
            ]
        if Error.NONE in errors.values():
            self.on_answer("commit", self.coordinator.answered_by)
        return errors

    def _name_of(self, topic_id: Uuid) -> str:
        return next((name for name, each in self.client.ids.items() if each == topic_id), "")

    def _commit_request(
        self, positions: dict[TopicPartition, Position], identity: Identity, token: str
    ) -> commit_wire.OffsetCommitRequest:
        by_topic: defaultdict[Any, list[TopicPartition]] = defaultdict(list)
        for key in sorted(positions):
            by_topic[key[0]].append(key)
        return commit_wire.OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=identity.generation,
            member_id=identity.member,
            group_instance_id=self.config.instance,
            topics=tuple(
                commit_wire.OffsetCommitRequestTopic(
                    name=self._name_of(topic_id),
                    topic_id=topic_id,
                    partitions=tuple(
                        commit_wire.OffsetCommitRequestPartition(
                            partition_index=key[1],
                            committed_offset=positions[key].offset,
                            committed_leader_epoch=positions[key].epoch,
                            committed_metadata=token,
                        )
                        for key in keys
                    ),
                )
                for topic_id, keys in by_topic.items()
            ),
        )


def end_committed(group: str, topic: str, partition: int) -> str:
    """Return the `Progress` of a group that has committed up to the end of a partition."""
    return f"commits of {group} to the end of {topic}-{partition}"


def is_served(member: str, group: str) -> str:
    """Return the `Progress` of a member in a stable generation."""
    return f"heartbeats of {member} in {group}"


def _outcome(error: Error) -> Outcome:
    if error is Error.NONE:
        return Outcome.ACKNOWLEDGED
    return Outcome.FAILED if error in FAILED else Outcome.UNKNOWN
