"""Reading for fetch requests: how much of which partition, now or after a wait.

A fetch that does not find enough is parked under its partitions; what is appended to them is
counted, and once that is enough the whole fetch is read again.

Source: Kafka's ReplicaManager.readFromLog and DelayedFetch; KIP-74 (fetch sizes).
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending
from ottla.base.ports import Clock
from ottla.base.timers import Timers
from ottla.broker.fetch_sessions import Fetching, FetchPartition
from ottla.broker.parked import Parked, ParkingLot
from ottla.broker.partition import Partition, PartitionRead

Reads = list[tuple[FetchPartition, PartitionRead]]


class FetchLimits(NamedTuple):
    """How much a fetch wants, and how long it waits for it."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    committed_only: bool
    replica_id: int = -1


class Hosts(Protocol):
    """Who has the partitions: the replica manager."""

    def asked_for(self, asked: FetchPartition) -> Partition:
        """Return the partition that a fetch names; raise ApiError."""
        ...

    def storage_failed(self, partition: Partition, error: OSError) -> None:
        """Take the partition's log folder out of service."""
        ...


class Fetcher:
    """Reads for fetches, and keeps those that wait in `parked`."""

    def __init__(self, hosts: Hosts, clock: Clock, timers: Timers) -> None:
        self._hosts = hosts
        self._clock = clock
        self.parked = ParkingLot(timers)

    def fetch(
        self, fetching: Fetching, limits: FetchLimits, gone: Pending[None]
    ) -> Reads | Pending[Reads]:
        """Read what is there, or wait for `min_bytes` of it until `max_wait_ms` have passed.

        An error or a diverging log in any partition is answered at once. `gone` is kept when
        nobody waits for the answer any more: then the request is forgotten.
        """
        reads, size, urgent = self.read(fetching, limits)
        if size >= limits.min_bytes or urgent or limits.max_wait_ms <= 0 or not fetching.partitions:
            return reads
        self.take_back(reads)
        return _WaitingFetch(self, fetching, limits, gone).park(
            self._keys(fetching), self._clock.monotonic_ms(), limits.min_bytes - size
        )

    def read(self, fetching: Fetching, limits: FetchLimits) -> tuple[Reads, int, bool]:
        """Read all partitions in order; return them, their bytes, and whether any is urgent.

        In a session, partitions that have nothing new are left out. The first batch found is
        returned whatever its size (KIP-74), or a consumer could never get past a large one.
        """
        reads: Reads = []
        try:
            return self._read(fetching, limits, reads)
        except BaseException:
            _release(reads)
            raise

    def _read(
        self, fetching: Fetching, limits: FetchLimits, reads: Reads
    ) -> tuple[Reads, int, bool]:
        total, left, urgent = 0, limits.max_bytes, False
        committed_only = limits.committed_only
        asked_for, skip_idle = self._hosts.asked_for, fetching.incremental
        for asked in fetching.partitions.values():
            try:
                partition = asked_for(asked)
                if limits.replica_id >= 0:
                    _refuse_replica(partition, asked)
                if skip_idle and _is_idle(partition, asked, committed_only):
                    continue
                room = asked.max_bytes
                found = partition.read(
                    asked, room if room < left else left, total == 0, committed_only
                )
            except ApiError as refusal:
                found = PartitionRead(refusal.error)
                urgent = True
                self._count_failure(asked)
            except OSError as error:
                self._hosts.storage_failed(partition, error)
                found = PartitionRead(Error.KAFKA_STORAGE_ERROR)
                urgent = True
                self._count_failure(asked)
            reads.append((asked, found))
            size = found.size
            if size:
                partition.metrics.bytes_out += size
                total += size
                left = left - size if left > size else 0
            elif found.diverging is not None:
                urgent = True
        return reads, total, urgent

    def take_back(self, reads: Reads) -> None:
        """Unpin what was read and will not be sent, as if it had not been read."""
        for asked, found in reads:
            if found.size:
                self._hosts.asked_for(asked).metrics.bytes_out -= found.size
        _release(reads)

    def _count_failure(self, asked: FetchPartition) -> None:
        with suppress(ApiError):  # What is not hosted has no counters.
            self._hosts.asked_for(asked).metrics.failed_fetches += 1

    def _keys(self, fetching: Fetching) -> list[Partition]:
        return [self._hosts.asked_for(asked) for asked in fetching.partitions.values()]


class _WaitingFetch:
    """A parked fetch: reads again when woken, and takes what there is when its time is up."""

    __slots__ = ("_fetcher", "_fetching", "_gone", "_limits", "_parked", "pending")

    def __init__(
        self,
        fetcher: Fetcher,
        fetching: Fetching,
        limits: FetchLimits,
        gone: Pending[None],
    ) -> None:
        self._fetcher = fetcher
        self._fetching = fetching
        self._limits = limits
        self._gone = gone
        self._parked: Parked | None = None
        self.pending: Pending[Reads] = Pending()

    def park(self, keys: Sequence[Partition], now_ms: int, wanted_bytes: int) -> Pending[Reads]:
        self._parked = self._fetcher.parked.park(
            keys,
            attempt=self._attempt,
            expire=self._expire,
            deadline_ms=now_ms + self._limits.max_wait_ms,
            wanted_bytes=wanted_bytes,
        )
        self._gone.then(self._abandon)
        return self.pending

    def _abandon(self, _none: None) -> None:
        """Let go at once: how long it would wait is the peer's word, up to weeks."""
        assert self._parked is not None
        self._parked.abandon()

    def _attempt(self) -> bool:
        reads, size, urgent = self._fetcher.read(self._fetching, self._limits)
        if size >= self._limits.min_bytes or urgent:
            self._gone.forget(self._abandon)
            self.pending.complete(reads)
            return True
        self._fetcher.take_back(reads)
        assert self._parked is not None
        self._parked.wanted_bytes = self._limits.min_bytes - size
        return False

    def _expire(self) -> None:
        self._gone.forget(self._abandon)
        self.pending.complete(self._fetcher.read(self._fetching, self._limits)[0])


def _is_idle(partition: Partition, asked: FetchPartition, committed_only: bool) -> bool:
    """Tell whether a session's fetcher knows already all that a read would say."""
    log = partition.log
    if log is None or asked.last_fetched_epoch >= 0 or partition.leader != partition.node_id:
        return False
    if asked.current_leader_epoch not in (-1, partition.leader_epoch):
        return False
    high_watermark = log.high_watermark
    end = log.last_stable_offset if committed_only else high_watermark
    return (
        asked.fetch_offset == end
        and high_watermark == asked.told_high_watermark
        and log.log_start_offset == asked.told_log_start
    )


def _refuse_replica(partition: Partition, asked: FetchPartition) -> None:
    """Refuse a follower that is not known here, as a leader does with one of another epoch."""
    partition.leader_log(asked.current_leader_epoch)
    if asked.current_leader_epoch >= 0:
        raise ApiError(Error.UNKNOWN_LEADER_EPOCH)
    raise ApiError(Error.NOT_LEADER_OR_FOLLOWER)


def _release(reads: Reads) -> None:
    for _, found in reads:
        if found.slices:
            found.release()
