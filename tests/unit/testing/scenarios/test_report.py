"""A report shows in one line whether promises were kept, and everything where one was not.

Method: reports made by hand.
"""

from dataclasses import replace

from ottla.testing.checkers.records import Witness
from ottla.testing.checkers.verdict import Finding, Judgement, Verdict
from ottla.testing.scenarios.report import Report

KEPT = Report(
    seed=7,
    scenario="standard",
    cluster="3 brokers, 3 controllers",
    faultless=False,
    mix={"crash": 0.02, "silent": 0.0},
    marks={"isr-shrunk": 3},
    virtual_ms=128_400,
    rough_ms=120_000,
    writes=1_010,
    acknowledged=1_000,
    failed=4,
    unknown=6,
    reads=2_000,
    leader_changes=9,
    controller_changes=2,
    judgement=Judgement(Verdict.TRUE),
    digest="ab12",
    steps=100_000,
    wall_seconds=1.94,
)
LOST = Finding("acknowledged write lost", tuple(Witness(f"w{n}", n) for n in range(5)))
BROKEN = replace(KEPT, judgement=Judgement(Verdict.FALSE, (LOST,)))


def test_a_kept_promise_takes_one_line() -> None:
    assert KEPT.lines(full=False) == [
        "seed 7: true, 128 virtual seconds, 1000 acknowledged writes, 9 leader changes, 1.9 s"
    ]


def test_one_seed_is_shown_in_full() -> None:
    lines = KEPT.lines(full=True)
    assert "  faults    crash 0.02" in lines
    assert "  marks     isr-shrunk 3" in lines
    assert "  digest    ab12, after 100000 steps" in lines
    assert not any("replay" in line for line in lines)


def test_a_broken_promise_names_witnesses_time_and_how_to_replay() -> None:
    lines = BROKEN.lines(full=False)
    assert "  violation: acknowledged write lost, 5 times" in lines
    assert [line for line in lines if line.startswith("    at")] == [
        "    at 0 ms: w0",
        "    at 1 ms: w1",
        "    at 2 ms: w2",
    ]
    assert lines[-1] == "  replay    ottla sim --seed 7"
    assert not BROKEN.is_kept


def test_a_replay_names_what_was_not_the_default() -> None:
    other = replace(KEPT, file="my story.py", seconds=30.0)
    assert other.replay == "ottla sim --seed 7 --seconds 30 --scenario 'my story.py'"


def test_a_run_that_proves_nothing_breaks_no_promise() -> None:
    inconclusive = replace(KEPT, judgement=Judgement(Verdict.UNKNOWN, (), ("too little",)))
    assert inconclusive.is_kept
    assert not inconclusive.is_proof
    assert "  unknown   too little" in inconclusive.lines(full=True)


def test_json_has_the_same() -> None:
    as_json = BROKEN.as_json()
    assert as_json["verdict"] == "false"
    assert as_json["findings"][0]["witnesses"][4] == {"at_ms": 4, "text": "w4"}
    assert as_json["replay"] == "ottla sim --seed 7"
