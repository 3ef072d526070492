"""The value of a decision: records to commit, effects that follow, and the reply.

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

    An atomic step is visible whole or not at all; another may be cut anywhere, and its decider
    allows for that.
    """

    records: tuple[Record, ...] = ()
    effects: tuple[Any, ...] = ()
    atomic: bool = True


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """A step with the reply to the caller."""

    step: Step
    reply: R


def refused(reply: R) -> Decision[R]:
    """Return a decision that changes nothing."""
    return Decision(Step(), reply)
