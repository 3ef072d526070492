"""What `ottla pipeline retention-report` reads and prints: settings, tables, a chart, JSON."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from ottla.cli.charts import BarChart
from ottla.cli.errors import UsageError
from ottla.cli.tier.tier_text import UNITS, size_text, table

if TYPE_CHECKING:
    from ottla.spark.jobs.retention_report import RetentionPlan

UNLIMITED: Final = -1
INT64_MAX: Final = 2**63 - 1
MS_UNITS: Final = {
    "": 1,
    "ms": 1,
    "s": 1_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
}
BYTE_UNITS: Final = {
    "": 1,
    "b": 1,
    **{f"{unit}b": 1_000**power for power, unit in enumerate("kmgt", 1)},
    **{f"{unit}ib": 1_024**power for power, unit in enumerate("kmgt", 1)},
}
TOTAL: Final = "total"
SUMS: Final = (
    "kept_segments",
    "kept_bytes",
    "kept_records",
    "deleted_segments",
    "deleted_bytes",
    "deleted_records",
    "local_only_bytes",
)


def parse_times(option: str, text: str | None) -> tuple[int, ...]:
    """Return milliseconds of `1d,7d,unlimited`. Raises: UsageError."""
    return _parse(option, text, MS_UNITS, "such as 86400000, 12h, 7d or unlimited")


def parse_sizes(option: str, text: str | None) -> tuple[int, ...]:
    """Return bytes of `10GiB,unlimited`. Raises: UsageError."""
    return _parse(option, text, BYTE_UNITS, "such as 1073741824, 10GiB, 500GB or unlimited")


def _parse(option: str, text: str | None, units: dict[str, int], expected: str) -> tuple[int, ...]:
    found: list[int] = []
    for word in (text or "").split(",") if text is not None else ():
        value = _value(word.strip().lower(), units)
        if value is None:
            raise UsageError(f"{option} {word.strip()}: expected values {expected}")
        if value not in found:
            found.append(value)
    return tuple(found)


def _value(word: str, units: dict[str, int]) -> int | None:
    if word in ("-1", "unlimited"):
        return UNLIMITED
    match = re.fullmatch(r"(\d{1,18})\s*([a-z]*)", word)
    if match is None or match[2] not in units:
        return None
    value = int(match[1]) * units[match[2]]
    return value if value <= INT64_MAX else None


def setting_text(setting: str) -> str:
    """Return a setting with its value in a unit: `retention.ms=604800000 (7 d)`."""
    name, _, value = setting.partition("=")
    if not value:
        return setting
    number = int(value)
    if number == UNLIMITED:
        return f"{setting} (unlimited)"
    if name == "retention.bytes":
        return f"{setting} ({size_text(number)})"
    return f"{setting} ({duration_text(number)})"


def duration_text(ms: int) -> str:
    """Return milliseconds in the largest unit that they are a whole number of."""
    for unit in ("d", "h", "min", "s"):
        if ms and ms % MS_UNITS[unit] == 0:
            return f"{ms // MS_UNITS[unit]} {unit}"
    return f"{ms} ms"


@dataclass(slots=True)
class Line:
    """The sums of a topic, or of all, with one setting. `oldest_kept`: the earliest."""

    topic: str
    topic_id: str
    setting: str
    retention_ms: int | None
    retention_bytes: int | None
    sums: dict[str, int | None] = field(default_factory=lambda: dict.fromkeys(SUMS, 0))
    oldest_kept: datetime | None = None
    gb_months: float = 0.0
    cost: float | None = None

    def add(self, row: dict[str, Any]) -> None:
        """Add a row of the report."""
        for name in SUMS:
            before, more = self.sums[name], row[name]
            self.sums[name] = None if before is None or more is None else before + more
        oldest = row["oldest_kept"]
        if oldest is not None:
            self.oldest_kept = oldest if self.oldest_kept is None else min(self.oldest_kept, oldest)
        self.gb_months += row["gb_months"]
        if row["cost"] is not None:
            self.cost = (self.cost or 0.0) + row["cost"]


@dataclass(frozen=True, slots=True)
class Report:
    """`errors`: (partition, reason) of what could not be read, and is in no sum."""

    topics: list[Line]
    total: list[Line]
    errors: list[tuple[str, str]]


def report_of(rows: Iterable[dict[str, Any]]) -> Report:
    """Add up rows by topic and setting, and by setting."""
    by_topic: dict[tuple[str, str, str], Line] = {}
    total: dict[str, Line] = {}
    errors = []
    for row in sorted(rows, key=lambda each: (each["topic"], each["topic_id"], each["partition"])):
        topic, topic_id, setting = row["topic"], row["topic_id"], row["setting"]
        if row["error"] is not None:
            errors.append((f"{topic}-{row['partition']}", row["error"]))
            continue
        ms, size = row["retention_ms"], row["retention_bytes"]
        key = (topic, topic_id, setting)
        by_topic.setdefault(key, Line(topic, topic_id, setting, ms, size)).add(row)
        total.setdefault(setting, Line(TOTAL, "", setting, None, None)).add(row)
    return Report(list(by_topic.values()), list(total.values()), errors)


def report_lines(report: Report, width: int) -> list[str]:
    """Return the tables, and the chart, which is so many columns wide."""
    if not report.topics and not report.errors:
        return ["Nothing is in the store."]
    several = len({(each.topic, each.topic_id) for each in report.topics}) > 1
    shown = report.topics + (report.total if several else [])
    has_cost = any(each.cost is not None for each in shown)
    has_local = any(each.sums["local_only_bytes"] is not None for each in shown)
    columns = _columns(has_cost=has_cost, has_local=has_local)
    rows = [tuple(title for title, _ in columns)]
    rows += (tuple(cell(each) for _, cell in columns) for each in shown)
    lines = list(table(rows)) if shown else []
    if report.total:
        lines += ["", *(line.plain.rstrip() for line in chart_of(report.total).lines(width))]
    lines += (f"Not counted: {name}: {reason}" for name, reason in report.errors)
    return lines


def _columns(*, has_cost: bool, has_local: bool) -> list[tuple[str, Callable[[Line], str]]]:
    columns: list[tuple[str, Callable[[Line], str]]] = [
        ("TOPIC", lambda each: each.topic),
        ("SETTING", lambda each: setting_text(each.setting) + _present(each)),
        ("KEPT SEGMENTS", lambda each: str(each.sums["kept_segments"])),
        ("KEPT", lambda each: size_text(each.sums["kept_bytes"] or 0)),
        ("KEPT RECORDS", lambda each: str(each.sums["kept_records"])),
        ("DELETED SEGMENTS", lambda each: str(each.sums["deleted_segments"])),
        ("DELETED", lambda each: size_text(each.sums["deleted_bytes"] or 0)),
        ("OLDEST KEPT (UTC)", lambda each: _time_text(each.oldest_kept)),
        ("GB-MONTHS", lambda each: f"{each.gb_months:.3f}"),
    ]
    if has_local:
        columns.insert(
            -2, ("LOCAL ONLY", lambda each: size_text(each.sums["local_only_bytes"] or 0))
        )
    if has_cost:
        columns.append(("COST PER MONTH", lambda each: f"{each.cost or 0.0:.2f}"))
    return columns


def _present(line: Line) -> str:
    if line.setting != "current" or line.retention_ms is None:
        return ""
    size = line.retention_bytes if line.retention_bytes is not None else UNLIMITED
    limit = "" if size == UNLIMITED else f", {size_text(size)}"
    age = "unlimited" if line.retention_ms == UNLIMITED else duration_text(line.retention_ms)
    return f" ({age}{limit})"


def _time_text(at: datetime | None) -> str:
    # Spark returns local times.
    return "-" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def chart_of(total: Sequence[Line]) -> BarChart:
    """Return a bar for each setting: what remote storage would keep of all topics."""
    sizes = [each.sums["kept_bytes"] or 0 for each in total]
    unit, name = next((each for each in UNITS if max(sizes) >= each[0]), (1, "B"))
    return BarChart(
        title=f"Kept in remote storage, {name}",
        labels_title="retention",
        labels=[_label(each.setting) for each in total],
        values=[size / unit for size in sizes],
        decimals=1 if unit > 1 else 0,
    )


def _label(setting: str) -> str:
    name, _, value = setting.partition("=")
    if not value:
        return setting
    if int(value) == UNLIMITED:
        return "any time" if name == "retention.ms" else "any size"
    return size_text(int(value)) if name == "retention.bytes" else duration_text(int(value))


def report_json(report: Report) -> dict[str, Any]:
    """Return the report as JSON; what is not known is null."""
    return {
        "topics": [
            {"topic": each.topic, "topic_id": each.topic_id, **_line_json(each)}
            for each in report.topics
        ],
        "total": [_line_json(each) for each in report.total],
        "errors": [{"partition": name, "reason": reason} for name, reason in report.errors],
    }


def _line_json(line: Line) -> dict[str, Any]:
    oldest = line.oldest_kept
    return {
        "setting": line.setting,
        "retention_ms": line.retention_ms,
        "retention_bytes": line.retention_bytes,
        **line.sums,
        "oldest_kept_ms": None if oldest is None else int(oldest.timestamp() * 1_000),
        "gb_months": line.gb_months,
        "cost": line.cost,
    }


# --plan


def plan_lines(plan: "RetentionPlan", settings: Sequence[str]) -> list[str]:
    """Return what `--plan` prints."""
    rows: list[tuple[str, ...]] = [("TOPIC", "TOPIC ID", "PARTITIONS", "CURRENT")]
    rows += ((topic, text, str(count), now or "-") for topic, text, count, now in planned(plan))
    lines = list(table(rows)) if plan.units else []
    count = len(plan.units)
    lines.append(
        f"The report would read the manifests of {count} partition{'s' * (count != 1)}, for "
        f"current and {', '.join(map(setting_text, settings)) or 'no other setting'}."
    )
    return lines


def planned(plan: "RetentionPlan") -> list[tuple[str, str, int, str | None]]:
    """Return name, id, partitions and the present setting of each topic; None = not known yet."""
    from ottla.base.ids import uuid_text

    found: dict[tuple[str, str], tuple[int, str | None]] = {}
    for each in plan.units:
        topic, topic_id, _ = each.key
        present = each.present
        text = None
        if present is not None:
            text = f"retention.ms={present[0]}, retention.bytes={present[1]}"
        count, _ = found.get((topic, uuid_text(topic_id)), (0, None))
        found[topic, uuid_text(topic_id)] = (count + 1, text)
    return [(*key, *found[key]) for key in sorted(found)]


def plan_json(plan: "RetentionPlan", settings: Sequence[str]) -> dict[str, Any]:
    """Return the plan as JSON."""
    return {
        "plan": {
            "topics": [
                {"topic": topic, "topic_id": text, "partitions": count, "current": now}
                for topic, text, count, now in planned(plan)
            ],
            "settings": ["current", *settings],
        }
    }
