"""`ottla tier restore`: bring a topic back from the object store."""

import time
from typing import Annotated

import typer

from ottla.base.ids import uuid_text
from ottla.cli.errors import CommandError, UsageError
from ottla.cli.options import (
    DEFAULT_TIMEOUT_SECONDS,
    BootstrapServer,
    CommandConfig,
    checked_topic_id,
    connect,
)
from ottla.cli.progress import print_stderr
from ottla.cli.tier.store_session import StoreSession
from ottla.cli.tier.stored_topics import StoredTopic, read_partition, stored_topics
from ottla.cli.tier.tier_options import CLIENT_ID
from ottla.cli.tier.tier_text import size_text, table
from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClientError
from ottla.tiered.restore_plan import PartitionPlan, RestorePlan, plan_restore
from ottla.wire.messages import describe_remote_log as described
from ottla.wire.messages import restore_topic as wire

RESTORE_TIMEOUT_SECONDS = 120.0

POLL_SECONDS = 0.5


def restore(
    remote_storage: Annotated[
        str,
        typer.Option(
            "--remote-storage", metavar="URI", help="The object store: file:///DIR or s3://BUCKET."
        ),
    ],
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="NAME", help="The topic to restore.")
    ] = None,
    topic_id: Annotated[
        str | None,
        typer.Option(
            "--topic-id", metavar="ID", help="Which one, where the store has several of the name."
        ),
    ] = None,
    list_only: Annotated[bool, typer.Option("--list", help="Show what the store has.")] = False,
    plan_only: Annotated[
        bool, typer.Option("--plan", help="Show what would be restored, and do nothing.")
    ] = False,
    replication_factor: Annotated[
        int,
        typer.Option(
            "--replication-factor", metavar="N", help="Of the restored topic.  [-1: the default]"
        ),
    ] = -1,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Annotated[
        float,
        typer.Option("--timeout", metavar="SECONDS", help="How long to wait until it can be read."),
    ] = RESTORE_TIMEOUT_SECONDS,
) -> None:
    """Bring a topic back from the object store, with its id, offsets and configuration.

    The cluster that wrote it must not run any more. --list and --plan need no broker.
    """
    if list_only == (topic is not None):
        raise UsageError("expected --topic NAME or --list")
    with StoreSession(remote_storage, timeout) as session:
        topics = stored_topics(session)
        if list_only:
            _print_list(session, topics)
            return
        assert topic is not None
        plan = _plan(session, _choose(topics, topic, topic_id, session.uri))
    if plan_only:
        print("\n".join(plan_lines(plan)))
    if plan.faults:
        more = f" (and {len(plan.faults) - 1} more)" if len(plan.faults) > 1 else ""
        raise CommandError(f"{plan.topic} cannot be restored: {plan.faults[0]}{more}")
    if plan_only:
        return
    with connect(bootstrap_server, command_config, DEFAULT_TIMEOUT_SECONDS, CLIENT_ID) as client:
        _create(client, plan, replication_factor)
        _wait(client, plan, timeout)
    print(f"Restored topic {plan.topic} with {_count(sum(_records(plan)), 'offset')}.")


def _choose(topics: list[StoredTopic], name: str, text: str | None, uri: str) -> StoredTopic:
    found = [each for each in topics if each.name == name]
    if text is not None:
        wanted = checked_topic_id(text, "22 characters, as --list shows")
        found = [each for each in found if each.topic_id == wanted]
    if not found:
        which = name if text is None else f"{name} with the id {text}"
        raise CommandError(f"the store {uri} has no topic {which}; --list shows what it has")
    if len(found) > 1:
        ids = ", ".join(uuid_text(each.topic_id) for each in found)
        raise CommandError(
            f"the store has {len(found)} topics {name}: expected --topic-id, one of {ids}"
        )
    return found[0]


def _plan(session: StoreSession, topic: StoredTopic, *, check_objects: bool = True) -> RestorePlan:
    found = [
        read_partition(session, topic, number, check_objects=check_objects)
        for number in sorted(topic.partitions)
    ]
    return plan_restore(topic.name, topic.topic_id, found)


# What is printed


def _print_list(session: StoreSession, topics: list[StoredTopic]) -> None:
    if not topics:
        print(f"The store {session.uri} has no topics.")
        return
    rows = [("TOPIC", "TOPIC ID", "PARTITIONS", "OFFSETS", "SIZE", "FAULT")]
    for topic in topics:
        plan = _plan(session, topic, check_objects=False)
        size = sum(each.size_bytes for each in plan.partitions)
        rows.append(
            (
                topic.name,
                uuid_text(topic.topic_id),
                str(len(plan.partitions)),
                str(sum(_records(plan))),
                size_text(size),
                plan.faults[0] if plan.faults else "-",
            )
        )
    print("\n".join(table(rows)))


def plan_lines(plan: RestorePlan) -> list[str]:
    """Return what `--plan` prints."""
    lines = [f"{plan.topic} ({uuid_text(plan.topic_id)}): tiered epoch {plan.tiered_epoch}"]
    lines += (f"  {name}={value}" for name, value in sorted(plan.configs.items()))
    rows: list[tuple[str, ...]] = [("PARTITION", "OFFSETS", "SEGMENTS", "SIZE", "LEADER EPOCH")]
    rows += (_plan_row(each) for each in plan.partitions)
    lines += table(rows)
    lines += (f"FAULT: {each}" for each in plan.faults)
    return lines


def _plan_row(each: PartitionPlan) -> tuple[str, ...]:
    has_any = each.end_offset > each.log_start_offset
    return (
        str(each.partition),
        f"{each.log_start_offset}..{each.end_offset - 1}" if has_any else "-",
        str(each.segments),
        size_text(each.size_bytes),
        str(each.leader_epoch),
    )


def _records(plan: RestorePlan) -> list[int]:
    return [each.end_offset - each.log_start_offset for each in plan.partitions]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


# The cluster's part


def _create(client: ClusterClient, plan: RestorePlan, replication_factor: int) -> None:
    if not client.serves(wire.RestoreTopicRequest):
        raise CommandError(
            f"the brokers at {client.config.bootstrap} do not serve RestoreTopic: they run Kafka "
            "or an older version of Ottla"
        )
    request = wire.RestoreTopicRequest(
        name=plan.topic,
        topic_id=plan.topic_id,
        tiered_epoch=plan.tiered_epoch,
        remote_floor_epoch=plan.floor,
        replication_factor=replication_factor,
        configs=tuple(
            wire.RestoreTopicConfig(name=name, value=value)
            for name, value in sorted(plan.configs.items())
        ),
        partitions=tuple(
            wire.RestoreTopicPartition(
                partition_index=each.partition,
                leader_epoch=each.leader_epoch,
                log_start_offset=each.log_start_offset,
                end_offset=each.end_offset,
                epochs=tuple(
                    wire.RestoreTopicEpoch(epoch=epoch, start_offset=start)
                    for epoch, start in each.epochs
                ),
            )
            for each in plan.partitions
        ),
    )
    response = client.ask(request, wire.RestoreTopicResponse)
    if response.error_code:
        reason = response.error_message or f"error {response.error_code}"
        raise CommandError(f"{plan.topic} was not restored: {reason}")


def _wait(client: ClusterClient, plan: RestorePlan, timeout: float) -> None:
    """Wait until each partition's leader serves its remote segments."""
    until = time.monotonic() + timeout
    left = {each.partition: each for each in plan.partitions}
    shown = -1
    while True:
        reason = _drop_ready(client, plan.topic, left)
        if not left:
            return
        if time.monotonic() > until:
            raise CommandError(
                f"{plan.topic} is created, but {_count(len(left), 'partition')} cannot be read yet"
                f" ({reason}); brokers go on, and `ottla tier describe` shows how far they are"
            )
        if len(left) != shown:
            shown = len(left)
            print_stderr(f"waiting for {_count(shown, 'partition')} of {plan.topic}: {reason}")
        time.sleep(POLL_SECONDS)
        client.refresh()  # Leaders are elected, and move, while they are waited for.


def _drop_ready(client: ClusterClient, topic: str, left: dict[int, PartitionPlan]) -> str:
    """Remove what can be read; return why the rest cannot."""
    reason = "the leader is not known yet"
    for number, planned in sorted(left.items()):
        asked = described.DescribeRemoteLogTopic(name=topic, partitions=(number,))
        try:
            leader = client.leader((topic, number))
            response = client.ask(
                described.DescribeRemoteLogRequest(topics=(asked,)),
                described.DescribeRemoteLogResponse,
                node=leader.node,
            )
        except ClientError as error:
            reason = str(error)
            continue
        rows = [row for each in response.topics for row in each.partitions]
        for row in rows:
            if row.error_code:
                reason = row.error_message or f"error {row.error_code}"
            elif planned.end_offset in (0, planned.log_start_offset) or (
                row.remote_end_offset >= planned.end_offset - 1
            ):
                del left[number]
            else:
                reason = row.last_error or "its remote segments are being taken over"
    return reason
