"""What a truncation makes untrue of the checkpoints, durable in the log's own folder before it.

Kafka writes the recovery-point checkpoint of the whole log directory before a truncation returns:
what is appended from there on must not be trusted by a start that finds the older checkpoint. Here
the log writes one small file instead, `.ottla_truncation-<number>`, with the most that the four
checkpoints may say of it. It costs the same for a directory of one log and of ten thousand, and no
write of a checkpoint that is under way in a worker can undo it. The next checkpoints that are
written after the truncation make it superfluous, and it is removed.

A limit only ever lowers what a checkpoint says, so one that comes back with a loss of power, or
that was written for a truncation which then did not happen, does no harm: recovery reads more.

Source: LogManager.truncateTo (checkpointRecoveryOffsetsInDir).
"""

import json
from collections.abc import Iterable
from typing import NamedTuple

from ottla.base.ports import Disk
from ottla.log import names


class CheckpointLimits(NamedTuple):
    """The most that each checkpoint may say of a log."""

    recovery_point: int
    log_start_offset: int
    high_watermark: int
    clean_offset: int


NO_LIMITS = CheckpointLimits(2**63 - 1, 2**63 - 1, 2**63 - 1, 2**63 - 1)

DAMAGED = NO_LIMITS._replace(recovery_point=0)
"""Of a file that cannot be read: then the log is read as a whole."""


def lowest(limits: Iterable[CheckpointLimits]) -> CheckpointLimits:
    """Return the least of each field."""
    return CheckpointLimits(*map(min, zip(NO_LIMITS, *limits, strict=True)))


def write_limits(disk: Disk, directory: str, number: int, limits: CheckpointLimits) -> None:
    """Write limits durably. Blocks. Raises: OSError."""
    data = json.dumps({"version": 0, **limits._asdict()}, separators=(",", ":")).encode()
    disk.write_atomic(_path(directory, number), data)


def read_limits(disk: Disk, directory: str) -> dict[int, CheckpointLimits]:
    """Return the limits in a log's folder by their numbers. Blocks. Raises: OSError."""
    found: dict[int, CheckpointLimits] = {}
    for name in disk.listdir(directory):
        number = limits_number(name)
        if number is not None:
            found[number] = _decode(disk.read_bytes(f"{directory}/{name}"))
    return found


def remove_limits(disk: Disk, directory: str, number: int) -> None:
    """Remove the file; the folder is still to be synced. Raises: OSError."""
    disk.remove(_path(directory, number))


def limits_number(name: str) -> int | None:
    """Return the number in the name of a file of limits; None for any other file."""
    prefix, _, number = name.rpartition("-")
    return int(number) if prefix == names.TRUNCATION and number.isdecimal() else None


def _path(directory: str, number: int) -> str:
    return f"{directory}/{names.TRUNCATION}-{number}"


def _decode(data: bytes) -> CheckpointLimits:
    try:
        content = json.loads(data)
        return CheckpointLimits(*(int(content[field]) for field in CheckpointLimits._fields))
    except (ValueError, KeyError, TypeError):
        return DAMAGED
