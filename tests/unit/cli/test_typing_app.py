"""Wrong values on the command line: one line that names the option, the value and what it takes."""

import pytest

from ottla.cli.typing_app import fill_values

from .conftest import Run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("up", "--brokers", "three"), "ottla up: --brokers three: expected an integer"),
        (("up", "--port", "1.5"), "ottla up: --port 1.5: expected an integer"),
        (("kill", "two"), "ottla kill: NODE two: expected an integer"),
        (("down", "--timeout", "soon"), "ottla down: --timeout soon: expected a number"),
        (("kill",), "ottla kill: Missing argument 'NODE'."),
        (("kill", ""), "ottla kill: NODE '': expected an integer"),
        (("down", "--timeout", " "), "ottla down: --timeout ' ': expected a number"),
        (("up", "--config", ""), "ottla up: --config '': expected NAME=VALUE"),
    ],
)
def test_values_of_the_wrong_type(run: Run, arguments: tuple[str, ...], message: str) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines() == [message, f"See 'ottla {arguments[0]} --help'."]


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (("cluster", "unregister", "--id", ""), "ottla cluster unregister"),
        (("cluster", "unregister", "--id", "-1"), "ottla cluster unregister"),
        (("cluster", "unregister"), "ottla cluster unregister"),
        (("cluster", "--none"), "ottla cluster"),
        (("metadata-quorum", "describe"), "ottla metadata-quorum describe"),
        (("start", "1", "--timeout", "0"), "ottla start"),
        (("topics",), "ottla topics"),
    ],
)
def test_usage_errors_name_the_right_help(
    run: Run, arguments: tuple[str, ...], command: str
) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines()[-1] == f"See '{command} --help'."


def test_a_value_that_may_be_left_out() -> None:
    optional = {"--state": "all"}
    assert fill_values(["--state", "--list"], optional) == ["--state", "all", "--list"]
    assert fill_values(["--list", "--state"], optional) == ["--list", "--state", "all"]
    assert fill_values(["--state", "Empty"], optional) == ["--state", "Empty"]
