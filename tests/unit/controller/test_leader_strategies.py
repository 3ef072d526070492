"""Each reason to elect picks from its own candidates and leaves its own in-sync set.

Method: a table whose rows bear the names of Kafka's PartitionLeaderElectionAlgorithmsTest
(replicas 2 and 4), then recipients and in-sync sets, then properties for all inputs.
"""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.leader_strategies import (
    Candidates,
    ControlledShutdownElection,
    Elected,
    NotElected,
    OfflineElection,
    PreferredElection,
    ReassignElection,
    Strategy,
    elect,
)
from ottla.metadata.topics import RECOVERING

OFFLINE, UNCLEAN = OfflineElection(), OfflineElection(allow_unclean=True)
REASSIGN, PREFERRED = ReassignElection(), PreferredElection()
SHUTDOWN = ControlledShutdownElection()


def candidates(
    assigned: Iterable[int],
    isr: Iterable[int],
    live: Iterable[int],
    *,
    shutting_down: Iterable[int] = (),
    target: Iterable[int] | None = None,
    can_recover: bool = True,
) -> Candidates:
    return Candidates(
        topic="t",
        assigned=tuple(assigned),
        target=tuple(assigned if target is None else target),
        isr=tuple(isr),
        live=frozenset(live),
        shutting_down=frozenset(shutting_down),
        can_recover=can_recover,
    )


ALGORITHMS: list[tuple[str, Strategy, Candidates, int | None]] = [
    ("offline", OFFLINE, candidates([2, 4], [2, 4], [4]), 4),
    ("offline, last ISR offline, unclean disabled", OFFLINE, candidates([2, 4], [2], [4]), None),
    ("offline, last ISR offline, unclean enabled", UNCLEAN, candidates([2, 4], [2], [4]), 4),
    ("offline, nobody lives, unclean enabled", UNCLEAN, candidates([2, 4], [2], []), None),
    ("offline, unclean enabled is not used in vain", UNCLEAN, candidates([2, 4], [4], [2, 4]), 4),
    ("reassign", REASSIGN, candidates([2, 4], [2, 4], [4]), 4),
    ("reassign, no live ISR", REASSIGN, candidates([2, 4], [2], []), None),
    ("reassign, empty ISR", REASSIGN, candidates([2, 4], [], [2]), None),
    ("reassign, only among the targets", REASSIGN, candidates([2, 4], [2], [2], target=[4]), None),
    ("preferred", PREFERRED, candidates([2, 4], [2, 4], [2, 4]), 2),
    ("preferred, in ISR, not live", PREFERRED, candidates([2, 4], [2], []), None),
    ("preferred, not in ISR, live", PREFERRED, candidates([2, 4], [4], [2, 4]), None),
    ("preferred, not in ISR, not live", PREFERRED, candidates([2, 4], [], []), None),
    ("shutdown", SHUTDOWN, candidates([2, 4], [2, 4], [4], shutting_down=[2]), 4),
    ("shutdown, last ISR leaves", SHUTDOWN, candidates([2, 4], [2], [4], shutting_down=[2]), None),
    ("shutdown, all leave", SHUTDOWN, candidates([2, 4], [2, 4], [], shutting_down=[2, 4]), None),
]


@pytest.mark.parametrize(
    ("strategy", "of", "leader"),
    [row[1:] for row in ALGORITHMS],
    ids=[row[0] for row in ALGORITHMS],
)
def test_partition_leader_election_algorithms(
    strategy: Strategy, of: Candidates, leader: int | None
) -> None:
    found = elect(strategy, of)
    assert (found.leader if isinstance(found, Elected) else None) == leader


def elected(strategy: Strategy, of: Candidates) -> Elected:
    found = elect(strategy, of)
    assert isinstance(found, Elected)
    return found


def test_a_clean_election_keeps_the_live_part_of_the_isr() -> None:
    found = elected(OFFLINE, candidates([1, 2, 3, 4], [1, 2, 3], [2, 3, 4]))
    assert found == Elected(leader=2, isr=(2, 3), recipients=(2, 3, 4))


def test_an_unclean_leader_is_alone_and_must_check_its_log() -> None:
    found = elected(UNCLEAN, candidates([1, 2, 3], [1], [2, 3]))
    assert (found.leader, found.isr, found.recipients) == (2, (2,), (2, 3))
    assert found.recovery_state == RECOVERING
    assert found.unclean


def test_brokers_that_do_not_know_recovery_are_not_told_of_it() -> None:
    found = elected(UNCLEAN, candidates([1, 2], [1], [2], can_recover=False))
    assert found.recovery_state is None


def test_a_topic_may_allow_unclean_elections_by_itself() -> None:
    of = candidates([1, 2], [1], [2])
    assert elected(OfflineElection(unclean_topics={"t"}), of).unclean
    assert isinstance(elect(OfflineElection(unclean_topics={"u"}), of), NotElected)


def test_a_reassignment_tells_its_target_replicas() -> None:
    found = elected(REASSIGN, candidates([1, 2, 3], [1, 2, 3], [1, 2, 3], target=[3, 2]))
    assert found == Elected(leader=3, isr=(1, 2, 3), recipients=(3, 2))


def test_the_preferred_leader_is_told_to_all_assigned() -> None:
    found = elected(PREFERRED, candidates([1, 2, 3], [2, 1], [1, 2]))
    assert found == Elected(leader=1, isr=(2, 1), recipients=(1, 2, 3))


def test_controlled_shutdown_takes_all_who_leave_out_of_the_isr() -> None:
    found = elected(SHUTDOWN, candidates([1, 2, 3, 4], [1, 2, 3], [3, 4], shutting_down=[1, 2]))
    assert found == Elected(leader=3, isr=(3,), recipients=(1, 2, 3, 4))


IDS = st.integers(0, 5)


@given(
    strategy=st.sampled_from([OFFLINE, UNCLEAN, REASSIGN, PREFERRED, SHUTDOWN]),
    assigned=st.lists(IDS, min_size=1, max_size=5, unique=True),
    isr=st.lists(IDS, unique=True),
    live=st.sets(IDS),
    stopping=st.sets(IDS),
)
def test_whoever_is_elected_lives_is_in_sync_and_only_unclean_leaders_were_not(
    strategy: Strategy, assigned: list[int], isr: list[int], live: set[int], stopping: set[int]
) -> None:
    isr = [each for each in assigned if each in isr]
    of = candidates(assigned, isr, live - stopping, shutting_down=stopping)
    found = elect(strategy, of)
    if isinstance(found, NotElected):
        return
    assert found.leader in live - stopping
    assert found.leader in assigned
    assert found.leader in found.isr  # So it is never empty (KAFKA-708).
    assert found.leader in found.recipients
    assert found.unclean == (found.leader not in isr)
    assert not found.unclean or not set(isr) & (live - stopping)
