"""What leaders write into manifests, and that readers never follow them to what is not there.

Method for the property: brokers are elected, copy, expire and turn tiering off, each with its own
delayed view of the metadata; their writes of manifests succeed, lose against another's, get lost or
come late; readers see all of the manifests, or only some of them.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.tiered.manifest import Manifest, follow
from ottla.tiered.manifest_codec import decode_manifest, encode_manifest
from ottla.tiered.manifest_planner import ManifestPlanner
from ottla.tiered.remote_log import RemoteLog
from ottla.tiered.segment_metadata import MetadataRecord
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


def plan(
    planner: ManifestPlanner,
    remote: RemoteLog,
    *,
    leader_epoch: int = 1,
    tiered_epoch: int = 1,
    log_start: int = 0,
    epochs: tuple[tuple[int, int], ...] = EPOCHS,
) -> Manifest | None:
    return planner.plan(
        remote,
        topic=TOPIC,
        topic_id=TOPIC_ID,
        partition=PARTITION,
        leader_epoch=leader_epoch,
        tiered_epoch=tiered_epoch,
        log_start_offset=log_start,
        epochs=epochs,
        partition_count=12,
        configs={"a": "b"},
    )


def copy(remote: RemoteLog, number: int, leader_epoch: int = 1, tiered_epoch: int = 1) -> None:
    epochs = {"leader_epoch": leader_epoch, "tiered_epoch": tiered_epoch}
    remote.replay(segment(number, number * 10, number * 10 + 9, **epochs))
    remote.replay(update(number, FINISHED, **epochs))


def written(planner: ManifestPlanner, remote: RemoteLog, **how: int) -> Manifest:
    found = plan(planner, remote, **how)
    assert found is not None
    planner.applied(found)
    return found


def test_first_base_then_changes() -> None:
    planner, remote = ManifestPlanner(), RemoteLog()
    remote.replay(fence(1))
    assert plan(planner, remote) is None  # There is nothing to say.
    copy(remote, 1)
    first = written(planner, remote)
    assert (first.sequence, first.is_base, first.partition_count) == (0, True, 12)
    assert plan(planner, remote) is None
    copy(remote, 2)
    remote.replay(segment(3, 30, 39))  # Not finished.
    remote.replay(update(1, DELETING))
    second = written(planner, remote, log_start=10)
    assert (second.sequence, second.is_base, second.configs) == (1, False, None)
    assert [number_of(each) for each in second.added] == [2]
    assert list(second.removed) == [segment(1, 0, 9).segment_id]
    assert plan(planner, remote, log_start=10) is None


def test_what_else_is_written() -> None:
    planner, remote = ManifestPlanner(), RemoteLog()
    remote.replay(fence(1))
    copy(remote, 1)
    written(planner, remote)
    moved = plan(planner, remote, log_start=12)
    assert moved is not None
    assert (moved.log_start_offset, moved.added, moved.removed) == (12, (), ())
    # Epochs that no segment has yet do not matter, those among the segments' offsets do.
    assert plan(planner, remote, epochs=((1, 0), (2, 20))) is None
    changed = plan(planner, remote, epochs=((1, 0), (2, 15)))
    assert changed is not None
    assert changed.epochs == ((1, 0), (2, 15))
    remote.replay(fence(1, 2))
    assert plan(planner, remote) is None  # Not ours any more.
    retained = plan(planner, remote, tiered_epoch=2)
    assert retained is not None
    assert retained.tiered_epoch == 2
    remote.replay(fence(1, 3, floor=1))
    purged = plan(planner, remote, tiered_epoch=3)
    assert purged is not None
    assert (purged.floor, purged.added) == (1, ())


def test_every_hundredth_is_a_base() -> None:
    planner, remote = ManifestPlanner(), RemoteLog()
    remote.replay(fence(1))
    bases = []
    for number in range(1, 203):
        copy(remote, number)
        found = written(planner, remote)
        if found.is_base:
            bases.append((found.sequence, len(found.added)))
    assert bases == [(0, 1), (100, 101), (200, 201)]


def test_another_writer_was_first() -> None:
    remote = RemoteLog()
    remote.replay(fence(1))
    copy(remote, 1)
    first, second = ManifestPlanner(), ManifestPlanner()
    won = written(first, remote)
    lost = plan(second, remote)
    assert lost == won
    second.applied(won)
    assert plan(second, remote) is None
    copy(remote, 2)
    found = plan(second, remote)
    assert found is not None
    assert (found.sequence, found.is_base) == (1, False)


@pytest.mark.parametrize("epochs", [{"leader_epoch": 2}, {"tiered_epoch": 2}])
def test_a_writer_that_was_replaced_writes_nothing(epochs: dict[str, int]) -> None:
    newer = RemoteLog()
    newer.replay(fence(epochs.get("leader_epoch", 1), epochs.get("tiered_epoch", 1)))
    copy(newer, 1, **epochs)
    manifest = plan(ManifestPlanner(), newer, **epochs)
    assert manifest is not None

    older = RemoteLog()  # Its view of the metadata lags.
    older.replay(fence(1))
    copy(older, 2)
    planner = ManifestPlanner()
    assert plan(planner, older) is not None
    planner.load([manifest])
    assert planner.is_superseded(leader_epoch=1, tiered_epoch=1)
    assert plan(planner, older) is None


def test_a_leader_writes_nothing_before_its_fence() -> None:
    planner, remote = ManifestPlanner(), copied(segment(1, 10, 19))
    assert plan(planner, remote, leader_epoch=2) is None
    remote.replay(fence(1))
    assert plan(planner, remote, leader_epoch=2) is None
    remote.replay(fence(2))
    assert plan(planner, remote, leader_epoch=2) is not None


def test_what_a_manifest_removed_is_not_added_again() -> None:
    # The former leader's DELETE_STARTED is behind our fence; its manifest is there already.
    remote = RemoteLog()
    remote.replay(fence(1))
    copy(remote, 1)
    copy(remote, 2)
    planner = ManifestPlanner()
    written(planner, remote)
    former = ManifestPlanner()
    former.load([m for m in (plan(ManifestPlanner(), remote),) if m is not None])
    gone = copied(segment(2, 20, 29))
    gone.replay(fence(1))
    planner.applied(written(former, gone))
    assert plan(planner, remote) is None


def test_before_a_deletion_there_is_a_manifest_of_the_leaders_own() -> None:
    # The former leader may write what we have not read: only a manifest of ours shuts it out.
    remote = copied(segment(1, 10, 19))
    remote.replay(fence(2))
    planner = ManifestPlanner()
    remote.replay(update(1, DELETING))
    claim = plan(planner, remote, leader_epoch=2)
    assert claim is not None
    assert (claim.sequence, claim.is_base, claim.added) == (0, True, ())

    former = ManifestPlanner()
    lost = RemoteLog()
    lost.replay(fence(1))
    copy(lost, 1)
    planner.applied(written(former, lost))
    again = plan(planner, remote, leader_epoch=2)
    assert again is not None
    assert (again.sequence, list(again.removed)) == (1, [segment(1, 0, 9).segment_id])
    planner.applied(again)
    assert plan(planner, remote, leader_epoch=2) is None


def test_a_chain_that_cannot_be_read_begins_again() -> None:
    planner, remote = ManifestPlanner(), RemoteLog()
    remote.replay(fence(1))
    planner.load([], highest=7)
    found = plan(planner, remote)
    assert found is not None
    assert (found.sequence, found.is_base, found.added) == (8, True, ())
    copy(remote, 1)
    written(planner, remote)
    planner.load([found], highest=10)
    again = plan(planner, remote)
    assert again is not None
    assert (again.sequence, again.is_base, len(again.added)) == (11, True, 1)


# Many writers


@dataclass
class Broker:
    leader_epoch: int
    tiered_epoch: int
    log: RemoteLog = field(default_factory=RemoteLog)
    position: int = 0
    planner: ManifestPlanner = field(default_factory=ManifestPlanner)


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
        self.append(broker, fence(broker.leader_epoch, broker.tiered_epoch, self.truth.floor))
        broker.planner.load(self.read())
        self.brokers.append(broker)

    def disable(self, broker: Broker, floor: bool) -> None:
        if broker.leader_epoch == self.leader_epoch:
            self.tiered_epoch += 1
            broker.tiered_epoch = self.tiered_epoch
            at = self.tiered_epoch - 1 if floor else self.truth.floor
            self.append(broker, fence(broker.leader_epoch, broker.tiered_epoch, at))

    def copy(self, broker: Broker, is_slow: bool) -> None:
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

    def expire(self, broker: Broker) -> None:
        for each in broker.log.segments()[:1]:
            self.append(broker, update(number_of(each), DELETING))

    def plan(self, broker: Broker) -> Manifest | None:
        return plan(
            broker.planner,
            broker.log,
            leader_epoch=broker.leader_epoch,
            tiered_epoch=broker.tiered_epoch,
        )

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
            broker.planner.applied(read)

    def arrive(self) -> None:
        if self.late:
            found = self.late.pop(0)
            self.manifests.setdefault(found.sequence, encode_manifest(found))

    def purge(self, broker: Broker) -> None:
        """Delete the objects of marked segments, once the manifests are written."""
        fenced = broker.log.fence
        is_leader = fenced is not None and fenced.leader_epoch == broker.leader_epoch
        epochs = {"leader_epoch": broker.leader_epoch, "tiered_epoch": broker.tiered_epoch}
        if not is_leader or broker.planner.is_superseded(**epochs) or self.plan(broker):
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
    *("elect", "copy", "copy", "slow", "finish", "expire", "expire", "catch", "disable"),
    *("publish", "publish", "publish", "arrive", "purge", "purge"),
)
ANSWERS = ("done", "done", "lost before", "lost after", "late")


@settings(max_examples=100, deadline=None)
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
                partition.expire(broker)
            case "catch":
                partition.catch_up(broker)
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
    while partition.plan(partition.brokers[-1]) is not None:
        partition.publish(partition.brokers[-1], "done")
    state = follow(partition.read())
    finished = {each for each in partition.truth.segments() if each.state is FINISHED}
    assert set(state.segments.values() if state else ()) == finished
