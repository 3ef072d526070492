"""Upper bounds for a log's checkpoint entries, made durable before the log is truncated.

Kafka writes the recovery-point checkpoint of the whole log directory before a truncation returns:
a start that finds the older checkpoint must not trust what is appended after the truncation. Here
the log writes one small file instead, `.ottla_truncation-<number>`, with the maximum for its entry
in each of the checkpoints. The cost does not depend on the number of logs in the directory,
and a checkpoint write in progress in a worker cannot undo it. The file is removed once the
checkpoints have been written after the truncation.

A limit only lowers an entry. A file that comes back after a power loss, or that was written for a
truncation that did not happen, is harmless: recovery reads more.

Source: LogManager.truncateTo (checkpointRecoveryOffsetsInDir).
"""

import json
from collections.abc import Iterable
from typing import NamedTuple

from ottla.base.ports import Disk
from ottla.log import names


class CheckpointLimits(NamedTuple):
    """The maximum of a log's entry in each checkpoint.

    A local log start of 0 says that the log has no remote prefix, whatever the checkpoint says. It
    is left out of the file, which then looks as it did before there was remote storage. If a log
    gets its remote prefix while such a file may still be there, nothing is lost: no local file is
    deleted before the limits are gone.
    """

    recovery_point: int
    log_start_offset: int
    high_watermark: int
    clean_offset: int
    local_log_start_offset: int = 0


NO_LIMITS = CheckpointLimits(*(2**63 - 1 for _ in CheckpointLimits._fields))

NOTHING_CHECKPOINTED = CheckpointLimits(0, 0, 0, 0)
"""For an empty log: no entry counts."""

DAMAGED = NO_LIMITS._replace(recovery_point=0)
"""For a file that cannot be read: recovery then reads the whole log."""


def lowest(limits: Iterable[CheckpointLimits]) -> CheckpointLimits:
    """Return the least of each field."""
    return CheckpointLimits(*map(min, zip(NO_LIMITS, *limits, strict=True)))


def write_limits(disk: Disk, directory: str, number: int, limits: CheckpointLimits) -> None:
    """Write limits durably. Blocks. Raises: OSError."""
    content = {"version": 0, **limits._asdict()}
    if not limits.local_log_start_offset:
        del content["local_log_start_offset"]
    data = json.dumps(content, separators=(",", ":")).encode()
    disk.write_atomic(_path(directory, number), data)


def read_limits(disk: Disk, directory: str) -> dict[int, CheckpointLimits]:
    """Return the limits in a partition directory by number. Blocks. Raises: OSError."""
    found: dict[int, CheckpointLimits] = {}
    for name in disk.listdir(directory):
        number = limits_number(name)
        if number is not None:
            found[number] = _decode(disk.read_bytes(f"{directory}/{name}"))
    return found


def remove_limits(disk: Disk, directory: str, number: int) -> None:
    """Remove the file; the caller syncs the directory. Raises: OSError."""
    disk.remove(_path(directory, number))


def limits_number(name: str) -> int | None:
    """Return the number in the name of a limits file; None for any other file."""
    prefix, _, number = name.rpartition("-")
    return int(number) if prefix == names.TRUNCATION and number.isdecimal() else None


def _path(directory: str, number: int) -> str:
    return f"{directory}/{names.TRUNCATION}-{number}"


def _decode(data: bytes) -> CheckpointLimits:
    try:
        content = {"local_log_start_offset": 0, **json.loads(data)}
        return CheckpointLimits(*(int(content[field]) for field in CheckpointLimits._fields))
    except (ValueError, KeyError, TypeError):
        return DAMAGED
