"""A verdict is false only for what is not tolerated, and true only where enough happened.

Method: histories of a few lines.
"""

from ottla.base.ids import Uuid
from ottla.testing.checkers.verdict import CHECKERS, Finding, Tolerance, Verdict, judge
from ottla.testing.history.history import History, LogSeen, Write
from ottla.testing.history.topics import Outcome

PARTITION = (Uuid(bytes(15) + b"\x09"), 0)
WRITE = Write("p", PARTITION, (b"a",), 0, Outcome.ACKNOWLEDGED, 0, ended_ms=3)


def kept() -> History:
    return History(
        writes=[WRITE], logs=[LogSeen(1, PARTITION, 0, 1, {0: b"a"})], healed_ms=5, ended_ms=9
    )


def lost() -> History:
    history = kept()
    history.logs = [LogSeen(1, PARTITION, 0, 0, {})]
    return history


def test_a_history_that_keeps_its_promises_is_true() -> None:
    judgement = judge(kept())
    assert (judgement.verdict, judgement.findings, judgement.unknown_reasons) == (
        Verdict.TRUE,
        (),
        (),
    )


def test_a_history_that_breaks_one_is_false() -> None:
    judgement = judge(lost())
    assert judgement.verdict is Verdict.FALSE
    assert [finding.checker for finding in judgement.violations] == ["acknowledged write lost"]


def test_a_tolerated_anomaly_is_shown_and_not_held_against_the_history() -> None:
    reason = "its only disk was thrown away"
    judgement = judge(lost(), tolerated=[Tolerance("acknowledged write lost", reason)])
    assert judgement.verdict is Verdict.TRUE
    assert [finding.reason for finding in judgement.findings] == [reason]
    assert judgement.violations == ()


def test_a_tolerance_covers_only_its_own_witnesses() -> None:
    history = lost()
    history.writes.append(WRITE._replace(values=(b"b",), offset=1, ended_ms=4))
    early = Tolerance("acknowledged write lost", "early", lambda _, witness: witness.at_ms < 4)
    judgement = judge(history, tolerated=[early])
    assert judgement.verdict is Verdict.FALSE
    assert [len(finding.witnesses) for finding in judgement.findings] == [1, 1]


def test_too_few_writes_leave_the_verdict_unknown() -> None:
    assert judge(kept(), acknowledged_min=2).verdict is Verdict.UNKNOWN


def test_logs_that_were_not_read_leave_the_verdict_unknown() -> None:
    history = kept()
    history.logs = []
    judgement = judge(history)
    assert judgement.verdict is Verdict.UNKNOWN
    assert judgement.unknown_reasons == ("the logs of 1 written partitions could not be read",)


def test_a_cluster_that_was_not_healed_leaves_the_verdict_unknown() -> None:
    history = kept()
    history.healed_ms = None
    assert judge(history).verdict is Verdict.UNKNOWN


def test_a_violation_counts_however_little_happened() -> None:
    assert judge(lost(), acknowledged_min=100).verdict is Verdict.FALSE


def test_witnesses_come_in_the_order_of_time() -> None:
    history = lost()
    history.writes.insert(0, WRITE._replace(values=(b"b",), offset=1, ended_ms=8))
    (finding,) = judge(history).findings
    assert isinstance(finding, Finding)
    assert [witness.at_ms for witness in finding.witnesses] == [3, 8]


def test_every_checker_takes_an_empty_history() -> None:
    assert not any(check(History()) for check in CHECKERS.values())
