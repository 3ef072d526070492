"""`ottla` itself: what it lists, what it refuses, and its exit codes.

Method: the command runs in this process; only what it imports on the way is checked in another.
"""

import subprocess
import sys

import pytest

from ottla.cli.main import COMMANDS, NOT_YET

from .conftest import Run


def test_without_arguments_it_lists_every_command(run: Run) -> None:
    ran = run()
    assert ran.code == 0
    for name in COMMANDS:
        assert f"  {name} " in ran.out


def test_version(run: Run) -> None:
    from ottla import __version__

    assert run("--version") == (0, f"ottla {__version__}\n", "")


def test_an_unknown_command_is_wrong_usage_and_gets_a_hint(run: Run) -> None:
    ran = run("topic")
    assert ran.code == 2
    assert ran.err == "ottla: there is no command 'topic': did you mean topics?\n"


@pytest.mark.parametrize("name", sorted(NOT_YET))
def test_commands_of_later_versions_are_refused_and_not_listed(run: Run, name: str) -> None:
    ran = run(name, "--whatever")
    assert (ran.code, ran.err) == (2, f"ottla: {name} is not available in this version\n")
    assert f"  {name} " not in run("--help").out


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_explains_itself(run: Run, name: str) -> None:
    ran = run(name, "--help")
    assert ran.code == 0
    assert ran.out.lower().startswith("usage: ottla " + name)
    assert "xamples:" in ran.out or name == "demo"


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"server"}))
def test_an_unknown_option_is_wrong_usage(run: Run, name: str) -> None:
    ran = run(name, "--no-such-option")
    assert ran.code == 2
    assert ran.err.startswith(f"ottla {name}: ")
    assert ran.err.endswith(f"See 'ottla {name} --help'.\n")


def test_starting_a_server_does_not_import_what_it_does_not_need() -> None:
    """Every node's start pays for these imports."""
    program = (
        "import sys; from ottla.cli.main import main\n"
        "try: main(['server', '/no/such/file'])\n"
        "except SystemExit: pass\n"
        "print([name for name in ('typer', 'rich', 'confluent_kafka') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
