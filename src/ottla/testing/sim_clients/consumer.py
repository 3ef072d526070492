"""A consumer without a group that reads a topic from its start and queries its end offsets.

It keeps its position across leader changes; OFFSET_OUT_OF_RANGE for its position is recorded as
skipped. With `resets` it continues at the log start, as with `auto.offset.reset=earliest`.

Not done: fetch sessions, groups, reading from followers.
Source: KafkaConsumer's Fetcher and OffsetsRequest, Kafka 4.0; KIP-207, KIP-320.
"""

from collections import defaultdict

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_LEADER
from ottla.broker.groups.group_journal import whole_batches
from ottla.testing.history.history import Progress, Read, Skipped, Watermark
from ottla.testing.history.identity import identity
from ottla.testing.history.topics import TopicPartition
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
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

FETCH_VERSION = 16
LIST_OFFSETS_VERSION = 7
LATEST, EARLIEST = -1, -2
CONSUMER = -1

REQUEST_TIMEOUT_MS = 2_500
MAX_WAIT_MS = 250
FETCH_BYTES_MAX = 1 << 20
BEHIND_MS = 40
"""The pause of a consumer that has more to read."""


class Consumer:
    """One consumer of one topic.

    Fields: `positions`: the next offset of each partition; `interval_ms`: the mean
            pause after each round. `resets`: it continues at the log start if out of range.
    """

    def __init__(
        self, client: SimClient, topic: str, *, interval_ms: int, resets: bool = False
    ) -> None:
        self.client = client
        self.topic = topic
        self.interval_ms = interval_ms
        self.resets = resets
        self._lost: set[TopicPartition] = set()
        """Partitions whose next offset is out of range."""
        self.positions: dict[TopicPartition, int] = {}
        self._behind: set[TopicPartition] = set()
        """Partitions whose last fetch did not reach the end: a response ends with a segment."""
        self._stopped = False
        client.follow(topic)

    def begin(self) -> None:
        """Start to read."""
        self.client.run(self._work())

    def stop(self) -> None:
        """End after this round."""
        self._stopped = True

    def _work(self) -> Dialogue[None]:
        client = self.client
        rounds = 0
        while not self._stopped:
            leaders = self._by_leader()
            fine = bool(leaders) and NO_LEADER not in leaders
            leaders.pop(NO_LEADER, None)
            for node, keys in leaders.items():
                if rounds % 4 == 3:
                    fine &= yield from self._list_offsets(node, keys)
                if lost := [each for each in keys if each in self._lost]:
                    fine &= yield from self._reset(node, lost)
                fine &= yield from self._fetch(node, keys)
            if not fine:
                yield client.refresh()
            rounds += 1
            yield 1 + client.dice.below(BEHIND_MS if self._behind else 2 * self.interval_ms)

    def _by_leader(self) -> dict[int, list[TopicPartition]]:
        found: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for partition in self.client.partitions_of(self.topic):
            found[self.client.leaders[partition].node].append(partition)
        return dict(sorted(found.items()))

    # -- records -------------------------------------------------------------------------------

    def _fetch(self, node: int, keys: list[TopicPartition]) -> Dialogue[bool]:
        """Fetch from one leader; tell whether it still leads all partitions."""
        leaders = {each: self.client.leaders.get(each, Leader(-1, -1)) for each in keys}
        partitions = tuple(
            FetchPartition(
                partition=each[1],
                current_leader_epoch=leaders[each].epoch,
                fetch_offset=self.positions.setdefault(each, 0),
                partition_max_bytes=FETCH_BYTES_MAX,
            )
            for each in keys
        )
        request = FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            topics=(FetchTopic(topic_id=keys[0][0], partitions=partitions),),
        )
        response: FetchResponse | ApiError = yield self.client.send(
            node, request, FETCH_VERSION, REQUEST_TIMEOUT_MS
        )
        if isinstance(response, ApiError) or response.error_code:
            return False
        fine = True
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                fine &= self._take(key, data, node, leaders[key].epoch)
        return fine

    def _take(self, key: TopicPartition, data: PartitionData, node: int, epoch: int) -> bool:
        history, now_ms, name = self.client.history, self.client.now_ms, self.client.name
        position = self.positions[key]
        if data.error_code == Error.OFFSET_OUT_OF_RANGE:
            if self.resets:
                self._lost.add(key)
            else:
                history.skipped.append(Skipped(name, key, position, position, now_ms))
        if data.error_code:
            return False
        history.watermarks.append(
            Watermark(
                client=name,
                partition=key,
                offset=data.high_watermark,
                api="fetch",
                node=node,
                epoch=epoch,
                log_start=data.log_start_offset,
                at_ms=now_ms,
            )
        )
        # The last batch may be cut off where the limit was reached.
        batches = whole_batches(records_view(data.records))
        found = take(batches, position)
        history.skipped += [Skipped(name, key, *gap, now_ms) for gap in found.gaps]
        history.reads += [
            Read(name, key, record.offset, identity(record), now_ms, node, epoch)
            for record in found.records
        ]
        position = found.next_offset
        behind = self.positions[key] < position < data.high_watermark
        self.positions[key] = position
        (self._behind.add if behind else self._behind.discard)(key)
        if position >= data.high_watermark:
            history.progress.append(Progress(f"reads of {self.topic}-{key[1]}", now_ms))
        return True

    # -- offsets -------------------------------------------------------------------------------

    def _reset(self, node: int, lost: list[TopicPartition]) -> Dialogue[bool]:
        """Continue at the leader's log start."""
        ends = yield from self._ask_offsets(node, lost, LATEST)
        if not ends:
            return False
        starts = yield from self._ask_offsets(node, list(ends), EARLIEST)
        history, now_ms, name = self.client.history, self.client.now_ms, self.client.name
        for key, start in starts.items():
            position = self.positions[key]
            history.skipped.append(
                Skipped(name, key, position, start, now_ms, was_reset=True, end=ends[key])
            )
            self.positions[key] = start
            self._lost.discard(key)
        return len(starts) == len(lost)

    def _list_offsets(self, node: int, keys: list[TopicPartition]) -> Dialogue[bool]:
        epochs = {each: self.client.leaders.get(each, Leader(-1, -1)).epoch for each in keys}
        ends = yield from self._ask_offsets(node, keys, LATEST)
        for key, offset in ends.items():
            self.client.history.watermarks.append(
                Watermark(
                    client=self.client.name,
                    partition=key,
                    offset=offset,
                    api="list_offsets",
                    node=node,
                    epoch=epochs[key],
                    at_ms=self.client.now_ms,
                )
            )
        return len(ends) == len(keys)

    def _ask_offsets(
        self, node: int, keys: list[TopicPartition], timestamp: int
    ) -> Dialogue[dict[TopicPartition, int]]:
        """Return the leader's EARLIEST or LATEST offsets, without partitions that have an error."""
        leaders = {each: self.client.leaders.get(each, Leader(-1, -1)) for each in keys}
        partitions = tuple(
            ListOffsetsPartition(
                partition_index=each[1],
                current_leader_epoch=leaders[each].epoch,
                timestamp=timestamp,
            )
            for each in keys
        )
        request = ListOffsetsRequest(
            replica_id=CONSUMER, topics=(ListOffsetsTopic(name=self.topic, partitions=partitions),)
        )
        response: ListOffsetsResponse | ApiError = yield self.client.send(
            node, request, LIST_OFFSETS_VERSION, REQUEST_TIMEOUT_MS
        )
        if isinstance(response, ApiError):
            return {}
        return {
            (keys[0][0], each.partition_index): each.offset
            for topic in response.topics
            for each in topic.partitions
            if not each.error_code
        }
