"""One partition under every target: leader, ISR, eligible replicas, and the record.

Method: tables for the strategies, in Kafka's words where it has tests for them; every case of
three replicas exhaustively for the rules that must always hold; targets follow each other as the
deciders make them, and records are applied as a broker would.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, combinations, product

import pytest

from ottla.base.ids import NO_LEADER, Uuid
from ottla.controller.elections.partition_change import (
    ChangeContext,
    Election,
    PartitionTarget,
    build_change,
    leader_predicate,
)
from ottla.metadata.image import PartitionImage
from ottla.metadata.records import LEADER_UNCHANGED, PartitionChangeRecord
from ottla.metadata.topics import (
    DIRECTORY_LOST,
    DIRECTORY_UNASSIGNED,
    RECOVERED,
    RECOVERING,
    changed_partition,
)
from tests.unit.controller.builders import broker, cluster, uuid

TOPIC = uuid("topic")
Ids = tuple[int, ...]


def partition(
    replicas: Iterable[int], isr: Iterable[int], leader: int, **more: object
) -> PartitionImage:
    listed = tuple(replicas)
    usual = PartitionImage(
        replicas=listed,
        directories=tuple(uuid(f"dir-{each}") for each in listed),
        isr=tuple(isr),
        leader=leader,
        leader_epoch=5,
        partition_epoch=9,
    )
    return replace(usual, **more)  # type: ignore[arg-type]


def context_with(
    live: Iterable[int] = (1, 2, 3, 4, 5), min_isr: int = 2, elr: bool = True
) -> ChangeContext:
    alive = set(live)
    return ChangeContext(
        is_acceptable=lambda broker_id, directory: broker_id in alive,
        min_isr=min_isr,
        elr_enabled=elr,
    )


def changed(
    before: PartitionImage, target: PartitionTarget, change_context: ChangeContext
) -> PartitionImage:
    record = build_change(TOPIC, 0, before, target, change_context)
    return before if record is None else changed_partition(before, record)


# -- election strategies -------------------------------------------------------------------------

ONLINE, PREFERRED, UNCLEAN = Election.ONLINE, Election.PREFERRED, Election.UNCLEAN


@pytest.mark.parametrize(
    ("isr", "leader", "live", "election", "expected"),
    [
        # The leader stays while it can.
        ((1, 2, 3), 2, (1, 2, 3), ONLINE, 2),
        ((1, 2, 3), 2, (1, 2, 3), UNCLEAN, 2),
        ((1, 2, 3), 2, (1, 2, 3), PREFERRED, 1),
        ((2, 3), 3, (1, 2, 3), PREFERRED, 3),
        ((1, 2, 3), 3, (2, 3), PREFERRED, 3),
        # Else the first of the replicas' order, not of the ISR's.
        ((3, 2, 1), 1, (2, 3), ONLINE, 2),
        ((3, 2), NO_LEADER, (2, 3), ONLINE, 2),
        ((3, 2), NO_LEADER, (2, 3), PREFERRED, 2),
        ((3, 2), NO_LEADER, (1, 3), PREFERRED, 3),
        # Who is not in sync leads only by an unclean election.
        ((2, 3), 2, (1,), ONLINE, NO_LEADER),
        ((2, 3), 2, (1,), PREFERRED, NO_LEADER),
        ((2, 3), 2, (1,), UNCLEAN, 1),
        ((3,), NO_LEADER, (1, 2), UNCLEAN, 1),
        ((3,), NO_LEADER, (), UNCLEAN, NO_LEADER),
        ((2, 3), 2, (1, 3), UNCLEAN, 3),
    ],
)
@pytest.mark.parametrize("elr", [False, True])
def test_who_is_elected(
    isr: Ids, leader: int, live: Ids, election: Election, expected: int, elr: bool
) -> None:
    before = partition((1, 2, 3), isr, leader)
    after = changed(
        before, PartitionTarget(election=election), context_with(live, min_isr=1, elr=elr)
    )
    assert after.leader == expected
    moved = expected != leader
    assert after.leader_epoch == before.leader_epoch + moved
    assert after.partition_epoch == before.partition_epoch + moved
    if expected not in (*isr, NO_LEADER):
        assert after.isr == (expected,)
        assert after.leader_recovery_state == RECOVERING
    else:
        # Where nobody led, nothing is known of the other members.
        assert after.isr == ((expected,) if leader == NO_LEADER != expected else isr)
        assert after.leader_recovery_state == RECOVERED


@pytest.mark.parametrize(
    ("elr", "live", "expected"),
    [
        ((2, 3), (2, 3), (2, (2,), (3,))),
        ((3, 2), (2, 3), (2, (2,), (3,))),
        ((3,), (1, 2, 3), (3, (3,), ())),
        ((3,), (1, 2), (NO_LEADER, (), (3,))),
    ],
)
def test_an_eligible_replica_leads_where_nobody_is_in_sync(
    elr: Ids, live: Ids, expected: tuple[int, Ids, Ids]
) -> None:
    before = partition((1, 2, 3), (), NO_LEADER, elr=elr, last_known_elr=(1,))
    after = changed(before, PartitionTarget(), context_with(live))
    assert (after.leader, after.isr, after.elr) == expected
    assert after.leader_recovery_state == RECOVERED
    assert after.last_known_elr == ((1,) if after.leader == NO_LEADER else ())


def test_an_eligible_replica_waits_while_somebody_is_in_sync() -> None:
    before = partition((1, 2, 3), (3,), NO_LEADER, elr=(2,))
    assert changed(before, PartitionTarget(), context_with((2,))) == before


@pytest.mark.parametrize("election", [ONLINE, PREFERRED, UNCLEAN])
def test_the_last_known_leader_leads_where_nobody_else_may(election: Election) -> None:
    before = partition((1, 2, 3), (), NO_LEADER, last_known_elr=(2,))
    after = changed(before, PartitionTarget(election=election), context_with((1, 2, 3)))
    assert (after.leader, after.isr, after.last_known_elr) == (2, (2,), ())
    assert after.leader_recovery_state == RECOVERING


@pytest.mark.parametrize("election", [ONLINE, PREFERRED])
def test_kafka_19522_a_fenced_last_known_leader_is_not_elected(election: Election) -> None:
    before = partition((1, 2, 3), (), NO_LEADER, last_known_elr=(2,))
    assert changed(before, PartitionTarget(election=election), context_with((1, 3))) == before


def test_an_unclean_election_takes_another_where_the_last_known_leader_is_away() -> None:
    before = partition((1, 2, 3), (), NO_LEADER, last_known_elr=(2,))
    after = changed(before, PartitionTarget(election=UNCLEAN), context_with((3,)))
    assert (after.leader, after.isr, after.last_known_elr) == (3, (3,), ())


def test_several_last_known_replicas_do_not_lead() -> None:
    before = partition((1, 2, 3), (), NO_LEADER, last_known_elr=(1, 2))
    assert changed(before, PartitionTarget(), context_with()) == before


def test_a_replica_in_a_lost_log_dir_does_not_lead() -> None:
    image = cluster(broker(1), broker(2))
    lost = partition((1, 2), (1, 2), 1, directories=(DIRECTORY_LOST, uuid("dir-2")))
    here = ChangeContext(is_acceptable=leader_predicate(image), min_isr=1, elr_enabled=True)
    assert changed(lost, PartitionTarget(), here).leader == 2
    unknown = replace(lost, directories=(DIRECTORY_UNASSIGNED, uuid("dir-2")))
    assert changed(unknown, PartitionTarget(), here).leader == 1


# -- the ISR shrinks and grows -------------------------------------------------------------------


def test_kafka_708_last_isr_member_stays() -> None:
    before = partition((1, 2), (1,), 1)
    after = changed(before, PartitionTarget(isr=()), context_with((2,), elr=False))
    assert (after.leader, after.isr) == (NO_LEADER, (1,))


def test_with_eligible_replicas_the_isr_runs_empty_and_who_led_is_remembered() -> None:
    before = partition((1, 2, 3), (1,), 1, elr=(2,))
    after = changed(before, PartitionTarget(isr=()), context_with((3,)))
    assert (after.leader, after.isr, after.elr) == (NO_LEADER, (), (1, 2))
    assert after.last_known_elr == (1,)


def test_kafka_15021_a_shrink_alone_does_not_bump_the_leader_epoch() -> None:
    record = build_change(
        TOPIC, 4, partition((1, 2, 3), (1, 2, 3), 1), PartitionTarget(isr=(1, 2)), context_with()
    )
    assert record == PartitionChangeRecord(
        partition_id=4, topic_id=TOPIC, isr=(1, 2), leader=LEADER_UNCHANGED
    )


def test_kafka_15021_taking_a_replica_away_bumps_the_leader_epoch() -> None:
    before = partition((1, 2, 3), (1, 2, 3), 1)
    record = build_change(
        TOPIC, 0, before, PartitionTarget(replicas=(1, 2), isr=(1, 2)), context_with()
    )
    assert record == PartitionChangeRecord(
        partition_id=0,
        topic_id=TOPIC,
        isr=(1, 2),
        leader=1,
        replicas=(1, 2),
        directories=before.directories[:2],
    )


@pytest.mark.parametrize("orders_come_late", [False, True])
def test_kafka_9539_adding_a_replica_bumps_it_where_orders_come_late(
    orders_come_late: bool,
) -> None:
    """Else one to delete the replica, from when it was taken out, would count again."""
    change_context = replace(context_with(elr=False), requests_may_be_delayed=orders_come_late)
    before = partition((1, 2), (1, 2), 1)
    after = changed(before, PartitionTarget(replicas=(1, 2, 3), adding=(3,)), change_context)
    assert after.leader_epoch == before.leader_epoch + orders_come_late
    assert after.leader == 1
    in_sync = changed(after, PartitionTarget(isr=(1, 2, 3)), change_context)
    assert in_sync.leader_epoch == after.leader_epoch
    assert in_sync.adding_replicas == ()
    # Also where nobody leads: then nobody does in another epoch.
    leaderless = partition((1, 2), (1, 2), NO_LEADER)
    after = changed(
        leaderless,
        PartitionTarget(replicas=(1, 2, 3), adding=(3,)),
        replace(change_context, is_acceptable=lambda broker_id, directory: False),
    )
    assert (after.leader, after.leader_epoch - leaderless.leader_epoch) == (
        NO_LEADER,
        orders_come_late,
    )


@pytest.mark.parametrize("orders_come_late", [False, True])
def test_a_reassignment_that_begins_bumps_it_where_orders_come_late(
    orders_come_late: bool,
) -> None:
    """As Kafka's ZooKeeper controller does, also where it adds nobody and waits for a replica."""
    change_context = replace(context_with(elr=False), requests_may_be_delayed=orders_come_late)
    before = partition((1, 2, 3), (1, 2), 1)
    target = PartitionTarget(replicas=(1, 3, 2), removing=(2,))
    after = changed(before, target, change_context)
    assert (after.leader, after.removing_replicas) == (1, (2,))
    assert after.leader_epoch == before.leader_epoch + orders_come_late
    assert build_change(TOPIC, 0, after, target, change_context) is None, "it has begun"
    shrunk = changed(after, PartitionTarget(isr=(1,)), change_context)
    assert shrunk.leader_epoch == after.leader_epoch
    turned = changed(after, PartitionTarget(replicas=(3, 1, 2), removing=(1, 2)), change_context)
    assert turned.leader_epoch == after.leader_epoch + orders_come_late


@pytest.mark.parametrize(
    ("min_isr", "isr", "elr", "new_isr", "expected"),
    [
        (2, (1, 2, 3), (), (1, 2), ()),
        (2, (1, 2, 3), (), (1,), (2, 3)),
        (2, (1, 2), (), (1,), (2,)),
        (2, (1,), (2,), (1, 2), ()),
        (2, (1,), (2,), (1, 3), ()),
        (3, (1, 2), (3,), (1,), (2, 3)),
        (3, (1,), (2, 3), (1, 3), (2,)),
        # More than there are replicas: all of them.
        (9, (1, 2, 3), (), (1, 2), (3,)),
        (9, (1, 2), (3,), (1, 2, 3), ()),
        (1, (1, 2), (), (1,), ()),
    ],
)
def test_who_is_eligible(min_isr: int, isr: Ids, elr: Ids, new_isr: Ids, expected: Ids) -> None:
    before = partition((1, 2, 3), isr, 1, elr=elr)
    assert (
        changed(before, PartitionTarget(isr=new_isr), context_with(min_isr=min_isr)).elr == expected
    )
    without = changed(
        before, PartitionTarget(isr=new_isr), context_with(min_isr=min_isr, elr=False)
    )
    assert without.elr == ()


def test_a_broker_that_lost_unflushed_data_is_not_eligible() -> None:
    before = partition((1, 2, 3), (1,), 1, elr=(2, 3))
    target = PartitionTarget(isr=(), unclean_shutdown=frozenset({1}))
    after = changed(before, target, context_with((2, 3)))
    assert (after.leader, after.isr, after.elr) == (2, (2,), (3,))
    target = PartitionTarget(unclean_shutdown=frozenset({3}))
    assert changed(before, target, context_with((1, 2))).elr == (2,)


def test_a_lone_replica_that_was_killed_leads_again() -> None:
    before = partition((1,), (1,), 1)
    killed = PartitionTarget(isr=(), unclean_shutdown=frozenset({1}))
    gone = changed(before, killed, context_with((), min_isr=1))
    assert (gone.leader, gone.isr, gone.elr, gone.last_known_elr) == (NO_LEADER, (), (), (1,))
    back = changed(gone, PartitionTarget(), context_with((1,), min_isr=1))
    assert (back.leader, back.isr, back.last_known_elr) == (1, (1,), ())


def test_three_replicas_that_were_all_killed_wait_for_the_last_leader() -> None:
    here = partition((1, 2, 3), (1, 2, 3), 1)
    live = {1, 2, 3}
    for dead in (3, 2, 1):  # Fenced one after the other.
        live.discard(dead)
        isr = tuple(each for each in here.isr if each != dead)
        here = changed(here, PartitionTarget(isr=isr), context_with(live))
    assert (here.isr, here.elr, here.last_known_elr) == ((), (1, 2), (1,))
    for back in (3, 2):  # They return with empty caches.
        here = changed(
            here, PartitionTarget(unclean_shutdown=frozenset({back})), context_with(live)
        )
        live.add(back)
        here = changed(here, PartitionTarget(), context_with(live))
        assert here.leader == NO_LEADER
    assert here.elr == (1,)
    here = changed(here, PartitionTarget(unclean_shutdown=frozenset({1})), context_with(live))
    here = changed(here, PartitionTarget(), context_with(live | {1}))
    assert (here.leader, here.isr, here.elr, here.last_known_elr) == (1, (1,), (), ())


def test_a_member_kept_from_before_there_was_an_elr_is_remembered_too() -> None:
    before = partition((1, 2), (1,), NO_LEADER)
    after = changed(
        before, PartitionTarget(isr=(), unclean_shutdown=frozenset({1})), context_with((2,))
    )
    assert (after.isr, after.elr, after.last_known_elr) == ((), (), (1,))


def test_eligible_replicas_are_forgotten_without_the_feature() -> None:
    before = partition((1, 2, 3), (), NO_LEADER, elr=(2,), last_known_elr=(3,))
    after = changed(before, PartitionTarget(), context_with((2,), elr=False))
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (2, (2,), (), ())


def test_a_recovered_leader_resets_the_recovery_state() -> None:
    before = partition((1, 2), (1,), 1, leader_recovery_state=RECOVERING)
    target = PartitionTarget(isr=(1, 2), recovery_state=RECOVERED)
    after = changed(before, target, context_with())
    assert (after.isr, after.leader_recovery_state) == ((1, 2), RECOVERED)
    assert after.leader_epoch == before.leader_epoch


# -- reassignment --------------------------------------------------------------------------------


def test_new_replicas_are_added_first() -> None:
    before = partition((1, 2, 3), (1, 2, 3), 1)
    target = PartitionTarget(replicas=(4, 5, 1, 2, 3), adding=(4, 5), removing=(1, 2, 3))
    after = changed(before, target, context_with())
    assert (after.replicas, after.isr, after.leader) == ((4, 5, 1, 2, 3), (1, 2, 3), 1)
    assert (after.adding_replicas, after.removing_replicas) == ((4, 5), (1, 2, 3))
    assert after.directories[:2] == (DIRECTORY_UNASSIGNED,) * 2
    assert after.directories[2:] == before.directories
    assert after.leader_epoch == before.leader_epoch


def test_directories_of_new_replicas_are_used_as_named() -> None:
    before = partition((1,), (1,), 1)
    target = PartitionTarget(replicas=(1, 2), adding=(2,), directories={2: uuid("named")})
    assert changed(before, target, context_with()).directories == (uuid("dir-1"), uuid("named"))
    moved = PartitionTarget(directories={1: uuid("elsewhere")})
    assert changed(before, moved, context_with()).directories == (uuid("elsewhere"),)


REASSIGNING = partition((4, 5, 1, 2), (1, 2), 1, adding_replicas=(4, 5), removing_replicas=(1, 2))


def test_a_reassignment_goes_on_until_all_that_stay_are_in_sync() -> None:
    after = changed(REASSIGNING, PartitionTarget(isr=(1, 2, 4)), context_with())
    assert after.replicas == REASSIGNING.replicas
    assert after.isr == (1, 2, 4)


def test_a_reassignment_that_ends_moves_the_leader() -> None:
    after = changed(REASSIGNING, PartitionTarget(isr=(1, 2, 4, 5)), context_with())
    assert (after.replicas, after.isr, after.leader) == ((4, 5), (4, 5), 4)
    assert (after.adding_replicas, after.removing_replicas) == ((), ())
    assert after.directories == REASSIGNING.directories[:2]
    assert after.leader_epoch == REASSIGNING.leader_epoch + 1


def test_a_reassignment_that_ends_fences_who_is_taken_out() -> None:
    before = partition((1, 3, 2), (1, 2), 1, adding_replicas=(3,), removing_replicas=(2,))
    after = changed(before, PartitionTarget(isr=(1, 2, 3)), context_with())
    assert (after.replicas, after.leader) == ((1, 3), 1)
    assert after.leader_epoch == before.leader_epoch + 1


def test_only_adding_or_only_removing_ends_too() -> None:
    growing = partition((1, 2), (1,), 1, adding_replicas=(2,))
    assert changed(growing, PartitionTarget(isr=(1, 2)), context_with()).adding_replicas == ()
    shrinking = partition((1, 2), (1, 2), 1)
    after = changed(shrinking, PartitionTarget(replicas=(1, 2), removing=(2,)), context_with())
    assert (after.replicas, after.isr, after.removing_replicas) == ((1,), (1,), ())


def test_who_is_assigned_no_more_is_not_eligible() -> None:
    before = partition((1, 2, 3), (1,), 1, elr=(2, 3))
    after = changed(before, PartitionTarget(replicas=(1, 3)), context_with())
    assert after.elr == (3,)


def test_nothing_is_written_where_nothing_changes() -> None:
    before = partition((1, 2, 3), (1, 2, 3), 1)
    for election in Election:
        assert (
            build_change(TOPIC, 0, before, PartitionTarget(election=election), context_with())
            is None
        )
    same = PartitionTarget(
        isr=(1, 2, 3), replicas=(1, 2, 3), removing=(), adding=(), recovery_state=0
    )
    assert build_change(TOPIC, 0, before, same, context_with()) is None


# -- all small cases ---------------------------------------------------------------------------

ALL = (1, 2, 3)


def subsets(members: Iterable[int]) -> Iterator[Ids]:
    listed = tuple(members)
    return chain.from_iterable(combinations(listed, size) for size in range(len(listed) + 1))


def cases(elr_enabled: bool) -> Iterator[tuple[PartitionImage, ChangeContext, PartitionTarget]]:
    """Yield every sound partition of three replicas with every target of the deciders."""
    for isr, min_isr in product(subsets(ALL), (1, 2, 3)):
        if not isr and not elr_enabled:
            continue
        eligible = [each for each in ALL if each not in isr]
        elrs = subsets(eligible) if elr_enabled and len(isr) < min_isr else [()]
        for elr, leader, live in product(elrs, (*isr, NO_LEADER), subsets(ALL)):
            known = [(), *((each,) for each in ALL)] if not isr and elr_enabled else [()]
            for last, gone, election in product(known, (0, *ALL), Election):
                before = partition(ALL, isr, leader, elr=elr, last_known_elr=last)
                change_context = context_with(
                    [each for each in live if each != gone], min_isr, elr_enabled
                )
                left = tuple(each for each in isr if each != gone)
                for unclean in (frozenset[int](), frozenset({gone})):
                    yield (
                        before,
                        change_context,
                        PartitionTarget(isr=left, election=election, unclean_shutdown=unclean),
                    )


@pytest.mark.drawn(8, of="every step")
@pytest.mark.forms(1)
@pytest.mark.parametrize("elr_enabled", [False, True])
def test_what_always_holds(elr_enabled: bool) -> None:
    seen = 0
    for before, change_context, target in cases(elr_enabled):
        after = changed(before, target, change_context)
        seen += 1
        assert set(after.isr) <= set(after.replicas)
        assert not set(after.isr) & set(after.elr)
        assert after.leader == NO_LEADER or after.leader in after.isr
        assert after.leader == NO_LEADER or change_context.is_acceptable(after.leader, Uuid(b""))
        assert after.isr or elr_enabled
        assert (after.leader != before.leader) == (after.leader_epoch > before.leader_epoch)
        assert after.leader != NO_LEADER or not set(after.isr) & _live(change_context)
        safe = set(target.isr or ()) or {*before.isr, *before.elr} - target.unclean_shutdown
        if after.leader not in (*safe, NO_LEADER):
            assert after.leader_recovery_state == RECOVERING
            assert (after.isr, after.elr) == ((after.leader,), ())
            is_known = (after.leader,) == before.last_known_elr and not safe
            assert target.election is UNCLEAN or is_known
        else:
            assert after.leader_recovery_state == RECOVERED
        assert len(after.isr) < change_context.min_isr or not after.elr
        if not elr_enabled:
            assert not after.elr
            assert not after.last_known_elr
        # Nothing is left to be done once it is done.
        again = replace(target, isr=None, election=ONLINE)
        assert changed(after, again, change_context) == after
    assert seen > 2_000


def _live(change_context: ChangeContext) -> set[int]:
    return {each for each in ALL if change_context.is_acceptable(each, Uuid(b""))}
