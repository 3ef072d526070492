"""Each anomaly of deletions is found in a history that has it, and in no other.

Method: histories of a few lines, one that keeps the promise and one that breaks it.
"""

import pytest

from ottla.base.ids import Uuid
from ottla.testing.checkers import deletion as checkers
from ottla.testing.history.history import (
    History,
    PartitionDirAppeared,
    ReplicaConfirmed,
    ReplicaSetAside,
    TopicAcknowledged,
    TopicSeen,
)

TOPIC = Uuid(bytes(15) + b"\x09")
OTHER = Uuid(bytes(15) + b"\x0a")
PARTITION = (TOPIC, 0)

# -- deleted topic came back -------------------------------------------------------------------

MADE = TopicSeen(TOPIC, True, offset=5)
REMOVED = TopicSeen(TOPIC, False, offset=9, at_ms=40)
KNOWN = TopicSeen(TOPIC, True, node=1, incarnation=1, offset=5)
FORGOTTEN = TopicSeen(TOPIC, False, node=1, incarnation=1, offset=9, at_ms=50)


def came_back(*seen: TopicSeen) -> list[int]:
    found = checkers.deleted_topics_came_back(History(topics_seen=list(seen)))
    return [witness.at_ms for witness in found]


def test_a_topic_that_comes_and_goes_is_well() -> None:
    assert came_back(MADE, KNOWN, REMOVED, FORGOTTEN) == []


def test_a_node_may_learn_of_a_deletion_late() -> None:
    late = TopicSeen(TOPIC, True, node=2, incarnation=1, offset=8, at_ms=60)
    assert came_back(MADE, REMOVED, late) == []


def test_a_restarted_node_may_begin_with_what_it_knew() -> None:
    again = KNOWN._replace(incarnation=2, offset=6, at_ms=60)
    assert came_back(MADE, KNOWN, REMOVED, FORGOTTEN, again) == []


def test_another_topic_is_another_one() -> None:
    assert came_back(MADE, REMOVED, MADE._replace(topic_id=OTHER, offset=11)) == []


def test_a_topic_that_is_there_again_is_found() -> None:
    assert came_back(MADE, REMOVED, MADE._replace(offset=10, at_ms=70)) == [70]


def test_a_node_that_knows_again_what_it_forgot_is_found() -> None:
    assert came_back(KNOWN, FORGOTTEN, KNOWN._replace(offset=-1, at_ms=70)) == [70]


def test_a_node_that_has_it_where_the_metadata_has_not_is_found() -> None:
    assert came_back(MADE, REMOVED, KNOWN._replace(offset=9, at_ms=70)) == [70]


def test_nodes_that_do_not_count_by_offsets_are_not_compared_by_them() -> None:
    assert came_back(MADE, REMOVED, KNOWN._replace(offset=-1, at_ms=70)) == []


# -- deletion not finished ---------------------------------------------------------------------

DELETED = TopicAcknowledged(TOPIC, "t", is_deletion=True, at_ms=6)


def ended(receipts: set[Uuid] | None, *, healed_ms: int | None = 50) -> History:
    return History(
        topics_acknowledged=[DELETED], receipts=receipts, healed_ms=healed_ms, ended_ms=90
    )


def test_an_acknowledged_deletion_with_a_receipt_is_well() -> None:
    assert checkers.deletions_unfinished(ended({TOPIC})) == []


def test_without_a_ledger_there_are_no_receipts() -> None:
    assert checkers.deletions_unfinished(ended(None)) == []


def test_before_all_is_healed_nothing_need_have_ended() -> None:
    assert checkers.deletions_unfinished(ended(set(), healed_ms=None)) == []


def test_an_acknowledged_deletion_without_a_receipt_is_found() -> None:
    found = checkers.deletions_unfinished(ended({OTHER}))
    assert [witness.at_ms for witness in found] == [90]


@pytest.mark.parametrize("left", ["deletions_left", "partition_dirs_left"])
def test_what_is_left_in_the_end_is_found(left: str) -> None:
    history = ended({TOPIC})
    setattr(history, left, ["something"])
    assert [each.text for each in checkers.deletions_unfinished(history)] == ["something"]


# -- receipt untrue ----------------------------------------------------------------------------

CONFIRMED = ReplicaConfirmed(1, PARTITION, at_ms=40)
FOLDER = PartitionDirAppeared(1, PARTITION, "/data/t-0", at_ms=10)


def untrue(
    confirmed: list[ReplicaConfirmed], partition_dirs: list[PartitionDirAppeared]
) -> list[int]:
    history = History(confirmed=confirmed, partition_dirs=partition_dirs)
    return [witness.at_ms for witness in checkers.receipts_untrue(history)]


def test_a_replica_that_went_and_stays_away_is_well() -> None:
    assert untrue([CONFIRMED], [FOLDER]) == []


def test_directories_of_other_nodes_and_other_replicas_do_not_matter() -> None:
    late = FOLDER._replace(at_ms=60)
    others = [late._replace(node=2), late._replace(partition=(OTHER, 0))]
    assert untrue([CONFIRMED], [*others, late._replace(partition=(TOPIC, 1))]) == []


def test_a_directory_that_is_there_when_the_receipt_is_written_is_found() -> None:
    assert untrue([CONFIRMED._replace(left=("/data/t-0",))], [FOLDER]) == [40]


def test_a_directory_that_comes_back_is_found() -> None:
    assert untrue([CONFIRMED], [FOLDER, FOLDER._replace(at_ms=60)]) == [60]


# -- living replica deleted --------------------------------------------------------------------


def test_an_unassigned_replica_may_be_removed() -> None:
    history = History(set_aside=[ReplicaSetAside(1, PARTITION)])
    assert checkers.living_replicas_deleted(history) == []


def test_a_removed_replica_that_is_in_sync_is_found() -> None:
    history = History(set_aside=[ReplicaSetAside(1, PARTITION, in_sync=True, at_ms=7)])
    [found] = checkers.living_replicas_deleted(history)
    assert found.at_ms == 7
    assert found.text.endswith("which was in sync")


def test_a_removed_replica_that_its_nodes_image_assigns_to_it_is_found() -> None:
    """In sync or not: one that lags may be the last to have what was acknowledged."""
    history = History(set_aside=[ReplicaSetAside(1, PARTITION, assigned=True, at_ms=8)])
    [found] = checkers.living_replicas_deleted(history)
    assert found.at_ms == 8
    assert found.text.endswith("which its image assigns to it")
