"""What nodes were seen to do and to hold: more values of a `History`.

Each is what a checker of `checkers_nodes` or `checkers_leftovers` looks at.
"""

from typing import NamedTuple

from ottla.base.ids import Uuid


class RequestHeld(NamedTuple):
    """A request that a node took longer over than its limit, or had not answered in the end.

    Fields: `client`: the asker's place; `held_ms`: counted while the node's process went on and
            the connection stood; `limit_ms`: what the request itself allows, or its sender's rule.
    """

    client: int
    node: int
    incarnation: int
    api: str
    held_ms: int
    limit_ms: int
    answered: bool
    at_ms: int = 0


class ReplayCompared(NamedTuple):
    """A node's metadata beside a replay of the committed log, up to the same offset.

    Fields: `source`: what the node's side was: its published image, or its newest snapshot and
            the log behind it; `different`: the parts that are not the same, none = all are.
    """

    node: int
    incarnation: int
    offset: int
    source: str
    different: tuple[str, ...]
    at_ms: int = 0


class MemberSeen(NamedTuple):
    """How far a live member of a partition's ISR, or ELR, was at one moment.

    Fields: `committed`: the highest high watermark that any leader has named so far; over
            ZooKeeper the end of what was acknowledged. `end`: this replica's log end. `epoch`,
            `leader_epoch`: of the last committed record, here and at the leader; -1 = not known.
    """

    partition: tuple[Uuid, int]
    node: int
    incarnation: int
    is_eligible: bool
    """It is not in sync, but one of the eligible leader replicas."""
    committed: int
    end: int
    epoch: int = -1
    leader_epoch: int = -1
    at_ms: int = 0


class EpochSeen(NamedTuple):
    """The leader epoch and partition epoch that one life of a node acts by."""

    partition: tuple[Uuid, int]
    node: int
    incarnation: int
    leader_epoch: int
    partition_epoch: int
    at_ms: int = 0


class LeftOver(NamedTuple):
    """What a node keeps of something, once all is calm and no client asks any more.

    Fields: `kept`: how many there are; `most`: how many may be.
    """

    node: int
    what: str
    kept: int
    most: int
    at_ms: int = 0


class Unfenced(NamedTuple):
    """The metadata lets a fenced broker serve. `asked`: that very registration has asked for it."""

    node: int
    epoch: int
    requested: bool
    at_ms: int = 0


class StartRefused(NamedTuple):
    """A node ended at its start, or for a failure of its own, because of what its disk held."""

    node: int
    incarnation: int
    reason: str
    at_ms: int = 0
