"""Fetches partitions for one consumer: from leaders, or from preferred read replicas.

A consumer with a rack is directed to an in-sync replica of its rack (KIP-392) and stays there until
a fetch fails, or for a while. Records are added to the history; reads from followers also
separately, and offsets that are out of range or missing as skipped.

Source: Kafka's AbstractFetch and SubscriptionState; KIP-320, KIP-392.
"""

from collections import defaultdict
from collections.abc import Iterable

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_EPOCH, NO_LEADER
from ottla.broker.groups.group_journal import whole_batches
from ottla.records.aborted import AbortedTransactions
from ottla.testing.history.groups import FollowerRead
from ottla.testing.history.history import Read, Skipped
from ottla.testing.history.identity import identity
from ottla.testing.history.topics import TopicPartition
from ottla.testing.history.transactions import CommittedRead
from ottla.testing.sim_clients.client import Leader, SimClient
from ottla.testing.sim_clients.dialogue import Dialogue
from ottla.testing.sim_clients.fetched import take
from ottla.wire.codec import records_view
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

FETCH_VERSION = 16
REQUEST_TIMEOUT_MS = 2_500
FETCH_BYTES_MAX = 1 << 20
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
PREFERRED_MS = 15_000
"""How long a consumer fetches from a follower until it asks the leader (metadata.max.age)."""


class Reader:
    """What one consumer reads.

    Fields: `positions`: the next offset of each partition that it reads. `ends`: the high
            watermark that came with the last fetch. `epochs`: the leader epoch of the last record
            that was read. `first_timestamps`: of the first record of
            the last fetch that had one. `lost`: with `resets`, the partitions whose next offset is
            out of range at the leader; they are not recorded as skipped. `committed_only`: it reads
            with `isolation.level=read_committed`.
    """

    def __init__(
        self,
        client: SimClient,
        *,
        rack: str = "",
        max_wait_ms: int = 250,
        max_bytes: int = FETCH_BYTES_MAX,
        resets: bool = False,
        committed_only: bool = False,
    ) -> None:
        self.client = client
        self.resets = resets
        self.committed_only = committed_only
        self.lost: set[TopicPartition] = set()
        self.rack = rack
        self.max_wait_ms = max_wait_ms
        self.max_bytes = max_bytes
        self.positions: dict[TopicPartition, int] = {}
        self.ends: dict[TopicPartition, int] = {}
        self.epochs: dict[TopicPartition, int] = {}
        self.first_timestamps: dict[TopicPartition, int] = {}
        self._preferred: dict[TopicPartition, tuple[int, int]] = {}
        """The preferred read replica, and until when."""

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at an offset."""
        self.positions[partition] = offset
        self.ends.pop(partition, None)
        self.epochs.pop(partition, None)
        self.first_timestamps.pop(partition, None)

    def prefer(self, partition: TopicPartition, node: int, *, until_ms: int) -> None:
        """Fetch from this follower, as its leader would have said."""
        self._preferred[partition] = (node, until_ms)

    def forget(self) -> None:
        """Drop all positions and preferred read replicas."""
        self.positions.clear()
        self.ends.clear()
        self.epochs.clear()
        self.first_timestamps.clear()
        self._preferred.clear()

    def fetch(self, partitions: Iterable[TopicPartition]) -> Dialogue[bool]:
        """Fetch from these partitions; tell whether all fetches succeeded."""
        by_node: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for partition in partitions:
            by_node[self._node_for(partition)].append(partition)
        fine = not by_node.pop(NO_LEADER, None)
        for node, of_node in sorted(by_node.items()):
            fine &= yield from self._fetch(node, of_node)
        return fine

    def _node_for(self, partition: TopicPartition) -> int:
        node, until_ms = self._preferred.get(partition, (NO_LEADER, 0))
        if node != NO_LEADER and self.client.now_ms < until_ms:
            return node
        self._preferred.pop(partition, None)
        return self.client.leaders.get(partition, Leader(NO_LEADER, -1)).node

    def _fetch(self, node: int, by_node: list[TopicPartition]) -> Dialogue[bool]:
        by_topic: defaultdict[object, list[TopicPartition]] = defaultdict(list)
        for each in by_node:
            by_topic[each[0]].append(each)
        topics = tuple(
            FetchTopic(topic_id=keys[0][0], partitions=tuple(map(self._fetch_partition, keys)))
            for keys in by_topic.values()
        )
        request = FetchRequest(
            max_wait_ms=self.max_wait_ms,
            min_bytes=1,
            max_bytes=self.max_bytes,
            topics=topics,
            rack_id=self.rack,
            isolation_level=READ_COMMITTED if self.committed_only else READ_UNCOMMITTED,
        )
        response: FetchResponse | ApiError = yield self.client.send(
            node, request, FETCH_VERSION, REQUEST_TIMEOUT_MS
        )
        if isinstance(response, ApiError) or response.error_code:
            for each in by_node:
                self._preferred.pop(each, None)
            return False
        sent = {
            (topic.topic_id, each.partition): each.current_leader_epoch
            for topic in topics
            for each in topic.partitions
        }
        fine = True
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                fine &= self._take(key, data, node, sent.get(key, NO_EPOCH))
        return fine

    def _fetch_partition(self, partition: TopicPartition) -> FetchPartition:
        return FetchPartition(
            partition=partition[1],
            current_leader_epoch=self.client.leaders.get(partition, Leader(-1, -1)).epoch,
            fetch_offset=self.positions[partition],
            partition_max_bytes=self.max_bytes,
        )

    def _take(self, key: TopicPartition, data: PartitionData, node: int, epoch: int) -> bool:
        client = self.client
        history, now_ms, name = client.history, client.now_ms, client.name
        if key not in self.positions:
            return True  # It was dropped while the response was in flight.
        position = self.positions[key]
        at_follower = self._preferred.get(key, (NO_LEADER, 0))[0] == node
        if data.error_code:
            if data.error_code == Error.OFFSET_OUT_OF_RANGE and not at_follower:
                if self.resets:
                    self.lost.add(key)
                else:
                    history.skipped.append(Skipped(name, key, position, position, now_ms))
            # A follower may lag behind; the leader is asked next.
            self._preferred.pop(key, None)
            return at_follower
        if data.preferred_read_replica >= 0:
            self._preferred[key] = (data.preferred_read_replica, now_ms + PREFERRED_MS)
            return True
        first = position
        # The last batch may be cut off where the limit was reached.
        batches = whole_batches(records_view(data.records))
        aborted = None
        if self.committed_only:
            listed = data.aborted_transactions or ()
            aborted = AbortedTransactions((each.producer_id, each.first_offset) for each in listed)
        found = take(batches, position, aborted)
        position = found.next_offset
        if found.epoch >= 0:
            self.epochs[key] = found.epoch
        if found.records:
            self.first_timestamps[key] = found.records[0].timestamp
        by = NO_EPOCH if at_follower else epoch
        history.skipped += [Skipped(name, key, *gap, now_ms) for gap in found.gaps]
        history.reads += [
            Read(name, key, record.offset, identity(record), now_ms, node, by)
            for record in found.records
        ]
        if self.committed_only and position > first:
            values = tuple((each.offset, identity(each)) for each in found.records)
            history.transactions.reads.append(
                CommittedRead(name, key, first, position, values, node, now_ms)
            )
        self.positions[key] = position
        self.ends[key] = data.high_watermark
        if at_follower and position > first:
            history.groups.follower_reads.append(
                FollowerRead(name, key, node, first, position, data.high_watermark, now_ms)
            )
        return True
