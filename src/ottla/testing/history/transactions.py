"""The part of a `History` about transactions; input of `checkers.transactions`."""

from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.testing.history.topics import TopicPartition

NOT_DECIDED_MS = -1


class TransactionSeen(NamedTuple):
    """A transaction in one partition. `decided_ms`: when its first marker was sent, -1 = none
    was. `values`: of its records, also of those that no broker may have appended."""

    client: str
    partition: TopicPartition
    values: tuple[bytes, ...]
    committed: bool
    decided_ms: int = NOT_DECIDED_MS


class CommittedRead(NamedTuple):
    """What a read_committed consumer got of the offsets [first, next): (offset, value)."""

    client: str
    partition: TopicPartition
    first: int
    next: int
    values: tuple[tuple[int, bytes], ...]
    node: int = -1
    at_ms: int = 0


@dataclass(slots=True)
class TransactionHistory:
    """Fields: `ended`: all transactions that were begun."""

    ended: list[TransactionSeen] = field(default_factory=list)
    reads: list[CommittedRead] = field(default_factory=list)
