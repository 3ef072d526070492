"""What the performance tools measure and print, in the format of Kafka's tools.

Values only: times come in as milliseconds. Source: ProducerPerformance, ConsumerPerformance, Kafka
4.3. Counts and bytes are exact; latencies are sampled where there are more than SAMPLES_MAX.
"""

import datetime
import re
from array import array
from dataclasses import dataclass, field

from ottla.cli.errors import UsageError, shown

BYTES_PER_MB = 1024.0 * 1024.0
SAMPLES_MAX = 500_000

PERCENTILES = ((0.5, "50th"), (0.95, "95th"), (0.99, "99th"), (0.999, "99.9th"))

CONSUMER_COLUMNS = (
    "data.consumed.in.MB", "MB.sec", "data.consumed.in.nMsg", "nMsg.sec", "rebalance.time.ms",
    "fetch.time.ms", "fetch.MB.sec", "fetch.nMsg.sec",
)  # fmt: skip


@dataclass(slots=True)
class Window:
    """What was acknowledged in one interval of the report."""

    began_ms: float
    count: int = 0
    size: int = 0
    latency_ms: float = 0.0
    latency_ms_max: float = 0.0

    def line(self, now_ms: float) -> str:
        """Return the interval's line."""
        elapsed_s = max(now_ms - self.began_ms, 1.0) / 1000
        return (
            f"{self.count} records sent, {self.count / elapsed_s:.1f} records/sec "
            f"({self.size / BYTES_PER_MB / elapsed_s:.2f} MB/sec), "
            f"{self.latency_ms / max(self.count, 1):.1f} ms avg latency, "
            f"{self.latency_ms_max:.1f} ms max latency."
        )


@dataclass(slots=True)
class Sent:
    """Records that were acknowledged since `began_ms`. `expected`: how many are to be sent."""

    began_ms: float
    expected: int
    adjective: str = ""
    """Text before "records sent": the steady state has its own line."""
    count: int = 0
    size: int = 0
    latency_ms: float = 0.0
    latency_ms_max: float = 0.0
    _samples: "array[int]" = field(default_factory=lambda: array("q"))

    def acknowledged(self, size: int, latency_ms: float) -> None:
        """Count a record."""
        every = max(1, self.expected // SAMPLES_MAX)
        if self.count % every == 0:
            self._samples.append(int(latency_ms))
        self.count += 1
        self.size += size
        self.latency_ms += latency_ms
        self.latency_ms_max = max(self.latency_ms_max, latency_ms)

    def line(self, now_ms: float) -> str:
        """Return the summary."""
        elapsed_s = max(now_ms - self.began_ms, 1.0) / 1000
        samples = sorted(self._samples)
        shares = ", ".join(
            f"{samples[int(share * len(samples))] if samples else 0} ms {name}"
            for share, name in PERCENTILES
        )
        return (
            f"{self.count} {self.adjective}records sent, "
            f"{self.count / elapsed_s:.6f} records/sec "
            f"({self.size / BYTES_PER_MB / elapsed_s:.2f} MB/sec), "
            f"{self.latency_ms / max(self.count, 1):.2f} ms avg latency, "
            f"{self.latency_ms_max:.2f} ms max latency, {shares}."
        )


def consumed_columns(
    size: int, count: int, elapsed_ms: float, rebalance_ms: float, *, totals: tuple[int, int]
) -> str:
    """Return the columns for what was consumed in a time, rebalances included.

    `totals`: bytes and records to show; the rates are computed from `size` and `count`.
    """
    elapsed_s = max(elapsed_ms, 1.0) / 1000
    fetch_ms = max(elapsed_ms - rebalance_ms, 0.0)
    fetch_s = max(fetch_ms, 1.0) / 1000
    megabytes = size / BYTES_PER_MB
    return (
        f"{totals[0] / BYTES_PER_MB:.4f}, {megabytes / elapsed_s:.4f}, {totals[1]}, "
        f"{count / elapsed_s:.4f}, {int(rebalance_ms)}, {int(fetch_ms)}, "
        f"{megabytes / fetch_s:.4f}, {count / fetch_s:.4f}"
    )


def consumer_heading(*, detailed: bool) -> str:
    """Return the first line of the consumer's report."""
    first = ("time", "threadId") if detailed else ("start.time", "end.time")
    return ", ".join((*first, *CONSUMER_COLUMNS))


_JAVA = {"yyyy": "%Y", "yy": "%y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_PART = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")


@dataclass(frozen=True, slots=True)
class DateFormat:
    """A pattern of java.text.SimpleDateFormat: years to milliseconds and quoted text only."""

    pattern: str

    def __post_init__(self) -> None:
        self.text(0)

    def text(self, time_ms: float) -> str:
        """Return a time of the wall clock. Raises: UsageError for letters that are not known."""
        time = datetime.datetime.fromtimestamp(time_ms / 1000)
        parts: list[str] = []
        position = 0
        while position < len(self.pattern):
            match = _PART.match(self.pattern, position)
            if match is None:
                raise UsageError(f"--date-format {shown(self.pattern)}: a quote does not end")
            part = match[0]
            position = match.end()
            if match[1] is not None:
                parts.append(match[1].replace("''", "'") or "'")
            elif part in _JAVA:
                parts.append(time.strftime(_JAVA[part]))
            elif part == "SSS":
                parts.append(f"{time.microsecond // 1000:03}")
            elif match[2] is not None:
                raise UsageError(
                    f"--date-format {shown(self.pattern)}: {part} is not supported: expected "
                    f"{', '.join([*_JAVA, 'SSS'])} and text in quotes"
                )
            else:
                parts.append(part)
        return "".join(parts)
