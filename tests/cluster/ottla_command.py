"""Running the `ottla` command as users do: another process, its output and exit code."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple


class Ran(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


def ottla_arguments(*arguments: str) -> list[str]:
    """Return the command line of `ottla` with these arguments."""
    return [sys.executable, "-P", "-m", "ottla.cli", *arguments]


def ottla(*arguments: str, stdin: str = "", cwd: Path | None = None, timeout: float = 60) -> Ran:
    """Run a command to its end."""
    done = subprocess.run(
        ottla_arguments(*arguments),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        cwd=cwd,
    )
    return Ran(done.returncode, done.stdout, done.stderr)
