"""`ottla topics --describe-idle`: which idle topics will be deleted, when, and why not.

Changes nothing. Reasons are the names of `controller.idle.IdleReason`.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ottla.base.ids import uuid_text
from ottla.cli.errors import CommandError
from ottla.cli.topics.topic_filter import choose
from ottla.client.cluster import ClusterClient
from ottla.client.errors import check
from ottla.controller.idle import IdleReason
from ottla.metadata.deletions_json import encode_ranges
from ottla.metadata.topic_config import TTL
from ottla.wire.messages import describe_idle_topics as wire

TITLES = ("TOPIC", "IDLE", "LIMIT", "GOES", "WHY NOT")
NOTHING = "-"
UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"))

Described = wire.DescribedIdleTopic


def show(client: ClusterClient, topic: str | None, *, as_json: bool) -> None:
    """Print the idle times of the topics that match; without `topic`: of all that have a TTL."""
    if not client.serves(wire.DescribeIdleTopicsRequest):
        raise CommandError(
            f"the brokers at {client.config.bootstrap} do not serve DescribeIdleTopics: "
            "they run Kafka or an older version of Ottla"
        )
    names: tuple[str, ...] | None = None
    if topic is not None:
        every = [each.name or "" for each in client.topics()]
        names = tuple(choose(every, topic, exclude_internal=False))
        if not names:
            raise CommandError(f"no topic matches {topic!r}: expected one that exists")
    request = wire.DescribeIdleTopicsRequest(topics=names)
    response = client.ask(request, wire.DescribeIdleTopicsResponse)
    check("idle topics", response.error_code, response.error_message)
    if as_json:
        print(json_text(response.topics))
    elif response.topics:
        print("\n".join(table_lines(response.topics)))
    else:
        print(f"No topic has {TTL} set: none is deleted for being idle.")


def table_lines(topics: Sequence[Described]) -> Iterator[str]:
    """Yield a line of titles, and one for each topic."""
    rows = [TITLES, *map(_row, topics)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(map(str.ljust, row, widths)).rstrip()


def _row(topic: Described) -> tuple[str, ...]:
    left_ms = goes_in_ms(topic)
    goes = NOTHING
    if left_ms is not None:
        goes = f"in {duration_text(left_ms)} at the earliest" if left_ms else "next"
    return (
        topic.name,
        NOTHING if topic.idle_ms < 0 else duration_text(topic.idle_ms),
        NOTHING if topic.ttl_ms < 0 else duration_text(topic.ttl_ms),
        goes,
        why_text(topic),
    )


def goes_in_ms(topic: Described) -> int | None:
    """Return the time until a topic may be deleted; None = something else keeps it."""
    if topic.reason == IdleReason.DUE:
        return 0
    if topic.reason == IdleReason.TOO_YOUNG:
        return max(topic.ttl_ms - topic.idle_ms, 0)
    return None


def why_text(topic: Described) -> str:
    """Return why a topic is not deleted."""
    who, is_one = encode_ranges(topic.brokers), len(topic.brokers) == 1
    brokers = f"broker {who}" if is_one else f"brokers {who}"
    match topic.reason:
        case IdleReason.DUE:
            return NOTHING
        case IdleReason.INTERNAL:
            return "it is internal"
        case IdleReason.NO_TTL:
            return f"{TTL} is not set"
        case IdleReason.BEING_DELETED:
            return "it is being deleted"
        case IdleReason.DISABLED:
            return "delete.topic.enable is false"
        case IdleReason.TOO_YOUNG:
            return f"{brokers} {'has' if is_one else 'have'} not seen it idle for long enough"
        case IdleReason.NO_LEADER:
            return "a partition of it or of __consumer_offsets has no leader"
        case IdleReason.BROKER_DOWN:
            return f"{brokers} {'is' if is_one else 'are'} down"
        case IdleReason.NOT_HEARD:
            return f"{brokers} {'has' if is_one else 'have'} not reported to the controller yet"
    return f"reason {topic.reason}, which this version of the command does not know"


def duration_text(ms: int) -> str:
    """Return a duration in its two largest units, rounded down."""
    if ms < 1_000:
        return f"{ms}ms"
    parts: list[str] = []
    for unit_ms, letter in UNITS:
        count, ms = divmod(ms, unit_ms)
        if count or parts:
            parts.append(f"{count}{letter}")
    return " ".join(each for each in parts[:2] if each[:-1] != "0")


def json_text(topics: Iterable[Described]) -> str:
    """Return the topics as one JSON object."""
    return json.dumps({"topics": [_json(each) for each in topics]})


def _json(topic: Described) -> dict[str, Any]:
    is_known = topic.reason in set(IdleReason)
    return {
        "topic": topic.name,
        "topic_id": uuid_text(topic.topic_id),
        "ttl_ms": None if topic.ttl_ms < 0 else topic.ttl_ms,
        "idle_ms": None if topic.idle_ms < 0 else topic.idle_ms,
        "goes_in_ms": goes_in_ms(topic),
        "reason": IdleReason(topic.reason).name.lower().replace("_", " ")
        if is_known
        else topic.reason,
        "brokers": list(topic.brokers),
    }
