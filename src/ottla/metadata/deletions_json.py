"""A deletion as one ZooKeeper node, `/ottla/deletions/<topic id>`. Ottla's own format.

Partitions are written as ranges ("0-99,101"), so that the largest topic fits into a node; states
and reasons by name, for whoever looks with a ZooKeeper client. Fields that are not known here are
of a newer Ottla's and are lost when the entry is written again.
"""

import json
from collections.abc import Collection
from enum import IntEnum
from typing import Any, Final, TypeVar

from ottla.base.ids import parse_uuid, uuid_text
from ottla.metadata.deletions import (
    NOT_FINISHED,
    DeletionImage,
    DeletionState,
    Halt,
    Policy,
    Reason,
    Remote,
    Standing,
)

VERSION: Final = 1
PARTITIONS_MAX: Final = 1_000_000
"""Above any topic's: a range of a spoiled node must not fill the memory."""

E = TypeVar("E", bound=IntEnum)


def encode_deletion(deletion: DeletionImage) -> bytes:
    """Return the node's data."""
    said = {
        "version": VERSION,
        "topic": deletion.name,
        "topic_id": uuid_text(deletion.topic_id),
        "policy": _word(deletion.policy),
        "asked_ms": deletion.asked_ms,
        "halted": _word(deletion.halted),
        "remote": _word(deletion.remote),
        "finished_ms": deletion.finished_ms,
        "replicas": [
            {
                "broker": broker_id,
                "state": _word(standing.state),
                "reason": _word(standing.reason),
                "error": standing.error,
                "partitions": encode_ranges(partitions),
            }
            for broker_id, standing, partitions in deletion.rows()
        ],
    }
    return json.dumps(said, separators=(",", ":")).encode("utf-8")


def decode_deletion(data: bytes) -> DeletionImage:
    """Return the deletion that a node holds. Raises: ValueError, saying what is wrong with it."""
    try:
        said = json.loads(data)
        if said["version"] < 1:
            raise ValueError(f"version {said['version']}, expected {VERSION}")
        deletion = DeletionImage(
            topic_id=parse_uuid(said["topic_id"]),
            name=_text(said["topic"]),
            policy=_named(Policy, said["policy"]),
            asked_ms=int(said["asked_ms"]),
            halted=_named(Halt, said.get("halted", "none")),
            remote=_named(Remote, said.get("remote", "none")),
            finished_ms=int(said.get("finished_ms", NOT_FINISHED)),
        )
        for row in said.get("replicas", ()):
            standing = Standing(
                _named(DeletionState, row["state"]),
                _named(Reason, row.get("reason", "none")),
                int(row.get("error", 0)),
            )
            partitions = decode_ranges(row["partitions"])
            deletion = deletion.with_standing(int(row["broker"]), standing, partitions)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a deletion: {type(error).__name__} {error}") from None
    return deletion


def encode_ranges(numbers: Collection[int]) -> str:
    """Return numbers as text: runs of neighbours by their ends."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def decode_ranges(text: str) -> tuple[int, ...]:
    """Return the numbers that a text names. Raises: ValueError."""
    numbers: list[int] = []
    for run in filter(None, text.split(",")):
        first, _, last = run.partition("-")
        begin, end = int(first), int(last or first)
        if end < begin or end > PARTITIONS_MAX or (numbers and begin <= numbers[-1]):
            raise ValueError(f"{text!r} is not a list of rising ranges")
        numbers.extend(range(begin, end + 1))
    return tuple(numbers)


def _word(value: IntEnum) -> str:
    return value.name.lower().replace("_", " ")


def _named(kind: type[E], word: Any) -> E:
    return kind[str(word).upper().replace(" ", "_")]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a name")
    return value
