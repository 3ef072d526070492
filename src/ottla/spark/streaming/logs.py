"""The logs that a stream reads: by their brokers, or by what an object store holds.

Both say which partitions there are, and plan the tasks of a batch; they stay open while the query
runs. Deleted and re-created topics are distinguished from late metadata updates: these are waited
for.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.client.cluster import SETTLE_SECONDS, ClusterClient
from ottla.client.offsets import LATEST
from ottla.client.partitions import TopicPartition
from ottla.spark import lookup
from ottla.spark.errors import ClusterError, DataLossError
from ottla.spark.losses import report_losses
from ottla.spark.options import Assign, ByPartition
from ottla.spark.planner import Task, facts_of, listed_again, plan_ranges, tasks_of
from ottla.spark.planning import Found, PartitionFacts, Range, facts_between
from ottla.spark.streaming.advance import OnRecreate, Stretch, Unread, surviving
from ottla.spark.streaming.offsets import StreamOffset, is_same_id
from ottla.spark.streaming.options import StreamOptions
from ottla.spark.tiers import tier_lookup
from ottla.spark.tiers.store_session import StoreSession, open_session
from ottla.spark.tiers.stored_logs import StoredLog, find_stored, offsets_by_time, stored_log
from ottla.spark.tiers.tier_planning import Place, Tiers, places_of
from ottla.spark.tiers.tiered_planner import plan_stored
from ottla.wire.messages.describe_remote_log import DescribeRemoteLogRequest

ATTEMPTS_MAX: Final = 5
"""How often partitions are looked up where topics are re-created meanwhile."""
PAUSE_SECONDS: Final = 0.2


class Logs(Protocol):
    """What a stream asks. Raises: ClusterError or RemoteStorageError, everywhere."""

    pause_ms: int
    """How long to wait at least until the next look after one that found nothing new."""

    def partitions(self, position: StreamOffset | None) -> list[PartitionFacts]:
        """Return the partitions to read that exist; named ones must where `position` is None."""

    def offsets_at(self, timestamps: ByPartition) -> Found:
        """Return the first offset of each partition with a timestamp (ms) or a later one."""

    def places(self, unread: Sequence[Unread]) -> dict[TopicPartition, list[Place]]:
        """Return what is unread, with its sizes."""

    def session(self) -> StoreSession | None:
        """Return a session with the object store, if it is read."""

    def plan(self, stretches: Sequence[Stretch]) -> list[Task]:
        """Return the tasks of a batch. Raises: DataLossError where the options say so."""

    def close(self) -> None:
        """Close all connections; idempotent."""


def open_logs(options: StreamOptions) -> Logs:
    """Return the logs of a query. It connects when it is asked."""
    return StoredLogs(options) if options.read.cluster is None else BrokerLogs(options)


class BrokerLogs:
    """Partitions as the brokers of a cluster know them."""

    pause_ms = 100

    def __init__(self, options: StreamOptions) -> None:
        self._stream_options = options
        self._options = options.read
        self._client = ClusterClient(options.read.brokers)
        self._session: StoreSession | None = None
        self._settled: set[tuple[TopicPartition, int]] = set()
        """What is lost for good: partitions, and the positions in them that are not reached."""

    def close(self) -> None:
        """Close all connections; idempotent."""
        self._client.close()
        if self._session is not None:
            self._session.close()
            self._session = None

    def partitions(self, position: StreamOffset | None) -> list[PartitionFacts]:
        """Return the partitions to read that exist; named ones must where `position` is None."""
        if position is None:
            ids = lookup.subscribed(self._client, self._options.subscription)
            return self._facts(lambda: ids)
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            facts = self._facts(self._subscribed)
            reached = {
                each.key: position.position_of(each.key, each.topic_id) or 0 for each in facts
            }
            facts = self._with_uncommitted_ends(reached, facts)
            late = self._late(position, facts)
            if not late:
                return facts
            if time.monotonic() >= deadline:
                self._settled |= late
                return facts
            time.sleep(PAUSE_SECONDS)
            self._client.refresh()

    def _subscribed(self) -> dict[TopicPartition, Uuid]:
        return lookup.subscribed(self._client, self._options.subscription, skip_unknown=True)

    def _facts(
        self, subscribed: Callable[[], Mapping[TopicPartition, Uuid]]
    ) -> list[PartitionFacts]:
        """Return the partitions; offsets and ids are of the same topics."""
        ids = subscribed()
        for _ in range(ATTEMPTS_MAX):
            try:
                edges = self._edges(list(ids))
            except ClusterError as error:
                if error.code != Error.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                edges = {}
            # Offsets are asked for by name: of which topic they are is known only if its id stays.
            again = self._subscribed()
            if all(key in edges and again.get(key) == each for key, each in ids.items()):
                return facts_between(ids, edges)
            ids = again
        raise ClusterError("topics are re-created faster than their offsets can be looked up")

    def _edges(self, keys: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        if not keys:
            return {}
        return lookup.edges_of(
            self._client,
            keys,
            read_committed=self._options.read_committed,
            attempts_min=1 + self._options.offset_retries,
            backoff_ms=self._options.offset_retry_ms,
        )

    def _with_uncommitted_ends(
        self, reached: Mapping[TopicPartition, int], facts: list[PartitionFacts]
    ) -> list[PartitionFacts]:
        """Return the partitions; what was reached behind a last stable offset is their end.

        A query that was started with read_uncommitted before may have read further.
        """
        behind = [each.key for each in facts if reached.get(each.key, 0) > each.latest]
        if not self._options.read_committed or not behind:
            return facts
        ends = lookup.offsets_at(self._client, dict.fromkeys(behind, LATEST))
        return [
            replace(each, latest=reached[each.key])
            if each.key in behind and (ends[each.key] or 0) >= reached[each.key]
            else each
            for each in facts
        ]

    def _late(
        self, position: StreamOffset, facts: list[PartitionFacts]
    ) -> set[tuple[TopicPartition, int]]:
        """Return what is missing, is of another topic, or ends before the position: perhaps it is
        only not known yet.

        A broker that was just started may not know a topic yet, one that was frozen may know a
        former one only, and the high watermark of a new leader may be behind for a moment.
        """
        seen = {each.key: each for each in facts}
        late = set()
        for key, reached in position:
            found = seen.get(key)
            is_gone = found is None and lookup.includes(self._options.subscription, key)
            is_behind = found is not None and (
                found.latest < reached
                or not is_same_id(position.topics[key[0]].topic_id, found.topic_id)
            )
            if is_gone or is_behind:
                late.add((key, reached))
        return late - self._settled

    def offsets_at(self, timestamps: ByPartition) -> Found:
        """Return the first offset of each partition with a timestamp (ms) or a later one."""
        return lookup.offsets_at(
            self._client, timestamps, read_committed=self._options.read_committed
        )

    def places(self, unread: Sequence[Unread]) -> dict[TopicPartition, list[Place]]:
        """Return what is unread, with its sizes."""
        ids = {each.key: each.facts.topic_id for each in unread}
        tiers: Mapping[TopicPartition, Tiers] = {}
        if self.session() is not None and self._client.serves(DescribeRemoteLogRequest):
            tiers = tier_lookup.describe(self._client, ids)
        sizes = lookup.sizes_of(self._client, [key for key in ids if key not in tiers])
        found = {}
        for each in unread:
            facts = replace(each.facts, size_bytes=sizes.get(each.key))
            whole = Range(facts=facts, start=each.first, end=each.end)
            found[each.key] = (
                places_of(each.first, each.end, tiers[each.key])
                if each.key in tiers
                else [Place(each.first, each.end, None, whole.size_bytes)]
            )
        return found

    def session(self) -> StoreSession | None:
        """Return a session with the object store, if it is read."""
        if self._session is None and self._options.remote_storage is not None:
            self._session = open_session(self._options)
        return self._session

    def plan(self, stretches: Sequence[Stretch]) -> list[Task]:
        """Return the tasks of a batch. Raises: DataLossError where the options say so."""
        options = self._options
        ends = {each.key: each.end for each in stretches}
        # Metadata and high watermarks that are behind for a moment are waited for, as in
        # `partitions`.
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            ids = lookup.subscribed(self._client, _named(stretches), skip_unknown=True)
            there = {
                each.key: each.topic_id
                for each in stretches
                if each.key in ids and is_same_id(ids[each.key], each.topic_id)
            }
            facts = self._with_uncommitted_ends(ends, facts_of(self._client, options, there))
            is_whole = len(there) == len(ends) and all(
                each.latest >= ends[each.key] for each in facts
            )
            if is_whole or time.monotonic() >= deadline:
                break
            time.sleep(PAUSE_SECONDS)
            self._client.refresh()
        ranges = _ranges(stretches, facts, self._stream_options)
        return tasks_of(plan_ranges(self._client, options, ranges))


class StoredLogs:
    """Partitions as the manifests in an object store say; there are no brokers."""

    pause_ms = 5000
    """Each look lists objects, which stores charge for."""

    def __init__(self, options: StreamOptions) -> None:
        self._stream_options = options
        self._options = options.read
        self._session: StoreSession | None = None
        self._logs: list[StoredLog] = []

    def close(self) -> None:
        """Close all connections; idempotent."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def session(self) -> StoreSession:
        """Return a session with the object store."""
        if self._session is None:
            self._session = open_session(self._options)
        return self._session

    def partitions(self, position: StreamOffset | None) -> list[PartitionFacts]:
        """Return the partitions to read; the store must have the named topics."""
        del position
        self._logs = listed_again(self.session(), self._look)
        return [each.facts for each in self._logs]

    def _look(self) -> list[StoredLog]:
        options, session = self._options, self.session()
        stored = find_stored(session, options.subscription, options.topic_ids)
        return [stored_log(session, each, options) for each in stored.values()]

    def offsets_at(self, timestamps: ByPartition) -> Found:
        """Return the first offset of each partition with a timestamp (ms) or a later one."""
        session = self.session()
        return listed_again(
            session, lambda: offsets_by_time(session, self._look(), timestamps, self._options)
        )

    def places(self, unread: Sequence[Unread]) -> dict[TopicPartition, list[Place]]:
        """Return what is unread, with its sizes."""
        tiers = {each.facts.key: each.tiers for each in self._logs}
        return {each.key: places_of(each.first, each.end, tiers[each.key]) for each in unread}

    def plan(self, stretches: Sequence[Stretch]) -> list[Task]:
        """Return the tasks of a batch. Raises: DataLossError where the options say so."""
        session, options = self.session(), self._options

        def planned() -> list[Task]:
            logs = self._look()
            facts = [each.facts for each in logs]
            ranges = _ranges(stretches, facts, self._stream_options)
            return tasks_of(plan_stored(session, ranges, logs, options))

        return listed_again(session, planned)


def _named(stretches: Iterable[Stretch]) -> Assign:
    return Assign(tuple(sorted({each.key for each in stretches})))


def _ranges(
    stretches: Sequence[Stretch], facts: Sequence[PartitionFacts], options: StreamOptions
) -> list[Range]:
    """Return the ranges of a batch that still exist. Raises: DataLossError."""
    found = surviving(stretches, facts)
    report_replaced(found.replaced, options.on_recreate)
    report_losses(found.losses, fail=options.read.fail_on_data_loss)
    return found.ranges


def report_replaced(messages: list[str], on_recreate: OnRecreate) -> None:
    """Raise DataLossError for topics that were deleted or re-created, or log them."""
    if messages and on_recreate is OnRecreate.FAIL:
        raise DataLossError(
            f"{'; '.join(messages)}. With onRecreate=restart the stream goes on with the new "
            "topic, from its beginning."
        )
    report_losses(messages, fail=False)
