"""The fetch reader reads what fits, waits for min_bytes, and leaves no file slice pinned.

Method: real logs; the count of open files after all logs are closed tells what is still pinned.
"""

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.base.pending import Pending
from ottla.base.turns import at_once
from ottla.broker.fetch import delayed_fetch
from ottla.broker.fetch.delayed_fetch import PARTITIONS_PER_STEP, FetchLimits, FetchReader, Reads
from ottla.broker.fetch.fetch_sessions import (
    Fetching,
    FetchPartition,
    FetchSession,
    IncrementalFetching,
)
from ottla.broker.partition import Partition
from ottla.log import file_cache
from ottla.log.file_cache import FileSlice
from ottla.metadata.records import RemoveTopicRecord
from tests.drawn import examples
from tests.unit.broker.harness import BrokerHarness, batch, reach

SIZE = len(batch("a"))
GONE_ID = Uuid(b"g" * 16)


@pytest.fixture
def harness() -> BrokerHarness:
    return make()


def make(partitions: int = 3) -> BrokerHarness:
    harness = BrokerHarness()
    harness.add_broker()
    harness.add_topic(partitions=partitions)
    return harness


def append(harness: BrokerHarness, index: int, count: int = 1) -> None:
    for _ in range(count):
        harness.broker.replicas.append("t", index, batch("a"))


def fetching(*offsets: int, max_bytes: int = 10_000) -> Fetching:
    parts = [
        FetchPartition("t", NO_UUID, index, offset, max_bytes)
        for index, offset in enumerate(offsets)
    ]
    return Fetching({part.key: part for part in parts})


def limits(*, wait_ms: int = 0, min_bytes: int = 1, max_bytes: int = 10_000) -> FetchLimits:
    return FetchLimits(wait_ms, min_bytes, max_bytes, False)


def fetch(
    harness: BrokerHarness, fetching: Fetching, wanted: FetchLimits
) -> Reads | Pending[Reads]:
    return harness.broker.replicas.fetch_reader.fetch(fetching, wanted, Pending())


def release(reads: Reads) -> None:
    for _, found in reads:
        found.release()


def pinned(harness: BrokerHarness) -> int:
    """Return how many files stay open though their logs are closed."""
    for partition in harness.broker.replicas.hosted():
        if partition.log is not None:
            partition.log.close()
    return len(harness.log_dirs.ports.files)


@given(
    counts=st.lists(st.integers(0, 3), min_size=3, max_size=3),
    room=st.integers(0, 8 * SIZE),
    per_partition=st.integers(0, 4 * SIZE),
)
@settings(max_examples=examples(60), deadline=None)
def test_no_limit_is_exceeded_but_for_the_first_batch(
    counts: list[int], room: int, per_partition: int
) -> None:
    harness = make()
    for index, count in enumerate(counts):
        append(harness, index, count)
    wanted = fetching(0, 0, 0, max_bytes=per_partition)
    reads, total, urgent = harness.broker.replicas.fetch_reader.read(wanted, limits(max_bytes=room))
    sizes = [found.size for _, found in reads]
    first = next((size for size in sizes if size), 0)
    assert not urgent
    assert total == sum(sizes)
    assert total <= max(room, SIZE)
    assert bool(total) == any(counts)
    for size, count in zip(sizes, counts, strict=True):
        assert size <= max(per_partition, SIZE if size == first else 0)
        assert size <= count * SIZE
    release(reads)
    assert pinned(harness) == 0


def test_a_fetch_that_waits_pins_nothing(harness: BrokerHarness) -> None:
    append(harness, 0)
    waiting = fetch(harness, fetching(0, 0), limits(wait_ms=100, min_bytes=3 * SIZE))
    assert isinstance(waiting, Pending)
    append(harness, 1)  # Not enough: read again, and let go again.
    assert not waiting.done
    assert pinned(harness) == 0


def test_a_fetch_of_a_connection_that_ended_is_forgotten_at_once(harness: BrokerHarness) -> None:
    fetch_reader = harness.broker.replicas.fetch_reader
    timers = len(harness.timers)
    gone: Pending[None] = Pending()
    weeks_ms = 2**31 - 1
    waiting = fetch_reader.fetch(fetching(0, 0), limits(wait_ms=weeks_ms), gone)
    assert isinstance(waiting, Pending)
    assert fetch_reader.consumer_purgatory.count == 1
    gone.complete(None)
    assert fetch_reader.consumer_purgatory.count == 0
    assert len(harness.timers) == timers
    append(harness, 0)
    assert not waiting.done


def test_a_connection_does_not_gather_its_fetches(harness: BrokerHarness) -> None:
    fetch_reader = harness.broker.replicas.fetch_reader
    gone: Pending[None] = Pending()
    for offset in range(5):
        fetch_reader.fetch(fetching(offset), limits(wait_ms=10), gone)
        append(harness, 0)
    for _ in range(5):
        fetch_reader.fetch(fetching(5), limits(wait_ms=10), gone)
        harness.clock.advance(10)
    assert fetch_reader.consumer_purgatory.count == 0
    assert gone._listeners == []


def test_bytes_that_were_there_before_the_wait_count(harness: BrokerHarness) -> None:
    append(harness, 0)
    waiting = fetch(harness, fetching(0, 0), limits(wait_ms=100, min_bytes=2 * SIZE))
    assert isinstance(waiting, Pending)
    append(harness, 1)
    assert [found.size for _, found in waiting.value] == [SIZE, SIZE]
    release(waiting.value)


def test_appends_elsewhere_do_not_wake(harness: BrokerHarness) -> None:
    waiting = fetch(harness, fetching(0), limits(wait_ms=100))
    assert isinstance(waiting, Pending)
    append(harness, 2)
    assert not waiting.done


def test_bytes_that_cannot_be_read_do_not_end_the_wait(harness: BrokerHarness) -> None:
    """Records that are not committed wake the fetch, which then finds nothing."""
    harness.add_topic("r", bytes(15) + b"r", replicas=(1, 2), isr=(1, 2))  # type: ignore[arg-type]
    part = FetchPartition("r", NO_UUID, 0, 0, 10_000)
    waiting = fetch(harness, Fetching({part.key: part}), limits(wait_ms=100))
    assert isinstance(waiting, Pending)
    harness.broker.replicas.append("r", 0, batch("a"), acks=1)
    assert not waiting.done
    partition = harness.broker.replicas.partition("r", 0)
    assert reach(partition, {2: 1})
    harness.broker.replicas.high_watermark_moved(partition)
    assert [found.size for _, found in waiting.value] == [SIZE]
    release(waiting.value)


class BuggyHosts:
    """Finds the first partition and then falls over its own feet."""

    def __init__(self, first: Partition) -> None:
        self._first = first

    def partition_for(self, asked: FetchPartition) -> Partition:
        assert asked.partition_id == 0, "a bug"
        return self._first

    def storage_failed(self, partition: Partition, error: OSError) -> None:
        raise AssertionError("not asked for here")

    def follower_moved(self, partition: Partition) -> None:
        raise AssertionError("not asked for here")


def test_a_failure_of_ours_lets_go_of_what_was_read(harness: BrokerHarness) -> None:
    append(harness, 0)
    hosts = BuggyHosts(harness.broker.replicas.partition("t", 0))
    with pytest.raises(AssertionError, match="a bug"):
        FetchReader(hosts, harness.clock, harness.timers).fetch(fetching(0, 0), limits(), Pending())
    assert pinned(harness) == 0


def test_a_topic_that_is_deleted_between_two_steps_is_not_pinned() -> None:
    harness = make(2 * PARTITIONS_PER_STEP)
    gone = FetchPartition("gone", NO_UUID, 0, 0, 10_000)
    harness.add_topic("gone", GONE_ID)
    harness.broker.replicas.append("gone", 0, batch("a"))
    many = fetching(*[0] * 2 * PARTITIONS_PER_STEP)
    everything = Fetching({gone.key: gone, **many.partitions})
    fetch_reader = harness.broker.replicas.fetch_reader
    steps = fetch_reader.fetch_in_steps(
        everything, limits(wait_ms=100, min_bytes=2 * SIZE), Pending()
    )
    next(steps)
    harness.commit(RemoveTopicRecord(topic_id=GONE_ID))
    harness.clock.advance(5)
    reads = at_once(steps)
    assert not isinstance(reads, Pending)
    assert [found.error for _, found in reads if found.error] == [Error.UNKNOWN_TOPIC_OR_PARTITION]
    release(reads)
    assert pinned(harness) == 0


def test_a_fetch_of_more_partitions_than_files_may_be_open_copies_the_rest() -> None:
    harness = make(40)
    harness.log_dirs.ports.files.capacity = 16
    for index in range(40):
        append(harness, index)
    reads = fetch(harness, fetching(*[0] * 40), limits())
    assert not isinstance(reads, Pending)
    assert [found.size for _, found in reads] == [SIZE] * 40
    assert sum(isinstance(found.records[0], FileSlice) for _, found in reads) == 8
    assert harness.disk.open_files <= 16
    release(reads)
    assert pinned(harness) == 0


@pytest.mark.parametrize("follower", [False, True])
def test_copies_are_few_and_every_partition_gets_its_turn(
    follower: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. Responses that slow peers have not read hold all files that may be held.

    2. Each fetch finds something, so that none waits, and none is repeated in vain.
    """
    for module in (delayed_fetch, file_cache):
        monkeypatch.setattr(module, "COPIED_BYTES_MAX", 3 * SIZE)
    harness = BrokerHarness()
    for node_id in (1, 2):
        harness.add_broker(node_id)
    hosts = (1, 2) if follower else (1,)
    harness.add_topic(partitions=10, replicas=hosts, isr=hosts)
    for index in range(10):
        for _ in range(2):
            harness.broker.replicas.append("t", index, batch("a"), acks=1)
    harness.log_dirs.ports.files.capacity = 1
    parts = fetching(*[0] * 10, max_bytes=SIZE).partitions
    session = FetchSession(1, dict(parts), privileged=False, uses_topic_ids=False, now_ms=0)
    wanted = limits(wait_ms=500)._replace(replica_id=2 if follower else -1)
    served: list[int] = []
    while len(served) < 20:
        fetched = IncrementalFetching(session)
        reads = fetch(harness, fetched, wanted)
        assert not isinstance(reads, Pending)
        assert sum(found.size for _, found in reads) <= 3 * SIZE
        now = [part for part, found in reads if found.size]
        assert now, "a fetch that finds nothing waits"
        fetched.finish(reads, 0)
        for part in now:
            part.fetch_offset += 1
            served.append(part.partition_id)
    assert sorted(served[:10]) == sorted(served[10:]) == list(range(10))


def test_copies_are_sent_at_once_however_many_bytes_are_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The response could never be as large."""
    for module in (delayed_fetch, file_cache):
        monkeypatch.setattr(module, "COPIED_BYTES_MAX", 3 * SIZE)
    harness = make(1)
    for _ in range(50):
        append(harness, 0)
    harness.log_dirs.ports.files.capacity = 1
    reads = fetch(harness, fetching(0), limits(wait_ms=500, min_bytes=10 * SIZE))
    assert not isinstance(reads, Pending)
    assert [found.size for _, found in reads] == [3 * SIZE]


def test_a_read_without_a_descriptor_can_be_repeated(harness: BrokerHarness) -> None:
    append(harness, 0)
    log = harness.broker.replicas.partition("t", 0).leader_log()
    log.segments.active.close()
    shortage = harness.disk.fail("open", errno.EMFILE, times=None)
    reads = fetch(harness, fetching(0, 0), limits(wait_ms=100))
    assert not isinstance(reads, Pending)
    assert [found.error for _, found in reads] == [Error.KAFKA_STORAGE_ERROR, Error.NONE]
    harness.disk.faults.remove(shortage)
    reads = fetch(harness, fetching(0, 0), limits())
    assert not isinstance(reads, Pending)
    assert [found.size for _, found in reads] == [SIZE, 0]
    release(reads)
    assert harness.log_dirs.online_dirs == harness.log_dirs.dirs


class TestIdleInASession:
    """Partitions without news cost a session's fetch nothing, but news are never missed."""

    def reads(self, harness: BrokerHarness, part: FetchPartition) -> list[Error]:
        class Session(IncrementalFetching):
            def __init__(self) -> None:
                Fetching.__init__(self, {part.key: part})

        reads, _, _ = harness.broker.replicas.fetch_reader.read(Session(), limits())
        release(reads)
        return [found.error for _, found in reads]

    def part(self, **how: int) -> FetchPartition:
        part = FetchPartition("t", NO_UUID, 0, how.get("offset", 1), 10_000, how.get("epoch", -1))
        part.sent_high_watermark = how.get("told", 1)
        part.sent_log_start = how.get("start", 0)
        return part

    def test_nothing_new(self, harness: BrokerHarness) -> None:
        append(harness, 0)
        assert self.reads(harness, self.part()) == []

    @pytest.mark.parametrize("how", [{"offset": 0}, {"told": 0}, {"start": 5}])
    def test_changes(self, harness: BrokerHarness, how: dict[str, int]) -> None:
        append(harness, 0)
        assert self.reads(harness, self.part(**how)) == [Error.NONE]

    def test_another_leader_epoch_is_no_idleness(self, harness: BrokerHarness) -> None:
        append(harness, 0)
        assert self.reads(harness, self.part(epoch=7)) == [Error.UNKNOWN_LEADER_EPOCH]

    def test_a_lost_log_is_no_idleness(self, harness: BrokerHarness) -> None:
        append(harness, 0)
        harness.broker.replicas.partition("t", 0).log = None
        assert self.reads(harness, self.part()) == [Error.KAFKA_STORAGE_ERROR]
