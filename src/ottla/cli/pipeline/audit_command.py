"""`ottla pipeline audit`: whether objects, segment metadata and manifests agree."""

import json
import time
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.errors import CommandError, UsageError
from ottla.cli.options import CommandConfig, check_seconds
from ottla.cli.pipeline import audit_text
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
    from ottla.spark.jobs.audit import AuditPlan
    from ottla.spark.jobs.audit_tasks import AuditOptions

GRACE_SECONDS = 3_600.0
GRACE_SECONDS_MAX = 1e9


def audit(
    remote_storage: RemoteStorage,
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            metavar="HOST:PORT[,...]",
            help="Brokers to ask. Without them objects are compared with manifests alone.",
        ),
    ] = None,
    topic: Topics = None,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep",
            "--check-crc",
            help="Read all bytes: check the CRC of each batch, and indexes.",
        ),
    ] = False,
    grace: Annotated[
        float,
        typer.Option(
            "--grace", metavar="SECONDS", help="What is younger may be under way: no finding."
        ),
    ] = GRACE_SECONDS,
    plan_only: PlanOnly = False,
    as_json: AsJson = False,
    command_config: CommandConfig = None,
    timeout: StoreTimeout = TIMEOUT_SECONDS,
) -> int:
    """Compare the objects in the store with the segment metadata and the manifests.

    Exit code 0: nothing was found; 1: there are findings.
    """
    check_seconds(timeout)
    if not 0 <= grace <= GRACE_SECONDS_MAX:
        raise UsageError(f"--grace {grace:g}: expected 0 to {GRACE_SECONDS_MAX:g} seconds")
    check_command_config(command_config, bootstrap_server)
    check_store_uri(remote_storage)
    check_spark()
    from ottla.spark.jobs.audit import AuditOptions, plan_audit

    cluster = optional_client_config(bootstrap_server, command_config, timeout)
    if cluster is None:
        print_stderr("no --bootstrap-server: comparing objects with manifests alone")
    options = AuditOptions(
        remote_storage=remote_storage,
        cluster=cluster,
        topics=tuple(sorted(set(topic or ()))),
        deep=deep,
        grace_s=grace,
        timeout_s=timeout,
    )
    with reported_errors():
        plan = plan_audit(options)
        _check_topics(options, plan)
        if plan_only:
            print(_plan_text(options, plan, as_json=as_json))
            return 0
        return _run(options, plan, as_json=as_json)


def _check_topics(options: "AuditOptions", plan: "AuditPlan") -> None:
    for each in options.topics:
        if each in plan.topics:
            continue
        if options.cluster is None:
            raise CommandError(f"the store has no topic {each}")
        raise CommandError(f"neither the store nor the cluster has a topic {each}")


def _plan_text(options: "AuditOptions", plan: "AuditPlan", *, as_json: bool) -> str:
    from ottla.spark.jobs.audit import measure_audit

    progress = Progress()
    try:
        measured = measure_audit(options, lambda count: progress.wait(f"{count} objects listed"))
    finally:
        progress.done()
    if as_json:
        return json.dumps(audit_text.plan_json(options, plan, measured))
    return "\n".join(audit_text.plan_lines(options, plan, measured))


def _run(options: "AuditOptions", plan: "AuditPlan", *, as_json: bool) -> int:
    from ottla.spark.jobs.audit import audit_rows, result_of
    from ottla.spark.jobs.rules.findings import Finding

    progress, began = Progress(), time.monotonic()
    with local_session("ottla pipeline audit", progress) as spark:
        rows = audit_rows(spark, options, plan)
        collected = with_progress(spark, "auditing", progress, rows.collect)
    results = list(map(result_of, collected))
    findings = sorted((each for each in results if isinstance(each, Finding)), key=audit_text.order)
    total = audit_text.Total.of(
        [each for each in results if not isinstance(each, Finding)],
        seconds=time.monotonic() - began,
        with_brokers=options.cluster is not None,
    )
    if as_json:
        print(json.dumps(audit_text.findings_json(findings, total)))
    else:
        audit_text.print_findings(findings)
        print(audit_text.summary_line(findings, total))
    return 1 if findings else 0
