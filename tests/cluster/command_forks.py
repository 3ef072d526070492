"""Runs commands of `ottla`, each in a process of its own, forked from one that has imported them.

A new interpreter that imports a command takes half a second of a processor; tests run hundreds.

Protocol: a line of JSON on standard input for each command, {"words": its arguments, "streams":
files for its standard streams, "cwd": null = this one, "environment": all of it}; answered by two
lines, the process id when it runs, and the exit code when it has ended, negative for a signal, as
`subprocess` has it.
"""

import gc
import importlib
import json
import os
import sys
from contextlib import redirect_stderr
from io import StringIO
from typing import Any, TextIO

from ottla.cli.main import COMMANDS, main


def serve() -> int:
    """Run what is asked for, until standard input ends."""
    asked = os.fdopen(os.dup(0), encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    for command in COMMANDS.values():
        importlib.import_module(f"ottla.cli.{command.module}")
    with redirect_stderr(StringIO()):
        main(["topics"])  # Wrong usage, which imports the rest of typer.
    gc.freeze()  # Else collections in the children would copy all their memory.
    for line in asked:
        process = os.fork()
        if process == 0:
            return _become(json.loads(line))
        _say(answers, process)
        _, status = os.waitpid(process, 0)
        _say(answers, os.waitstatus_to_exitcode(status))
    return 0


def _become(order: dict[str, Any]) -> int:
    """Run a command as this process; return its exit code."""
    modes = (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)
    for stream, (path, mode) in enumerate(zip(order["streams"], modes, strict=True)):
        descriptor = os.open(path, mode)
        os.dup2(descriptor, stream)
        os.close(descriptor)
    if order["cwd"] is not None:
        os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv[1:] = order["words"]
    return main()


def _say(answers: TextIO, number: int) -> None:
    print(number, file=answers, flush=True)


if __name__ == "__main__":
    sys.exit(serve())
