"""A consumer without a group that seeks to the offset of a timestamp and reads there.

Sometimes it starts at the earliest or latest offset instead, as with `auto.offset.reset`.
"""

from ottla.testing.history.groups import TimestampLookup
from ottla.testing.history.topics import TopicPartition
from ottla.testing.sim_clients.client import SimClient
from ottla.testing.sim_clients.dialogue import Dialogue
from ottla.testing.sim_clients.offset_queries import EARLIEST, LATEST, ListedOffset, list_offset
from ottla.testing.sim_clients.reader import Reader

BACK_MS_MAX = 60_000
AHEAD_MS_MAX = 500
"""The range of timestamps, before and after now."""
READ_BYTES_MAX = 500
"""It reads little: only the position matters."""


class OffsetSeeker:
    """One consumer of one topic. `interval_ms`: the mean pause after each lookup."""

    def __init__(self, client: SimClient, topic: str, *, rack: str = "", interval_ms: int) -> None:
        self.client = client
        self.topic = topic
        self.interval_ms = interval_ms
        self._reader = Reader(client, rack=rack, max_wait_ms=100, max_bytes=READ_BYTES_MAX)
        self._last: tuple[TopicPartition, int] | None = None
        """The partition and timestamp of the last record that it found."""
        self._stopped = False
        client.follow(topic)

    def begin(self) -> None:
        """Start to look."""
        self.client.run(self._work())

    def stop(self) -> None:
        """End after this lookup."""
        self._stopped = True

    def _work(self) -> Dialogue[None]:
        client, below = self.client, self.client.dice.below
        while not self._stopped:
            partitions = client.partitions_of(self.topic)
            fine = bool(partitions)
            if partitions:
                partition = partitions[below(len(partitions))]
                match below(8):
                    case 0:
                        fine = yield from self._reset(partition, EARLIEST)
                    case 1:
                        fine = yield from self._reset(partition, LATEST)
                    case _:
                        fine = yield from self._look_up(partition)
            if not fine:
                yield client.refresh()
            yield 1 + below(2 * self.interval_ms)

    def _reset(self, partition: TopicPartition, timestamp: int) -> Dialogue[bool]:
        found = yield from list_offset(self.client, partition, timestamp)
        if found is None:
            return False
        return (yield from self._read_at(partition, found))

    def _read_at(self, partition: TopicPartition, found: ListedOffset) -> Dialogue[bool]:
        self._reader.seek(partition, found.offset)
        # The first fetch may only name the replica to read from.
        fine = yield from self._reader.fetch((partition,))
        if fine and partition not in self._reader.first_timestamps:
            fine = yield from self._reader.fetch((partition,))
        return fine

    def _look_up(self, partition: TopicPartition) -> Dialogue[bool]:
        client = self.client
        below = client.dice.below
        timestamp = client.clock.now_ms() + AHEAD_MS_MAX - below(BACK_MS_MAX)
        if self._last and below(2):
            # A record's timestamp, or one more: where an error of one shows.
            partition, timestamp = self._last[0], self._last[1] + below(2)
        found = yield from list_offset(client, partition, timestamp)
        if found is None:
            return False
        fine, read_timestamp = True, -1
        if found.offset >= 0:
            self._last = (partition, found.timestamp)
            fine = yield from self._read_at(partition, found)
            read_timestamp = self._reader.first_timestamps.get(partition, -1)
        client.history.groups.lookups.append(
            TimestampLookup(
                client=client.name,
                partition=partition,
                timestamp=timestamp,
                offset=found.offset,
                found_timestamp=found.timestamp,
                read_timestamp=read_timestamp,
                node=found.node,
                epoch=found.epoch,
                sent_ms=found.sent_ms,
                at_ms=found.at_ms,
            )
        )
        return fine
