"""A summary counts the seeds that prove something, and names the others.

Method: reports made by hand.
"""

from dataclasses import replace

from ottla.testing.checkers.verdict import Judgement, Verdict
from ottla.testing.scenarios.summary import Summary, counts

from .test_report import BROKEN, KEPT


def test_a_seed_counts_when_it_was_long_and_busy_enough() -> None:
    assert counts(KEPT)
    assert not counts(replace(KEPT, rough_ms=119_999))
    assert not counts(replace(KEPT, acknowledged=499))
    assert not counts(replace(KEPT, judgement=Judgement(Verdict.UNKNOWN)))
    assert not counts(BROKEN)


def test_each_seed_is_of_one_kind() -> None:
    summary = Summary()
    for report in (
        KEPT,
        replace(KEPT, seed=8, leader_changes=21),
        replace(KEPT, seed=9, faultless=True),
        replace(KEPT, seed=10, acknowledged=3),
        replace(BROKEN, seed=11),
    ):
        summary.add(report)
    assert summary.seeds == 5
    assert [each.seed for each in summary.counted] == [7, 8]
    assert [each.seed for each in summary.faultless] == [9]
    assert (summary.inconclusive, summary.broken) == ([10], [11])
    assert summary.median("leader_changes") == 15
    assert summary.marks["isr-shrunk"] == 15
    assert summary.seeds_with["isr-shrunk"] == 5


def test_what_is_printed_names_the_seeds_to_look_at() -> None:
    summary = Summary()
    summary.add(KEPT)
    summary.add(replace(KEPT, seed=10, acknowledged=3))
    summary.add(replace(BROKEN, seed=11))
    lines = summary.lines()
    assert lines[0] == (
        "3 seeds: 1 count, 0 without faults, 1 prove nothing (10), 1 broke a promise"
    )
    assert lines[-1] == "  broken    11"
    assert any("isr-shrunk" in line for line in lines)


def test_no_seed_is_no_division() -> None:
    assert Summary().lines()[0].startswith("0 seeds: 0 count")
