"""The controller gets each replica's log directory once, whatever happens to the requests.

Method: directories and partitions as plain values; a controller whose answers the test gives.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from immutables import Map

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.base.timers import Timers
from ottla.broker.logs import directory_assignments
from ottla.broker.logs.directory_assignments import RETRY_MS, DirectoryAssignments
from ottla.metadata.image import ClusterImage, PartitionImage, TopicImage, TopicsImage
from ottla.metadata.topics import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED
from ottla.wire.messages import assign_replicas_to_dirs as wire
from tests.unit.broker.harness import FakeForwarder

X, Y = Uuid(b"x" * 16), Uuid(b"y" * 16)
TOPIC = Uuid(b"t" * 16)
NODE, EPOCH = 1, 7


class Directories:
    """See `ottla.log.dirs.log_dirs.LogDirs`: here a log is the id of its directory."""

    def __init__(self, *ids: Uuid) -> None:
        self.dirs = self.directory_ids = ids

    def directory_of(self, log: Uuid) -> Any:
        return SimpleNamespace(directory_id=log) if log in self.dirs else None


def partition(index: int, log: Uuid | None, *, deleted: bool = False) -> Any:
    return SimpleNamespace(topic_id=TOPIC, partition_id=index, log=log, deleted=deleted)


def image_of(*known: Uuid, node: int = NODE) -> ClusterImage:
    partitions = Map(
        {
            index: PartitionImage(replicas=(node,), directories=(each,), isr=(node,))
            for index, each in enumerate(known)
        }
    )
    topic = TopicImage(name="t", id=TOPIC, partitions=partitions)
    return ClusterImage(topics=TopicsImage().with_topic(topic))


class Desk:
    """The assignments of one broker, and time by hand."""

    def __init__(self, *log_dirs: Uuid) -> None:
        self.now_ms = 0
        self.timers = Timers()
        self.forwarder = FakeForwarder()
        self.assignments = DirectoryAssignments(
            node_id=NODE,
            broker_epoch=lambda: EPOCH,
            log_dirs=Directories(*log_dirs),  # type: ignore[arg-type]
            forwarder=self.forwarder,
            clock=SimpleNamespace(monotonic_ms=lambda: self.now_ms),  # type: ignore[arg-type]
            timers=self.timers,
        )

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms
        self.timers.run_due(self.now_ms)

    def requested(self) -> list[tuple[Uuid, int]]:
        """Return the assignments in the open request."""
        [(request, _)] = self.forwarder.calls
        assert (request.broker_id, request.broker_epoch) == (NODE, EPOCH)
        return [
            (directory.id, each.partition_index)
            for directory in request.directories
            for topic in directory.topics
            for each in topic.partitions
        ]

    def answer(self, error_of: Callable[[int], int] = lambda index: 0) -> None:
        [(request, _)] = self.forwarder.calls
        self.forwarder.answer(
            wire.AssignReplicasToDirsResponse(
                error_code=Error.NONE,
                directories=tuple(
                    wire.ResponseDirectoryData(
                        id=directory.id,
                        topics=tuple(
                            wire.ResponseTopicData(
                                topic_id=topic.topic_id,
                                partitions=tuple(
                                    wire.ResponsePartitionData(
                                        partition_index=each.partition_index,
                                        error_code=error_of(each.partition_index),
                                    )
                                    for each in topic.partitions
                                ),
                            )
                            for topic in directory.topics
                        ),
                    )
                    for directory in request.directories
                ),
            )
        )


def begun() -> Desk:
    """Return a desk whose request has two replicas."""
    desk = Desk(X, Y)
    unknown = image_of(DIRECTORY_UNASSIGNED, DIRECTORY_UNASSIGNED, Y)
    desk.assignments.update(unknown, [partition(0, X), partition(1, Y), partition(2, Y)])
    desk.pass_ms(0)
    return desk


def test_an_unknown_assignment_is_sent_once() -> None:
    desk = begun()
    assert desk.requested() == [(X, 0), (Y, 1)]
    desk.answer()
    desk.pass_ms(10 * RETRY_MS)
    assert desk.forwarder.calls == []


@pytest.mark.parametrize(
    ("known", "is_reported"),
    [
        (DIRECTORY_UNASSIGNED, True),
        (DIRECTORY_MIGRATING, True),
        (X, True),
        (Y, False),
        (DIRECTORY_LOST, False),
    ],
    ids=["unassigned", "migrating", "online", "offline", "lost"],
)
def test_a_replica_without_a_log_is_reported_as_lost(known: Uuid, is_reported: bool) -> None:
    """Its name was taken by a link or a file; such a leader failed every produce, for ever."""
    desk = Desk(X)
    desk.assignments.update(image_of(known), [partition(0, None)])
    desk.pass_ms(0)
    assert (
        (desk.requested() == [(DIRECTORY_LOST, 0)]) if is_reported else (desk.forwarder.calls == [])
    )


def test_a_lost_replica_is_reported_in_its_directory_once_it_has_a_log() -> None:
    desk = Desk(X)
    desk.assignments.update(image_of(DIRECTORY_LOST), [partition(0, X)])
    desk.pass_ms(0)
    assert desk.requested() == [(X, 0)]


def test_a_replica_of_another_broker_is_not_reported_as_lost() -> None:
    desk = Desk(X)
    desk.assignments.update(image_of(X), [partition(0, None)])
    desk.assignments.update(image_of(X, node=2), [partition(0, None)])
    desk.pass_ms(0)
    assert desk.forwarder.calls == []


@pytest.mark.parametrize(
    ("known", "reports"),
    [(DIRECTORY_UNASSIGNED, False), (DIRECTORY_MIGRATING, False), (X, False), (Y, True)],
)
def test_a_broker_with_one_log_dir_sends_only_corrections(known: Uuid, reports: bool) -> None:
    desk = Desk(X)
    desk.assignments.update(image_of(known), [partition(0, X)])
    desk.pass_ms(0)
    assert bool(desk.forwarder.calls) == reports


@pytest.mark.parametrize(
    "found",
    [
        partition(0, X, deleted=True),
        partition(9, X),
        partition(0, NO_UUID),
    ],
)
def test_partitions_that_are_not_hosted_are_not_sent(found: Any) -> None:
    desk = Desk(X, Y)
    desk.assignments.update(image_of(DIRECTORY_UNASSIGNED), [found])
    desk.assignments.update(image_of(DIRECTORY_UNASSIGNED, node=2), [partition(0, X)])
    desk.pass_ms(0)
    assert desk.forwarder.calls == []


@pytest.mark.parametrize(
    "refusal",
    [
        ApiError(Error.NOT_CONTROLLER),
        wire.AssignReplicasToDirsResponse(error_code=Error.STALE_BROKER_EPOCH, directories=()),
    ],
)
def test_a_request_that_was_not_done_is_made_again(refusal: Any) -> None:
    desk = begun()
    desk.forwarder.answer(refusal)
    desk.pass_ms(RETRY_MS - 1)
    assert desk.forwarder.calls == []
    desk.pass_ms(1)
    assert desk.requested() == [(X, 0), (Y, 1)]


def test_a_refused_assignment_is_retried_unless_the_replica_is_another_brokers() -> None:
    desk = begun()
    errors = {0: Error.UNKNOWN_TOPIC_ID, 1: Error.UNKNOWN_SERVER_ERROR}
    desk.answer(lambda index: errors[index])
    desk.pass_ms(RETRY_MS)
    assert desk.requested() == [(Y, 1)]


def test_changes_during_a_request_are_sent_after_it() -> None:
    desk = begun()
    unknown = image_of(DIRECTORY_UNASSIGNED, DIRECTORY_UNASSIGNED)
    desk.assignments.update(unknown, [partition(0, Y)])
    desk.pass_ms(0)
    assert desk.requested() == [(X, 0), (Y, 1)], "one request at a time"
    desk.answer()
    desk.pass_ms(0)
    assert desk.requested() == [(Y, 0)]


def test_an_assignment_in_a_log_dir_that_failed_is_still_sent() -> None:
    desk = begun()
    desk.forwarder.answer(ApiError(Error.REQUEST_TIMED_OUT))
    unknown = image_of(DIRECTORY_UNASSIGNED, DIRECTORY_UNASSIGNED)
    desk.assignments.update(unknown, [partition(0, None)])
    desk.pass_ms(RETRY_MS)
    assert desk.requested() == [(X, 0), (Y, 1)]


def test_a_request_has_a_maximum_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_assignments, "DIRECTORY_ASSIGNMENTS_PER_REQUEST_MAX", 1)
    desk = begun()
    assert desk.requested() == [(X, 0)]
    desk.answer()
    desk.pass_ms(0)
    assert desk.requested() == [(Y, 1)]


def test_nothing_is_sent_after_close() -> None:
    desk = begun()
    desk.assignments.close()
    desk.forwarder.answer(ApiError(Error.NOT_CONTROLLER))
    desk.pass_ms(RETRY_MS)
    assert desk.forwarder.calls == []
