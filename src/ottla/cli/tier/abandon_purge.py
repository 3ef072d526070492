"""`ottla tier abandon-purge`: give up the purge of a deleted topic whose store is gone for good."""

from typing import Annotated

import typer

from ottla.base.ids import Uuid, uuid_text
from ottla.cli.errors import CommandError
from ottla.cli.options import (
    DEFAULT_TIMEOUT_SECONDS,
    BootstrapServer,
    CommandConfig,
    Timeout,
    checked_topic_id,
    connect,
)
from ottla.cli.tier.tier_options import CLIENT_ID
from ottla.cli.topics.ledger_entry import segments_text
from ottla.client.cluster import ClusterClient
from ottla.client.errors import check
from ottla.wire.messages import abandon_purge as wire


def abandon_purge(
    topic_id: Annotated[
        str,
        typer.Option("--topic-id", metavar="ID", help="Of the deleted topic: see purge-status."),
    ],
    execute: Annotated[
        bool,
        typer.Option("--execute", help="Abandon it. Without this, show what would be abandoned."),
    ] = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_SECONDS,
) -> None:
    """Give up the purge of a deleted topic, where its store is gone for good.

    What is left of the topic in the store stays there, also if the store returns. This cannot be
    undone. The deletion ends without it, and its receipt says so.
    """
    wanted = checked_topic_id(topic_id, "22 characters, as `ottla tier purge-status` shows")
    with connect(bootstrap_server, command_config, timeout, CLIENT_ID) as client:
        if not client.serves(wire.AbandonPurgeRequest):
            raise CommandError(
                f"the brokers at {client.config.bootstrap} do not serve AbandonPurge: they run "
                "Kafka or an older version of Ottla"
            )
        # Not `repeatable`: UNKNOWN_TOPIC_ID counts as retriable, and is final here.
        answer = client.with_retries(lambda: _ask(client, wanted, execute))
    print(result_text(answer, executed=execute))


def _ask(client: ClusterClient, topic_id: Uuid, execute: bool) -> wire.AbandonPurgeResponse:
    request = wire.AbandonPurgeRequest(topic_id=topic_id, validate_only=not execute)
    answer = client.ask(request, wire.AbandonPurgeResponse)
    check(f"topic id {uuid_text(topic_id)}", answer.error_code, answer.error_message)
    return answer


def result_text(answer: wire.AbandonPurgeResponse, *, executed: bool) -> str:
    """Return what was done, or would be."""
    topic = f"{answer.name} ({uuid_text(answer.topic_id)})"
    segments = segments_text(answer.segments_left, answer.bytes_left)
    left = f"{segments or 'an unknown number of segments'} may be left in the store"
    if answer.was_abandoned:
        return f"The purge of {topic} is abandoned already: {left}."
    if executed:
        return f"Abandoned the purge of {topic}: {left}."
    return f"Would abandon the purge of {topic}: {left}. Add --execute to do it."
