"""Findings are confirmed by a second look, and bounded in number."""

from dataclasses import replace

from ottla.spark.jobs.rules.findings import Finding, Kind, Severity, confirmed, limited
from tests.unit.tiered.support import PARTITION, TOPIC, TOPIC_ID


def finding(kind: Kind = Kind.ORPHAN_OBJECT, name: str = "a") -> Finding:
    return Finding(
        topic=TOPIC,
        topic_id=TOPIC_ID,
        partition=PARTITION,
        kind=kind,
        severity=Severity.WARNING,
        detail="d",
        object=name,
    )


def test_only_what_both_looks_have_is_confirmed() -> None:
    again = replace(finding(name="b"), detail="older now")
    assert confirmed([finding(), finding(name="b")], [again, finding(name="c")]) == [again]
    assert confirmed([finding()], [finding(Kind.FOREIGN_OBJECT)]) == []
    assert confirmed([], [finding()]) == []


def test_many_of_a_kind_are_counted() -> None:
    every = [finding(name=str(number)) for number in range(5)] + [finding(Kind.LEFTOVER)]
    shown = list(limited(every, most=3))
    assert [each.object for each in shown] == ["0", "1", "2", "a", None]
    assert shown[-1].kind is Kind.ORPHAN_OBJECT
    assert shown[-1].detail == "and 2 more of this kind in this partition"
    assert list(limited(every, most=5)) == every
