"""What leaders write into manifests, and that readers never follow them to what is not there.

Method for the property: brokers are elected, copy, expire and turn tiering off, each with its own
delayed view of the metadata; their writes of manifests succeed, lose against another's, get lost or
come late; readers see all of the manifests, or only some of them.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.tiered.manifest import Manifest, first_to_keep, follow
from ottla.tiered.manifest_codec import decode_manifest, encode_manifest
from ottla.tiered.manifest_planner import ManifestPlanner
from ottla.tiered.remote_log import RemoteLog
from ottla.tiered.segment_metadata import MetadataRecord
from tests.drawn import examples
from tests.unit.tiered.support import (
    DELETED,
    DELETING,
    FINISHED,
    PARTITION,
    TOPIC,
    TOPIC_ID,
    copied,
    fence,
    number_of,
    segment,
    update,
)

EPOCHS = ((1, 0),)


def planner_of(leader_epoch: int = 1, tiered_epoch: int = 1, highest: int = -1) -> ManifestPlanner:
    """Return the planner of a term whose fence is replayed."""
    planner = ManifestPlanner(leader_epoch=leader_epoch, tiered_epoch=tiered_epoch)
    planner.found(highest)
    planner.fenced()
    return planner


def plan(
    planner: ManifestPlanner,
    remote: RemoteLog,
    *,
    log_start: int = 0,
    epochs: tuple[tuple[int, int], ...] = EPOCHS,
) -> Manifest | None:
    return planner.plan(
        remote,
        topic=TOPIC,
        topic_id=TOPIC_ID,
        partition=PARTITION,
        log_start_offset=log_start,
        epochs=epochs,
        partition_count=12,
        configs={"a": "b"},
    )


def copy(remote: RemoteLog, number: int, leader_epoch: int = 1, tiered_epoch: int = 1) -> None:
    epochs = {"leader_epoch": leader_epoch, "tiered_epoch": tiered_epoch}
    remote.replay(segment(number, number * 10, number * 10 + 9, **epochs))
    remote.replay(update(number, FINISHED, **epochs))


def written(planner: ManifestPlanner, remote: RemoteLog, **how: Any) -> Manifest:
    found = plan(planner, remote, **how)
    assert found is not None
    planner.applied(found.sequence, found)
    return found


def test_first_base_then_changes() -> None:
    planner, remote = planner_of(), RemoteLog()
    remote.replay(fence(1))
    assert plan(planner, remote) is None  # There is nothing to say.
    copy(remote, 1)
    first = written(planner, remote)
    assert (first.sequence, first.is_base, first.partition_count) == (0, True, 12)
    assert plan(planner, remote) is None
    assert not planner.is_behind(remote, 0)
    assert planner.is_behind(remote, 5)
    copy(remote, 2)
    remote.replay(segment(3, 30, 39))  # Not finished.
    remote.replay(update(1, DELETING))
    assert planner.is_behind(remote, 0)
    second = written(planner, remote, log_start=10)
    assert (second.sequence, second.is_base, second.configs) == (1, False, None)
    assert [number_of(each) for each in second.added] == [2]
    assert list(second.removed) == [segment(1, 0, 9).segment_id]
    assert plan(planner, remote, log_start=10) is None


def test_what_else_is_written() -> None:
    planner, remote = planner_of(), RemoteLog()
    remote.replay(fence(1))
    copy(remote, 1)
    written(planner, remote)
    moved = written(planner, remote, log_start=12)
    assert (moved.log_start_offset, moved.added, moved.removed) == (12, (), ())
    # Epochs that no segment has yet do not matter, those among the segments' offsets do.
    assert plan(planner, remote, log_start=12, epochs=((1, 0), (2, 20))) is None
    changed = written(planner, remote, log_start=12, epochs=((1, 0), (2, 15)))
    assert changed.epochs == ((1, 0), (2, 15))
    remote.replay(fence(1, 2))
    assert plan(planner, remote) is None  # Not ours any more.
    retained = plan(planner_of(1, 2, highest=0), remote)
    assert retained is not None
    assert (retained.tiered_epoch, retained.is_base) == (2, True)
    remote.replay(fence(1, 3, floor=1))
    purged = plan(planner_of(1, 3, highest=1), remote)
    assert purged is not None
    assert (purged.floor, purged.added) == (1, ())


def test_every_hundredth_is_a_base() -> None:
    planner, remote = planner_of(), RemoteLog()
    remote.replay(fence(1))
    bases = []
    for number in range(1, 203):
        copy(remote, number)
        found = written(planner, remote)
        if found.is_base:
            bases.append((found.sequence, len(found.added)))
    assert bases == [(0, 1), (100, 101), (200, 201)]


def test_a_write_that_was_lost_is_found() -> None:
    planner, remote = planner_of(), RemoteLog()
    remote.replay(fence(1))
    copy(remote, 1)
    for number in (2, 3):
        lost = plan(planner, remote)
        assert lost is not None
        planner.applied(lost.sequence, decode_manifest(encode_manifest(lost)))
        assert not planner.must_fence
        assert plan(planner, remote) is None
        copy(remote, number)


@pytest.mark.parametrize("was_stored", [False, True])
def test_what_a_lost_write_lists_is_removed_before_its_objects(was_stored: bool) -> None:
    """1. A manifest that adds segment 2 is sent, and no answer comes; it may be there.

    2. Segment 2 is marked. Nothing is to be said: it is not readable, and was not listed, as far as
       is known here.
    3. Without a further write its objects would be deleted, and readers follow the lost manifest.
    """
    planner, remote = planner_of(), RemoteLog()
    remote.replay(fence(1))
    copy(remote, 1)
    written(planner, remote)
    copy(remote, 2)
    lost = plan(planner, remote)
    assert lost is not None
    assert list(map(number_of, lost.added)) == [2]
    remote.replay(update(2, DELETING))
    again = plan(planner, remote)
    assert again is not None
    assert (again.sequence, again.added, again.removed) == (lost.sequence, (), ())
    if was_stored:
        planner.applied(lost.sequence, decode_manifest(encode_manifest(lost)))
        removal = written(planner, remote)
        assert removal.removed == (lost.added[0].segment_id,)
    else:
        planner.applied(again.sequence, again)
    assert plan(planner, remote) is None


def test_another_writer_was_first() -> None:
    remote = RemoteLog()
    remote.replay(fence(1))
    copy(remote, 1)
    won = written(planner_of(), remote)
    remote.replay(fence(2))
    second = planner_of(2)
    assert plan(second, remote) is not None
    second.applied(0, won)
    assert second.must_fence
    assert plan(second, remote) is None
    second.fenced()
    found = plan(second, remote)
    assert found is not None
    assert (found.sequence, found.is_base) == (1, True)
    # Behind a manifest of its own it needs no fence: what others write counts for nothing.
    second.applied(1, found)
    copy(remote, 2, leader_epoch=2)
    second.applied(2, replace(won, sequence=2))
    assert not second.must_fence
    again = plan(second, remote)
    assert again is not None
    assert (again.sequence, again.is_base, len(again.added)) == (3, False, 1)


@pytest.mark.parametrize("epochs", [{"leader_epoch": 2}, {"tiered_epoch": 2}])
def test_a_writer_that_was_replaced_writes_nothing(epochs: dict[str, int]) -> None:
    newer = RemoteLog()
    newer.replay(fence(epochs.get("leader_epoch", 1), epochs.get("tiered_epoch", 1)))
    copy(newer, 1, **epochs)
    manifest = plan(planner_of(**epochs), newer)
    assert manifest is not None

    older = RemoteLog()  # Its view of the metadata lags.
    older.replay(fence(1))
    copy(older, 2)
    planner = planner_of()
    assert plan(planner, older) is not None
    planner.applied(0, manifest)
    assert planner.is_superseded
    assert plan(planner, older) is None


def test_a_leader_writes_nothing_before_its_fence() -> None:
    planner, remote = planner_of(2), copied(segment(1, 10, 19))
    assert plan(planner, remote) is None
    remote.replay(fence(1))
    assert plan(planner, remote) is None
    remote.replay(fence(2))
    assert plan(planner, remote) is not None


def test_before_a_deletion_there_is_a_manifest_of_the_leaders_own() -> None:
    planner, remote = planner_of(2), RemoteLog()
    remote.replay(fence(2))
    copy(remote, 1, leader_epoch=2)
    remote.replay(update(1, DELETING))
    found = plan(planner, remote)
    assert found is not None
    assert (found.sequence, found.is_base, found.added) == (0, True, ())


def test_behind_a_damaged_manifest_comes_a_base_behind_a_fence() -> None:
    planner, remote = planner_of(), RemoteLog()
    remote.replay(fence(1))
    copy(remote, 1)
    written(planner, remote)
    copy(remote, 2)
    planner.applied(1, None)
    assert planner.must_fence
    assert plan(planner, remote) is None
    planner.fenced()
    found = plan(planner, remote)
    assert found is not None
    assert (found.sequence, found.is_base, len(found.added)) == (2, True, 2)


def test_what_a_base_makes_needless() -> None:
    assert [first_to_keep(each) for each in (0, 1, 99, 100)] == [0, 0, 0, 0]
    assert [first_to_keep(each) for each in (101, 200, 201, 250)] == [100, 100, 200, 200]


# Many writers


@dataclass
class Broker:
    leader_epoch: int
    tiered_epoch: int
    log: RemoteLog = field(default_factory=RemoteLog)
    position: int = 0
    planner: ManifestPlanner = field(init=False)
    has_listed: bool = False

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin a term."""
        self.has_listed = False
        self.planner = ManifestPlanner(
            leader_epoch=self.leader_epoch, tiered_epoch=self.tiered_epoch
        )


@dataclass
class Partition:
    """The metadata topic, the object store, and the brokers that led at some time."""

    records: list[MetadataRecord] = field(default_factory=list)
    manifests: dict[int, bytes] = field(default_factory=dict)
    late: list[Manifest] = field(default_factory=list)
    objects: set[int] = field(default_factory=set)
    was_finished: set[int] = field(default_factory=set)
    truth: RemoteLog = field(default_factory=RemoteLog)
    brokers: list[Broker] = field(default_factory=list)
    leader_epoch: int = 0
    tiered_epoch: int = 1
    copies: int = 0

    def read(self) -> list[Manifest]:
        return [decode_manifest(each) for each in self.manifests.values()]

    def append(self, broker: Broker, record: MetadataRecord) -> None:
        """Append, and wait until the broker has read it."""
        self.records.append(record)
        self.truth.replay(record)
        self.was_finished |= {
            number_of(each) for each in self.truth.segments() if each.state is FINISHED
        }
        self.catch_up(broker)

    def catch_up(self, broker: Broker) -> None:
        for record in self.records[broker.position :]:
            broker.log.replay(record)
        broker.position = len(self.records)

    def elect(self) -> None:
        self.leader_epoch += 1
        broker = Broker(self.leader_epoch, self.tiered_epoch)
        # Where it reads on is up to it: nothing is known of its fence before it lists manifests.
        for record in self.records[: len(self.records) // 2]:
            broker.log.replay(record)
        broker.position = len(self.records) // 2
        self.brokers.append(broker)

    def disable(self, broker: Broker, floor: bool) -> None:
        if broker.leader_epoch == self.leader_epoch:
            self.tiered_epoch += 1
            broker.tiered_epoch = self.tiered_epoch
            at = self.tiered_epoch - 1 if floor else self.truth.floor
            self.append(broker, fence(broker.leader_epoch, broker.tiered_epoch, at))
            broker.begin()

    def copy(self, broker: Broker, is_slow: bool) -> None:
        ours = broker.leader_epoch, broker.tiered_epoch
        fenced = broker.log.fence
        if fenced is None or (fenced.leader_epoch, fenced.tiered_epoch) != ours:
            self.append(broker, fence(*ours, 0 if fenced is None else fenced.floor))
        number = self.copies = self.copies + 1
        epochs = {"leader_epoch": broker.leader_epoch, "tiered_epoch": broker.tiered_epoch}
        self.append(broker, segment(number, number * 10, number * 10 + 9, **epochs))
        self.objects.add(number)
        if not is_slow:
            self.append(broker, update(number, FINISHED, **epochs))

    def finish(self, broker: Broker) -> None:
        """Finish a copy of this broker that was slow, with the epochs it was begun with."""
        for each in broker.log.segments():
            if each.state not in (FINISHED, DELETED) and each.leader_epoch == broker.leader_epoch:
                epochs = {"leader_epoch": each.leader_epoch, "tiered_epoch": each.tiered_epoch}
                self.append(broker, update(number_of(each), FINISHED, **epochs))

    def expire(self, broker: Broker, number: int) -> None:
        for each in broker.log.segments():
            if number_of(each) == number:
                self.append(broker, update(number, DELETING))

    def plan(self, broker: Broker) -> Manifest | None:
        return plan(broker.planner, broker.log)

    def fence(self, broker: Broker) -> None:
        """Do what is to be done before a plan."""
        if not broker.has_listed:
            broker.planner.found(max(self.manifests, default=-1))
            broker.has_listed = True
        elif broker.planner.must_fence:
            floor = 0 if broker.log.fence is None else broker.log.fence.floor
            self.append(broker, fence(broker.leader_epoch, broker.tiered_epoch, floor))
            broker.planner.fenced()

    def publish(self, broker: Broker, answer: str) -> None:
        found = self.plan(broker)
        if found is None:
            return
        sequence = found.sequence
        if answer in ("lost before", "late"):
            if answer == "late":
                self.late.append(found)
            return
        exists = sequence in self.manifests
        self.manifests.setdefault(sequence, encode_manifest(found))
        if answer == "done":
            read = decode_manifest(self.manifests[sequence])
            assert exists or read == found
            broker.planner.applied(sequence, read)
            if read is not found and not exists and found.is_base:
                self.remove(found.sequence)

    def remove(self, base: int) -> None:
        """Remove what a base makes needless; a little more than the real numbers of a hundred."""
        for sequence in [each for each in self.manifests if each < base - 2]:
            del self.manifests[sequence]

    def arrive(self) -> None:
        if self.late:
            found = self.late.pop(0)
            self.manifests.setdefault(found.sequence, encode_manifest(found))

    def purge(self, broker: Broker) -> None:
        """Delete the objects of marked segments, once the manifests are written."""
        fenced = broker.log.fence
        ours = broker.leader_epoch, broker.tiered_epoch
        is_leader = fenced is not None and (fenced.leader_epoch, fenced.tiered_epoch) == ours
        planner = broker.planner
        is_held = planner.is_superseded or planner.must_fence
        if not is_leader or is_held or self.plan(broker):
            return
        for each in broker.log.segments():
            if each.state is DELETING:
                self.objects.discard(number_of(each))
                self.append(broker, update(number_of(each), DELETED))

    def check(self, hidden: set[int]) -> None:
        everything = self.read()
        for read in (everything, [each for each in everything if each.sequence not in hidden]):
            state = follow(read)
            if state is None:
                continue
            listed = set(map(number_of, state.segments.values()))
            assert listed <= self.was_finished
            assert read is not everything or listed <= self.objects
            floor = max(each.floor for each in read)
            assert all(not floor or each.tiered_epoch > floor for each in state.segments.values())


STEPS = (
    *("fence", "fence", "fence"),
    *("elect", "copy", "copy", "slow", "finish", "expire", "expire", "catch", "disable"),
    *("publish", "publish", "publish", "arrive", "purge", "purge"),
)
ANSWERS = ("done", "done", "lost before", "lost after", "late")


@pytest.mark.drawn(8, of="every step")
@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_readers_follow_manifests_to_finished_segments_only(data: st.DataObject) -> None:
    partition = Partition()
    partition.elect()
    for _ in range(data.draw(st.integers(1, 40))):
        broker = data.draw(st.sampled_from(partition.brokers))
        match data.draw(st.sampled_from(STEPS)):
            case "elect":
                partition.elect()
            case "copy":
                partition.copy(broker, is_slow=False)
            case "slow":
                partition.copy(broker, is_slow=True)
            case "finish":
                partition.finish(broker)
            case "expire":
                partition.expire(broker, data.draw(st.integers(1, max(partition.copies, 1))))
            case "catch":
                partition.catch_up(broker)
            case "fence":
                partition.fence(broker)
            case "publish":
                partition.publish(broker, data.draw(st.sampled_from(ANSWERS)))
            case "arrive":
                partition.arrive()
            case "purge":
                partition.purge(broker)
            case "disable":
                partition.disable(broker, floor=data.draw(st.booleans()))
        hidden = data.draw(st.sets(st.sampled_from(sorted(partition.manifests) or [0]), max_size=3))
        partition.check(hidden)

    # At rest the last leader's manifests say what the metadata says.
    partition.elect()
    last = partition.brokers[-1]
    for _ in range(100):
        partition.fence(last)
        if last.planner.must_fence:
            continue
        if partition.plan(last) is None:
            break
        partition.publish(last, "done")
    state = follow(partition.read())
    finished = {each for each in partition.truth.segments() if each.state is FINISHED}
    assert set(state.segments.values() if state else ()) == finished
