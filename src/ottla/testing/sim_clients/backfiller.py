"""A backfill: takes grants of copies, writes the objects and commits, as a task of Spark does.

What it does next is the product's own (`ottla.tiered.granted_copy`); here it is executed over the
simulated network, and in the simulated store. Until the cluster is healed some of its copies have a
mishap, besides what nodes, network and store do:

- it stalls before a step, perhaps until after its lease;
- it dies in a step: the request or the write is under way, and nobody waits for its end;
- it writes to another store, and finds its objects there;
- it commits once more what is committed.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_LEADER, Uuid
from ottla.base.object_store import ObjectStore, Pool, StoreError
from ottla.base.ports import Buffer
from ottla.testing.history.topics import TopicPartition
from ottla.testing.sim_clients.client import Leader, SimClient
from ottla.testing.sim_clients.dialogue import Dialogue
from ottla.testing.sim_clients.reader import FETCH_VERSION
from ottla.testing.sim_clients.reader import REQUEST_TIMEOUT_MS as FETCH_TIMEOUT_MS
from ottla.tiered.granted_copy import (
    ENDED,
    AskGrants,
    CheckObject,
    CommitCopy,
    CopyEnded,
    CopyFailed,
    CopyOutcome,
    CopyTarget,
    DeleteObjects,
    FetchBatches,
    GrantedCopy,
    KeepBatches,
    PutObject,
    Step,
    commit_request,
    grant_request,
)
from ottla.wire.codec import records_view
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

Mark = Callable[[str], object]

VERSION = 0
REQUEST_TIMEOUT_MS = 6_000
ATTEMPTS_MAX = 5
RETRY_MS = 250
FETCH_BYTES = 1 << 20
FETCH_WAIT_MS = 100
OPERATION_MS_MAX = 5_000
STEPS = 12
"""A mishap is at one of so many first steps of a copy, or at its commit."""
AT_COMMIT = -1
STALLED_MS_MAX = 30_000


class Mishap(Enum):
    """See the module."""

    STALL = auto()
    DEATH = auto()
    OTHER_STORE = auto()
    COMMIT_AGAIN = auto()


class Backfiller:
    """One process that copies segments of a topic, one at a time.

    Fields: `store`: the brokers' store, as this process uses it. `lease_ms`: what it asks for.
            `interval_ms`: the mean pause where nothing is granted. `mishap_in`: one copy of so many
            has one. `mark`: counts what it reached.
    """

    def __init__(
        self,
        client: SimClient,
        topic: str,
        *,
        store: ObjectStore,
        lease_ms: int,
        interval_ms: int,
        mishap_in: int,
        mark: Mark,
    ) -> None:
        self.client = client
        self.topic = topic
        self.lease_ms = lease_ms
        self.interval_ms = interval_ms
        self.mishap_in = mishap_in
        self.is_done = False
        """Whether it was stopped, and its last copy has ended."""
        self._store = store
        self._mark = mark
        self._stopped = False
        client.follow(topic)

    def begin(self) -> None:
        """Start to copy."""
        self.client.run(self._work())

    def stop(self) -> None:
        """End after this copy."""
        self._stopped = True

    def _work(self) -> Dialogue[None]:
        client, below = self.client, self.client.dice.below
        while not self._stopped:
            has_copied = False
            partitions = client.partitions_of(self.topic)
            for partition in partitions:
                if not self._stopped:
                    has_copied |= yield from self._copy(partition)
            if not partitions:
                yield client.refresh()
            yield 1 + below(self.interval_ms // 4 if has_copied else 2 * self.interval_ms)
        self.is_done = True

    def _copy(self, partition: TopicPartition) -> Dialogue[bool]:
        """Copy a segment; tell whether one was granted."""
        holder = Uuid(self.client.dice.random_bytes(16))
        target = CopyTarget(self.topic, *partition)
        running = RunningCopy(self.client, self._store, target, self._mark, *self._mishap())
        copy = GrantedCopy(
            target, holder, lease_ms=self.lease_ms, now_ms=self.client.clock.monotonic_ms
        )
        try:
            outcome = yield from running.run(copy)
        except CopyFailed:
            yield self.client.refresh()
            return False
        if outcome is not None:
            self._mark(f"backfill-{outcome.state.replace(' ', '-')}")
        return running.is_granted

    def _mishap(self) -> "tuple[Mishap | None, int, int]":
        """Draw what goes wrong with a copy, at which step, and how long it stalls."""
        is_healed = self.client.history.healed_ms is not None
        below = self.client.dice.below
        if is_healed or self.mishap_in == 0 or below(self.mishap_in):
            return None, AT_COMMIT, 0
        at = AT_COMMIT if below(2) else below(STEPS)
        return list(Mishap)[below(len(Mishap))], at, 1 + below(STALLED_MS_MAX)


class RunningCopy:
    """Executes the steps of one copy.

    Fields: `mishap`: what happens at the step number `at`; it stalls for `stalled_ms`.
            `is_granted`: whether it got a segment.
    """

    def __init__(
        self,
        client: SimClient,
        store: ObjectStore,
        target: CopyTarget,
        mark: Mark,
        mishap: Mishap | None = None,
        at: int = AT_COMMIT,
        stalled_ms: int = 0,
    ) -> None:
        self._client = client
        self._store = store
        self._target = target
        self._mark = mark
        self._mishap = mishap
        self._at = at
        self._stalled_ms = stalled_ms
        self._number = -1
        self._kept = bytearray()
        self.is_granted = False

    @property
    def _key(self) -> TopicPartition:
        return self._target.topic_id, self._target.partition

    def run(self, copy: GrantedCopy) -> Dialogue[CopyOutcome | None]:
        """Copy; None = nothing was granted, or it died. Raises: CopyFailed."""
        steps = copy.steps()
        result: Any = None
        failure: CopyFailed | None = None
        while True:
            try:
                step = steps.send(result) if failure is None else steps.throw(failure)
            except StopIteration as end:
                outcome: CopyOutcome | None = end.value
                return outcome
            if (yield from self._dies(step)):
                steps.close()
                return None
            result, failure = None, None
            try:
                result = yield from self._execute(step)
            except CopyFailed as error:
                failure = error

    def _dies(self, step: Step) -> Dialogue[bool]:
        """Let a mishap happen that is due; tell whether the process is gone."""
        self._number += 1
        is_due = self._number == self._at
        if self._at == AT_COMMIT:
            is_due = isinstance(step, CommitCopy)
        if not is_due or self._client.history.healed_ms is not None:
            return False
        if self._mishap is Mishap.STALL:
            self._mark("backfill-stalled")
            yield self._stalled_ms
        if self._mishap is Mishap.DEATH:
            self._mark("backfill-died")
            self._begin(step)
            return True
        return False

    def _begin(self, step: Step) -> None:
        """Have a step under way whose end nobody waits for."""
        node = self._leader.node
        match step:
            case AskGrants(target, holder, lease_ms) if node != NO_LEADER:
                request = grant_request(target, holder, segments=1, lease_ms=lease_ms)
                self._client.send(node, request, VERSION, REQUEST_TIMEOUT_MS)
            case CommitCopy(target, granted, copy) if node != NO_LEADER:
                commit = commit_request(target, granted, copy)
                self._client.send(node, commit, VERSION, REQUEST_TIMEOUT_MS)
            case PutObject(name, data, _, until_ms):
                content = bytes(self._kept) if data is None else data
                self._store.put(name, content, pool=Pool.COPIER, deadline_ms=until_ms)

    def _execute(self, step: Step) -> Dialogue[Any]:
        is_elsewhere = self._mishap is Mishap.OTHER_STORE
        match step:
            case AskGrants():
                return (yield from self._ask_grants(step))
            case FetchBatches(_, offset, leader_epoch):
                return (yield from self._fetch(offset, leader_epoch))
            case KeepBatches(batches):
                self._kept += batches
            case CommitCopy():
                result = yield from self._commit(step)
                if self._mishap is Mishap.COMMIT_AGAIN:
                    self._mark("backfill-committed-again")
                    result = yield from self._commit(step)
                return result
            case PutObject() if not is_elsewhere:
                yield from self._put(step)
            case CheckObject(name, size_bytes) if not is_elsewhere:
                yield from self._check(name, size_bytes)
            case DeleteObjects(names) if not is_elsewhere:
                yield from self._delete(names)
        return None

    # -- requests ------------------------------------------------------------------------------

    @property
    def _leader(self) -> Leader:
        return self._client.leaders.get(self._key, Leader(NO_LEADER, -1))

    def _ask(self, request: object) -> Dialogue[Any]:
        """Return the row of this partition, with an error or not; None = there is no response."""
        node = self._leader.node
        if node == NO_LEADER:
            return None
        answer = yield self._client.send(node, request, VERSION, REQUEST_TIMEOUT_MS)
        if isinstance(answer, ApiError) or answer.error_code:
            return None
        return answer.topics[0].partitions[0]

    def _ask_grants(self, step: AskGrants) -> Dialogue[Any]:
        request = grant_request(step.target, step.holder, segments=1, lease_ms=step.lease_ms)
        row = None
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                yield RETRY_MS
                yield self._client.refresh()
            row = yield from self._ask(request)
            if row is not None and not row.error_code:
                if row.segments and not self.is_granted:
                    self.is_granted = True
                    self._mark("backfill-granted")
                return row
            if row is not None and row.error_code in ENDED:
                break
        raise CopyFailed(f"no grant: {_why(row)}")

    def _commit(self, step: CommitCopy) -> Dialogue[Any]:
        request = commit_request(step.target, step.granted, step.copy)
        row = None
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                yield RETRY_MS
                yield self._client.refresh()
            row = yield from self._ask(request)
            if row is None:
                continue
            if row.error_code in ENDED:
                raise CopyEnded(_why(row))
            if not row.error_code and row.copies[0].error_code != Error.REQUEST_TIMED_OUT:
                return row.copies[0]
        raise CopyFailed(f"no commit: {_why(row)}")

    def _fetch(self, offset: int, leader_epoch: int) -> Dialogue[Buffer]:
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                yield RETRY_MS
                yield self._client.refresh()
            leader = self._leader
            if leader.node == NO_LEADER or leader.epoch < leader_epoch:
                continue
            if leader.epoch != leader_epoch:
                raise CopyEnded(f"there is another leader epoch, {leader.epoch}")
            answer = yield self._client.send(
                leader.node,
                self._fetch_request(offset, leader_epoch),
                FETCH_VERSION,
                FETCH_TIMEOUT_MS,
            )
            if isinstance(answer, ApiError) or answer.error_code or not answer.responses:
                continue
            data = answer.responses[0].partitions[0]
            if data.error_code == Error.OFFSET_OUT_OF_RANGE:
                raise CopyEnded(f"offset {offset} is not in the log any more")
            if not data.error_code and data.records:
                return records_view(data.records)
        raise CopyFailed(f"no records from offset {offset} on")

    def _fetch_request(self, offset: int, leader_epoch: int) -> FetchRequest:
        wanted = FetchPartition(
            partition=self._target.partition,
            current_leader_epoch=leader_epoch,
            fetch_offset=offset,
            partition_max_bytes=FETCH_BYTES,
        )
        return FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            topics=(FetchTopic(topic_id=self._target.topic_id, partitions=(wanted,)),),
        )

    # -- the store -----------------------------------------------------------------------------

    def _put(self, step: PutObject) -> Dialogue[None]:
        """Write an object, again and again up to the end of the lease."""
        content = bytes(self._kept) if step.data is None else step.data
        clock = self._client.clock
        while True:
            deadline_ms = min(step.until_ms, clock.monotonic_ms() + OPERATION_MS_MAX)
            call = self._store.put(step.name, content, pool=Pool.COPIER, deadline_ms=deadline_ms)
            result = yield call.result
            if not isinstance(result, StoreError):
                return
            if not result.is_retriable or clock.monotonic_ms() + RETRY_MS >= step.until_ms:
                raise CopyFailed(f"the store could not be written: {result}")
            yield RETRY_MS

    def _check(self, name: str, size_bytes: int) -> Dialogue[None]:
        found: Any = None
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                yield RETRY_MS
            deadline_ms = self._client.clock.monotonic_ms() + OPERATION_MS_MAX
            found = yield self._store.head(name, pool=Pool.COPIER, deadline_ms=deadline_ms).result
            if not isinstance(found, StoreError) or not found.is_retriable:
                break
        if isinstance(found, StoreError) or found.size_bytes != size_bytes:
            raise CopyFailed(f"{name} is not in the store as it was written: {found}")

    def _delete(self, names: tuple[str, ...]) -> Dialogue[None]:
        """Delete objects, once: the brokers delete them, too."""
        deadline_ms = self._client.clock.monotonic_ms() + OPERATION_MS_MAX
        yield self._store.delete_many(names, pool=Pool.COPIER, deadline_ms=deadline_ms).result


def _why(row: Any) -> str:
    return "no response" if row is None else Error(row.error_code).name
