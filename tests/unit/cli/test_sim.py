"""`ottla sim` plays the seeds that it was asked for, and refuses what it cannot play.

Method: the options' own functions, and the command itself on seeds that are not played.
"""

from pathlib import Path

import pytest

from ottla.cli.errors import UsageError
from ottla.cli.main import main
from ottla.cli.sim import chosen_seconds, chosen_seeds


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


def test_what_is_no_scenario_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


@pytest.mark.parametrize(
    "words", [["--seed", "x"], ["--workers", "0"], ["--seeds", "9..1"], ["--seconds", "0"]]
)
def test_wrong_usage_exits_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", *words]) == 2
    assert capsys.readouterr().err.endswith("See 'ottla sim --help'.\n")
