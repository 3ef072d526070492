"""`ottla` itself: what it lists, what it refuses, and its exit codes.

Method: the command runs in this process; only what it imports on the way is checked in another.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli.main import COMMANDS

from .conftest import Run


def test_without_arguments_it_lists_every_command(run: Run) -> None:
    ran = run()
    assert ran.code == 0
    for name in COMMANDS:
        assert f"  {name} " in ran.out


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_prints_the_version(run: Run, name: str) -> None:
    from ottla import __version__

    assert run(name, "--version") == (0, f"ottla {__version__}\n", "")


def test_version(run: Run) -> None:
    from ottla import __version__

    assert run("--version") == (0, f"ottla {__version__}\n", "")


def test_an_unknown_command_is_wrong_usage_and_gets_a_hint(run: Run) -> None:
    ran = run("topic")
    assert ran.code == 2
    assert ran.err == "ottla: there is no command 'topic': did you mean topics?\n"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_explains_itself(run: Run, name: str) -> None:
    ran = run(name, "--help")
    assert ran.code == 0
    assert ran.out.lower().startswith("usage: ottla " + name)
    assert "xamples:" in ran.out


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"server"}))
def test_an_unknown_option_is_wrong_usage(run: Run, name: str) -> None:
    ran = run(name, "--no-such-option")
    assert ran.code == 2
    assert ran.err.startswith(f"ottla {name}: ")
    assert ran.err.endswith(f"See 'ottla {name} --help'.\n")


def test_starting_a_server_imports_only_what_it_needs() -> None:
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


def ottla(*arguments: str, stdin: int | None = None, stdout: int) -> tuple[int, str]:
    """Run `ottla` in a process of its own; return its exit code and its stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla.cli", *arguments],
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


def test_a_file_instead_of_a_directory_is_an_error_without_traceback(
    run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    ran = run("up", "--data-dir", str(file))
    assert ran == (1, "", f"ottla up: {file}: file exists\n")


def test_a_name_that_cannot_be_written_is_a_reason_and_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file's name may be of any bytes, and dump-log says which file it reads."""
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8:strict")  # As in any locale but C.
    directory = tmp_path / os.fsdecode(b"\xff")
    directory.mkdir()
    file = directory / f"{0:020}.log"
    file.write_bytes(b"")
    code, error_text = ottla("dump-log", "--files", str(file), stdout=subprocess.DEVNULL)
    assert code == 2
    assert error_text.endswith(f"\\udcff/{file.name}': expected text in UTF-8\n")
    assert len(error_text.splitlines()) == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has /dev/full")
@pytest.mark.parametrize("arguments", [("--help",), ("storage", "random-uuid"), ("up", "--help")])
def test_output_that_cannot_be_written(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        code, error_text = ottla(*arguments, stdout=full.fileno())
    assert code == 1
    assert error_text.startswith("ottla")
    assert error_text.endswith(": no space left on device\n")
    assert len(error_text.splitlines()) == 1


def test_a_closed_stdout() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert ottla("--help", stdout=writing) == (1, "")
    finally:
        os.close(writing)


def test_closed_standard_streams() -> None:
    """A shell's `<&- >&-`, or a service manager's."""
    program = "import os, sys; os.closerange(0, 2); os.execv(sys.executable, sys.argv[1:])"
    words = [sys.executable, "-c", program, sys.executable, "-m", "ottla.cli"]
    done = subprocess.run([*words, "--version"], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    line = ["console-producer", "--topic", "t", "--bootstrap-server", "127.0.0.1:1"]
    done = subprocess.run(
        [*words, *line, "--max-block-ms", "100"], stderr=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("ottla console-producer: no broker answers at 127.0.0.1:1 ")
