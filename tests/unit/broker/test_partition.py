"""A partition leads, commits and reads as its epoch, its in-sync replicas and its log allow.

Method: partitions over real logs; the metadata is made by hand, followers' progress too.
"""

import gc
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_OFFSET, NO_UUID, Uuid
from ottla.broker.fetch.fetch_sessions import FetchPartition
from ottla.broker.partition import Partition
from ottla.metadata.topics import DIRECTORY_UNASSIGNED, PartitionImage
from tests.drawn import examples

from .harness import START_MS, BrokerHarness, batch, reach

ALL, LEADER_ONLY = -1, 1


def state(
    *isr: int, replicas: tuple[int, ...] = (), leader: int = 1, epoch: int = 0, changes: int = 0
) -> PartitionImage:
    members = replicas or isr
    return PartitionImage(
        replicas=members,
        directories=(DIRECTORY_UNASSIGNED,) * len(members),
        isr=isr,
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=changes,
    )


@pytest.fixture
def partition() -> Partition:
    return make()


def make() -> Partition:
    """Return a partition of broker 1 that has no leader yet."""
    harness = BrokerHarness()
    harness.add_topic(replicas=(1,), leader=-1)
    log = harness.broker.replicas.partition("t", 0).log
    return Partition("t", Uuid(b"t" * 16), 0, node_id=1, log=log)


def append(partition: Partition, *values: str, acks: int = LEADER_ONLY) -> None:
    partition.append(batch(*values), acks, START_MS)


def high_watermark(partition: Partition) -> int:
    assert partition.log is not None
    return partition.log.high_watermark


class TestFollowingTheMetadata:
    """`apply` returns whether a leader epoch begins, and ignores older metadata."""

    def test_a_new_epoch_of_this_leader_begins(self, partition: Partition) -> None:
        assert partition.apply(state(1))
        assert not partition.apply(state(1, changes=1))
        assert not partition.apply(state(1, leader=2, epoch=1, changes=2))
        assert partition.apply(state(1, epoch=2, changes=3))
        assert partition.log is not None
        assert partition.log.latest_epoch == 2

    def test_older_metadata_is_ignored(self, partition: Partition) -> None:
        partition.apply(state(1, epoch=3, changes=9))
        partition.apply(state(1, leader=2, epoch=2, changes=8))
        assert (partition.leader, partition.leader_epoch) == (1, 3)

    def test_an_epoch_starts_at_the_logs_end(self, partition: Partition) -> None:
        partition.apply(state(1, 2))
        append(partition, "a", "b")
        assert partition.epoch_start_offset == 0
        partition.apply(state(1, 2, epoch=1, changes=1))
        assert partition.epoch_start_offset == 2

    def test_a_new_leader_forgets_how_far_followers_were(self, partition: Partition) -> None:
        partition.apply(state(1, 2))
        reach(partition, {2: 5})
        partition.apply(state(1, 2, leader=2, epoch=1, changes=1))
        assert partition.followers == {}
        partition.apply(state(1, 2, epoch=2, changes=2))
        assert partition.followers[2].log_end_offset == NO_OFFSET

    def test_the_only_replica_commits_what_it_finds_in_its_log(self, partition: Partition) -> None:
        partition.apply(state(1, 2))
        append(partition, "a")
        assert high_watermark(partition) == 0
        partition.apply(state(1, replicas=(1, 2), changes=1))
        assert high_watermark(partition) == 1


class TestEpochChecks:
    """KIP-320: a client with an older epoch is fenced; one that is ahead gets a retriable error."""

    @pytest.mark.parametrize(
        ("asked", "error"), [(4, Error.FENCED_LEADER_EPOCH), (6, Error.UNKNOWN_LEADER_EPOCH)]
    )
    def test_refusals(self, partition: Partition, asked: int, error: Error) -> None:
        partition.apply(state(1, epoch=5))
        with pytest.raises(ApiError) as refusal:
            partition.leader_log(asked)
        assert refusal.value.error is error

    def test_the_epoch_comes_before_the_leadership(self, partition: Partition) -> None:
        partition.apply(state(1, leader=2, epoch=5))
        with pytest.raises(ApiError) as refusal:
            partition.leader_log(4)
        assert refusal.value.error is Error.FENCED_LEADER_EPOCH
        with pytest.raises(ApiError) as refusal:
            partition.leader_log(5)
        assert refusal.value.error is Error.NOT_LEADER_OR_FOLLOWER

    def test_a_lost_log(self, partition: Partition) -> None:
        partition.apply(state(1))
        partition.log = None
        with pytest.raises(ApiError) as refusal:
            append(partition, "a")
        assert refusal.value.error is Error.KAFKA_STORAGE_ERROR
        assert partition.committed(0) is Error.KAFKA_STORAGE_ERROR


class TestCommitting:
    """The high watermark is what every in-sync replica has, and never goes back."""

    def test_min_isr_is_never_more_than_there_are_replicas(self, partition: Partition) -> None:
        partition.min_insync_replicas = 3
        partition.apply(state(1))
        append(partition, "a", acks=ALL)
        assert (partition.min_isr, high_watermark(partition)) == (1, 1)

    def test_below_min_isr_nothing_is_committed(self, partition: Partition) -> None:
        partition.min_insync_replicas = 2
        partition.apply(state(1, replicas=(1, 2)))
        append(partition, "a")
        assert high_watermark(partition) == 0
        with pytest.raises(ApiError) as refusal:
            append(partition, "b", acks=ALL)
        assert refusal.value.error is Error.NOT_ENOUGH_REPLICAS

    @pytest.mark.parametrize("leader", [1, 2])
    def test_a_refusal_is_no_work_for_the_garbage_collector(
        self, partition: Partition, leader: int
    ) -> None:
        partition.min_insync_replicas = 2
        partition.apply(state(1, replicas=(1, 2), leader=leader))
        gc.disable()
        try:
            try:
                append(partition, "b", acks=ALL)
            except ApiError as refusal:
                gone = weakref.ref(refusal)
            assert gone() is None
        finally:
            gc.enable()

    def test_followers_out_of_sync_do_not_count(self, partition: Partition) -> None:
        partition.apply(state(1, 2, replicas=(1, 2, 3)))
        append(partition, "a", "b")
        assert reach(partition, {2: 1, 3: 0})
        assert high_watermark(partition) == 1

    @given(
        ends=st.lists(st.tuples(st.integers(2, 4), st.integers(0, 6)), max_size=12),
        isr=st.sets(st.integers(2, 4)),
    )
    @settings(max_examples=examples(60), deadline=None)
    def test_any_progress(self, ends: list[tuple[int, int]], isr: set[int]) -> None:
        partition = make()
        partition.apply(state(1, *sorted(isr), replicas=(1, 2, 3, 4)))
        append(partition, *"abcdef")
        before = high_watermark(partition)
        furthest: dict[int, int] = {}
        for node, end in ends:
            furthest[node] = max(end, furthest.get(node, 0))
            moved = reach(partition, {node: furthest[node]})
            now = high_watermark(partition)
            assert now == min([6, *(furthest.get(each, 0) for each in isr)])
            assert moved == (now > before)
            before = now


def test_a_read_returns_all_offsets(partition: Partition) -> None:
    partition.apply(state(1))
    append(partition, "a", "b")
    asked = FetchPartition("t", NO_UUID, 0, 0, 1_000)
    found = partition.read(asked, 1_000, True, False)
    assert (found.error, found.high_watermark, found.last_stable_offset) == (Error.NONE, 2, 2)
    assert (found.log_start_offset, found.size) == (0, len(batch("a", "b")))
    assert found.aborted is None
    found.release()


def test_no_room_is_not_out_of_range(partition: Partition) -> None:
    partition.apply(state(1))
    append(partition, "a")
    asked = FetchPartition("t", NO_UUID, 0, 0, 1_000)
    assert partition.read(asked, 0, False, False).size == 0
    asked.fetch_offset = 9
    with pytest.raises(ApiError) as refusal:
        partition.read(asked, 0, False, False)
    assert refusal.value.error is Error.OFFSET_OUT_OF_RANGE


def test_offset_out_of_range_is_not_returned_while_there_is_no_leader(partition: Partition) -> None:
    """The broker may be the leader, with a lost log directory; consumers still use it as leader."""
    partition.apply(state(1, 2, leader=-1))
    asked = FetchPartition("t", NO_UUID, 0, 25, 1_000, current_leader_epoch=0)
    with pytest.raises(ApiError) as refusal:
        partition.read(asked, 1_000, True, False, anywhere=True)
    assert refusal.value.error is Error.NOT_LEADER_OR_FOLLOWER
    partition.apply(state(1, 2, leader=2, epoch=1, changes=1))
    asked.current_leader_epoch = 1
    with pytest.raises(ApiError) as refusal:
        partition.read(asked, 1_000, True, False, anywhere=True)
    assert refusal.value.error is Error.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("epoch", [-1, 5], ids=["asked without an epoch", "asked in its epoch"])
def test_a_replica_that_knew_no_leader_yet_is_not_read(partition: Partition, epoch: int) -> None:
    """It may have led in this epoch before its restart, and returned a higher watermark then."""
    assert partition.log is not None
    partition.log.append_as_leader(batch("a", "b"), leader_epoch=5, now_ms=START_MS)
    partition.log.advance_high_watermark(1)  # What the checkpoint kept of it.
    partition.apply(state(1, 2, leader=-1, epoch=4, changes=7))
    partition.apply(state(1, 2, leader=-1, epoch=5, changes=8))
    asked = FetchPartition("t", NO_UUID, 0, 0, 1_000, current_leader_epoch=epoch)
    for offset in (0, 1, 2):
        asked.fetch_offset = offset
        with pytest.raises(ApiError) as refusal:
            partition.read(asked, 1_000, True, False, anywhere=True)
        assert refusal.value.error is Error.NOT_LEADER_OR_FOLLOWER
    asked.fetch_offset, asked.current_leader_epoch = 0, 6
    partition.apply(state(1, 2, leader=2, epoch=6, changes=9))
    found = partition.read(asked, 1_000, True, False, anywhere=True)
    assert found.high_watermark == 1
    found.release()


def test_a_replica_serves_reads_while_there_is_no_leader(partition: Partition) -> None:
    partition.apply(state(1))
    append(partition, "a")
    partition.apply(state(1, leader=-1, epoch=1, changes=1))
    asked = FetchPartition("t", NO_UUID, 0, 0, 1_000, current_leader_epoch=1)
    found = partition.read(asked, 1_000, True, False, anywhere=True)
    assert found.size == len(batch("a"))
    found.release()


def test_a_deleted_partition_is_unknown(partition: Partition) -> None:
    partition.apply(state(1))
    partition.gone = Error.UNKNOWN_TOPIC_OR_PARTITION
    assert partition.committed(0) is Error.UNKNOWN_TOPIC_OR_PARTITION


def test_a_replica_that_left_the_isr_and_the_replicas_at_once_is_forgotten(
    partition: Partition,
) -> None:
    partition.apply(state(1, 2, 3, 4))
    append(partition, "a")
    reach(partition, {2: 1, 3: 0, 4: 1})
    assert high_watermark(partition) == 0
    partition.apply(state(1, 2, 4, epoch=1, changes=1))
    assert sorted(partition.followers) == [2, 4]
    assert high_watermark(partition) == 1


def test_a_replica_that_was_removed_and_added_again_at_once_must_fetch_first(
    partition: Partition,
) -> None:
    """It has deleted its log in between; the leader gets both changes as one."""
    partition.apply(state(1, 2, replicas=(1, 2, 3)))
    append(partition, "a")
    reach(partition, {2: 1, 3: 1})
    partition.apply(state(1, 2, replicas=(1, 2, 3), epoch=1, changes=2))
    assert partition.followers[2].log_end_offset == 1
    assert partition.followers[3].log_end_offset == NO_OFFSET
