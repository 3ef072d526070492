"""inter.broker.protocol.version: the version of each request from the controller to brokers.

Only in ZooKeeper mode; the last such version is 3.9. A version
without its `-IV` means the last one of that release. Source: MetadataVersion,
ControllerChannelManager.scala, Kafka 3.9.
"""

import re
from typing import Final, NamedTuple

LAST_IV: Final = 99


class Level(NamedTuple):
    """A version that compares as the releases came. `release`: 0.x.y fills all three places."""

    release: tuple[int, int, int]
    iv: int = LAST_IV


_LEVEL = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?(?:-IV(\d+))?")


def parse_level(text: str) -> Level:
    """Return the level that `text` names ("3.9", "2.4-IV1", "0.10.2"); raise ValueError else."""
    found = _LEVEL.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not an inter.broker.protocol.version: expected as 3.9-IV0")
    major, minor, patch, iv = found.groups()
    if major != "0" or patch is None:
        patch = "0"  # From 1.0 on the third number is a bug-fix release, which changes nothing.
    release = (int(major), int(minor), int(patch))
    return Level(release, LAST_IV if iv is None else int(iv))


def _steps(*names: str) -> tuple[Level, ...]:
    """Return the levels from which versions 1, 2, … of a request are used."""
    levels = tuple(parse_level(name) for name in names)
    assert list(levels) == sorted(levels)
    return levels


LEADER_AND_ISR: Final = _steps(
    "1.0-IV0", "2.2-IV0", "2.4-IV0", "2.4-IV1", "2.8-IV1", "3.2-IV0", "3.4-IV0"
)
UPDATE_METADATA: Final = _steps(
    "0.9.0", "0.10.0-IV1", "0.10.2-IV0", "1.0-IV0", "2.2-IV0", "2.4-IV1", "2.8-IV1", "3.4-IV0"
)
STOP_REPLICA: Final = _steps("2.2-IV0", "2.4-IV1", "2.6-IV0", "3.4-IV0")

LATEST: Final = parse_level("3.9-IV0")


def version_at(steps: tuple[Level, ...], level: Level) -> int:
    """Return the version of a request that is used at `level`."""
    return sum(level >= step for step in steps)
