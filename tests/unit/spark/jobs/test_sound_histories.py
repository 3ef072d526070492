"""A sound store gives no finding, at any moment of any history.

Method: the brokers of `test_manifest_planner` are elected, copy, expire and turn tiering off with
both policies and on again, each with its own delayed view of the metadata; here they copy offsets
as leaders do, and write each object of a segment. At every step an audit looks, with a grace time
that covers what is under way; once the last leader has done all its work, with no grace time.
"""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ottla.base.object_store import ObjectInfo
from ottla.spark.jobs.metadata_log import UserLog
from ottla.spark.jobs.rules.findings import Finding
from ottla.spark.jobs.rules.partition_rules import check_partition
from ottla.spark.jobs.rules.partition_view import PartitionView
from ottla.tiered.copy_plan import highest_copied_offset
from ottla.tiered.lineage import Lineage
from ottla.tiered.manifest import Manifest
from ottla.tiered.manifest_codec import decode_manifest
from ottla.tiered.object_names import ObjectKind, manifest_name, object_name
from ottla.tiered.segment_metadata import SegmentMetadata
from tests.drawn import examples
from tests.unit.tiered.support import (
    DELETING,
    FINISHED,
    PARTITION,
    TOPIC,
    TOPIC_ID,
    fence,
    number_of,
    segment,
    update,
)
from tests.unit.tiered.test_manifest_planner import ANSWERS, STEPS, Broker, Partition, plan

LONG_MS = 1_000_000
LATEST_MS = 10_000
"""Behind all timestamps of the records."""
OFFSET_MAX = 2**40


@dataclass
class Audited(Partition):
    """A partition whose copies have offsets without gaps. `log_start`: of the leaders."""

    log_start: int = 0
    names: dict[str, int] = field(default_factory=dict)
    user: UserLog = field(default_factory=UserLog)

    def append(self, broker: Broker, record: Any) -> None:
        super().append(broker, record)
        self.user.replay(record)

    def plan(self, broker: Broker) -> Manifest | None:
        """Plan with the log start: where it has moved there is something to write."""
        return plan(broker.planner, broker.log, log_start=self.log_start)

    def remove(self, base: int) -> None:
        """Remove nothing: the real numbers of what a base makes needless are larger."""

    def copy(self, broker: Broker, is_slow: bool) -> None:
        ours = broker.leader_epoch, broker.tiered_epoch
        fenced = broker.log.fence
        if fenced is None or (fenced.leader_epoch, fenced.tiered_epoch) != ours:
            self.append(broker, fence(*ours, 0 if fenced is None else fenced.floor))
        for each in broker.log.unfinished():
            self.append(broker, update(number_of(each), DELETING))
        lineage = Lineage([(1, 0)], OFFSET_MAX)
        start = max(highest_copied_offset(broker.log, lineage) + 1, self.log_start)
        number = self.copies = self.copies + 1
        epochs = {"leader_epoch": broker.leader_epoch, "tiered_epoch": broker.tiered_epoch}
        # Leaders roll at offsets of their own.
        made = segment(number, start, start + 9 + broker.leader_epoch, ((1, start),), **epochs)
        self.append(broker, made)
        if broker.log.get(made.segment_id) is None:
            return  # It was fenced: nothing is uploaded.
        self.objects.add(number)
        for kind in set(ObjectKind) - {ObjectKind.TXN_INDEX}:
            self.names[object_name(made, kind)] = made.size_bytes if kind is ObjectKind.LOG else 408
        if not is_slow:
            self.append(broker, update(number, FINISHED, **epochs))

    def expire(self, broker: Broker) -> None:
        for each in broker.log.finished()[:1]:
            self.log_start = max(self.log_start, each.end_offset + 1)
            self.append(broker, update(number_of(each), DELETING))

    def purge(self, broker: Broker) -> None:
        before: dict[int, SegmentMetadata] = {
            number_of(each): each for each in self.truth.segments()
        }
        super().purge(broker)
        for number in before:
            if number not in self.objects:
                for kind in ObjectKind:
                    self.names.pop(object_name(before[number], kind), None)

    def audit(self, **more: Any) -> list[Finding]:
        objects = dict(self.names)
        manifests: dict[int, Manifest | str] = {}
        for sequence, data in self.manifests.items():
            objects[manifest_name(TOPIC, TOPIC_ID, PARTITION, sequence)] = len(data)
            manifests[sequence] = decode_manifest(data)
        fields: dict[str, Any] = {
            "topic": TOPIC,
            "topic_id": TOPIC_ID,
            "partition": PARTITION,
            "objects": {name: ObjectInfo(name, size, 1) for name, size in objects.items()},
            "manifests": manifests,
            "remote": self.user.remote,
            "refused": self.user.refused,
            "now_ms": LATEST_MS,
            "grace_ms": LONG_MS,
        }
        return check_partition(PartitionView(**(fields | more)))

    def settle(self) -> None:
        """Let the last leader finish: what is unfinished goes, manifests follow, objects go."""
        self.late.clear()
        self.elect()
        broker = self.brokers[-1]
        self.catch_up(broker)
        floor = 0 if broker.log.fence is None else broker.log.fence.floor
        self.append(broker, fence(broker.leader_epoch, broker.tiered_epoch, floor))
        broker.planner.found(max(self.manifests, default=-1))
        broker.planner.fenced()
        for each in broker.log.unfinished():
            self.append(broker, update(number_of(each), DELETING))
        for _ in range(3):
            self.publish(broker, "done")
            self.purge(broker)


def step(partition: Audited, data: st.DataObject) -> None:
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
        case "fence":
            partition.fence(broker)
        case "publish":
            partition.publish(broker, data.draw(st.sampled_from(ANSWERS)))
        case "arrive":
            partition.arrive()
        case "purge":
            partition.purge(broker)
        case "disable":
            partition.disable(broker, data.draw(st.booleans()))


@settings(max_examples=examples(60), deadline=None, phases=[Phase.generate])
@given(st.data())
def test_nothing_is_found_in_a_sound_store(data: st.DataObject) -> None:
    partition = Audited()
    partition.elect()
    for _ in range(data.draw(st.integers(1, 40))):
        step(partition, data)
        assert partition.audit() == []
        # What changes between two looks is left out, whatever it is.
        before = partition.user.remote.version
        step(partition, data)
        changed = partition.user.remote.changes_since(before)
        assert partition.audit(changed=changed) == []
    partition.settle()
    assert partition.audit(grace_ms=0) == []


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_damage_is_found_after_any_history(data: st.DataObject) -> None:
    partition = Audited()
    partition.elect()
    partition.copy(partition.brokers[0], is_slow=False)
    for _ in range(data.draw(st.integers(1, 20))):
        step(partition, data)
    partition.settle()
    readable = partition.user.remote.finished()
    if not readable:
        return
    name = object_name(data.draw(st.sampled_from(readable)), data.draw(st.sampled_from(KINDS)))
    size = partition.names.pop(name)
    assert [each.object for each in partition.audit()] == [name]
    partition.names[name] = size + 1
    if name.endswith(".log"):
        assert [each.object for each in partition.audit()] == [name]
    partition.names[name] = size
    assert partition.audit() == []


KINDS = sorted(set(ObjectKind) - {ObjectKind.TXN_INDEX}, key=str)
