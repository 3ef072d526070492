"""The part of a `History` about nodes; input of `checkers_nodes` and `checkers_leftovers`."""

from typing import NamedTuple

from ottla.base.ids import Uuid


class RequestHeld(NamedTuple):
    """A request that a node answered slowly, or had not answered in the end.

    Fields: `client`: the client's place in the network, negative; `held_ms`: only while the node's
            process ran and the connection was open; `limit_ms`: the request's own time limit.
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

    Fields: `source`: of the node's metadata: its published image, or its newest snapshot and the
            log after it; `different`: the parts that differ, empty = none.
    """

    node: int
    incarnation: int
    offset: int
    source: str
    different: tuple[str, ...]
    at_ms: int = 0


class MemberSeen(NamedTuple):
    """The log end of a live member of a partition's ISR, or ELR, at one moment.

    Fields: `committed`: the highest high watermark that any leader has had so far; over
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
    """The leader epoch and partition epoch of a replica in one incarnation of its node."""

    partition: tuple[Uuid, int]
    node: int
    incarnation: int
    leader_epoch: int
    partition_epoch: int
    at_ms: int = 0


class LeftOver(NamedTuple):
    """How much of a resource a node holds once the cluster is idle and all clients have stopped.

    Fields: `kept`: how many there are; `most`: how many there may be.
    """

    node: int
    what: str
    kept: int
    most: int
    at_ms: int = 0


class Unfenced(NamedTuple):
    """A broker was unfenced.

    `requested`: a heartbeat of that registration had asked for it, and the broker had read it.
    """

    node: int
    epoch: int
    requested: bool
    at_ms: int = 0


REPLICATION, DURABILITY = "replication", "durability"
FENCING, COORDINATION = "fencing", "coordination"
"""What a rule is about."""


class RuleBroken(NamedTuple):
    """A node broke a rule that holds at every moment.

    Fields: `about`: one of the above; `partition`: None = it is none of a partition; `reason`: how.
    """

    about: str
    partition: tuple[Uuid, int] | None
    node: int
    reason: str
    at_ms: int = 0


class StartRefused(NamedTuple):
    """A node did not start, or could not read its metadata, because of what its disk held."""

    node: int
    incarnation: int
    reason: str
    at_ms: int = 0
