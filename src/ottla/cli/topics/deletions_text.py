"""What `ottla topics --describe-deletions` prints: a table, JSON, and why a deletion is open.

States and reasons are named as in the ledger in ZooKeeper; docs/deletion.md lists them.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any

from ottla.base.errors import error_name
from ottla.base.ids import uuid_text
from ottla.cli.topics.ledger_entry import LedgerEntry, purge_text
from ottla.metadata.deletions import (
    DeletionImage,
    DeletionState,
    HaltReason,
    Policy,
    Reason,
    Remote,
    ReplicaStatus,
)
from ottla.metadata.deletions_json import encode_ranges

TITLES = ("TOPIC", "TOPIC ID", "ASKED", "FINISHED", "STATE", "REPLICAS GONE")
NOTHING = "-"
NAMED_MAX = 3
"""Deletions that a one-line message names."""


def word(value: IntEnum) -> str:
    """Return the text of a state or reason: its name in lower case."""
    return value.name.lower().replace("_", " ")


def state_of(deletion: DeletionImage) -> str:
    """Return the state: queued, halted, under way or finished."""
    if deletion.is_finished:
        return "finished"
    if deletion.halted is not HaltReason.NONE:
        return "halted"
    return "under way" if deletion.has_begun else "queued"


# -- the table ---------------------------------------------------------------------------------


def table_lines(deletions: Sequence[DeletionImage]) -> Iterator[str]:
    """Yield the titles; for each deletion its line, a line a group of replicas, the remote tier."""
    heads = [_head(each) for each in deletions]
    groups = [_groups(each) for each in deletions]
    head_widths = _widths([TITLES, *heads])
    group_widths = _widths([group for each in groups for group in each])
    yield _aligned(TITLES, head_widths)
    for deletion, head, lines in zip(deletions, heads, groups, strict=True):
        yield _aligned(head, head_widths)
        for line in lines:
            yield "  " + _aligned(line, group_widths)
        yield f"  remote tier: {purge_text(deletion)}"


def _head(deletion: DeletionImage) -> tuple[str, ...]:
    state = state_of(deletion)
    if state == "halted":
        state = f"halted: {word(deletion.halted)}"
    gone = deletion.count(DeletionState.SUCCESSFUL)
    listed = deletion.count(*DeletionState)
    return (
        deletion.name,
        uuid_text(deletion.topic_id),
        time_text(deletion.asked_ms),
        time_text(deletion.finished_ms) if deletion.is_finished else NOTHING,
        state,
        f"{gone} of {listed}" if deletion.has_begun else NOTHING,
    )


def _groups(deletion: DeletionImage) -> list[tuple[str, ...]]:
    """Return (state and reason, brokers, partitions); brokers with equal rows share one."""
    brokers: dict[tuple[ReplicaStatus, tuple[int, ...]], list[int]] = defaultdict(list)
    for broker_id, standing, partitions in deletion.rows():
        brokers[standing, partitions].append(broker_id)
    return [
        (
            _standing_text(standing),
            _ids_text("broker", holders),
            _ids_text("partition", partitions),
        )
        for (standing, partitions), holders in sorted(brokers.items())
    ]


def _standing_text(standing: ReplicaStatus) -> str:
    text = word(standing.state)
    if standing.reason is not Reason.NONE:
        text += f": {word(standing.reason)}"
    if standing.error:
        text += f" ({error_name(standing.error)})"
    return text


def _ids_text(noun: str, ids: Sequence[int]) -> str:
    return f"{noun if len(ids) == 1 else noun + 's'} {encode_ranges(ids)}"


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(map(str.ljust, row, widths)).rstrip()


def time_text(epoch_ms: int) -> str:
    """Return a time in UTC, in seconds; outside the calendar's range the number itself."""
    try:
        return datetime.fromtimestamp(epoch_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, OSError, ValueError):
        return str(epoch_ms)


# -- JSON --------------------------------------------------------------------------------------


def json_text(deletions: Iterable[DeletionImage]) -> str:
    """Return the entries as one JSON object."""
    return json.dumps({"deletions": [_json(each) for each in deletions]})


def _json(deletion: DeletionImage) -> dict[str, Any]:
    return {
        "topic": deletion.name,
        "topic_id": uuid_text(deletion.topic_id),
        "policy": word(deletion.policy),
        "state": state_of(deletion),
        "asked_ms": deletion.asked_ms,
        "finished_ms": deletion.finished_ms if deletion.is_finished else None,
        "halted": None if deletion.halted is HaltReason.NONE else word(deletion.halted),
        "remote": word(deletion.remote),
        "purge": _purge_json(deletion),
        "replicas": [
            {
                "broker": broker_id,
                "state": word(standing.state),
                "reason": None if standing.reason is Reason.NONE else word(standing.reason),
                "error": error_name(standing.error) if standing.error else None,
                "partitions": partitions,
            }
            for broker_id, standing, partitions in deletion.rows()
        ],
    }


def _purge_json(deletion: DeletionImage) -> dict[str, Any] | None:
    if not isinstance(deletion, LedgerEntry):
        return None
    if deletion.purge_partitions < 0 and deletion.remote is not Remote.ABANDONED:
        return None
    return {
        "partitions": _known(deletion.purge_partitions),
        "partitions_left": _known(deletion.purge_partitions_left),
        "segments_left": _known(deletion.purge_segments_left),
        "bytes_left": _known(deletion.purge_bytes_left),
        "last_error": deletion.purge_error,
    }


def _known(count: int) -> int | None:
    return None if count < 0 else count


# -- why -----------------------------------------------------------------------------------------


def open_text(deletions: Sequence[DeletionImage]) -> str:
    """Return in one line what open deletions wait for and what to do."""
    shown = [f"{each.name}: {'; '.join(causes(each))}" for each in deletions[:NAMED_MAX]]
    more = len(deletions) - len(shown)
    return ". ".join(shown) + (f". And {more} more" if more else "")


def unproven_text(deletion: DeletionImage) -> str | None:
    """Return a warning if part of a finished deletion was abandoned, else None."""
    if not deletion.is_finished:
        return None
    found = [_abandoned_replicas_text(deletion)]
    if deletion.remote is Remote.ABANDONED:
        where = f"{deletion.name}-{uuid_text(deletion.topic_id)}"
        found.append(
            f"the purge of its remote tier was {purge_text(deletion)}: look for the directory"
            f" {where} in the store"
        )
    texts = [each for each in found if each is not None]
    return f"WARN: {deletion.name}: finished, but {'; '.join(texts)}" if texts else None


def _abandoned_replicas_text(deletion: DeletionImage) -> str | None:
    abandoned: dict[Reason, list[int]] = defaultdict(list)
    for broker_id, standing, _ in deletion.rows():
        if standing.state is DeletionState.ABANDONED:
            abandoned[standing.reason].append(broker_id)
    if not abandoned:
        return None
    why = "; ".join(
        f"{word(reason)}: {_ids_text('broker', sorted(brokers))}"
        for reason, brokers in sorted(abandoned.items())
    )
    gone = deletion.count(DeletionState.SUCCESSFUL)
    return (
        f"only {gone} of {deletion.count(*DeletionState)} replicas are confirmed deleted; the"
        f" others were abandoned ({why})"
    )


def causes(deletion: DeletionImage) -> list[str]:
    """Return what an open deletion waits for and what to do; never empty."""
    found: list[str] = []
    if deletion.halted is HaltReason.REASSIGNMENT:
        found.append(
            "its partitions are being reassigned: wait for that, or cancel it with "
            "'ottla reassign-partitions --cancel --reassignment-json-file FILE'"
        )
    elif deletion.halted is HaltReason.PREFERRED_ELECTION:
        found.append("a preferred leader election is under way: wait for that")
    elif not deletion.has_begun:
        found.append("the controller has not started it yet")
    holders: dict[ReplicaStatus, list[int]] = defaultdict(list)
    for broker_id, standing, _ in deletion.rows():
        if not standing.is_over:
            holders[standing].append(broker_id)
    for standing, brokers in sorted(holders.items()):
        found.append(_cause(deletion.policy, standing, brokers))
    if deletion.remote is Remote.PENDING:
        found.append(f"the remote tier is not purged yet: {purge_text(deletion)}")
    return found or ["the controller has not closed it yet"]


def _cause(policy: Policy, standing: ReplicaStatus, brokers: Sequence[int]) -> str:
    who, is_one = _ids_text("broker", brokers), len(brokers) == 1
    match standing.reason:
        case Reason.BROKER_DOWN:
            what = "is down: start it" if is_one else "are down: start them"
            return f"{who} {what}; if that is impossible, {_way_out(policy, brokers)}"
        case Reason.FOLDER_FAILED if not standing.error:
            return f"a log directory of {who} is offline: repair it and restart the broker"
        case Reason.FOLDER_FAILED:
            # KAFKA_STORAGE_ERROR from the broker: a partition directory, or a whole log directory.
            log = "its log names" if is_one else "their logs name"
            return (
                f"{who} cannot delete partition directories: {log} each path and the reason; repair"
                " that, and the broker retries within a minute; an offline log directory needs a"
                " restart of the broker"
            )
        case Reason.REFUSED:
            return f"{who} returned {error_name(standing.error)}; the controller retries"
        case _:
            return f"{who} {'has' if is_one else 'have'} not confirmed yet"


def _way_out(policy: Policy, brokers: Sequence[int]) -> str:
    if policy is Policy.CLASSIC:
        return "start a broker with that id and empty log directories"
    example = f"'ottla cluster unregister --id {brokers[0]}'"
    return f"unregister {'it' if len(brokers) == 1 else 'each'} ({example})"
