"""Metadata that cannot be loaded ends the node with the reason; what fails to apply is retried.

Method: real controllers and followers over disks in memory. A leader's log gets a batch that only
a broken leader writes: its image lacks it, so it continues, and all others read the batch.
"""

import errno
import re
from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.timers import Timers
from ottla.host.kraft.metadata_follower import LocalFollower, Publisher
from ottla.host.kraft.quorum_storage import METADATA_DIR
from ottla.host.metadata_publication import RETRY_MAX_MS, RETRY_MS, MetadataErrors
from ottla.log import names
from ottla.metadata.delta import ClusterDelta, replay
from ottla.metadata.records import RemoveTopicRecord, TopicRecord, encode_record
from ottla.raft.snapshots import SnapshotContent, encode_snapshot
from ottla.raft.values import OffsetAndEpoch
from tests.unit.host.harness import FakeClock, Harness
from tests.unit.host.kraft.test_quorum_elections import Room, write
from tests.unit.host.quorum_harness import BROKER_DIR, Broker, Controller, a_topic

UNKNOWN_TYPE = b"\1\x7f\0"
CUT_SHORT = encode_record(a_topic(1))[:-5]
UNKNOWN_TOPIC = encode_record(RemoveTopicRecord(topic_id=a_topic(77).topic_id))

BAD_RECORDS = pytest.mark.parametrize(
    ("value", "reason"),
    [
        (UNKNOWN_TYPE, r"the metadata record at offset 3 cannot be decoded .*type 127"),
        (CUT_SHORT, r"the metadata record at offset 3 cannot be decoded"),
        (UNKNOWN_TOPIC, r"the RemoveTopicRecord at offset 3 cannot be replayed: AssertionError"),
    ],
    ids=["unknown type", "cut short", "unknown topic"],
)


def a_pair() -> tuple[Harness, Controller, Broker]:
    harness = Harness()
    controller = Controller(harness)
    harness.workers.run()
    broker = Broker(harness, lambda request, version: controller.serve(request, version))
    harness.advance(1_000)
    return harness, controller, broker


# -- what cannot be loaded ---------------------------------------------------------------------


@BAD_RECORDS
def test_a_broker_that_cannot_load_a_committed_batch_ends_with_the_reason(
    value: bytes, reason: str
) -> None:
    harness, controller, broker = a_pair()
    controller.write(a_topic(1))
    harness.workers.run()
    before = broker.image
    assert before.position == (2, 1)
    controller.log._driver.propose((value,))
    harness.advance(10)
    (failure,) = broker.failures
    assert failure.startswith(f"{BROKER_DIR}/__cluster_metadata-0/00000000000000000000.log: ")
    assert re.search(reason, failure)
    assert broker.follower.errors == MetadataErrors(load=1)

    controller.log._driver.propose((encode_record(a_topic(2)),))
    harness.advance(5_000)
    assert broker.image is before, "nothing behind the batch is published"
    assert not broker.follower._driver.alive


def test_a_broker_whose_log_has_such_a_batch_does_not_start() -> None:
    harness, controller, broker = a_pair()
    controller.log._driver.propose((UNKNOWN_TYPE,))
    harness.advance(10)
    assert broker.failures
    broker.follower.stop()
    with pytest.raises(Exception, match=r"00\.log: .* offset 2 cannot be decoded .*type 127"):
        Broker(harness, lambda request, version: controller.serve(request, version))


@BAD_RECORDS
def test_a_standby_that_cannot_load_a_batch_ends_and_is_not_elected(
    value: bytes, reason: str
) -> None:
    room = Room()
    leader = room.elected()
    write(leader, 1)
    room.harness.advance(1_000)
    offset = leader.log.raft.log.end_offset
    leader.log._driver.propose((value,))
    room.harness.advance(1_000)
    standbys = [each for each in room.voters.values() if each is not leader]
    assert len(room.failures) == len(standbys)
    for failure in room.failures:
        assert re.search(reason.replace("offset 3", f"offset {offset}"), failure)
    room.cut = {leader.node_id}
    room.harness.advance(30_000)
    assert not any(each.runtime.active for each in standbys)
    assert all(each.runtime.committed_image.position[0] < offset for each in standbys)


def test_a_snapshot_that_cannot_be_loaded_ends_the_broker() -> None:
    _harness, _controller, broker = a_pair()
    snapshot = OffsetAndEpoch(30, 1)
    driver = broker.follower._driver
    content = SnapshotContent(0, (encode_record(a_topic(1)), UNKNOWN_TYPE))
    driver._notifications.append(lambda: broker.follower.snapshot_adopted(snapshot, content))
    driver._notify()
    (failure,) = broker.failures
    assert failure.startswith(
        f"{BROKER_DIR}/__cluster_metadata-0/{30:020d}-{1:010d}.checkpoint: "
        "the snapshot cannot be loaded: record 1 of it: "
    )
    assert not driver.alive


def test_a_fetched_snapshot_that_cannot_be_loaded_ends_a_new_broker() -> None:
    """End to end: the leader's snapshot is whole, but one record in it is of an unknown type."""
    harness, controller, _broker = a_pair()
    for number in range(1, 4):
        controller.write(a_topic(number))
        harness.workers.run()
    end = OffsetAndEpoch(controller.log.raft.log.end_offset, 1)
    values = [encode_record(a_topic(1)), UNKNOWN_TYPE]
    chunks = encode_snapshot(values, epoch=1, timestamp=1, last_contained_ms=1)
    controller.storage.snapshot_created(controller.storage.create_snapshot(end, chunks))
    controller.log.raft.log.snapshot_stored(end)
    late = Broker(
        harness,
        lambda request, version: controller.serve(request, version),
        directory="/late",
        node_id=3,
    )
    harness.advance(3_000)
    (failure,) = late.failures
    assert f"{end.offset:020d}-{1:010d}.checkpoint: the snapshot cannot be loaded" in failure
    assert late.image.position == (-1, -1)


def test_the_broker_beside_a_failing_controller_counts_it() -> None:
    room = Room()
    leader = room.elected()
    standby = next(each for each in room.voters.values() if each is not leader)
    beside = LocalFollower(
        standby.runtime,
        standby.log,
        on_image=lambda delta: None,
        clock=room.harness.clock,
        timers=room.harness.timers,
    )
    beside.start()
    leader.log._driver.propose((UNKNOWN_TYPE,))
    room.harness.advance(1_000)
    assert beside.errors == MetadataErrors(load=1)


# -- what cannot be written ----------------------------------------------------------------------


def test_a_flush_that_fails_at_once_leaves_no_response_after_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The other voters' fetches wait: the step that appends would flush, then answer them."""
    room = Room()
    leader = room.elected()
    leader.write(*(a_topic(number) for number in range(200)))  # The next gets an index entry.
    room.harness.advance(400)
    others = [each for each in room.voters.values() if each is not leader]
    ends = [each.storage.log.end_offset for each in others]
    assert ends == [leader.storage.log.end_offset] * 2
    path = (
        f"/controller-{leader.node_id}/{METADATA_DIR}/{names.segment_name(0, names.OFFSET_INDEX)}"
    )
    fault = room.harness.disk.fail("write_at", errno.ENOSPC, path=path, times=None)
    write(leader, 200)
    assert fault.hits > 0
    [failure] = room.failures
    assert path in failure
    room.harness.advance(50)
    assert [each.storage.log.end_offset for each in others] == ends
    assert "the metadata quorum member failed" not in caplog.text


# -- what cannot be applied --------------------------------------------------------------------


class Applying:
    """A broker that applies changes, unless `broken` says of one that it cannot."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.timers = Timers()
        self.broken: Callable[[ClusterDelta], bool] = lambda delta: False
        self.tried: list[int] = []
        self.names: set[str] = set()
        self.publisher = Publisher(self.apply, clock=self.clock, timers=self.timers)

    def apply(self, delta: ClusterDelta) -> None:
        self.tried.append(self.clock.elapsed_ms)
        if self.broken(delta):
            raise ZeroDivisionError
        self.names |= {topic.name for topic in delta.created_topics.values()}
        self.names -= {topic.name for topic in delta.deleted_topics.values()}

    def publish(self, record: Any) -> None:
        image = self.publisher.image
        offset = image.position[0] + 1
        self.publisher.publish(replay(image, [record], offset=offset, epoch=1))

    def advance(self, ms: int) -> None:
        end = self.clock.elapsed_ms + ms
        while (due := self.timers.next_ms()) is not None and due <= end:
            self.clock.elapsed_ms = due
            self.timers.run_due(due)
        self.clock.elapsed_ms = end


def creates(name: str) -> Callable[[ClusterDelta], bool]:
    return lambda delta: name in {topic.name for topic in delta.created_topics.values()}


def test_a_change_that_cannot_be_applied_is_counted_and_retried_with_backoff() -> None:
    at = Applying()
    at.broken = creates("topic-1")
    at.publish(a_topic(1))
    at.advance(60_000)
    waits = [after - before for before, after in zip(at.tried, at.tried[1:], strict=False)]
    assert waits[:3] == [RETRY_MS, 2 * RETRY_MS, 4 * RETRY_MS]
    assert waits[-1] == max(waits) == RETRY_MAX_MS
    assert at.publisher.errors == MetadataErrors(apply=len(at.tried))
    at.broken = lambda delta: False
    at.advance(RETRY_MAX_MS)
    assert at.names == {"topic-1"}
    tried = len(at.tried)
    at.advance(60_000)
    assert len(at.tried) == tried, "what is applied is not applied again"


def test_later_changes_are_applied_at_once_and_deleted_topics_do_not_come_back() -> None:
    at = Applying()
    at.broken = creates("topic-1")
    at.publish(a_topic(1))
    at.publish(a_topic(2))
    at.publish(a_topic(3))
    assert at.names == {"topic-2", "topic-3"}
    at.publish(RemoveTopicRecord(topic_id=a_topic(1).topic_id))
    at.publish(RemoveTopicRecord(topic_id=a_topic(3).topic_id))
    at.advance(RETRY_MS)
    assert at.names == {"topic-2"}
    assert at.publisher.errors.apply == 1


def test_the_wait_is_short_again_for_the_next_failure() -> None:
    at = Applying()
    for number in (1, 2):
        at.broken = creates(f"topic-{number}")
        at.publish(a_topic(number))
        at.broken = lambda delta: False
        began = at.clock.elapsed_ms
        at.advance(5_000)
        assert at.tried[-1] - began == RETRY_MS
    assert at.names == {"topic-1", "topic-2"}


def test_a_closed_publisher_retries_nothing() -> None:
    at = Applying()
    at.broken = creates("topic-1")
    at.publish(a_topic(1))
    at.publisher.close()
    at.advance(60_000)
    assert len(at.tried) == 1


def test_a_waiter_that_fails_does_not_end_the_broker() -> None:
    harness, controller, broker = a_pair()

    def fail(_: None) -> None:
        raise ZeroDivisionError

    broker.follower.caught_up_to(broker.follower.offset + 1).then(fail)
    controller.write(TopicRecord(name="topic-1", topic_id=a_topic(1).topic_id))
    harness.advance(10)
    assert broker.failures == []
    assert list(broker.image.topics.names()) == ["topic-1"]
