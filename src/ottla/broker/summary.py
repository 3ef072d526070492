"""One log line for what happens to many partitions at once.

A broker that dies, comes back or loses a folder is news of thousands of partitions in the same
moment. A line for each would bury all others, and cost more than the work itself: the log gets
one with their number and a few of them, and at DEBUG all.
"""

import logging
from collections.abc import Sequence
from typing import Final

EXAMPLES_MAX: Final = 3


def listed(partitions: Sequence[str]) -> str:
    """Return what to say of some partitions: a few by name, and how many there are."""
    shown = ", ".join(partitions[:EXAMPLES_MAX])
    count = len(partitions)
    return shown if count <= EXAMPLES_MAX else f"{count} partitions, such as {shown}"


class Summary:
    """What is to be said of partitions, by headline, until it is logged."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._partitions: dict[tuple[int, str], list[str]] = {}

    def add(self, level: int, headline: str, partition: str) -> None:
        """Let the next `log` say this, too."""
        self._logger.debug("%s: %s", headline, partition)
        self._partitions.setdefault((level, headline), []).append(partition)

    def log(self) -> None:
        """Write a line for each headline."""
        lines, self._partitions = self._partitions, {}
        for (level, headline), partitions in lines.items():
            self._logger.log(level, "%s: %s", headline, listed(partitions))
