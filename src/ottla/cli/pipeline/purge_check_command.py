"""`ottla pipeline purge-check`: whether anything is left of what was to be deleted."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.base.ids import Uuid, uuid_text
from ottla.cli.errors import CommandError
from ottla.cli.options import BootstrapServer, CommandConfig, check_seconds, checked_topic_id
from ottla.cli.pipeline.pipeline_options import (
    TIMEOUT_SECONDS,
    AsJson,
    PlanOnly,
    RemoteStorage,
    StoreTimeout,
    Topics,
    check_store_uri,
    client_config,
)
from ottla.cli.pipeline.running import check_spark, local_session, reported_errors, with_progress
from ottla.cli.progress import Progress
from ottla.cli.tier.tier_text import size_text, table

if TYPE_CHECKING:
    from ottla.spark.jobs.purge_check import PurgeUnit

TITLES = ("TOPIC", "TOPIC ID", "WHAT", "RECEIPT", "OBJECTS LEFT", "SIZE LEFT", "RESULT")


def purge_check(
    remote_storage: RemoteStorage,
    bootstrap_server: BootstrapServer = None,
    topic: Topics = None,
    topic_id: Annotated[
        list[str] | None,
        typer.Option("--topic-id", metavar="ID", help="Only this topic id; may be repeated."),
    ] = None,
    plan_only: PlanOnly = False,
    as_json: AsJson = False,
    command_config: CommandConfig = None,
    timeout: StoreTimeout = TIMEOUT_SECONDS,
) -> int:
    """Prove that nothing is left of deleted topics, and of tiers that were given up.

    Exit code 0: it is proven; 1: something is left, or a purge is pending.
    """
    check_seconds(timeout)
    ids = tuple(checked_topic_id(each) for each in topic_id or ())
    check_store_uri(remote_storage)
    check_spark()
    from ottla.spark.jobs.purge_check import PurgeOptions, plan_purge_check, purge_rows

    options = PurgeOptions(
        remote_storage=remote_storage,
        cluster=client_config(bootstrap_server, command_config, timeout),
        topics=tuple(sorted(set(topic or ()))),
        topic_ids=ids,
        timeout_s=timeout,
    )
    with reported_errors():
        units = plan_purge_check(options)
        _check_found(options.topics, ids, units)
        if plan_only:
            print(json.dumps(_plan_json(units)) if as_json else "\n".join(_plan_lines(units)))
            return 0
        rows: list[dict[str, Any]] = []
        if units:
            progress = Progress()
            with local_session("ottla pipeline purge-check", progress) as spark:
                found = purge_rows(spark, options, units)
                collected = with_progress(spark, "listing", progress, found.collect)
            rows = [each.asDict() for each in collected]
            rows.sort(key=lambda each: (each["topic"], each["topic_id"]))
    print(json.dumps(result_json(rows)) if as_json else "\n".join(result_lines(rows)))
    return 0 if all(each["proven"] for each in rows) else 1


def _check_found(topics: Sequence[str], ids: Sequence[Uuid], units: "Sequence[PurgeUnit]") -> None:
    names = {each.status.topic for each in units}
    known = {each.status.topic_id for each in units}
    for name in topics:
        if name not in names:
            raise CommandError(
                f"topic {name}: neither deleted, nor was its tiered storage turned off with delete"
            )
    for each in ids:
        if each not in known:
            raise CommandError(
                f"topic id {uuid_text(each)}: neither deleted, nor was its tiered storage turned "
                "off with delete"
            )


def result_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the table, and a line that signs each proven topic off."""
    if not rows:
        return ["No topic was deleted, and no tiered storage turned off with delete."]
    lines = list(table([TITLES, *map(_cells, rows)]))
    for each in rows:
        name = f"{each['topic']} ({each['topic_id']})"
        if each["proven"]:
            lines.append(f"Signed off: {name}: no object is left; {each['receipt']}.")
        else:
            lines.append(f"Not proven: {name}: {reason_of(each)}.")
    return lines


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["topic"],
        row["topic_id"],
        row["what"],
        row["receipt"],
        str(row["objects_left"]),
        size_text(row["bytes_left"]),
        "proven" if row["proven"] else "NOT PROVEN",
    )


def reason_of(row: dict[str, Any]) -> str:
    """Return why it is not proven that nothing is left."""
    if row["objects_left"] == 1:
        return f"1 object is left: {row['example']}"
    if row["objects_left"]:
        return f"{row['objects_left']} objects are left, such as {row['example']}"
    if row["error"]:
        return str(row["error"])
    if row["what"] == "unknown":
        return "the deletion ledger does not have it"
    return "the purge is pending"


def result_json(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the result as JSON."""
    return {
        "proven": all(each["proven"] for each in rows),
        "topics": [
            {
                **{name: each[name] for name in ("topic", "topic_id", "what", "receipt")},
                "objects_left": each["objects_left"],
                "bytes_left": each["bytes_left"],
                "example": each["example"],
                "signed_off": bool(each["proven"]),
                "reason": None if each["proven"] else reason_of(each),
            }
            for each in rows
        ],
    }


def _plan_lines(units: "Sequence[PurgeUnit]") -> list[str]:
    rows: list[tuple[str, ...]] = [("TOPIC", "TOPIC ID", "WHAT", "DIRECTORIES")]
    rows += ((topic, text, what, str(count)) for topic, text, what, count in _planned(units))
    total = sum(count for *_, count in _planned(units))
    return [
        *(table(rows) if units else ()),
        f"The check would list {total} {'directory' if total == 1 else 'directories'} of the "
        "store.",
    ]


def _planned(units: "Sequence[PurgeUnit]") -> list[tuple[str, str, str, int]]:
    from ottla.spark.jobs.purge_check import what_of

    counts: dict[tuple[str, str, str], int] = {}
    for each in units:
        key = each.status.topic, uuid_text(each.status.topic_id), what_of(each.status)
        counts[key] = counts.get(key, 0) + 1
    return [(*key, counts[key]) for key in sorted(counts)]


def _plan_json(units: "Sequence[PurgeUnit]") -> dict[str, Any]:
    return {
        "plan": [
            {"topic": topic, "topic_id": text, "what": what, "directories": count}
            for topic, text, what, count in _planned(units)
        ]
    }
