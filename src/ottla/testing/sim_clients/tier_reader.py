"""A consumer without a group that reads a topic from its start to its end, again and again.

So it reads what is in remote storage, where other consumers stay at the end. Before each reading it
asks for all special offsets. Some readings start at a random offset. A reading that is out of range
continues at the log start, as with `auto.offset.reset=earliest`.
"""

from ottla.testing.history.history import Progress, Skipped
from ottla.testing.history.tiers import SpecialOffsets
from ottla.testing.history.topics import TopicPartition
from ottla.testing.sim_clients.client import SimClient
from ottla.testing.sim_clients.dialogue import Dialogue
from ottla.testing.sim_clients.offset_queries import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    SPECIAL_VERSION,
    ListedOffset,
    list_offset,
)
from ottla.testing.sim_clients.reader import Reader

SPECIAL = (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    LATEST,
)
"""In the order of the offsets: what is asked for later may only have grown meanwhile."""

FAILURES_MAX = 12
"""Failed fetches in a row after which a reading is given up."""
IDLE_MAX = 40
"""Fetches in a row without a record after which it is given up, too: an unclean election may have
lost the end that was to be reached."""
RETRY_MS = 250
PAUSE_MS = 20


class TierReader:
    """One consumer of one topic.

    `interval_ms`: the mean pause after each reading. `committed_only`: see `Reader`.
    """

    def __init__(
        self,
        client: SimClient,
        topic: str,
        *,
        rack: str,
        interval_ms: int,
        max_bytes: int,
        committed_only: bool = False,
    ) -> None:
        self.client = client
        self.topic = topic
        self.interval_ms = interval_ms
        self._reader = Reader(
            client, rack=rack, max_bytes=max_bytes, resets=True, committed_only=committed_only
        )
        self._stopped = False
        client.follow(topic)

    def begin(self) -> None:
        """Start to read."""
        self.client.run(self._work())

    def stop(self) -> None:
        """End after the next fetch."""
        self._stopped = True

    def _work(self) -> Dialogue[None]:
        client, below = self.client, self.client.dice.below
        while not self._stopped:
            fine = bool(partitions := client.partitions_of(self.topic))
            for partition in partitions:
                fine &= yield from self._read(partition)
            if not fine:
                yield client.refresh()
            yield 1 + below(2 * self.interval_ms if fine else self.interval_ms // 4)

    def _read(self, partition: TopicPartition) -> Dialogue[bool]:
        """Read a partition up to its end; tell whether it was reached."""
        client, below = self.client, self.client.dice.below
        offsets = yield from self._ask(partition)
        if offsets is None:
            return False
        begin, end = offsets[EARLIEST].offset, offsets[LATEST].offset
        is_full = below(4) > 0 or begin >= end
        self._reader.seek(partition, begin if is_full else begin + below(end - begin))
        failures = idle = 0
        while not self._stopped and (before := self._position(partition, end)) < end:
            fine = yield from self._reader.fetch((partition,))
            if partition in self._reader.lost:
                fine = yield from self._reset(partition)
            failures = 0 if fine else failures + 1
            idle = idle + 1 if self._position(partition, end) == before else 0
            if failures == FAILURES_MAX or idle == IDLE_MAX or partition not in client.leaders:
                return False
            if not fine:
                yield client.refresh()
            yield PAUSE_MS if fine else RETRY_MS
        if is_full and not self._stopped:
            name = f"full reads of {self.topic}-{partition[1]}"
            client.history.progress.append(Progress(name, client.now_ms))
        return True

    def _position(self, partition: TopicPartition, end: int) -> int:
        return self._reader.positions.get(partition, end)

    def _ask(self, partition: TopicPartition) -> Dialogue[dict[int, ListedOffset] | None]:
        """Ask for all special offsets, one after the other; record them."""
        found: dict[int, ListedOffset] = {}
        for special in SPECIAL:
            listed = yield from list_offset(self.client, partition, special, SPECIAL_VERSION)
            if listed is None:
                return None
            found[special] = listed
        terms = {(each.node, each.epoch) for each in found.values()}
        if len(terms) == 1:
            self.client.history.tiers.offsets.append(
                SpecialOffsets(
                    client=self.client.name,
                    partition=partition,
                    earliest=found[EARLIEST].offset,
                    earliest_local=found[EARLIEST_LOCAL].offset,
                    pending_upload=found[EARLIEST_PENDING_UPLOAD].offset,
                    latest_tiered=found[LATEST_TIERED].offset,
                    latest=found[LATEST].offset,
                    max_timestamp=found[MAX_TIMESTAMP].offset,
                    node=found[LATEST].node,
                    epoch=found[LATEST].epoch,
                    at_ms=self.client.now_ms,
                )
            )
        return found

    def _reset(self, partition: TopicPartition) -> Dialogue[bool]:
        """Continue at the leader's log start."""
        end = yield from list_offset(self.client, partition, LATEST)
        start = yield from list_offset(self.client, partition, EARLIEST)
        if start is None or end is None:
            return False
        position = self._reader.positions.get(partition, start.offset)
        self.client.history.skipped.append(
            Skipped(
                self.client.name,
                partition,
                position,
                start.offset,
                self.client.now_ms,
                was_reset=True,
                end=end.offset,
            )
        )
        self._reader.seek(partition, start.offset)
        self._reader.lost.discard(partition)
        return True
