"""Shows what a command waits for: one line that changes on a terminal, plain lines elsewhere."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.status import Status


def print_stderr(line: str) -> None:
    """Print a line on stderr, flushed."""
    print(line, file=sys.stderr, flush=True)


class Progress:
    """Prints on stderr what a command waits for; `done` clears the status line."""

    def __init__(self) -> None:
        self._status: Status | None = None

    def say(self, line: str) -> None:
        """Print a permanent line."""
        print_stderr(line)

    def wait(self, line: str) -> None:
        """Show `line` as what the command waits for."""
        if not sys.stderr.isatty():
            self.say(line)
            return
        if self._status is None:
            from rich.console import Console

            self._status = Console(stderr=True).status(line)
            self._status.start()
        else:
            self._status.update(line)

    def done(self) -> None:
        """Remove the status line."""
        if self._status is not None:
            self._status.stop()
            self._status = None
