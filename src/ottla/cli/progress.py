"""Shows what a command waits for: one line that changes on a terminal, plain lines elsewhere."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.status import Status


class Progress:
    """Says on stderr what is waited for; `done` clears it away."""

    def __init__(self) -> None:
        self._status: Status | None = None

    def say(self, line: str) -> None:
        """Print a line that stays."""
        print(line, file=sys.stderr, flush=True)

    def wait(self, line: str) -> None:
        """Say what is waited for from now on."""
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
        """Stop waiting."""
        if self._status is not None:
            self._status.stop()
            self._status = None
