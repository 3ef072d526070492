"""What `ottla topics --describe-deletions` prints: a table, JSON, and why something is not done.

The words of states and reasons are those of the ledger in ZooKeeper; docs/deletion.md explains
each of them.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any

from ottla.base.errors import error_name
from ottla.base.ids import uuid_text
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
"""How many deletions a message of one line names."""


def word(value: IntEnum) -> str:
    """Return the word of a state, a reason and so on."""
    return value.name.lower().replace("_", " ")


def state_of(deletion: DeletionImage) -> str:
    """Return how far a deletion is: queued, halted, under way or finished."""
    if deletion.is_finished:
        return "finished"
    if deletion.halted is not HaltReason.NONE:
        return "halted"
    return "under way" if deletion.has_begun else "queued"


# -- the table ---------------------------------------------------------------------------------


def table_lines(deletions: Sequence[DeletionImage]) -> Iterator[str]:
    """Yield a line of titles; for each deletion its line, one a group of replicas, the tier's."""
    heads = [_head(each) for each in deletions]
    groups = [_groups(each) for each in deletions]
    head_widths = _widths([TITLES, *heads])
    group_widths = _widths([group for each in groups for group in each])
    yield _aligned(TITLES, head_widths)
    for deletion, head, lines in zip(deletions, heads, groups, strict=True):
        yield _aligned(head, head_widths)
        for line in lines:
            yield "  " + _aligned(line, group_widths)
        yield f"  remote tier: {word(deletion.remote)}"


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
    """Return (how far and why, brokers, partitions), brokers together that have the same."""
    brokers: dict[tuple[ReplicaStatus, tuple[int, ...]], list[int]] = defaultdict(list)
    for broker_id, standing, partitions in deletion.rows():
        brokers[standing, partitions].append(broker_id)
    return [
        (
            _standing_text(standing),
            _numbers("broker", holders),
            _numbers("partition", partitions),
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


def _numbers(noun: str, numbers: Sequence[int]) -> str:
    return f"{noun if len(numbers) == 1 else noun + 's'} {encode_ranges(numbers)}"


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(map(str.ljust, row, widths)).rstrip()


def time_text(epoch_ms: int) -> str:
    """Return a time in UTC, by the second; what no calendar has as the number that it is."""
    try:
        return datetime.fromtimestamp(epoch_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, OSError, ValueError):
        return str(epoch_ms)


# -- JSON --------------------------------------------------------------------------------------


def json_text(deletions: Iterable[DeletionImage]) -> str:
    """Return all that is known as one object."""
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


# -- why -----------------------------------------------------------------------------------------


def open_text(deletions: Sequence[DeletionImage]) -> str:
    """Return in one line what some open deletions wait for, and what helps."""
    shown = [f"{each.name}: {'; '.join(causes(each))}" for each in deletions[:NAMED_MAX]]
    more = len(deletions) - len(shown)
    return ". ".join(shown) + (f". And {more} more" if more else "")


def unproven_text(deletion: DeletionImage) -> str | None:
    """Return what of a finished deletion nobody has proved, None = all of it is."""
    abandoned: dict[Reason, list[int]] = defaultdict(list)
    for broker_id, standing, _ in deletion.rows():
        if standing.state is DeletionState.ABANDONED:
            abandoned[standing.reason].append(broker_id)
    if not abandoned or not deletion.is_finished:
        return None
    why = "; ".join(
        f"{word(reason)}: {_numbers('broker', sorted(brokers))}"
        for reason, brokers in sorted(abandoned.items())
    )
    gone = deletion.count(DeletionState.SUCCESSFUL)
    return (
        f"WARN: {deletion.name}: finished, but only {gone} of {deletion.count(*DeletionState)}"
        f" replicas are proved gone; the others were abandoned ({why})"
    )


def causes(deletion: DeletionImage) -> list[str]:
    """Return what an open deletion waits for, and what helps; never nothing."""
    found: list[str] = []
    if deletion.halted is HaltReason.REASSIGNMENT:
        found.append(
            "its partitions are being reassigned: let that end, or end it with "
            "'ottla reassign-partitions --cancel --reassignment-json-file FILE'"
        )
    elif deletion.halted is HaltReason.PREFERRED_ELECTION:
        found.append("a preferred election of it is under way: let that end")
    elif not deletion.has_begun:
        found.append("the controller has not begun with it yet")
    holders: dict[ReplicaStatus, list[int]] = defaultdict(list)
    for broker_id, standing, _ in deletion.rows():
        if not standing.is_over:
            holders[standing].append(broker_id)
    for standing, brokers in sorted(holders.items()):
        found.append(_cause(deletion.policy, standing, brokers))
    if deletion.remote is Remote.PENDING:
        found.append("the remote tier is not purged yet")
    return found or ["the controller has not closed it yet"]


def _cause(policy: Policy, standing: ReplicaStatus, brokers: Sequence[int]) -> str:
    who, is_one = _numbers("broker", brokers), len(brokers) == 1
    match standing.reason:
        case Reason.BROKER_DOWN:
            what = "is down: start it" if is_one else "are down: start them"
            return f"{who} {what}, or where that will never be, {_way_out(policy, brokers)}"
        case Reason.FOLDER_FAILED if not standing.error:
            return f"a log directory of {who} is offline: mend it and restart the broker"
        case Reason.FOLDER_FAILED:
            # The broker's answer: one replica's directory, or a whole log directory.
            log = "its log names" if is_one else "their logs name"
            return (
                f"{who} cannot delete replica directories: {log} each path and the reason; mend"
                " that, and the broker tries again within a minute, but an offline log directory"
                " needs a restart of the broker"
            )
        case Reason.REFUSED:
            return f"{who} refused ({error_name(standing.error)}) and will be asked again"
        case _:
            return f"{who} {'has' if is_one else 'have'} not confirmed yet"


def _way_out(policy: Policy, brokers: Sequence[int]) -> str:
    if policy is Policy.CLASSIC:
        return "start one of that id with empty log folders"
    example = f"'ottla cluster unregister --id {brokers[0]}'"
    return f"unregister {'it' if len(brokers) == 1 else 'each'} ({example})"
