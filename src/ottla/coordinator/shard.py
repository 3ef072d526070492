"""The state of the coordinator of one offsets partition, and its writes.

A change becomes visible to clients in this order, as in Kafka: the decision is made on the state
in memory; its records are appended to the partition; what must not be decided twice (offsets,
deletions) is replayed into the state at once; the response is sent when the records are
replicated. Reads of offsets wait for the writes before them, and a loaded generation is returned
to members once it is replicated, so that no client sees what a failover could take back
(Kafka's coordinators return the generation at once). A refused write changes nothing.

Source: Kafka's CoordinatorRuntime and GroupCoordinatorService.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.base.limits import GROUP_MEMBERS_BYTES_MAX
from ottla.base.pending import Pending, completed
from ottla.base.ports import Clock, Dice
from ottla.base.timers import Timers
from ottla.coordinator.group import Group
from ottla.coordinator.group_states import Event
from ottla.coordinator.member import MembersMemory
from ottla.coordinator.offset_store import OffsetStore
from ottla.coordinator.outbox import Outbox
from ottla.coordinator.records import Fact, GroupFact, RecordPair, encode_fact
from ottla.coordinator.values import GroupConfig
from ottla.wire.errors import EncodeError

MEMBER_ID_SUFFIX_LENGTH = 37
"""A hyphen and a UUID."""


@dataclass(frozen=True, slots=True)
class Written:
    """Records that are in the leader's log.

    `committed` completes with NONE when they are replicated, with another error when they never
    will be under this leader. Writes are committed in the order in which they were made.
    """

    first_offset: int
    committed: Pending[Error]


class Journal(Protocol):
    """The offsets partition that this shard leads."""

    def append(self, records: Iterable[RecordPair]) -> Written:
        """Append as one batch; raise ApiError where nothing was written.

        The records are made one by one, until they are more than the log allows in a batch.
        """
        ...


class Shard:
    """The groups whose ids hash to one partition of `__consumer_offsets`.

    Everything runs on one event loop: a call here ends before the next begins. `log_event` gets a
    log line when a group rebalances, with the reason. `topic_id_of` returns the id of the topic
    that has a name now, zero where there is none. `memory_left`: bytes that members of all shards
    of the broker may still take.
    """

    def __init__(
        self,
        *,
        config: GroupConfig,
        clock: Clock,
        timers: Timers,
        dice: Dice,
        journal: Journal,
        log_event: Callable[[str], None] = lambda _: None,
        topic_id_of: Callable[[str], Uuid] = lambda _: NO_UUID,
        memory_left: Callable[[], int] = lambda: GROUP_MEMBERS_BYTES_MAX,
    ) -> None:
        self.config = config
        self.clock = clock
        self.timers = timers
        self.dice = dice
        self.journal = journal
        self.log_event = log_event
        self.topic_id_of = topic_id_of
        self.memory_left = memory_left
        self.memory = MembersMemory()
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self.outbox = Outbox(clock, timers)
        self._waiting: dict[Pending[Error], None] = {}
        self._last_write: Pending[Error] = completed(Error.NONE)
        self._loaded: Pending[Error] = completed(Error.NONE)

    def new_member_id(self, prefix: str) -> str:
        """Return `<prefix>-<random UUID>`; the prefix is the client's id or the instance's."""
        raw = bytearray(self.dice.random_bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40  # Version 4, as every Kafka broker's.
        raw[8] = raw[8] & 0x3F | 0x80
        text = raw.hex()
        return f"{prefix}-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def ensure_group(self, group_id: str) -> Group:
        """Return the group; a new one is a simple group, until a member joins."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id, self.outbox, self.memory)
        return group

    def write(self, facts: Iterable[Fact]) -> Pending[Error]:
        """Append the facts as one batch; return the promise of the error for the client.

        The promise of a refused write is complete on return, and nothing changed. Offsets and
        deletions are replayed before this returns; generations are not, their group has them.
        After `commit_ms` the error is COORDINATOR_NOT_AVAILABLE, though the write may succeed
        later.
        """
        facts = tuple(facts)
        if not facts:
            return self.settled()
        try:
            written = self.journal.append(self._encoded(facts))
        except ApiError as refused:
            return completed(client_error(refused.error))
        for index, fact in enumerate(facts):
            if not isinstance(fact, GroupFact):
                self.offsets.replay(fact, record_offset=written.first_offset + index)
            elif fact.value is None:
                self.groups.pop(fact.group_id).end(Event.EXPIRE, self.clock.now_ms())
        # A write that was committed with too few replicas in sync exists, although its writer
        # got an error.
        self._last_write = written.committed.map(_for_readers)
        return self._with_deadline(written.committed)

    def _encoded(self, facts: Iterable[Fact]) -> Iterator[RecordPair]:
        """Yield the facts as records; raise ApiError for one that no record can hold.

        Requests are checked for that, but a coordinator of Kafka may have stored what only it can.
        """
        for fact in facts:
            try:
                record = encode_fact(fact)
            except EncodeError as error:
                self.log_event(f"writing a record failed: {error}; group {fact.group_id}")
                raise ApiError(Error.UNKNOWN_SERVER_ERROR, str(error)) from None
            yield record

    def wait_for_loaded(self, committed: Pending[Error]) -> None:
        """Hold back what was loaded from clients until `committed` completes."""
        self._loaded = self._last_write = committed.map(_for_readers)

    def loaded(self) -> Pending[Error]:
        """Return the promise that all that was loaded is replicated."""
        return self._with_deadline(self._loaded)

    def settled(self) -> Pending[Error]:
        """Return the promise that all writes made so far are replicated."""
        return self._with_deadline(self._last_write)

    def fail_waiting(self, error: Error) -> None:
        """Complete all waits for writes: this shard will not learn how they end."""
        waiting, self._waiting = self._waiting, {}
        for answer in waiting:
            answer.complete(error)

    def _with_deadline(self, committed: Pending[Error]) -> Pending[Error]:
        if committed.done:
            return completed(client_error(committed.value))
        answer: Pending[Error] = Pending()
        self._waiting[answer] = None

        def keep(error: Error) -> None:
            answer.complete(client_error(error))

        timer = self.timers.at(
            self.clock.monotonic_ms() + self.config.commit_ms,
            lambda: keep(Error.REQUEST_TIMED_OUT),
        )

        def over(_: Error) -> None:
            timer.cancel()
            self._waiting.pop(answer, None)
            committed.forget(keep)

        answer.then(over)
        committed.then(keep)
        return answer


_NOT_AVAILABLE = frozenset(
    {
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.NOT_ENOUGH_REPLICAS,
        Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Error.REQUEST_TIMED_OUT,
    }
)
_NOT_COORDINATOR = frozenset({Error.NOT_LEADER_OR_FOLLOWER, Error.KAFKA_STORAGE_ERROR})
TOO_LARGE = Error.UNKNOWN_SERVER_ERROR
"""What a client gets for a batch that is larger than the log allows."""
_TOO_LARGE = frozenset(
    {Error.MESSAGE_TOO_LARGE, Error.RECORD_LIST_TOO_LARGE, Error.INVALID_FETCH_SIZE}
)


def _for_readers(error: Error) -> Error:
    return Error.NONE if error is Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND else error


def client_error(error: Error) -> Error:
    """Return the error for a group's client where a write to the log failed with `error`.

    The log's own errors would make a client look at a topic that it does not know.
    """
    if error in _NOT_AVAILABLE:
        return Error.COORDINATOR_NOT_AVAILABLE
    if error in _NOT_COORDINATOR:
        return Error.NOT_COORDINATOR
    if error in _TOO_LARGE:
        return TOO_LARGE
    return error
