"""What a decision is: records that become facts, effects that follow, and the answer.

A decider is a pure function from the appended image and a request to a `Decision`. The host
appends the records, replays them, runs the effects in order and sends the reply, all of it only
once the records are committed; a refusal has no records.
"""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ottla.metadata.records import Record

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Step:
    """Records to append, and what to do when they are committed.

    An atomic step is seen whole or not at all; another may be cut anywhere, at a price that its
    decider thought about.
    """

    records: tuple[Record, ...] = ()
    effects: tuple[Any, ...] = ()
    atomic: bool = True


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """A step with the answer to whoever asked for it."""

    step: Step
    reply: R


def refused(reply: R) -> Decision[R]:
    """Return a decision that changes nothing."""
    return Decision(Step(), reply)
