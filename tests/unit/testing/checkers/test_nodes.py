"""Each anomaly of nodes is found in a history that has it, and in no other.

Method: histories of a few lines, one that keeps the promise and one that breaks it.
"""

import pytest

from ottla.base.ids import Uuid
from ottla.testing.checkers import leftovers as checkers_leftovers
from ottla.testing.checkers import nodes as checkers_nodes
from ottla.testing.history.history import History
from ottla.testing.history.nodes import (
    REPLICATION,
    EpochSeen,
    LeftOver,
    MemberSeen,
    ReplayCompared,
    RequestHeld,
    RuleBroken,
    StartRefused,
    Unfenced,
)

PARTITION = (Uuid(bytes(15) + b"\x09"), 0)
HELD = RequestHeld(
    client=-1,
    node=1,
    incarnation=1,
    api="Produce",
    held_ms=2_100,
    limit_ms=2_000,
    answered=True,
    at_ms=7,
)
MEMBER = MemberSeen(
    PARTITION,
    node=2,
    incarnation=1,
    is_eligible=False,
    committed=10,
    end=10,
    epoch=3,
    leader_epoch=3,
    at_ms=8,
)
EPOCH = EpochSeen(PARTITION, node=1, incarnation=1, leader_epoch=4, partition_epoch=9)


# -- request unanswered ------------------------------------------------------------------------


def test_an_answer_a_little_late_is_in_time() -> None:
    assert checkers_nodes.requests_unanswered(History(requests_held=[HELD])) == []


@pytest.mark.parametrize("answered", [False, True])
def test_a_request_that_is_kept_too_long_is_found(answered: bool) -> None:
    held = HELD._replace(held_ms=2_900, answered=answered)
    (found,) = checkers_nodes.requests_unanswered(History(requests_held=[held]))
    assert found.at_ms == 7
    assert ("did not answer" in found.text) is not answered


# -- image unlike the log ----------------------------------------------------------------------


def test_an_image_like_the_log_is_well() -> None:
    same = ReplayCompared(1, 1, 40, "its image", ())
    assert checkers_nodes.images_unlike_the_log(History(replays=[same])) == []


def test_an_image_unlike_the_log_is_found() -> None:
    other = ReplayCompared(1, 2, 40, "its image", ("topics", "configs"), 9)
    (found,) = checkers_nodes.images_unlike_the_log(History(replays=[other]))
    assert (found.at_ms, "topics, configs" in found.text) == (9, True)


# -- member lacks committed records ------------------------------------------------------------


def lacking(*seen: MemberSeen) -> list[int]:
    found = checkers_nodes.members_that_lack_records(History(members=list(seen)))
    return [witness.at_ms for witness in found]


def test_a_member_with_all_that_is_committed_is_well() -> None:
    assert lacking(MEMBER, MEMBER._replace(end=12), MEMBER._replace(is_eligible=True)) == []


def test_a_member_that_ends_below_the_high_watermark_is_found_once() -> None:
    assert lacking(MEMBER._replace(end=9), MEMBER._replace(end=8, at_ms=9)) == [8]


def test_an_eligible_leader_replica_that_lacks_records_is_found() -> None:
    assert lacking(MEMBER._replace(end=9, is_eligible=True)) == [8]


def test_another_record_below_the_high_watermark_is_found() -> None:
    assert lacking(MEMBER._replace(epoch=2)) == [8]


def test_an_epoch_that_is_not_known_proves_nothing() -> None:
    assert lacking(MEMBER._replace(epoch=-1), MEMBER._replace(leader_epoch=-1)) == []


# -- node goes back to an old epoch ------------------------------------------------------------


def fallen(*seen: EpochSeen) -> int:
    return len(checkers_nodes.epochs_that_fell(History(epochs_seen=list(seen))))


def test_epochs_that_rise_are_well() -> None:
    assert (
        fallen(
            EPOCH,
            EPOCH._replace(partition_epoch=10),
            EPOCH._replace(leader_epoch=5, partition_epoch=11),
        )
        == 0
    )


def test_another_incarnation_or_node_may_have_an_older_epoch() -> None:
    assert (
        fallen(
            EPOCH,
            EPOCH._replace(incarnation=2, leader_epoch=3),
            EPOCH._replace(node=2, partition_epoch=1),
        )
        == 0
    )


@pytest.mark.parametrize("field", ["leader_epoch", "partition_epoch"])
def test_an_epoch_that_falls_is_found(field: str) -> None:
    assert fallen(EPOCH, EPOCH._replace(**{field: 3})) == 1


# -- the others --------------------------------------------------------------------------------


@pytest.mark.parametrize("requested", [True, False])
def test_a_broker_that_was_unfenced_unrequested_is_found(requested: bool) -> None:
    history = History(unfenced_brokers=[Unfenced(2, 17, requested, 13)])
    found = checkers_nodes.unfenced_too_early(history)
    assert [each.at_ms for each in found] == ([] if requested else [13])


def test_a_broken_rule_of_replication_is_found_once() -> None:
    broken = RuleBroken(REPLICATION, PARTITION, 2, "joined too early", 17)
    found = checkers_nodes.replication_rules_broken(
        History(rules_broken=[broken, broken._replace(at_ms=19), broken._replace(node=3, at_ms=23)])
    )
    assert [each.at_ms for each in found] == [17, 23]
    assert found[0].text.endswith("-0 joined too early")


def test_a_disk_that_is_refused_is_found() -> None:
    history = History(starts_refused=[StartRefused(3, 2, "the log begins at offset 7", 11)])
    (found,) = checkers_nodes.disks_refused(history)
    assert (found.at_ms, found.text) == (11, "node 3, incarnation 2: the log begins at offset 7")


def test_as_many_as_there_may_be_are_well() -> None:
    assert (
        checkers_leftovers.left_over_after_calm(History(left_over=[LeftOver(1, "timers", 4, 4)]))
        == []
    )


def test_more_than_there_may_be_is_found() -> None:
    history = History(left_over=[LeftOver(1, "delayed produces", 1, 0, 12)])
    (found,) = checkers_leftovers.left_over_after_calm(history)
    assert found.text == "node 1 keeps 1 delayed produces, 0 at most"
