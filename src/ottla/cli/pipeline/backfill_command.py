"""`ottla pipeline backfill`: the closed segments of a topic, to its remote storage, by Spark."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.base.ids import uuid_text
from ottla.cli.errors import CommandError, UsageError
from ottla.cli.options import CommandConfig, check_seconds, parse_number
from ottla.cli.pipeline.pipeline_options import (
    TIMEOUT_SECONDS,
    AsJson,
    RemoteStorage,
    StoreTimeout,
    check_store_uri,
    client_config,
)
from ottla.cli.pipeline.running import check_spark, reported_errors, run_reported
from ottla.cli.tier.tier_text import table

if TYPE_CHECKING:
    from ottla.spark.jobs.backfill import BackfillOptions, BackfillPlan, BackfillResult

LEASE_SECONDS = 300.0
PARTITIONS_MAX = 100_000
FAILURES_SHOWN = 5

Server = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT[,...]",
        help="Brokers of the topic.",
        show_default=False,
    ),
]
Topic = Annotated[str, typer.Option("--topic", metavar="NAME", help="The topic; it is tiered.")]
Partitions = Annotated[
    str | None,
    typer.Option("--partitions", metavar="LIST", help="Only these, as 0,3-5.  [default: all]"),
]
Parallelism = Annotated[
    int | None,
    typer.Option(
        "--parallelism",
        metavar="N",
        min=1,
        help="Segments that are copied at once.  [default: the cores of the session]",
        show_default=False,
    ),
]
Lease = Annotated[
    float,
    typer.Option(
        "--lease",
        metavar="SECONDS",
        help="After so long without a sign of its task a copy is taken back.",
    ),
]
Plan = Annotated[bool, typer.Option("--plan", help="Show what would be copied, and do nothing.")]


def backfill(
    topic: Topic,
    remote_storage: RemoteStorage,
    bootstrap_server: Server = None,
    partitions: Partitions = None,
    parallelism: Parallelism = None,
    lease: Lease = LEASE_SECONDS,
    plan_only: Plan = False,
    as_json: AsJson = False,
    command_config: CommandConfig = None,
    timeout: StoreTimeout = TIMEOUT_SECONDS,
) -> int:
    """Copy the closed segments of a topic to its remote storage.

    Brokers copy them, too, a segment of a partition at a time: this is for topics that were large
    before tiered storage was turned on. A run that was killed is repeated by the same command.
    """
    check_seconds(timeout)
    check_seconds(lease)
    check_store_uri(remote_storage)
    numbers = parse_partitions(partitions)
    check_spark()
    from ottla.spark.jobs.backfill import BackfillOptions, plan_backfill

    with reported_errors():
        options = BackfillOptions(
            topic=topic,
            cluster=client_config(bootstrap_server, command_config, timeout),
            remote_storage=remote_storage,
            partitions=numbers,
            parallelism=parallelism,
            lease_s=lease,
            timeout_s=timeout,
        )
        plan = plan_backfill(options)  # What is refused is refused before Spark starts.
        if plan_only:
            print(plan_text(plan, as_json=as_json))
            return 0
        return _run(options, plan, as_json=as_json)


def parse_partitions(text: str | None) -> tuple[int, ...] | None:
    """Return the numbers of a list as 0,3-5; None = all. Raises: UsageError."""
    if text is None:
        return None
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        low = parse_number(first)
        high = parse_number(last) if dash else low
        if low is None or high is None:
            raise UsageError(f"--partitions {text}: expected numbers, as 0,3-5")
        if not low <= high < PARTITIONS_MAX:
            raise UsageError(f"--partitions {text}: {part.strip()} is no range of partitions")
        found += range(low, high + 1)
    return tuple(found)


def _run(options: "BackfillOptions", plan: "BackfillPlan", *, as_json: bool) -> int:
    from ottla.spark.jobs.backfill import BackfillResult
    from ottla.spark.jobs.backfill import backfill as run_backfill

    if plan.segments:
        result, seconds = run_reported("ottla pipeline backfill", "copying", run_backfill, options)
    else:
        result, seconds = BackfillResult(plan=plan, rows=(), left=plan, rounds=0), 0.0
    if as_json:
        print(json.dumps(result_json(result, seconds)))
    else:
        print("\n".join(result_lines(result, seconds)))
    if result.left.segments:
        raise CommandError(f"{result.left.segments} segments of {plan.topic} are not copied")
    return 0


def _by_partition(result: "BackfillResult") -> list[tuple[int, int, int]]:
    """Return partition, segments and bytes that this run has copied."""
    found: dict[int, tuple[int, int]] = {}
    for row in result.copied:
        segments, size_bytes = found.get(row.partition, (0, 0))
        found[row.partition] = segments + 1, size_bytes + row.size_bytes
    return [(number, *found[number]) for number in sorted(found)]


def result_lines(result: "BackfillResult", seconds: float) -> list[str]:
    """Return what the command prints."""
    plan = result.plan
    if not plan.segments:
        return [f"{plan.topic}: all closed segments are in remote storage."]
    copied = _by_partition(result)
    rows = [("PARTITION", "SEGMENTS", "BYTES")]
    rows += [(f"{plan.topic}-{number}", str(count), str(size)) for number, count, size in copied]
    failures = result.failures
    lines = [f"Failed, and copied again: {each.detail}" for each in failures[:FAILURES_SHOWN]]
    if len(failures) > FAILURES_SHOWN:
        lines.append(f"… and {len(failures) - FAILURES_SHOWN} other failures")
    by_others = plan.segments - len(result.copied) - result.left.segments
    others = f"; {by_others} by the brokers" if by_others > 0 else ""
    return [
        *(table(rows) if copied else ()),
        *lines,
        f"{len(result.copied)} segments of {sum(each[2] for each in copied)} bytes of {plan.topic} "
        f"copied{others}; {seconds:.1f} s",
    ]


def result_json(result: "BackfillResult", seconds: float) -> dict[str, Any]:
    """Return the result as JSON."""
    plan = result.plan
    return {
        "topic": plan.topic,
        "topic_id": uuid_text(plan.topic_id),
        "segments": len(result.copied),
        "bytes": sum(each.size_bytes for each in result.copied),
        "partitions": [
            {"partition": number, "segments": count, "bytes": size}
            for number, count, size in _by_partition(result)
        ],
        "failures": [each.detail for each in result.failures],
        "segments_left": result.left.segments,
        "rounds": result.rounds,
        "seconds": round(seconds, 3),
    }


def plan_text(plan: "BackfillPlan", *, as_json: bool) -> str:
    """Return what `--plan` prints."""
    if as_json:
        return json.dumps(
            {
                "plan": {
                    "topic": plan.topic,
                    "topic_id": uuid_text(plan.topic_id),
                    "segments": plan.segments,
                    "bytes": plan.size_bytes,
                    "partitions": [
                        {
                            "partition": each.target.partition,
                            "segments": each.segments,
                            "bytes": each.size_bytes,
                        }
                        for each in plan.partitions
                    ],
                }
            }
        )
    rows = [("PARTITION", "SEGMENTS", "BYTES")]
    rows += [
        (each.target.name, str(each.segments), str(each.size_bytes)) for each in plan.partitions
    ]
    return "\n".join(
        [
            *table(rows),
            f"The backfill would copy {plan.segments} segments of {plan.size_bytes} bytes of "
            f"{plan.topic}.",
        ]
    )
