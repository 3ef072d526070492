"""`ottla pipeline export`: a topic as a table, continued by each run."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.base.ids import uuid_text
from ottla.cli.errors import UsageError
from ottla.cli.options import CommandConfig, check_seconds
from ottla.cli.pipeline.pipeline_options import TIMEOUT_SECONDS, AsJson, StoreTimeout
from ottla.cli.pipeline.range_options import (
    FromOffset,
    FromTime,
    Isolation,
    SkipLost,
    SourceServer,
    SourceStorage,
    ToOffset,
    Topic,
    TopicId,
    ToTime,
    parse_bound,
    parse_source,
)
from ottla.cli.pipeline.range_text import plan_rows, print_result, range_cells, range_json
from ottla.cli.pipeline.running import check_spark, reported_errors, run_reported
from ottla.cli.tier.tier_text import size_text, table

if TYPE_CHECKING:
    from ottla.spark.jobs.export import ExportOptions, ExportPlan, ExportResult

FORMATS = ("parquet", "delta", "iceberg")

Target = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="DIR|URI|NAME",
        help="Where the table is: a directory, or s3://BUCKET/PREFIX. Of an Iceberg table: a "
        "directory, or CATALOG.NAMESPACE.TABLE, of a catalog that pyiceberg is configured with.",
    ),
]
Format = Annotated[
    str,
    typer.Option(
        "--format", metavar="FORMAT", help="The format of the table: parquet, delta or iceberg."
    ),
]
PartitionBy = Annotated[
    str,
    typer.Option(
        "--partition-by",
        metavar="COLUMN",
        help="date: a directory for each date of the records' timestamps, in UTC; or none.",
    ),
]
OnRecreate = Annotated[
    str,
    typer.Option(
        "--on-recreate",
        metavar="ACTION",
        help="If the topic was deleted and created again: fail, or continue with the new one.",
    ),
]
Plan = Annotated[bool, typer.Option("--plan", help="Show what would be exported, and do nothing.")]


def export(
    topic: Topic,
    to: Target,
    bootstrap_server: SourceServer = None,
    remote_storage: SourceStorage = None,
    format_name: Format = "parquet",
    partition_by: PartitionBy = "date",
    from_offset: FromOffset = None,
    from_time: FromTime = None,
    to_offset: ToOffset = None,
    to_time: ToTime = None,
    isolation: Isolation = "read_committed",
    skip_lost: SkipLost = False,
    on_recreate: OnRecreate = "fail",
    topic_id: TopicId = None,
    plan_only: Plan = False,
    as_json: AsJson = False,
    command_config: CommandConfig = None,
    timeout: StoreTimeout = TIMEOUT_SECONDS,
) -> int:
    """Export a topic as a table; each run adds what is new.

    The table records which offsets it has: a run continues there, and one that was killed leaves
    nothing that would be added twice.
    """
    check_seconds(timeout)
    _check_choices(format_name, partition_by, on_recreate)
    check_spark()
    from ottla.spark.jobs.export import ExportOptions, plan_export

    with reported_errors():
        options = ExportOptions(
            source=parse_source(
                topic,
                bootstrap_server,
                remote_storage,
                command_config=command_config,
                isolation=isolation,
                skip_lost=skip_lost,
                topic_id=topic_id,
                timeout=timeout,
            ),
            to=to,
            format=format_name,
            partition_by=partition_by,
            start=parse_bound("from", from_offset, from_time),
            end=parse_bound("to", to_offset, to_time),
            on_recreate=on_recreate,
            timeout_s=timeout,
        )
        plan = plan_export(options)  # What is refused is refused before Spark starts.
        if plan_only:
            print(_plan_text(options, plan, as_json=as_json))
            return 0
        return _run(options, as_json=as_json)


def _check_choices(format_name: str, partition_by: str, on_recreate: str) -> None:
    if format_name not in FORMATS:
        raise UsageError(f"--format {format_name}: expected {', '.join(FORMATS)}")
    if partition_by not in ("date", "none"):
        raise UsageError(f"--partition-by {partition_by}: expected date or none")
    if on_recreate not in ("fail", "continue"):
        raise UsageError(f"--on-recreate {on_recreate}: expected fail or continue")


def _run(options: "ExportOptions", *, as_json: bool) -> int:
    from ottla.spark.jobs.export import export as run_export

    result, seconds = run_reported("ottla pipeline export", "exporting", run_export, options)
    document, lines = result_json(result, seconds), result_lines(result, seconds)
    print_result(result.losses, document, lines, as_json=as_json)
    return 0


def result_lines(result: "ExportResult", seconds: float) -> list[str]:
    """Return what the command prints."""
    lines = []
    if result.recovered:
        lines.append(f"A run that had not ended was {result.recovered} first.")
    if result.run is None:
        lines.append(f"{result.topic}: nothing new to export to {result.to}.")
        return lines
    rows: list[tuple[str, ...]] = [("PARTITION", "OFFSETS", "RECORDS", "FILES", "SIZE")]
    for each in result.ranges:
        files = [file for file in result.files if file.partition == each.partition]
        rows.append(
            (
                *range_cells(result.topic, each),
                str(sum(file.rows for file in files)),
                str(len(files)),
                size_text(sum(file.size_bytes for file in files)),
            )
        )
    size = size_text(sum(file.size_bytes for file in result.files))
    lines += table(rows)
    lines.append(
        f"{result.rows} records in {len(result.files)} files ({size}) added to {result.to}; "
        f"{seconds:.1f} s"
    )
    return lines


def result_json(result: "ExportResult", seconds: float) -> dict[str, Any]:
    """Return the result as JSON."""
    return {
        "topic": result.topic,
        "topic_id": uuid_text(result.topic_id),
        "to": result.to,
        "run": result.run,
        "recovered": result.recovered or None,
        "rows": result.rows,
        "partitions": [
            {
                **range_json(each),
                "rows": sum(f.rows for f in result.files if f.partition == each.partition),
            }
            for each in result.ranges
        ],
        "files": [
            {"name": each.name, "rows": each.rows, "size_bytes": each.size_bytes}
            for each in result.files
        ],
        "lost": list(result.losses),
        "seconds": round(seconds, 3),
    }


def _plan_text(options: "ExportOptions", plan: "ExportPlan", *, as_json: bool) -> str:
    phase = None if plan.last is None else plan.last.phase.value
    if as_json:
        return json.dumps(
            {
                "plan": {
                    "topic": options.source.topic,
                    "topic_id": uuid_text(plan.topic_id),
                    "last_run": phase,
                    "partitions": list(map(range_json, plan.ranges)),
                    "lost": list(plan.losses),
                }
            }
        )
    rows = plan_rows(options.source.topic, plan.ranges)
    lines = [*(table(rows) if plan.ranges else ()), *(f"Lost: {each}" for each in plan.losses)]
    if phase == "begun":
        lines.append("A run has begun and not ended: its files would be discarded first.")
    elif phase == "committed":
        lines.append("A run is committed and not published: its files would be published first.")
    total = sum(map(len, plan.ranges))
    lines.append(
        f"The export would add {total} offsets of {len(plan.ranges)} partitions to {options.to}."
    )
    return "\n".join(lines)
