"""A broker's image follows the controller's, through restarts, losses and snapshots of both.

Method: the real follower and the real controller over disks in memory, joined by a channel that
can be down; every request and response goes through the codec. Equality with the controller's
committed image is what counts, and that the deltas lead there without a gap.
"""

import errno
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import ApiError, Error
from ottla.host.kraft.metadata_follower import LocalFollower
from ottla.host.kraft.quorum_snapshots import SnapshotLimits
from ottla.host.kraft.quorum_storage import MetadataDamaged
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.records import RemoveTopicRecord
from ottla.raft.node import RETRY_BACKOFF_MAX_MS
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.messages.fetch_snapshot import FetchSnapshotRequest
from tests.drawn import examples
from tests.unit.host.harness import Harness
from tests.unit.host.quorum_harness import BROKER_DIR, Broker, Controller, a_config, a_topic

METADATA_DIR = f"{BROKER_DIR}/__cluster_metadata-0"


def content(image: ClusterImage) -> tuple[Any, ...]:
    return (
        list(image.topics.names()),
        list(image.configs),
        dict(image.features),
        dict(image.brokers),
    )


class Cluster:
    """One controller, one broker, and the line between them."""

    def __init__(self, **options: Any) -> None:
        self.harness = Harness()
        self.options = options
        self.controller = Controller(self.harness, **options)
        self.harness.workers.run()
        self.broker = self.a_broker()
        self.settle()

    def a_broker(self, **options: Any) -> Broker:
        return Broker(
            self.harness,
            lambda request, version: self.controller.serve(request, version),
            **options,
        )

    def write(self, *numbers: int) -> None:
        for number in numbers:
            self.controller.write(a_topic(number))
            self.harness.workers.run()

    def settle(self, ms: int = 3_000) -> None:
        self.harness.advance(ms)

    def restart_controller(self) -> None:
        self.broker.sender.down = True
        self.controller.log.stop()
        # The delayed fetch of the old process is not answered.
        self.settle(100)
        self.controller = Controller(self.harness, **self.options)
        self.harness.workers.run()
        self.broker.sender.down = False

    def restart_broker(self) -> None:
        self.broker.follower.stop()
        self.broker = self.a_broker()

    def check_equal(self) -> None:
        assert self.broker.failures == []
        assert self.broker.image.position == self.controller.runtime.committed_image.position
        assert content(self.broker.image) == content(self.controller.runtime.committed_image)
        check_deltas(self.broker.deltas)


def check_deltas(deltas: list[ClusterDelta]) -> None:
    """Each delta starts where the one before ended; the first starts from nothing."""
    before = EMPTY
    for delta in deltas:
        assert content(delta.before) == content(before)
        assert delta.image.position > delta.before.position
        before = delta.image


def kinds(broker: Broker) -> list[type]:
    return [type(request) for request in broker.sender.sent]


# -- following ---------------------------------------------------------------------------------


def test_changes_arrive_with_the_commit_without_waiting_for_a_timer() -> None:
    cluster = Cluster()
    cluster.controller.write(a_topic(1))
    assert list(cluster.broker.image.topics) == []
    cluster.harness.workers.run()
    cluster.check_equal()
    assert list(cluster.broker.image.topics.names()) == ["topic-1"]
    (created,) = cluster.broker.deltas[-1].created_topics.values()
    assert created.name == "topic-1"


def test_nothing_uncommitted_is_ever_seen() -> None:
    cluster = Cluster()
    position = cluster.broker.image.position
    for number in range(1, 5):
        cluster.controller.write(a_topic(number))
    assert cluster.broker.image.position == position
    assert cluster.broker.storage.log.end_offset == position[0] + 1


def test_one_fetch_is_in_flight_and_waits_at_the_leader() -> None:
    cluster = Cluster()
    asked = len(cluster.broker.sender.sent)
    cluster.harness.advance(5_000)
    # 500 ms each, in purgatory.
    assert 9 <= len(cluster.broker.sender.sent) - asked <= 11


def test_many_changes_in_one_answer_are_one_delta() -> None:
    cluster = Cluster()
    cluster.broker.sender.down = True
    cluster.settle(600)
    cluster.write(*range(1, 40))
    deltas = len(cluster.broker.deltas)
    cluster.broker.sender.down = False
    cluster.settle()
    cluster.check_equal()
    assert len(cluster.broker.deltas) == deltas + 1


def test_waiters_are_called_once_the_image_has_the_offset_and_after_the_broker() -> None:
    cluster = Cluster()
    offset = cluster.broker.follower.offset
    order: list[str] = []
    cluster.broker.follower._publication._on_image = lambda delta: order.append("broker")
    now = cluster.broker.follower.caught_up_to(offset)
    next_one = cluster.broker.follower.caught_up_to(offset + 1)
    far = cluster.broker.follower.caught_up_to(offset + 9)
    next_one.then(lambda _none: order.append("waiter"))
    assert (now.done, next_one.done) == (True, False)
    cluster.write(1)
    assert (next_one.done, far.done) == (True, False)
    assert order == ["broker", "waiter"]


def test_a_wait_for_any_state_of_the_image() -> None:
    cluster = Cluster()
    third = cluster.broker.follower.until(lambda image: "topic-3" in list(image.topics.names()))
    cluster.write(1, 2)
    assert not third.done
    cluster.write(3)
    assert third.done
    assert cluster.broker.follower.until(lambda image: True).done


def test_a_change_that_the_broker_cannot_apply_does_not_end_following() -> None:
    cluster = Cluster()

    def broken(delta: ClusterDelta) -> None:
        raise ZeroDivisionError

    cluster.broker.follower._publication._on_image = broken
    cluster.write(1)
    cluster.broker.follower._publication._on_image = cluster.broker.deltas.append
    cluster.write(2)
    assert list(cluster.broker.image.topics.names()) == ["topic-1", "topic-2"]


# -- restarts ----------------------------------------------------------------------------------


def test_a_restarted_broker_starts_from_its_own_log() -> None:
    cluster = Cluster()
    cluster.write(1, 2, 3)
    cluster.restart_broker()

    cluster.settle()
    cluster.check_equal()
    first = cluster.broker.sender.sent[0]
    assert isinstance(first, FetchRequest)
    assert first.topics[0].partitions[0].fetch_offset == 5, "nothing is fetched twice"
    assert first.topics[0].partitions[0].current_leader_epoch == 1
    assert len(cluster.broker.deltas[0].created_topics) == 3


def test_a_broker_publishes_nothing_before_the_leader_confirms_its_log() -> None:
    cluster = Cluster()
    cluster.write(1)
    cluster.broker.follower.stop()
    cluster.broker = cluster.a_broker(start=False)
    cluster.broker.sender.down = True
    cluster.broker.follower.start()
    cluster.settle()
    assert cluster.broker.deltas == []
    assert cluster.broker.follower.offset == -1
    cluster.broker.sender.down = False
    cluster.settle()
    cluster.check_equal()


def test_a_broker_that_lost_power_fetches_what_its_log_lost() -> None:
    cluster = Cluster()
    cluster.write(1, 2, 3)
    cluster.controller.log.stop()
    cluster.harness.crash()
    cluster.controller = Controller(cluster.harness)
    cluster.harness.workers.run()
    cluster.broker = cluster.a_broker()
    cluster.settle()
    cluster.check_equal()
    assert list(cluster.broker.image.topics.names()) == ["topic-1", "topic-2", "topic-3"]


def test_a_controllers_restart_is_followed_into_the_new_epoch() -> None:
    cluster = Cluster()
    for epoch in (2, 3):
        cluster.restart_controller()
        cluster.write(epoch)
        cluster.settle()
        cluster.check_equal()
        assert (cluster.broker.follower.leader_id, cluster.broker.follower.leader_epoch) == (
            1,
            epoch,
        )


def test_the_old_controllers_unacknowledged_records_never_show() -> None:
    cluster = Cluster()
    cluster.controller.write(a_topic(7))
    cluster.harness.workers.waiting.clear()
    cluster.broker.sender.down = True
    cluster.harness.disk.crash()
    cluster.controller = Controller(cluster.harness)
    cluster.harness.workers.run()
    cluster.broker = cluster.a_broker()
    cluster.write(8)
    cluster.settle()
    cluster.check_equal()
    assert list(cluster.broker.image.topics.names()) == ["topic-8"]


# -- snapshots ---------------------------------------------------------------------------------

SMALL = SnapshotLimits(bytes_between=300, interval_ms=0, retention_bytes=1_000)


def with_snapshots() -> Cluster:
    """Return a cluster whose controller has dropped the beginning of its log."""
    cluster = Cluster(limits=SMALL, segment_bytes=400)
    cluster.broker.sender.down = True
    cluster.settle(600)
    cluster.write(*range(1, 60))
    assert cluster.controller.storage.log.start_offset > 10
    return cluster


def test_a_new_broker_loads_the_snapshot_and_the_tail() -> None:
    cluster = with_snapshots()
    cluster.broker = cluster.a_broker(directory="/new", node_id=3)
    cluster.settle()
    cluster.check_equal()
    assert FetchSnapshotRequest in kinds(cluster.broker)
    assert cluster.broker.storage.log.start_offset > 0


def test_a_broker_that_fell_behind_the_log_compares_with_the_snapshot() -> None:
    cluster = with_snapshots()
    cluster.controller.write(RemoveTopicRecord(topic_id=a_topic(1).topic_id))
    cluster.harness.workers.run()
    cluster.broker.sender.down = False
    cluster.settle()
    cluster.check_equal()
    assert FetchSnapshotRequest in kinds(cluster.broker)


def test_what_a_snapshot_lacks_counts_as_deleted() -> None:
    cluster = Cluster(limits=SMALL, segment_bytes=400)
    cluster.write(1, 2)
    cluster.broker.sender.down = True
    cluster.settle(600)
    cluster.controller.write(RemoveTopicRecord(topic_id=a_topic(1).topic_id))
    cluster.write(*range(3, 60))
    cluster.broker.sender.down = False
    cluster.settle()
    cluster.check_equal()
    deleted = [t.name for d in cluster.broker.deltas for t in d.deleted_topics.values()]
    assert deleted == ["topic-1"]


def test_a_restart_in_the_middle_of_a_download_starts_over() -> None:
    cluster = with_snapshots()
    cluster.broker = cluster.a_broker(directory="/new", node_id=3, start=False)
    serve = cluster.broker.sender.serve
    pieces: list[int] = []

    def serve_in_pieces(request: Any, version: int) -> Any:
        if isinstance(request, FetchSnapshotRequest):
            if len(pieces) == 2:
                return ApiError(Error.NETWORK_EXCEPTION)
            pieces.append(request.topics[0].partitions[0].position)
            request = FetchSnapshotRequest(
                cluster_id=request.cluster_id, replica_id=3, max_bytes=50, topics=request.topics
            )
        return serve(request, version)

    cluster.broker.sender.serve = serve_in_pieces
    cluster.broker.follower.start()
    cluster.settle(300)
    assert pieces == [0, 50]
    cluster.broker.follower.stop()
    cluster.broker = cluster.a_broker(directory="/new", node_id=3)
    cluster.settle()
    cluster.check_equal()
    names = cluster.harness.disk.listdir("/new/__cluster_metadata-0")
    assert not [name for name in names if name.endswith(".part")]


@pytest.mark.parametrize("bytes_max", [1 << 20, 100])
def test_a_snapshot_that_arrives_damaged_is_rejected_and_fetched_again_later(
    bytes_max: int, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = with_snapshots()
    cluster.broker = cluster.a_broker(directory="/new", node_id=3, start=False)
    serve = cluster.broker.sender.serve
    begun_ms: list[int] = []

    def damaging(request: Any, version: int) -> Any:
        if not isinstance(request, FetchSnapshotRequest):
            return serve(request, version)
        response = serve(replace(request, max_bytes=bytes_max), version)
        partition = response.topics[0].partitions[0]
        if partition.position == 0:
            begun_ms.append(cluster.harness.clock.elapsed_ms)
        data = bytearray(partition.unaligned_records)
        data[-1] ^= 0x40
        damaged = replace(partition, unaligned_records=bytes(data))
        return replace(response, topics=(replace(response.topics[0], partitions=(damaged,)),))

    cluster.broker.sender.serve = damaging
    cluster.broker.follower.start()
    cluster.settle(10_000)
    assert cluster.broker.failures == []
    assert cluster.broker.storage.snapshots == []
    pauses_ms = [later - earlier for earlier, later in pairwise(begun_ms)]
    assert pauses_ms == sorted(pauses_ms)
    assert pauses_ms[-1] == RETRY_BACKOFF_MAX_MS
    offset, epoch = cluster.controller.storage.snapshots[-1].id
    rejected = f"rejected metadata snapshot at offset {offset}, epoch {epoch}, from controller 1: "
    warnings = [each for each in caplog.messages if each.startswith(rejected)]
    assert len(warnings) == len(begun_ms)
    assert ": a snapshot is damaged: " in warnings[0]
    cluster.broker.sender.serve = serve
    cluster.settle()
    cluster.check_equal()
    assert cluster.broker.storage.log.start_offset > 0


@pytest.mark.parametrize("is_idle", [False, True])
@pytest.mark.parametrize("is_readable", [True, False])
def test_a_controller_whose_snapshot_is_damaged_writes_another_one(
    is_idle: bool, is_readable: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Also of the same state, where nothing was committed since."""
    cluster = with_snapshots()
    cluster.controller.log._snapshotter.take()
    cluster.harness.workers.run()
    storage = cluster.controller.storage
    damaged = storage.snapshots[-1]
    if not is_idle:
        cluster.write(60)
    path = storage.snapshot_file(damaged.id)
    if is_readable:
        cluster.harness.disk.corrupt(path, 70, b"\xff\xff")
    else:
        cluster.harness.disk.fail("read_bytes", errno.EIO, path=path)
    cluster.broker = cluster.a_broker(directory="/new", node_id=3)
    cluster.settle()
    cluster.check_equal()
    errors = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert errors
    damage = f" {path}: a snapshot is " if is_readable else f"'{path}'"
    assert all(damage in each for each in errors)
    latest = storage.snapshots[-1].id
    assert (latest == damaged.id) is is_idle
    storage.inspect_snapshot(latest)
    assert cluster.controller.failures == []


def test_a_broker_takes_snapshots_of_its_own_and_starts_from_them() -> None:
    cluster = Cluster()
    cluster.broker.follower.stop()
    cluster.broker = cluster.a_broker(limits=SMALL)
    cluster.write(*range(1, 60))
    cluster.settle()
    cluster.check_equal()
    assert cluster.broker.storage.snapshots
    cluster.restart_broker()
    cluster.settle()
    cluster.check_equal()
    assert FetchSnapshotRequest not in kinds(cluster.broker)


@pytest.mark.parametrize("operation", range(0, 60, 2))
def test_a_crash_at_any_disk_operation_of_a_catch_up_leaves_a_broker_that_catches_up(
    operation: int,
) -> None:
    cluster = with_snapshots()
    fault = cluster.harness.disk.fail(None, path="/new", skip=operation, times=None)
    try:
        broker = cluster.a_broker(directory="/new", node_id=3)
        cluster.settle(200)
        assert fault.hits == 0 or broker.failures
    except OSError:
        assert fault.hits > 0
    cluster.controller.log.stop()
    cluster.harness.crash()
    cluster.controller = Controller(cluster.harness, limits=SMALL, segment_bytes=400)
    cluster.harness.workers.run()
    cluster.broker = cluster.a_broker(directory="/new", node_id=3)
    cluster.settle()
    cluster.check_equal()


# -- what ends a follower ----------------------------------------------------------------------


def test_a_broken_disk_ends_the_follower_with_a_reason() -> None:
    cluster = Cluster()
    cluster.harness.disk.fail("append", path=BROKER_DIR, times=None)
    cluster.write(1)
    assert len(cluster.broker.failures) == 1
    assert list(cluster.broker.image.topics.names()) == []


def test_a_controller_that_lost_committed_metadata_ends_the_follower() -> None:
    cluster = Cluster()
    cluster.write(*range(1, 10))
    cluster.broker.sender.down = True
    cluster.settle(600)
    cluster.controller.log.stop()
    cluster.harness.disk.rmtree("/controller")
    cluster.controller = Controller(cluster.harness)
    cluster.harness.workers.run()
    for _ in range(3):
        # Epochs past the broker's, or it would not listen at all.
        cluster.controller.log.stop()
        cluster.controller = Controller(cluster.harness)
        cluster.harness.workers.run()
    cluster.broker.sender.down = False
    cluster.settle()
    assert len(cluster.broker.failures) == 1
    assert "CommittedDataLost" in cluster.broker.failures[0]


def test_another_clusters_controller_is_not_followed() -> None:
    cluster = Cluster()
    serve = cluster.broker.sender.serve

    def other(request: Any, version: int) -> Any:
        changed = FetchRequest(
            cluster_id="another",
            replica_state=request.replica_state,
            max_wait_ms=0,
            min_bytes=0,
            topics=request.topics,
        )
        return serve(changed, version)

    cluster.broker.sender.serve = other
    cluster.write(1)
    position = cluster.broker.image.position
    cluster.write(2, 3)
    cluster.settle()
    assert cluster.broker.image.position == position
    assert cluster.broker.failures == []


def test_a_damaged_copy_is_refused_at_the_start() -> None:
    cluster = Cluster()
    cluster.write(1)
    cluster.broker.follower.stop()
    cluster.harness.disk.write_atomic(f"{METADATA_DIR}/quorum-state", b"{}")
    with pytest.raises(MetadataDamaged, match="quorum-state"):
        cluster.a_broker()


# -- the same process --------------------------------------------------------------------------


def test_a_local_follower_has_the_controllers_committed_image_and_the_same_deltas() -> None:
    cluster = Cluster()
    cluster.write(1)
    deltas: list[ClusterDelta] = []
    local = LocalFollower(
        cluster.controller.runtime,
        cluster.controller.log,
        on_image=deltas.append,
        clock=cluster.harness.clock,
        timers=cluster.harness.timers,
    )
    local.start()
    cluster.write(2, 3)
    assert local.image is cluster.controller.runtime.committed_image
    assert local.leader_id == 1
    check_deltas(deltas)
    assert [list(d.created_topics) for d in deltas][1:] == [
        list(d.created_topics) for d in cluster.broker.deltas[-2:]
    ]
    local.stop()
    cluster.write(4)
    assert len(deltas) == 3


# -- any history -------------------------------------------------------------------------------

ACTIONS = ("write", "config", "remove", "restart controller", "restart broker", "cut", "join")


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.sampled_from(ACTIONS), min_size=5, max_size=40), st.booleans())
def test_any_history_ends_with_equal_images(actions: list[str], snapshots: bool) -> None:
    options: dict[str, Any] = {"limits": SMALL, "segment_bytes": 400} if snapshots else {}
    cluster = Cluster(**options)
    number = 0
    live: list[int] = []
    for action in actions:
        match action:
            case "write":
                live += range(number + 1, number + 5)
                cluster.write(*live[-4:])
                number += 4
            case "config":
                cluster.controller.write(a_config(f"name-{number}", str(number)))
                cluster.harness.workers.run()
            case "remove" if live:
                deleted_topic = a_topic(live.pop(0)).topic_id
                cluster.controller.write(RemoveTopicRecord(topic_id=deleted_topic))
                cluster.harness.workers.run()
            case "restart controller":
                cluster.restart_controller()
            case "restart broker":
                cluster.restart_broker()
            case "cut":
                cluster.broker.sender.down = True
                cluster.settle(700)
            case "join":
                cluster.broker.sender.down = False
                cluster.settle(1_500)
    cluster.broker.sender.down = False
    cluster.settle(5_000)
    cluster.check_equal()
    assert sorted(cluster.broker.image.topics.names()) == sorted(f"topic-{n}" for n in live)
