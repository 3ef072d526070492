"""Log directories of replicas are recorded, so that a failed one affects its replicas.

Method: a broker of two log directories that chose by itself; then one of the two fails.
"""

from dataclasses import replace

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_LEADER, Uuid
from ottla.controller.brokers.brokers import Heartbeat, heartbeat
from ottla.controller.brokers.directories import DirectoryAssignment, assign_directories
from ottla.controller.context import next_offset
from ottla.controller.step import Decision
from ottla.controller.topics.create_topics import NewTopic, create_topics
from ottla.metadata.features import ELR_VERSION
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.metadata.records import FeatureLevelRecord, PartitionChangeRecord
from ottla.metadata.topics import DIRECTORY_LOST, DIRECTORY_UNASSIGNED, RECOVERED, RECOVERING

from ..builders import advance, after, broker, cluster, context, uuid

X, Y = uuid("x"), uuid("y")
BASE = cluster(broker(1, log_dirs=(X, Y)), broker(2))
WANTED = [NewTopic(name="t", assignments=((0, (1, 2)), (1, (1, 2))))]
IMAGE = after(
    BASE,
    create_topics(
        BASE,
        [*WANTED, NewTopic(name="u", assignments=((0, (2,)),))],
        validate_only=False,
        context=context(),
    ),
)


def topic_id(name: str = "t") -> Uuid:
    found = IMAGE.topics.id_of(name)
    assert found is not None
    return found


def partition(image: ClusterImage, number: int) -> PartitionImage:
    topic = image.topics.by_name("t")
    assert topic is not None
    return topic.partitions[number]


def assign(
    *places: DirectoryAssignment, image: ClusterImage = IMAGE, epoch: int = 101
) -> Decision[tuple[tuple[DirectoryAssignment, Error], ...]]:
    return assign_directories(image, places, broker_id=1, broker_epoch=epoch, context=context())


def test_directories_are_recorded_and_nothing_else_changes() -> None:
    assert partition(IMAGE, 0).directories[0] == DIRECTORY_UNASSIGNED
    decided = assign(DirectoryAssignment(X, topic_id(), 0), DirectoryAssignment(Y, topic_id(), 1))
    assert [error for _, error in decided.reply] == [Error.NONE, Error.NONE]
    image = after(IMAGE, decided)
    assert partition(image, 0).directories == (X, uuid("dir-2"))
    assert partition(image, 1).directories == (Y, uuid("dir-2"))
    for number in (0, 1):
        found = partition(image, number)
        assert (found.isr, found.leader, found.leader_epoch) == ((1, 2), 1, 0)
    assert assign(DirectoryAssignment(X, topic_id(), 0), image=image).step.records == ()


def test_a_failed_log_dir_affects_its_own_replicas_alone() -> None:
    image = after(
        IMAGE, assign(DirectoryAssignment(X, topic_id(), 0), DirectoryAssignment(Y, topic_id(), 1))
    )
    report = Heartbeat(
        broker_id=1,
        broker_epoch=101,
        metadata_offset=image.position[0],
        want_fence=False,
        want_shut_down=False,
        offline_log_dirs=(X,),
    )
    decided = heartbeat(image, report, next_offset=next_offset(image), context=context(), now_ms=0)
    changed = after(image, decided)
    assert (partition(changed, 0).isr, partition(changed, 0).leader) == ((2,), 2)
    assert (partition(changed, 1).isr, partition(changed, 1).leader) == ((1, 2), 1)


@pytest.mark.parametrize("directory", [uuid("z"), DIRECTORY_LOST])
def test_a_replica_assigned_to_an_offline_log_dir_leaves_the_isr(directory: Uuid) -> None:
    decided = assign(DirectoryAssignment(directory, topic_id(), 0))
    found = partition(after(IMAGE, decided), 0)
    assert (found.directories[0], found.isr, found.leader) == (directory, (2,), 2)
    assert len(decided.step.records) == 1
    alone = after(BASE, create_topics(
        BASE, [NewTopic(name="t", assignments=((0, (1,)),))], validate_only=False, context=context()
    ))  # fmt: skip
    mine = alone.topics.id_of("t")
    assert mine is not None
    assert partition(
        after(alone, assign(DirectoryAssignment(directory, mine, 0), image=alone)), 0
    ).leader == (NO_LEADER)


@pytest.mark.parametrize("elr", [False, True])
@pytest.mark.parametrize("replicas", [(1,), (1, 2)])
def test_a_replica_that_was_lost_and_has_a_log_again_leads_where_nobody_else_does(
    replicas: tuple[int, ...], elr: bool
) -> None:
    """What took its name was mended; a topic of one replica must not stay without a leader."""
    wanted = NewTopic(name="t", assignments=((0, replicas),))
    image = after(BASE, create_topics(BASE, [wanted], validate_only=False, context=context()))
    if elr:
        image = advance(image, [FeatureLevelRecord(name=ELR_VERSION, feature_level=1)])
    mine = image.topics.id_of("t")
    assert mine is not None
    leaders = []
    for directory in (X, DIRECTORY_LOST, X):
        image = after(image, assign(DirectoryAssignment(directory, mine, 0), image=image))
        leaders.append(partition(image, 0).leader)
    assert leaders == ([1, NO_LEADER, 1] if replicas == (1,) else [1, 2, 2])


@pytest.mark.parametrize(
    ("place", "error"),
    [
        (DirectoryAssignment(X, uuid("nobody"), 0), Error.UNKNOWN_TOPIC_ID),
        (DirectoryAssignment(X, topic_id(), 9), Error.UNKNOWN_TOPIC_OR_PARTITION),
        (DirectoryAssignment(X, topic_id("u"), 0), Error.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_what_is_not_this_broker_s_is_refused_by_itself(
    place: DirectoryAssignment, error: Error
) -> None:
    decided = assign(place, DirectoryAssignment(Y, topic_id(), 1))
    assert [error for _, error in decided.reply] == [error, Error.NONE]
    assert len(decided.step.records) == 1


def test_the_last_directory_named_for_a_replica_counts() -> None:
    decided = assign(DirectoryAssignment(X, topic_id(), 0), DirectoryAssignment(Y, topic_id(), 0))
    assert partition(after(IMAGE, decided), 0).directories[0] == Y
    assert len(decided.step.records) == 1


def test_another_registration() -> None:
    with pytest.raises(ApiError) as caught:
        assign(DirectoryAssignment(X, topic_id(), 0), epoch=100)
    assert caught.value.error is Error.STALE_BROKER_EPOCH


def known_in(directory: Uuid, image: ClusterImage = IMAGE) -> ClusterImage:
    """Return the image with partition 0's first replica in that directory."""
    record = PartitionChangeRecord(
        partition_id=0, topic_id=topic_id(), directories=(directory, uuid("dir-2"))
    )
    return advance(image, [record])


GONE = uuid("taken-out")
ELR = FeatureLevelRecord(name=ELR_VERSION, feature_level=1)


def test_a_replica_that_began_anew_in_another_log_dir_is_neither_in_sync_nor_eligible() -> None:
    for known in (GONE, DIRECTORY_LOST):
        moved = known_in(known)
        found = partition(
            after(moved, assign(DirectoryAssignment(X, topic_id(), 0), image=moved)), 0
        )
        assert (found.directories[0], found.isr, found.leader) == (X, (2,), 2)
    eligible = PartitionChangeRecord(
        partition_id=0, topic_id=topic_id(), isr=(), leader=-1, eligible_leader_replicas=(1, 2)
    )
    image = advance(known_in(GONE), [ELR, eligible])
    image = replace(image, brokers=image.brokers.set(2, broker(2, fenced=True)))
    found = partition(after(image, assign(DirectoryAssignment(X, topic_id(), 0), image=image)), 0)
    assert (found.isr, found.elr, found.leader) == ((), (2,), NO_LEADER)


@pytest.mark.parametrize(("known", "leader"), [(GONE, NO_LEADER), (DIRECTORY_LOST, 1)])
def test_the_last_known_leader_does_not_lead_with_a_log_that_began_anew(
    known: Uuid, leader: int
) -> None:
    """Broker 2 has records that it would truncate. A log that was lost may be mended, with all."""
    last = PartitionChangeRecord(
        partition_id=0,
        topic_id=topic_id(),
        isr=(),
        leader=-1,
        eligible_leader_replicas=(1,),
        last_known_elr=(1,),
    )
    image = advance(known_in(known), [ELR, last])
    found = partition(after(image, assign(DirectoryAssignment(X, topic_id(), 0), image=image)), 0)
    assert (found.elr, found.last_known_elr, found.leader) == ((), (), leader)


@pytest.mark.parametrize("elr", [True, False])
def test_a_lone_replica_that_was_moved_by_hand_leads_again(elr: bool) -> None:
    alone = PartitionChangeRecord(
        partition_id=0,
        topic_id=topic_id(),
        replicas=(1,),
        directories=(GONE,),
        isr=() if elr else (1,),
        leader=-1,
        eligible_leader_replicas=(1,) if elr else None,
        last_known_elr=(1,) if elr else None,
    )
    image = advance(IMAGE, [*([ELR] if elr else []), alone])
    found = partition(after(image, assign(DirectoryAssignment(X, topic_id(), 0), image=image)), 0)
    assert (found.directories, found.isr, found.leader) == ((X,), (1,), 1)
    assert found.leader_recovery_state == (RECOVERING if elr else RECOVERED)
