"""Running the `ottla` command as users do: another process, its output and exit code."""

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import NamedTuple

from . import command_forks

STARTED = frozenset({"up", "start", "server"})
"""Commands that start nodes: each runs in an interpreter of its own."""


class Ran(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


def ottla_arguments(*arguments: str) -> list[str]:
    """Return the command line of `ottla` with these arguments."""
    return [sys.executable, "-P", "-m", "ottla.cli", *arguments]


def ottla(*arguments: str, stdin: str = "", cwd: Path | None = None, timeout: float = 60) -> Ran:
    """Run a command to its end; raise subprocess.TimeoutExpired where that does not come."""
    if not arguments or arguments[0] in STARTED:
        return _started(arguments, stdin, cwd, timeout)
    return _forks().run(arguments, stdin, cwd, timeout)


def _started(arguments: tuple[str, ...], stdin: str, cwd: Path | None, timeout: float) -> Ran:
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


class _Forks:
    """The process that commands are forked from (see `command_forks`); one command at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-P", command_forks.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def close(self) -> None:
        with self._process:  # It ends with its standard input.
            pass

    def run(self, arguments: tuple[str, ...], stdin: str, cwd: Path | None, timeout: float) -> Ran:
        with self._lock, tempfile.TemporaryDirectory() as directory:
            streams = [Path(directory, name) for name in ("stdin", "stdout", "stderr")]
            for stream, text in zip(streams, (stdin, "", ""), strict=True):
                stream.write_text(text, encoding="utf-8")
            order = {
                "words": arguments,
                "streams": [str(stream) for stream in streams],
                "cwd": None if cwd is None else str(cwd),
                # A test may have changed it since the process began.
                "environment": dict(os.environ),
            }
            requests, answers = self._process.stdin, self._process.stdout
            assert requests is not None
            assert answers is not None
            requests.write(json.dumps(order).encode() + b"\n")
            process = int(answers.readline())
            is_over = not select.select([answers], [], [], timeout)[0]
            if is_over:
                os.kill(process, signal.SIGKILL)
            code = int(answers.readline())
            _, out, err = (stream.read_text(encoding="utf-8") for stream in streams)
        if is_over:
            raise subprocess.TimeoutExpired(["ottla", *arguments], timeout, out, err)
        return Ran(code, out, err)


@cache
def _forks() -> _Forks:
    forks = _Forks()
    atexit.register(forks.close)
    return forks
