"""A deletion as one ZooKeeper node, `/ottla/deletions/<topic id>`. Ottla's own format.

Partitions are written as ranges ("0-99,101"), states and reasons by name, readable with a
ZooKeeper client. Where a broker has so many separate ranges that they are unreadable anyway, the
steps from one to the next are written: the entry of a topic must fit into a node where the
topic's own does, which names each partition once, while here each replica is listed. Unknown
fields are of a newer Ottla's and are lost when the entry is written again.

What is read is bounded to what DescribeDeletions can return: an entry that no response could hold
would make each response with it fail.
"""

import json
from collections.abc import Collection, Iterable, Iterator
from enum import IntEnum
from typing import Any, Final, TypeVar

from ottla.base.ids import NO_EPOCH, parse_uuid, uuid_text
from ottla.metadata.deletions import (
    NOT_FINISHED,
    NOT_KNOWN,
    DeletionImage,
    DeletionState,
    HaltReason,
    Policy,
    Reason,
    Remote,
    ReplicaStatus,
)

VERSION: Final = 1
PARTITIONS_MAX: Final = 1_000_000
"""Above any topic's: a range of a spoiled node must not fill the memory."""

REPLICAS_MAX: Final = 1_000_000
"""Above any topic's, whose znode could not name so many: nor may many rows fill it."""

RANGES_BYTES_MAX: Final = 1_000
"""How long a row's ranges may be; above that it has steps."""

NAME_BYTES_MAX: Final = 2**15 - 1
INT16: Final = range(-(2**15), 2**15)
INT32: Final = range(-(2**31), 2**31)
INT64: Final = range(-(2**63), 2**63)

E = TypeVar("E", bound=IntEnum)


def encode_deletion(deletion: DeletionImage) -> bytes:
    """Return the node's data."""
    fields = {
        "version": VERSION,
        "topic": deletion.name,
        "topic_id": uuid_text(deletion.topic_id),
        "policy": _enum_text(deletion.policy),
        "asked_ms": deletion.asked_ms,
        "halted": _enum_text(deletion.halted),
        "remote": _enum_text(deletion.remote),
        "finished_ms": deletion.finished_ms,
        "leader_epoch": deletion.leader_epoch,
        **_encode_left(deletion),
        "replicas": [
            {
                "broker": broker_id,
                "state": _enum_text(standing.state),
                "reason": _enum_text(standing.reason),
                "error": standing.error,
                **_encode_partitions(partitions),
            }
            for broker_id, standing, partitions in deletion.rows()
        ],
    }
    return json.dumps(fields, separators=(",", ":")).encode("utf-8")


def decode_deletion(data: bytes) -> DeletionImage:
    """Return the deletion that a node holds. Raises: ValueError, with the reason."""
    try:
        fields = json.loads(data)
        if fields["version"] < 1:
            raise ValueError(f"version {fields['version']}, expected {VERSION}")
        deletion = DeletionImage(
            topic_id=parse_uuid(fields["topic_id"]),
            name=_parse_name(fields["topic"]),
            policy=_parse_enum(Policy, fields["policy"]),
            asked_ms=_parse_integer(fields["asked_ms"], INT64),
            halted=_parse_enum(HaltReason, fields.get("halted", "none")),
            remote=_parse_enum(Remote, fields.get("remote", "none")),
            finished_ms=_parse_integer(fields.get("finished_ms", NOT_FINISHED), INT64),
            leader_epoch=_parse_integer(fields.get("leader_epoch", NO_EPOCH), INT32),
            segments_left=_parse_integer(fields.get("segments_left", NOT_KNOWN), INT32),
            bytes_left=_parse_integer(fields.get("bytes_left", NOT_KNOWN), INT64),
        )
        replicas = 0
        for row in fields.get("replicas", ()):
            standing = ReplicaStatus(
                _parse_enum(DeletionState, row["state"]),
                _parse_enum(Reason, row.get("reason", "none")),
                _parse_integer(row.get("error", 0), INT16),
            )
            partitions = _decode_partitions(row)
            replicas += len(partitions)
            if replicas > REPLICAS_MAX:
                raise ValueError(f"more than {REPLICAS_MAX} replicas")
            broker_id = _parse_integer(row["broker"], INT32)
            deletion = deletion.with_status(broker_id, standing, partitions)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a deletion: {type(error).__name__} {error}") from None
    return deletion


def _encode_left(deletion: DeletionImage) -> dict[str, int]:
    """Return what an abandoned purge has left; nothing of other deletions, nor where unknown."""
    left = {"segments_left": deletion.segments_left, "bytes_left": deletion.bytes_left}
    return {name: value for name, value in left.items() if value != NOT_KNOWN}


def _encode_partitions(partitions: Collection[int]) -> dict[str, str]:
    ranges = encode_ranges(partitions)
    if len(ranges) <= RANGES_BYTES_MAX:
        return {"partitions": ranges}
    return {"steps": encode_steps(partitions)}


def _decode_partitions(row: dict[str, str]) -> tuple[int, ...]:
    return decode_steps(row["steps"]) if "steps" in row else decode_ranges(row["partitions"])


# -- numbers -----------------------------------------------------------------------------------


def encode_ranges(numbers: Collection[int]) -> str:
    """Return numbers as text: runs of neighbours by their ends."""
    runs = _runs(numbers)
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def decode_ranges(text: str) -> tuple[int, ...]:
    """Return the numbers that a text names. Raises: ValueError."""
    ends = (run.partition("-") for run in filter(None, text.split(",")))
    return _numbers((int(first), int(last or first)) for first, _, last in ends)


def encode_steps(numbers: Collection[int]) -> str:
    """Return numbers as text: runs by how far after the one before, and how many follow.

    5, 7, 8, 9 and 20 are "5,2+2,11".
    """
    fields: list[str] = []
    before = 0
    for first, last in _runs(numbers):
        fields.append(f"{first - before}" if first == last else f"{first - before}+{last - first}")
        before = last
    return ",".join(fields)


def decode_steps(text: str) -> tuple[int, ...]:
    """Return the numbers that a text names. Raises: ValueError."""

    def runs() -> Iterator[tuple[int, int]]:
        last = 0
        for run in filter(None, text.split(",")):
            step, _, more = run.partition("+")
            first = last + int(step)
            last = first + int(more or 0)
            yield first, last

    return _numbers(runs())


def _runs(numbers: Collection[int]) -> list[list[int]]:
    """Return the runs of neighbours, each by its first and its last number."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return runs


def _numbers(runs: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    numbers: list[int] = []
    for first, last in runs:
        if first < 0 or last < first or last > PARTITIONS_MAX or (numbers and first <= numbers[-1]):
            raise ValueError(f"{first} to {last} is not a range above those before it")
        numbers.extend(range(first, last + 1))
    return tuple(numbers)


def _enum_text(value: IntEnum) -> str:
    return value.name.lower().replace("_", " ")


def _parse_enum(kind: type[E], text: Any) -> E:
    return kind[str(text).upper().replace(" ", "_")]


def _parse_name(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a name")
    # JSON can write half a character ("\ud800"), which has no encoding: that is a ValueError, too.
    if len(value.encode("utf-8")) > NAME_BYTES_MAX:
        raise ValueError(f"a name of more than {NAME_BYTES_MAX} bytes")
    return value


def _parse_integer(value: Any, allowed: range) -> int:
    # Not `int(value)`: JSON's numbers can be infinite, and true and false are none.
    if type(value) is not int:
        raise TypeError(f"{value!r} is not an integer")
    if value not in allowed:
        raise ValueError(f"{value} is not one of {allowed.start} to {allowed.stop - 1}")
    return value
