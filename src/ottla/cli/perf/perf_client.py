"""librdkafka's statistics, printed at the end by both performance tools."""

import json
from collections.abc import Mapping
from typing import Any

STATISTICS_MS = 500


class Statistics:
    """The latest statistics of a librdkafka client, for --print-metrics."""

    def __init__(self) -> None:
        self._newest: Mapping[str, Any] = {}

    def settings(self) -> dict[str, Any]:
        """Return the client properties that enable statistics."""
        return {"statistics.interval.ms": STATISTICS_MS, "stats_cb": self._take}

    def _take(self, text: str) -> None:
        self._newest = json.loads(text)

    def lines(self) -> list[str]:
        """Return the table of statistics in Kafka's layout."""
        values = {
            name: value
            for name, value in sorted(self._newest.items())
            if isinstance(value, (int, float, str))
        }
        width = max([len("Metric Name"), *map(len, values)])
        return ["", f"{'Metric Name':<{width}}   Value"] + [
            f"{name:<{width}} : {value}" for name, value in values.items()
        ]
