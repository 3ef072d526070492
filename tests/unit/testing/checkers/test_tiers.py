"""Each anomaly of remote storage is found in a history that has it, and in no other.

Method: histories of a few lines, one that keeps the promise and one that breaks it.
"""

from typing import Any

import pytest

from ottla.base.ids import Uuid
from ottla.testing.checkers import tiers as checkers
from ottla.testing.history.history import Acknowledgement, History, PartitionSeen, PowerLoss
from ottla.testing.history.log import BatchSeen, ReplicaLog, SegmentSeen
from ottla.testing.history.tiers import (
    ImageUnlike,
    ListedAndGone,
    LocalStartMoved,
    ManifestSeen,
    ObjectReplaced,
    RemoteSegmentSeen,
    ReplicaTiers,
    SegmentsImage,
    SpecialOffsets,
    TierHistory,
    Unreadable,
)
from ottla.testing.history.topics import Promise

TOPIC = Uuid(bytes(15) + b"\x08")
PARTITION = (TOPIC, 0)
FIRST, SECOND = Uuid(bytes(15) + b"\x01"), Uuid(bytes(15) + b"\x02")
SEGMENT = RemoteSegmentSeen(
    PARTITION,
    FIRST,
    start=0,
    end=9,
    state="COPY_FINISHED",
    batches=(BatchSeen(0, 4, epoch=1, crc=11), BatchSeen(5, 9, epoch=2, crc=12)),
)
NEXT = RemoteSegmentSeen(
    PARTITION, SECOND, 10, 14, "COPY_FINISHED", batches=(BatchSeen(10, 14, epoch=2, crc=13),)
)
REPLICA = ReplicaTiers(
    PARTITION, node=1, start=0, local_start=15, high_watermark=20, epochs=((1, 0), (2, 5))
)
OFFSETS = SpecialOffsets(
    "reader",
    PARTITION,
    earliest=0,
    earliest_local=10,
    pending_upload=15,
    latest_tiered=14,
    latest=20,
    max_timestamp=19,
)


def history(**fields: Any) -> History:
    return History(topics={TOPIC}, tiers=TierHistory(**fields))


def unreadable(replica: ReplicaTiers, *segments: RemoteSegmentSeen) -> list[str]:
    seen = history(replicas=[replica], segments=list(segments))
    return [each.text for each in checkers.offsets_unreadable(seen)]


# -- offset unreadable -------------------------------------------------------------------------


def test_both_tiers_together_have_all_offsets() -> None:
    assert unreadable(REPLICA, SEGMENT, NEXT) == []
    assert unreadable(REPLICA._replace(start=3), NEXT, SEGMENT) == []
    assert unreadable(REPLICA._replace(local_start=10), SEGMENT) == []


@pytest.mark.parametrize(
    ("replica", "segments", "nowhere"),
    [
        (REPLICA, (SEGMENT,), "10 to 15"),
        (REPLICA, (NEXT,), "0 to 10"),
        (REPLICA, (SEGMENT, NEXT._replace(state="DELETE_STARTED")), "10 to 15"),
        (REPLICA, (SEGMENT, NEXT._replace(batches=NEXT.batches[:0])), "10 to 15"),
        (REPLICA._replace(epochs=((1, 0), (2, 7))), (SEGMENT, NEXT), "5 to 10"),
    ],
    ids=["end", "beginning", "deleted", "empty", "another lineage"],
)
def test_offsets_that_are_nowhere_are_found(
    replica: ReplicaTiers, segments: tuple[RemoteSegmentSeen, ...], nowhere: str
) -> None:
    [text] = unreadable(replica, *segments)
    assert f"{nowhere} are nowhere" in text


def test_a_log_start_within_a_batch_is_readable() -> None:
    within = REPLICA._replace(start=7, epochs=((2, 7),))
    assert unreadable(within, SEGMENT, NEXT) == []


def test_what_was_unreadable_for_a_moment_is_found() -> None:
    seen = history(events=[Unreadable(PARTITION, 2, 0, 10, "an object was deleted", 50)])
    assert len(checkers.offsets_unreadable(seen)) == 1
    seen.deleted.add(TOPIC)
    assert checkers.offsets_unreadable(seen) == []


def test_an_unclean_election_leaves_no_hole_in_the_logs() -> None:
    moved = LocalStartMoved(PARTITION, node=2, before=0, start=10, copied=5, at_ms=50)
    seen = history(
        events=[Unreadable(PARTITION, 2, 0, 10, "an object was deleted", 50), moved],
        replicas=[REPLICA],
        segments=[SEGMENT],
    )
    seen.ended_ms = 60
    seen.promises[TOPIC] = Promise(unclean=True)
    before = PartitionSeen(PARTITION, 1, (1, 2), (1,), 1, 0, 0, at_ms=10)
    seen.partitions += [before, before._replace(isr=(2,), leader=2, leader_epoch=1, at_ms=20)]
    assert len(checkers.offsets_unreadable(seen)) == 2
    assert len(checkers.local_starts_wrong(seen)) == 1


def test_a_loss_of_power_excuses_what_is_unreadable_only_where_it_is_allowed() -> None:
    seen = history(events=[Unreadable(PARTITION, 2, 0, 10, "an object was deleted", 50)])
    seen.promises[TOPIC] = Promise(weak=True)
    assert len(checkers.offsets_unreadable(seen)) == 1
    seen.losses.append(PowerLoss(1, 40))
    assert checkers.offsets_unreadable(seen) == []


def test_local_records_that_were_given_up_too_early_are_found() -> None:
    moved = LocalStartMoved(PARTITION, node=2, before=0, start=10, copied=5, at_ms=7)
    [witness] = checkers.local_starts_wrong(history(events=[moved]))
    assert witness.at_ms == 7
    assert checkers.local_starts_wrong(history()) == []


# -- tiers differ ------------------------------------------------------------------------------


def with_log(crc: int, epoch: int = 2) -> History:
    batches = (BatchSeen(10, 14, epoch, crc),)
    log = ReplicaLog(3, PARTITION, 10, 20, 20, (SegmentSeen(10, 80, 80, batches),))
    seen = history(segments=[SEGMENT, NEXT])
    seen.replica_logs.append(log)
    return seen


def test_copies_are_equal_to_the_logs() -> None:
    assert checkers.tiers_that_differ(with_log(crc=13)) == []


def test_a_copy_that_differs_from_a_log_is_found() -> None:
    [witness] = checkers.tiers_that_differ(with_log(crc=99))
    assert "differs at 10 from the log of node 3" in witness.text


def test_records_of_another_epoch_are_of_another_lineage() -> None:
    assert checkers.tiers_that_differ(with_log(crc=99, epoch=3)) == []


def test_a_copy_that_differs_from_what_was_acknowledged_is_found() -> None:
    seen = history(segments=[SEGMENT])
    seen.acknowledgements.append(Acknowledgement(3, PARTITION, epoch=2, offset=5, crc=12))
    assert checkers.tiers_that_differ(seen) == []
    seen.acknowledgements.append(Acknowledgement(3, PARTITION, epoch=1, offset=0, crc=12))
    assert len(checkers.tiers_that_differ(seen)) == 1


def test_two_copies_that_differ_are_found() -> None:
    other = SEGMENT._replace(segment_id=SECOND, batches=(BatchSeen(0, 4, epoch=1, crc=99),))
    assert len(checkers.tiers_that_differ(history(segments=[SEGMENT, other]))) == 1
    doomed = other._replace(state="DELETE_STARTED")
    assert checkers.tiers_that_differ(history(segments=[SEGMENT, doomed])) == []


# -- objects -----------------------------------------------------------------------------------


def test_objects_of_known_segments_are_no_orphans() -> None:
    doomed = SEGMENT._replace(state="DELETE_STARTED")
    seen = history(segments=[doomed], objects=[("a.log", PARTITION, FIRST)])
    assert checkers.orphan_objects(seen) == []


def test_objects_of_unknown_segments_are_orphans() -> None:
    for partition, segment_id in ((PARTITION, SECOND), ((TOPIC, 1), FIRST)):
        seen = history(segments=[SEGMENT], objects=[("a.log", partition, segment_id)])
        assert len(checkers.orphan_objects(seen)) == 1


def test_objects_of_a_deleted_topic_may_stay_until_its_receipt() -> None:
    seen = history(objects=[("a.log", PARTITION, FIRST), ("manifest/0", PARTITION, None)])
    assert len(checkers.orphan_objects(seen)) == 1
    seen.topics = set()
    assert checkers.orphan_objects(seen) == []
    seen.receipts = {TOPIC}
    assert len(checkers.orphan_objects(seen)) == 2


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        (SEGMENT._replace(missing=("index",)), "without its index"),
        (SEGMENT._replace(damage="a batch fails its checksum"), "a batch fails its checksum"),
        (SEGMENT._replace(batches=SEGMENT.batches[1:]), "without 0 to 5"),
        (SEGMENT._replace(batches=SEGMENT.batches[:1]), "its batches end at 5"),
    ],
)
def test_readable_segments_have_their_objects(segment: RemoteSegmentSeen, text: str) -> None:
    assert checkers.remote_objects_missing(history(segments=[SEGMENT, NEXT])) == []
    [witness] = checkers.remote_objects_missing(history(segments=[segment, NEXT]))
    assert text in witness.text
    doomed = segment._replace(state="DELETE_STARTED")
    assert checkers.remote_objects_missing(history(segments=[doomed])) == []


def test_an_object_that_was_replaced_is_found() -> None:
    assert len(checkers.objects_replaced(history(events=[ObjectReplaced("a", 5)]))) == 1
    assert checkers.objects_replaced(history()) == []


# -- manifests ---------------------------------------------------------------------------------


def manifests(seen: ManifestSeen, *segments: RemoteSegmentSeen) -> int:
    return len(checkers.manifests_wrong(history(manifests=[seen], segments=list(segments))))


def test_manifests_list_readable_segments() -> None:
    assert manifests(ManifestSeen(PARTITION, (FIRST,)), SEGMENT, NEXT) == 0
    assert manifests(ManifestSeen(PARTITION, ())) == 0


def test_manifests_that_list_others_are_found() -> None:
    assert manifests(ManifestSeen(PARTITION, (FIRST, SECOND)), SEGMENT) == 1
    assert manifests(ManifestSeen(PARTITION, (FIRST,)), SEGMENT._replace(state="COPY_STARTED")) == 1


def test_broken_chains_of_manifests_are_found() -> None:
    assert manifests(ManifestSeen(PARTITION, (FIRST,), holes=(3,)), SEGMENT) == 1
    assert manifests(ManifestSeen(PARTITION, (FIRST,), damaged=("3",)), SEGMENT) == 1


def test_a_reader_that_is_sent_to_nothing_is_found() -> None:
    seen = history(events=[ListedAndGone(PARTITION, "a.log", "deleted", 5)])
    assert [each.at_ms for each in checkers.manifests_wrong(seen)] == [5]
    seen.deleted.add(TOPIC)
    assert checkers.manifests_wrong(seen) == []


# -- what brokers say --------------------------------------------------------------------------


def test_images_of_segments_are_compared_with_the_metadata() -> None:
    same = SegmentsImage(PARTITION, 2, ((FIRST, "COPY_FINISHED"),), ((FIRST, "COPY_FINISHED"),))
    assert checkers.segment_images_that_differ(history(images=[same])) == []
    for segments in ((), ((FIRST, "DELETE_STARTED"),), ((SECOND, "COPY_FINISHED"),)):
        other = same._replace(segments=segments)
        assert len(checkers.segment_images_that_differ(history(images=[other]))) == 1


def test_an_image_that_never_was_is_found() -> None:
    other = ImageUnlike(PARTITION, 2, ((FIRST, "COPY_FINISHED"),), (), at_ms=5)
    [witness] = checkers.segment_images_that_differ(history(events=[other]))
    assert witness.at_ms == 5


@pytest.mark.parametrize(
    "change",
    [
        {"earliest": 11},
        {"earliest_local": 21, "latest_tiered": 20, "latest": 20},
        {"latest_tiered": 20},
        {"latest_tiered": 8, "pending_upload": 9},
        {"latest_tiered": 8, "pending_upload": -1},
        {"pending_upload": 21},
        {"earliest": 12, "earliest_local": 12, "pending_upload": 11},
        {"max_timestamp": 21},
    ],
)
def test_special_offsets_that_contradict_each_other_are_found(change: dict[str, int]) -> None:
    assert checkers.special_offsets_wrong(history(offsets=[OFFSETS])) == []
    unknown = OFFSETS._replace(latest_tiered=-1, pending_upload=-1, max_timestamp=-1)
    assert checkers.special_offsets_wrong(history(offsets=[unknown])) == []
    assert len(checkers.special_offsets_wrong(history(offsets=[OFFSETS._replace(**change)]))) == 1


def test_a_log_start_may_move_between_two_questions() -> None:
    """A paused leader answers with its old log start, and the rest after it has moved."""
    moved = OFFSETS._replace(earliest=3, earliest_local=15, pending_upload=15, latest_tiered=2)
    assert checkers.special_offsets_wrong(history(offsets=[moved])) == []
