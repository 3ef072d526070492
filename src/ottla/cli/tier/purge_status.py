"""`ottla tier purge-status`: deleted topics whose objects are not all deleted in the store yet.

The controller answers from the deletion ledger and the brokers' reports to it. After a failover
the reports come again within some seconds; until then what is left is not known.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ottla.base.ids import uuid_text
from ottla.cli.tier.tier_text import size_text, table
from ottla.cli.topics.deletions_client import Selection, check_served, fetch
from ottla.cli.topics.deletions_text import time_text
from ottla.cli.topics.ledger_entry import LedgerEntry
from ottla.client.cluster import ClusterClient
from ottla.metadata.deletions import DeletionImage, Remote

TITLES = (
    "TOPIC",
    "TOPIC ID",
    "DELETED",
    "PARTITIONS LEFT",
    "SEGMENTS LEFT",
    "SIZE LEFT",
    "LAST ERROR",
)
NOTHING = "-"


def pending_purges(client: ClusterClient, expression: str | None) -> list[LedgerEntry]:
    """Return the pending purges of topics that match, by name. Raises: Refusal, CommandError."""
    check_served(client)
    selection = Selection(expression)
    found = client.with_retries(lambda: fetch(client, selection, receipts=False))
    return [each for each in found if _is_pending(each) and isinstance(each, LedgerEntry)]


def _is_pending(deletion: DeletionImage) -> bool:
    return deletion.remote is Remote.PENDING and not deletion.is_finished


def table_lines(purges: Sequence[LedgerEntry]) -> Iterator[str]:
    """Return a line of titles and a line for each topic."""
    return table([TITLES, *map(_row, purges)])


def _row(purge: LedgerEntry) -> tuple[str, ...]:
    left, segments, size = (
        purge.purge_partitions_left,
        purge.purge_segments_left,
        purge.purge_bytes_left,
    )
    return (
        purge.name,
        uuid_text(purge.topic_id),
        time_text(purge.asked_ms),
        NOTHING if left < 0 else f"{left} of {purge.purge_partitions}",
        NOTHING if segments < 0 else str(segments),
        NOTHING if size < 0 else size_text(size),
        purge.purge_error or NOTHING,
    )


def json_text(purges: Iterable[LedgerEntry]) -> str:
    """Return the purges as one JSON object; what is not known is null."""
    return json.dumps({"purges": [_json(each) for each in purges]})


def _json(purge: LedgerEntry) -> dict[str, Any]:
    return {
        "topic": purge.name,
        "topic_id": uuid_text(purge.topic_id),
        "asked_ms": purge.asked_ms,
        "partitions": _known(purge.purge_partitions),
        "partitions_left": _known(purge.purge_partitions_left),
        "segments_left": _known(purge.purge_segments_left),
        "bytes_left": _known(purge.purge_bytes_left),
        "last_error": purge.purge_error,
    }


def _known(count: int) -> int | None:
    return None if count < 0 else count
