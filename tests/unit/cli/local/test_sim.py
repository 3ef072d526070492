"""`ottla sim` runs the requested seeds, and rejects invalid options.

Method: the options' own functions, and the command itself on seeds that are not played.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.errors import UsageError
from ottla.cli.local.sim import chosen_seconds, chosen_seeds
from ottla.cli.main import main
from ottla.testing.scenarios.report import Report
from ottla.testing.scenarios.runner import PlayOptions, play


@pytest.mark.parametrize(
    ("seed", "seeds", "count", "expected"),
    [
        (7, None, None, range(7, 8)),
        (0, None, None, range(1)),
        (None, "3..5", None, range(3, 6)),
        (None, "3..3", None, range(3, 4)),
        (None, None, 4, range(1, 5)),
    ],
)
def test_seeds_are_chosen_one_way(
    seed: int | None, seeds: str | None, count: int | None, expected: range
) -> None:
    assert chosen_seeds(seed, seeds, count) == expected


def test_without_a_choice_one_seed_is_drawn() -> None:
    assert len(chosen_seeds(None, None, None)) == 1


@pytest.mark.parametrize(
    ("seed", "seeds", "count", "reason"),
    [
        (1, "1..2", None, "only one of"),
        (1, None, 3, "only one of"),
        (-1, None, None, "--seed -1: expected 0 to"),
        (2**63, None, None, "--seed 9223372036854775808"),
        (None, "5..3", None, "expected A..B"),
        (None, "5", None, "expected A..B"),
        (None, "a..b", None, "expected A..B"),
        (None, None, 0, "0 seeds"),
        (None, None, -2, "0 seeds"),
        (None, "1..9999999999", None, "9999999999 seeds"),
    ],
)
def test_other_choices_are_refused(
    seed: int | None, seeds: str | None, count: int | None, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason.replace(".", r"\.")):
        chosen_seeds(seed, seeds, count)


def test_lengths_are_minutes_or_seconds() -> None:
    assert chosen_seconds(2, None) == 120
    assert chosen_seconds(None, 30) == 30
    assert chosen_seconds(None, None) is None
    for minutes, seconds in ((1, 1), (0, None), (None, -5), (None, float("nan")), (1e9, None)):
        with pytest.raises(UsageError):
            chosen_seconds(minutes, seconds)


def test_a_file_without_a_scenario_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "missing.py"
    assert main(["sim", "--seed", "1", "--scenario", str(missing)]) == 1
    assert capsys.readouterr().err == f"ottla sim: {missing}: no such file\n"
    file = tmp_path / "story.py"
    for content, reason in (
        ("", "SCENARIO is missing, expected a Scenario"),
        ("SCENARIO = 3", "SCENARIO is a int, expected a Scenario"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("(", "SyntaxError"),
    ):
        file.write_text(content)
        assert main(["sim", "--seed", "1", "--scenario", str(file)]) == 1
        assert reason in capsys.readouterr().err


REFUSED = """
from ottla.testing.scenarios import Scenario, TopicSpec

def story(story):
    yield from story.create(TopicSpec(name="no/name", replication_factor=1))

SCENARIO = Scenario(name="refused", story=story, brokers=1, controllers=1, combined=True)
"""


def test_a_scenario_with_an_invalid_request_fails_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "story.py"
    file.write_text(REFUSED)
    assert main(["sim", "--seed", "1", "--scenario", str(file)]) == 1
    assert capsys.readouterr().err == (
        "ottla sim: the scenario is invalid: topic no/name is refused: INVALID_TOPIC_EXCEPTION\n"
    )


def test_many_seeds_are_summed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "story.py"
    file.write_text(REFUSED.replace("no/name", "fine"))
    words = ["sim", "--seeds", "4..6", "--seconds", "2", "--scenario", str(file)]
    assert main([*words, "--quiet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("3 seeds: 0 count, 0 without faults, 3 prove nothing (4, 5, 6)")
    assert main([*words, "--json"]) == 0
    assert [json.loads(line)["seed"] for line in capsys.readouterr().out.splitlines()] == [4, 5, 6]


def test_an_interrupted_run_prints_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(seeds: range, options: PlayOptions, *, workers: int) -> Iterator[Report]:
        yield from (play(seed, options) for seed in seeds[:2])
        raise KeyboardInterrupt

    monkeypatch.setattr("ottla.testing.scenarios.runner.play_all", interrupted)
    file = tmp_path / "story.py"
    file.write_text(REFUSED.replace("no/name", "fine"))
    words = ["sim", "--seeds", "4..6", "--seconds", "2", "--scenario", str(file)]
    assert main([*words, "--quiet"]) == 130
    printed = capsys.readouterr()
    assert printed.out.startswith("2 seeds: 0 count")
    assert printed.err == "interrupted after 2 of 3 seeds\n"


@pytest.mark.parametrize(
    "words", [["--seed", "x"], ["--workers", "0"], ["--seeds", "9..1"], ["--seconds", "0"]]
)
def test_wrong_usage_exits_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", *words]) == 2
    assert capsys.readouterr().err.endswith("See 'ottla sim --help'.\n")
