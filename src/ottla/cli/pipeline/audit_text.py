"""What `ottla pipeline audit` prints: a table of findings and one line, or one JSON object."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.base.ids import uuid_text
from ottla.cli.tier.tier_text import size_text, table

if TYPE_CHECKING:
    from ottla.spark.jobs.audit import AuditPlan, Measured
    from ottla.spark.jobs.audit_tasks import AuditOptions, Summary
    from ottla.spark.jobs.rules.findings import Finding

SHOWN_MAX = 500
"""Findings in the table; --json has all."""
WIDTH_MIN = 1_000
"""Columns that the table may have where the output is no terminal: nothing is folded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The summaries of all partitions."""

    topics: int
    partitions: int
    objects: int
    object_bytes: int
    segments: int
    manifests: int
    read_bytes: int
    seconds: float
    with_brokers: bool

    @staticmethod
    def of(summaries: "Iterable[Summary]", *, seconds: float, with_brokers: bool) -> "Total":
        """Add summaries up."""
        every = list(summaries)
        return Total(
            topics=len({each.topic_id for each in every}),
            partitions=len({(each.topic_id, each.partition) for each in every}),
            objects=sum(each.objects for each in every),
            object_bytes=sum(each.object_bytes for each in every),
            segments=sum(each.segments for each in every),
            manifests=sum(each.manifests for each in every),
            read_bytes=sum(each.read_bytes for each in every),
            seconds=seconds,
            with_brokers=with_brokers,
        )


def order(finding: "Finding") -> tuple[Any, ...]:
    """Return the key of the order of findings: errors first, then by place."""
    return (
        finding.severity.value,
        finding.topic,
        finding.topic_id or b"",
        finding.partition,
        finding.kind.value,
        finding.start_offset or 0,
        finding.object or "",
    )


def print_findings(findings: "Sequence[Finding]") -> None:
    """Print the table."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not findings:
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=max(console.width, WIDTH_MIN))
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for title in ("SEVERITY", "KIND", "PARTITION", "OFFSETS"):
        shown.add_column(title, no_wrap=True)
    shown.add_column("OBJECT", overflow="fold")
    shown.add_column("DETAIL", overflow="fold")
    for each in findings[:SHOWN_MAX]:
        style = "red" if each.severity.value == "error" else "yellow"
        shown.add_row(Text(each.severity.value, style=style), *map(Text, _cells(each)))
    console.print(shown)
    if len(findings) > SHOWN_MAX:
        print(f"and {len(findings) - SHOWN_MAX} more: --json shows all")


def _cells(finding: "Finding") -> tuple[str, ...]:
    offsets = "-"
    if finding.start_offset is not None:
        offsets = f"{finding.start_offset}..{finding.end_offset}"
    place = "-" if finding.partition < 0 else f"{finding.topic}-{finding.partition}"
    return finding.kind.value, place, offsets, finding.object or "-", finding.detail


def summary_line(findings: "Sequence[Finding]", total: Total) -> str:
    """Return the last line."""
    errors = sum(each.severity.value == "error" for each in findings)
    found = "No findings"
    if findings:
        found = (
            f"{_count(len(findings), 'finding')} ({_count(errors, 'error')}, "
            f"{_count(len(findings) - errors, 'warning')})"
        )
    read = f"; {size_text(total.read_bytes)} read" if total.read_bytes else ""
    how = "" if total.with_brokers else ", compared with manifests alone"
    return (
        f"{found} in {_count(total.partitions, 'partition')} of {_count(total.topics, 'topic')}: "
        f"{_count(total.objects, 'object')} ({size_text(total.object_bytes)}), "
        f"{_count(total.segments, 'segment')}, {_count(total.manifests, 'manifest')}{read}{how}; "
        f"{total.seconds:.1f} s"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def findings_json(findings: "Iterable[Finding]", total: Total) -> dict[str, Any]:
    """Return findings and summary; what there is none of is null."""
    return {
        "findings": [
            {
                "topic": each.topic or None,
                "topic_id": None if each.topic_id is None else uuid_text(each.topic_id),
                "partition": None if each.partition < 0 else each.partition,
                "kind": each.kind.value,
                "severity": each.severity.value,
                "object": each.object,
                "start_offset": each.start_offset,
                "end_offset": each.end_offset,
                "detail": each.detail,
            }
            for each in findings
        ],
        "summary": {
            "topics": total.topics,
            "partitions": total.partitions,
            "objects": total.objects,
            "object_bytes": total.object_bytes,
            "segments": total.segments,
            "manifests": total.manifests,
            "read_bytes": total.read_bytes,
            "with_brokers": total.with_brokers,
            "seconds": round(total.seconds, 3),
        },
    }


# --plan


def plan_lines(
    options: "AuditOptions", plan: "AuditPlan", measured: "Sequence[Measured]"
) -> list[str]:
    """Return what `--plan` prints."""
    rows: list[tuple[str, ...]] = [
        ("TOPIC", "TOPIC ID", "PARTITIONS", "OBJECTS", "SIZE", "TO READ")
    ]
    rows += (
        (
            each.topic,
            uuid_text(each.topic_id),
            str(each.partitions),
            str(each.objects),
            size_text(each.object_bytes),
            size_text(each.bytes_to_read(deep=options.deep)),
        )
        for each in measured
    )
    lines = list(table(rows)) if measured else []
    read = sum(each.bytes_to_read(deep=options.deep) for each in measured)
    metadata = (
        f", and {_count(plan.metadata_records, 'record')} of __remote_log_metadata"
        if options.cluster is not None
        else "; no broker is asked"
    )
    lines.append(
        f"The audit would list {_count(sum(each.objects for each in measured), 'object')} and read "
        f"{size_text(read)} of the store{metadata}."
    )
    return lines


def plan_json(
    options: "AuditOptions", plan: "AuditPlan", measured: "Sequence[Measured]"
) -> dict[str, Any]:
    """Return the plan as JSON."""
    return {
        "plan": {
            "topics": [
                {
                    "topic": each.topic,
                    "topic_id": uuid_text(each.topic_id),
                    "partitions": each.partitions,
                    "objects": each.objects,
                    "object_bytes": each.object_bytes,
                    "bytes_to_read": each.bytes_to_read(deep=options.deep),
                }
                for each in measured
            ],
            "metadata_records": None if options.cluster is None else plan.metadata_records,
            "deep": options.deep,
        }
    }
