"""One log line for an event of many partitions at once.

A broker that fails, comes back or loses a log directory affects thousands of partitions at the same
moment. A line for each would bury all others, and cost more than the work itself: the log gets one
line with their count and a few examples, and all of them at DEBUG.
"""

import logging
from collections.abc import Sequence
from typing import Final

EXAMPLES_MAX: Final = 3


def listed(partitions: Sequence[str]) -> str:
    """Return a text for some partitions: a few by name, and their count."""
    shown = ", ".join(partitions[:EXAMPLES_MAX])
    count = len(partitions)
    return shown if count <= EXAMPLES_MAX else f"{count} partitions, such as {shown}"


class Summary:
    """Events of partitions, by headline, until they are logged."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._partitions: dict[tuple[int, str], list[str]] = {}

    def add(self, level: int, headline: str, partition: str) -> None:
        """Add an event to the next `log`."""
        self._logger.debug("%s: %s", headline, partition)
        self._partitions.setdefault((level, headline), []).append(partition)

    def log(self) -> None:
        """Write a line for each headline."""
        lines, self._partitions = self._partitions, {}
        for (level, headline), partitions in lines.items():
            self._logger.log(level, "%s: %s", headline, listed(partitions))
