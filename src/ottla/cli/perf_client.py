"""What both performance tools need of librdkafka: its statistics, printed at the end."""

import json
from collections.abc import Mapping
from typing import Any

STATISTICS_MS = 500


class Statistics:
    """The newest statistics of a client, for --print-metrics: its own, since they are no Java's."""

    def __init__(self) -> None:
        self._newest: Mapping[str, Any] = {}

    def settings(self) -> dict[str, Any]:
        """Return what makes the client tell them."""
        return {"statistics.interval.ms": STATISTICS_MS, "stats_cb": self._take}

    def _take(self, text: str) -> None:
        self._newest = json.loads(text)

    def lines(self) -> list[str]:
        """Return a table of the client's numbers, as Kafka's tools lay it out."""
        values = {
            name: value
            for name, value in sorted(self._newest.items())
            if isinstance(value, (int, float, str))
        }
        width = max([len("Metric Name"), *map(len, values)])
        return ["", f"{'Metric Name':<{width}}   Value"] + [
            f"{name:<{width}} : {value}" for name, value in values.items()
        ]
