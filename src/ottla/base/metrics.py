"""A node's metrics, and their text for Prometheus.

Counting must cost next to nothing: a counter is an int in a slotted object, incremented in place by
its owner; families, labels and text are made by a scrape only. Nothing here reads a clock.

Source: Prometheus' text exposition format 0.0.4.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

NS_PER_SECOND: Final = 1_000_000_000
MS_PER_SECOND: Final = 1_000

LATENCY_BOUNDS_US: Final = (
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000,
    100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000,
)  # fmt: skip
"""From the fastest response to the longest wait that Kafka's defaults allow."""
LATENCY_BOUNDS_NS: Final = tuple(each * 1_000 for each in LATENCY_BOUNDS_US)
LATENCY_BOUNDS_MS: Final = tuple(each // 1_000 for each in LATENCY_BOUNDS_US if each >= 1_000)


class Histogram:
    """Counts of values by bucket. Bounds are inclusive, as Prometheus' `le`.

    Fields: `counts`: one for each bound, and one for values beyond the last; `total`: the sum
            of the values; `per_unit`: how many of the values' unit make one of the metric's.
    """

    __slots__ = ("bounds", "counts", "per_unit", "total")

    def __init__(self, bounds: Sequence[int], per_unit: int) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.per_unit = per_unit
        self.total = 0

    def observe(self, value: int) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """Return the number of values."""
        return sum(self.counts)


def latency_ns() -> Histogram:
    """Return a histogram of times in nanoseconds, exported in seconds."""
    return Histogram(LATENCY_BOUNDS_NS, NS_PER_SECOND)


def latency_ms() -> Histogram:
    """Return a histogram of times in milliseconds, exported in seconds."""
    return Histogram(LATENCY_BOUNDS_MS, MS_PER_SECOND)


class Kind(Enum):
    """A family's Prometheus type."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


Labels = tuple[tuple[str, str], ...]
"""(name, value) pairs; () = the family has one number."""

Sample = tuple[Labels, int | float | Histogram]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with all its samples, as of a scrape. `samples` may be a generator."""

    name: str
    kind: Kind
    help: str
    samples: Iterable[Sample]

    def __post_init__(self) -> None:
        assert (self.kind is Kind.COUNTER) == self.name.endswith("_total"), self.name


def counter(name: str, help: str, samples: Iterable[Sample]) -> Family:
    """Return a family of numbers that only grow; its name ends in `_total`."""
    return Family(name, Kind.COUNTER, help, samples)


def gauge(name: str, help: str, value: int | float | Iterable[Sample]) -> Family:
    """Return a family of numbers as they are now; a single number needs no labels."""
    samples = [((), value)] if isinstance(value, int | float) else value
    return Family(name, Kind.GAUGE, help, samples)


def histogram(name: str, help: str, value: Histogram | Iterable[Sample]) -> Family:
    """Return a family of histograms; a single one needs no labels."""
    samples = [((), value)] if isinstance(value, Histogram) else value
    return Family(name, Kind.HISTOGRAM, help, samples)


def render(families: Iterable[Family]) -> Iterator[str]:
    """Yield the text of families in pieces, so that the sender may pause in between."""
    for family in families:
        yield (
            f"# HELP {family.name} {_escaped_help(family.help)}\n"
            f"# TYPE {family.name} {family.kind.value}\n"
        )
        for labels, value in family.samples:
            if isinstance(value, Histogram):
                yield from _histogram_lines(family.name, labels, value)
            else:
                yield f"{family.name}{_label_text(labels)} {_number(value)}\n"


def _histogram_lines(name: str, labels: Labels, value: Histogram) -> Iterator[str]:
    # Read once: values counted while the text is made must not make its parts inconsistent.
    counts, total = tuple(value.counts), value.total
    bounds = [_number(bound / value.per_unit) for bound in value.bounds]
    for bound, count in zip((*bounds, "+Inf"), accumulate(counts), strict=True):
        yield f"{name}_bucket{_label_text((*labels, ('le', bound)))} {count}\n"
    suffix = _label_text(labels)
    yield f"{name}_sum{suffix} {_number(total / value.per_unit)}\n"
    yield f"{name}_count{suffix} {sum(counts)}\n"


def _label_text(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: int | float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
