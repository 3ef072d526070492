"""What must hold in any history of a quorum: each anomaly is a function to its witnesses."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Record = tuple[int, bytes]
"""Epoch and value."""


@dataclass(slots=True)
class History:
    """What was seen from outside. Nodes by id; a restarted process is a further life."""

    leaders: list[tuple[int, int]] = field(default_factory=list)
    """(epoch, node), for each election won."""
    committed: list[tuple[int, int, Record]] = field(default_factory=list)
    """(node, offset, record), as each node's high watermark passed it."""
    watermarks: list[tuple[tuple[int, int], int]] = field(default_factory=list)
    """((node, life), offset)"""
    acknowledged: list[tuple[int, Record]] = field(default_factory=list)
    """(offset, record): the leader that appended it has committed it."""


def epochs_with_two_leaders(history: History) -> list[int]:
    """Return the epochs that more than one node led."""
    seen: dict[int, int] = {}
    twice = {epoch for epoch, node in history.leaders if seen.setdefault(epoch, node) != node}
    return sorted(twice)


def committed_twice(history: History) -> list[int]:
    """Return the offsets at which different records were committed: one was lost or moved."""
    seen: dict[int, Record] = {}
    twice = {
        offset
        for _node, offset, record in history.committed
        if seen.setdefault(offset, record) != record
    }
    return sorted(twice)


def acknowledged_but_lost(history: History, log: Mapping[int, Record], start: int) -> list[int]:
    """Return the offsets of acknowledged records that a log from `start` on does not hold."""
    return [
        offset
        for offset, record in history.acknowledged
        if offset >= start and log.get(offset) != record
    ]


def watermarks_that_fell(history: History) -> list[tuple[int, int]]:
    """Return the runs in which the high watermark went back."""
    last: dict[tuple[int, int], int] = {}
    fell = []
    for life, offset in history.watermarks:
        if offset < last.get(life, -1):
            fell.append(life)
        last[life] = offset
    return fell


def logs_that_differ(logs: Sequence[tuple[int, Mapping[int, Record]]], end: int) -> list[int]:
    """Return the offsets before `end` at which logs, each with its start, hold other records."""
    start = max((start for start, _log in logs), default=0)
    return [
        offset for offset in range(start, end) if len({log.get(offset) for _s, log in logs}) > 1
    ]


def not_caught_up(offsets: Iterable[int], at_least: int) -> list[int]:
    """Return the high watermarks that lie below what must be reached."""
    return [offset for offset in offsets if offset < at_least]
