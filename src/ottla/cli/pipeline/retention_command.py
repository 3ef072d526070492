"""`ottla pipeline retention-report`: what retention settings would keep, delete and cost."""

import json
import math
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.base.ids import uuid_text
from ottla.cli.charts import ChartFile, check_chart_file
from ottla.cli.errors import CommandError, UsageError
from ottla.cli.options import CommandConfig, check_seconds
from ottla.cli.pipeline import retention_text
from ottla.cli.pipeline.pipeline_options import (
    TIMEOUT_SECONDS,
    AsJson,
    PlanOnly,
    RemoteStorage,
    StoreTimeout,
    Topics,
    check_command_config,
    check_store_uri,
    optional_client_config,
)
from ottla.cli.pipeline.running import (
    check_spark,
    local_session,
    reported_errors,
    with_progress,
)
from ottla.cli.progress import Progress, print_stderr

if TYPE_CHECKING:
    from ottla.spark.jobs.retention_report import RetentionOptions, RetentionPlan

CHART_COLUMNS = 100
Times = Annotated[
    str | None,
    typer.Option(
        "--retention-ms",
        metavar="TIME[,...]",
        help="Times to try, such as 12h,7d,30d,unlimited.  [default: 1d,3d,7d,30d,90d,unlimited, "
        "where --retention-bytes is not set]",
    ),
]
Sizes = Annotated[
    str | None,
    typer.Option(
        "--retention-bytes",
        metavar="SIZE[,...]",
        help="Sizes of a partition to try, such as 10GiB,unlimited.",
    ),
]
Price = Annotated[
    float | None,
    typer.Option(
        "--price-per-gb-month",
        metavar="PRICE",
        help="What the store costs for 10^9 bytes a month. Without it no cost is shown.",
    ),
]
Brokers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT[,...]",
        help="Brokers to ask for current settings and local logs. Without them the manifests "
        "alone are read.",
    ),
]


def retention_report(
    remote_storage: RemoteStorage,
    bootstrap_server: Brokers = None,
    topic: Topics = None,
    retention_ms: Times = None,
    retention_bytes: Sizes = None,
    price: Price = None,
    chart: ChartFile = None,
    plan_only: PlanOnly = False,
    as_json: AsJson = False,
    command_config: CommandConfig = None,
    timeout: StoreTimeout = TIMEOUT_SECONDS,
) -> int:
    """Show what retention settings would keep, delete and cost. Nothing is changed.

    Exit code 0: done; 1: it was refused, or some partitions could not be read.
    """
    check_seconds(timeout)
    if price is not None and not (math.isfinite(price) and price >= 0):
        raise UsageError(f"--price-per-gb-month {price:g}: expected 0 or more")
    check_command_config(command_config, bootstrap_server)
    check_chart_file(chart)
    by_time = retention_text.parse_times("--retention-ms", retention_ms)
    by_size = retention_text.parse_sizes("--retention-bytes", retention_bytes)
    check_store_uri(remote_storage)
    check_spark()
    from ottla.spark.jobs.retention_report import (
        CANDIDATES_MS,
        RetentionOptions,
        plan_retention,
    )

    options = RetentionOptions(
        remote_storage=remote_storage,
        cluster=optional_client_config(bootstrap_server, command_config, timeout),
        topics=tuple(sorted(set(topic or ()))),
        retention_ms=by_time if by_time or by_size else CANDIDATES_MS,
        retention_bytes=by_size,
        price_per_gb_month=price,
        timeout_s=timeout,
    )
    with reported_errors():
        plan = plan_retention(options)
        _check_topics(options, plan)
        if plan_only:
            print(_plan_text(options, plan, as_json=as_json))
            return 0
        return _run(options, plan, chart, as_json=as_json)


def _check_topics(options: "RetentionOptions", plan: "RetentionPlan") -> None:
    deleted = dict(plan.deleted)
    for each in options.topics:
        if each in plan.topics:
            continue
        if each in deleted:
            raise CommandError(
                f"the store has objects of topic {each} ({uuid_text(deleted[each])}), which the "
                "cluster does not have: see ottla pipeline purge-check"
            )
        raise CommandError(f"the store has no topic {each}")
    if options.cluster is None:
        print_stderr(
            "no --bootstrap-server: current settings are those of the manifests, or Kafka's "
            "defaults, and local logs are not counted"
        )
    for topic, topic_id in plan.deleted:
        print_stderr(f"{topic} ({uuid_text(topic_id)}) is left out: the cluster does not have it")


def _plan_text(options: "RetentionOptions", plan: "RetentionPlan", *, as_json: bool) -> str:
    from ottla.spark.jobs.retention_report import name_of
    from ottla.spark.jobs.rules.retention_rules import settings

    every = settings((0, 0), options.retention_ms, options.retention_bytes)
    names = [name_of(each) for each in every if each.name]
    if as_json:
        return json.dumps(retention_text.plan_json(plan, names))
    return "\n".join(retention_text.plan_lines(plan, names))


def _run(
    options: "RetentionOptions", plan: "RetentionPlan", chart: Path | None, *, as_json: bool
) -> int:
    from ottla.spark.jobs.retention_report import retention_rows

    progress = Progress()
    rows = []
    if plan.units:
        with local_session("ottla pipeline retention-report", progress) as spark:
            found = retention_rows(spark, options, plan)
            collected = with_progress(spark, "reading manifests", progress, found.collect)
        rows = [each.asDict() for each in collected]
    for name in set(options.topics) - {each["topic"] for each in rows}:
        raise CommandError(f"topic {name} was deleted: its objects in the store are being deleted")
    report = retention_text.report_of(rows)
    if as_json:
        print(json.dumps(retention_text.report_json(report)))
    else:
        width = shutil.get_terminal_size((CHART_COLUMNS, 1)).columns
        print("\n".join(retention_text.report_lines(report, min(width, CHART_COLUMNS))))
    if chart is not None and report.total:
        retention_text.chart_of(report.total).write_png(chart)
    return 1 if report.errors else 0
