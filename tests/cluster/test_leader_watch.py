"""When nobody led, by what was seen and done: the arithmetic behind the table of the fault tests.

Method: sights and faults by hand; times are seconds.
"""

from .leader_watch import NOBODY, Fault, Sight, outages

BEGIN, END = 0.0, 100.0


def test_a_leader_that_answers_is_no_outage() -> None:
    sights = [Sight(-5, 0, 1), Sight(50, 1, 2)]
    assert outages(sights, [], BEGIN, END) == []
    elsewhere = Fault(3, 10, is_final=True, end=20)
    assert outages(sights, [elsewhere], BEGIN, END) == []


def test_a_killed_leader_leads_again_only_in_a_new_epoch() -> None:
    killed = Fault(1, 10, is_final=True, end=11)
    assert outages([Sight(-5, 0, 1), Sight(13, 1, 2)], [killed], BEGIN, END) == [(10, 13)]
    assert outages([Sight(-5, 0, 1), Sight(13, 1, 1)], [killed], BEGIN, END) == [(10, 13)]
    assert outages([Sight(-5, 0, 1)], [killed], BEGIN, END) == [(10, END)]


def test_a_frozen_leader_goes_on_where_it_was() -> None:
    frozen = Fault(1, 10, is_final=False, end=12)
    assert outages([Sight(-5, 0, 1)], [frozen], BEGIN, END) == [(10, 12)]
    assert outages([Sight(-5, 0, 1), Sight(11, 1, 2)], [frozen], BEGIN, END) == [(10, 11)]


def test_an_election_that_is_heard_of_after_its_winner_died() -> None:
    sights = [Sight(-5, 0, 1), Sight(10, 1, 2), Sight(15, 2, 3)]
    assert outages(sights, [Fault(2, 9, is_final=True, end=12)], BEGIN, END) == [(10, 15)]


def test_nobody_is_seen_to_lead() -> None:
    sights = [Sight(-5, 0, 1), Sight(10, 1, NOBODY), Sight(14, 2, 1)]
    died = Fault(1, 8, is_final=True, end=13)
    assert outages(sights, [died], BEGIN, END) == [(8, 14)], "one outage, not two"


def test_what_lies_outside_the_round_does_not_count() -> None:
    frozen = Fault(1, -3, is_final=False, end=2)
    assert outages([Sight(-5, 0, 1)], [frozen], BEGIN, END) == [(0, 2)]
    later = Fault(1, 99, is_final=True)
    assert outages([Sight(-5, 0, 1)], [later], BEGIN, END) == [(99, END)]
    assert outages([], [later], BEGIN, END) == []
