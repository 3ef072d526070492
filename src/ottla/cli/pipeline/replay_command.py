"""`ottla pipeline replay`: ranges of a topic, or of its archive, into another topic."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.base.ids import uuid_text
from ottla.cli.errors import UsageError
from ottla.cli.options import CommandConfig, check_seconds
from ottla.cli.pipeline.pipeline_options import (
    TIMEOUT_SECONDS,
    AsJson,
    StoreTimeout,
    client_config,
)
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
from ottla.cli.tier.tier_text import table
from ottla.client.cluster import ClientConfig

if TYPE_CHECKING:
    from ottla.spark.jobs.replay import ReplayOptions, ReplayPlan, ReplayResult

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


TargetTopic = Annotated[
    str, typer.Option("--to", metavar="NAME", help="The topic to write to; it must exist.")
]
State = Annotated[
    str,
    typer.Option(
        "--state",
        metavar="DIR|URI",
        help="Where the progress of this replay is recorded: a directory of its own, or "
        "s3://BUCKET/PREFIX. The same command with the same state continues.",
    ),
]
TargetServer = Annotated[
    str | None,
    typer.Option(
        "--to-bootstrap-server",
        metavar="HOST:PORT[,...]",
        help="Brokers to write to.  [default: those of --bootstrap-server]",
        show_default=False,
    ),
]
Partitioning = Annotated[
    str,
    typer.Option(
        "--partitioning",
        metavar="RULE",
        help="keep: the partition numbers of the source; key: by the hash of the key.",
    ),
]
Timestamps = Annotated[
    str,
    typer.Option("--timestamps", metavar="RULE", help="keep those of the source, or now."),
]
Compression = Annotated[
    str,
    typer.Option("--compression", metavar="TYPE", help="none, gzip, snappy, lz4 or zstd."),
]
Plan = Annotated[bool, typer.Option("--plan", help="Show what would be replayed, and do nothing.")]


def replay(
    topic: Topic,
    to: TargetTopic,
    state: State,
    bootstrap_server: SourceServer = None,
    to_bootstrap_server: TargetServer = None,
    remote_storage: SourceStorage = None,
    from_offset: FromOffset = None,
    from_time: FromTime = None,
    to_offset: ToOffset = None,
    to_time: ToTime = None,
    partitioning: Partitioning = "keep",
    timestamps: Timestamps = "keep",
    compression: Compression = "none",
    isolation: Isolation = "read_committed",
    skip_lost: SkipLost = False,
    topic_id: TopicId = None,
    plan_only: Plan = False,
    as_json: AsJson = False,
    command_config: CommandConfig = None,
    timeout: StoreTimeout = TIMEOUT_SECONDS,
) -> int:
    """Copy records of a topic, or of its archive, into another topic.

    The order within each partition, headers and timestamps are kept. A replay that was killed
    continues with the same command; it may repeat the last records of each partition.
    """
    check_seconds(timeout)
    _check_choices(partitioning, timestamps, compression)
    check_spark()
    from ottla.spark.jobs.replay import ReplayOptions, plan_replay

    source = parse_source(
        topic,
        bootstrap_server,
        remote_storage,
        command_config=command_config,
        isolation=isolation,
        skip_lost=skip_lost,
        topic_id=topic_id,
        timeout=timeout,
    )
    with reported_errors():
        options = ReplayOptions(
            source=source,
            to=to,
            target=_target(source.cluster, to_bootstrap_server, command_config, timeout),
            state=state,
            start=parse_bound("from", from_offset, from_time),
            end=parse_bound("to", to_offset, to_time),
            partitioning=partitioning,
            timestamps=timestamps,
            compression=compression,
            timeout_s=timeout,
        )
        plan = plan_replay(options)  # What is refused is refused before Spark starts.
        if plan_only:
            print(_plan_text(plan, as_json=as_json))
            return 0
        return _run(options, as_json=as_json)


def _target(
    source: ClientConfig | None, server: str | None, command_config: str | None, timeout: float
) -> ClientConfig:
    if server is not None:
        return client_config(server, command_config, timeout)
    if source is None:
        raise UsageError("--to-bootstrap-server is required, as there is no --bootstrap-server")
    return source


def _check_choices(partitioning: str, timestamps: str, compression: str) -> None:
    if partitioning not in ("keep", "key"):
        raise UsageError(f"--partitioning {partitioning}: expected keep or key")
    if timestamps not in ("keep", "now"):
        raise UsageError(f"--timestamps {timestamps}: expected keep or now")
    if compression not in CODECS:
        raise UsageError(f"--compression {compression}: expected {', '.join(CODECS)}")


def _run(options: "ReplayOptions", *, as_json: bool) -> int:
    from ottla.spark.jobs.replay import replay as run_replay

    result, seconds = run_reported("ottla pipeline replay", "replaying", run_replay, options)
    document, lines = result_json(result, seconds), result_lines(result, seconds)
    print_result(result.losses, document, lines, as_json=as_json)
    return 0


def result_lines(result: "ReplayResult", seconds: float) -> list[str]:
    """Return what the command prints."""
    job = result.job
    if not result.copied:
        return [f"{job.topic}: nothing is left to replay into {job.to}."]
    rows: list[tuple[str, ...]] = [("PARTITION", "OFFSETS", "RECORDS")]
    rows += ((*range_cells(job.topic, each), str(count)) for each, count in result.copied)
    what = "" if result.is_new else ", where an earlier run ended"
    return [
        *table(rows),
        f"{result.rows} records of {job.topic} written to {job.to}{what}; {seconds:.1f} s",
    ]


def result_json(result: "ReplayResult", seconds: float) -> dict[str, Any]:
    """Return the result as JSON."""
    job = result.job
    return {
        "topic": job.topic,
        "topic_id": uuid_text(job.topic_id),
        "to": job.to,
        "to_topic_id": uuid_text(job.to_id),
        "continued": not result.is_new,
        "rows": result.rows,
        "partitions": [{**range_json(each), "rows": count} for each, count in result.copied],
        "lost": list(result.losses),
        "seconds": round(seconds, 3),
    }


def _plan_text(plan: "ReplayPlan", *, as_json: bool) -> str:
    job = plan.job
    if as_json:
        return json.dumps(
            {
                "plan": {
                    "topic": job.topic,
                    "topic_id": uuid_text(job.topic_id),
                    "to": job.to,
                    "to_topic_id": uuid_text(job.to_id),
                    "continued": not plan.is_new,
                    "partitions": list(map(range_json, plan.left)),
                    "lost": list(plan.losses),
                }
            }
        )
    rows = plan_rows(job.topic, plan.left)
    total = sum(map(len, plan.left))
    return "\n".join(
        [
            *(table(rows) if plan.left else ()),
            *(f"Lost: {each}" for each in plan.losses),
            f"The replay would copy {total} offsets of {len(plan.left)} partitions of {job.topic} "
            f"into {job.to}.",
        ]
    )
