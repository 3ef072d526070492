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
from collections.abc import Iterable, Mapping
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


def limits_of_cut(entries: CheckpointLimits, offset: int, base_offset: int) -> CheckpointLimits:
    """Return the limits for a truncation to `offset`, in the segment that starts at `base_offset`.

    `entries`: what a checkpoint written now would have, with no local log start but that of a
    remote prefix.
    """
    return CheckpointLimits(
        recovery_point=min(entries.recovery_point, base_offset),
        log_start_offset=min(entries.log_start_offset, offset),
        # If `offset` is within a batch, the end is not known yet.
        high_watermark=(
            entries.high_watermark if entries.high_watermark <= offset else base_offset
        ),
        clean_offset=entries.clean_offset if entries.clean_offset <= offset else base_offset,
        local_log_start_offset=min(entries.local_log_start_offset, offset),
    )


def limits_of_start(entries: CheckpointLimits, offset: int, base_offset: int) -> CheckpointLimits:
    """Return the limits for a log that starts anew at `offset`; `base_offset`: of its first
    segment; `entries`: as `limits_of_cut`."""
    # Until the flush any of the old segments may come back.
    limits = CheckpointLimits(
        recovery_point=min(entries.recovery_point, base_offset, offset),
        log_start_offset=min(entries.log_start_offset, offset),
        high_watermark=offset,
        clean_offset=min(entries.clean_offset, offset),
    )
    if not entries.local_log_start_offset:
        return limits
    # Both starts hold for the old segments, also if the log is not truncated after all.
    return limits._replace(
        log_start_offset=entries.log_start_offset,
        local_log_start_offset=entries.local_log_start_offset,
    )


class LimitFiles:
    """The limits files of one log.

    Fields: `limits`: those that are on the disk, by number; `last_number`: the largest number that
            any was given.
    """

    __slots__ = ("_disk", "last_number", "limits")

    def __init__(self, disk: Disk, limits: Mapping[int, CheckpointLimits]) -> None:
        self._disk = disk
        self.limits = dict(limits)
        self.last_number = max(limits, default=0)

    def are_enough(self, entries: CheckpointLimits, limits: CheckpointLimits) -> bool:
        """Return whether no checkpoint entry, however old, exceeds `limits`.

        `entries`: what a checkpoint written now would have, with a local log start if any
        checkpoint may have one.
        """
        lowered = lowest((entries, *self.limits.values()))
        return all(now <= most for now, most in zip(lowered, limits, strict=True))

    def next_number(self) -> int:
        """Return a number that no limits file in the directory has."""
        self.last_number += 1
        return self.last_number

    def store(self, directory: str, limits: CheckpointLimits) -> None:
        """Write limits durably. Blocks. Raises: OSError."""
        number = self.next_number()
        write_limits(self._disk, directory, number, limits)
        self.limits[number] = limits

    def remove(self, directory: str, numbers: Iterable[int]) -> None:
        """Remove limits, the oldest first; the caller syncs the directory. Raises: OSError."""
        for number in sorted(numbers):
            if self.limits.pop(number, None) is not None:
                remove_limits(self._disk, directory, number)


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
            found[number] = decode_limits(disk.read_bytes(f"{directory}/{name}"))
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


def decode_limits(data: bytes) -> CheckpointLimits:
    """Return what a limits file holds; the strictest limits where it is damaged."""
    try:
        content = {"local_log_start_offset": 0, **json.loads(data)}
        return CheckpointLimits(*(int(content[field]) for field in CheckpointLimits._fields))
    except (ValueError, KeyError, TypeError):
        return DAMAGED
