"""Who may lead a partition next: the four reasons to elect, each a pure function.

Every one of them raises the leader epoch by one, which its caller does; they differ in whom
they choose from, in the in-sync set that remains, and in who must be told. None ever makes an
in-sync set empty. Source: Election.scala, PartitionStateMachine.scala, Kafka 3.9; KIP-704.
"""

from collections.abc import Collection, Container
from dataclasses import dataclass, field
from typing import assert_never

from ottla.metadata.topics import RECOVERING


@dataclass(frozen=True, slots=True)
class OfflineElection:
    """The leader is gone. Unclean: any live replica may lead, if no live one is in sync.

    Fields: `allow_unclean`: for every partition, as an operator asked; `unclean_topics`: those
            whose own configuration allows it.
    """

    allow_unclean: bool = False
    unclean_topics: Container[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ReassignElection:
    """The leader is not among the replicas that a reassignment ends with."""


@dataclass(frozen=True, slots=True)
class PreferredElection:
    """The first of the assigned replicas is to lead again."""


@dataclass(frozen=True, slots=True)
class ControlledShutdownElection:
    """The leader's broker is about to stop."""


Strategy = OfflineElection | ReassignElection | PreferredElection | ControlledShutdownElection


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """One partition as an election sees it.

    Fields: `assigned`: its replicas, the preferred one first; `target`: those that a
            reassignment ends with, else the same; `live`: the assigned and target replicas that
            are online, without those shutting down; `shutting_down`: the brokers that are about
            to stop and still answer, with their replicas online.
    """

    topic: str
    assigned: tuple[int, ...]
    target: tuple[int, ...]
    isr: tuple[int, ...]
    live: frozenset[int]
    shutting_down: frozenset[int] = field(default_factory=frozenset)
    can_recover: bool = True
    """Whether every broker understands the recovery state (inter.broker.protocol.version 3.2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elected:
    """The outcome. `recovery_state` None = as it was; `recipients`: who gets LeaderAndIsr."""

    leader: int
    isr: tuple[int, ...]
    recipients: tuple[int, ...]
    recovery_state: int | None = None
    unclean: bool = False


@dataclass(frozen=True, slots=True)
class NotElected:
    """Nobody can lead."""

    reason: str


def elect(strategy: Strategy, candidates: Candidates) -> Elected | NotElected:
    """Return who leads from now on, or why nobody does."""
    assert candidates.live.isdisjoint(candidates.shutting_down)
    match strategy:
        case OfflineElection():
            elected = _offline(strategy, candidates)
        case ReassignElection():
            elected = _reassign(candidates)
        case PreferredElection():
            elected = _preferred(candidates)
        case ControlledShutdownElection():
            elected = _controlled_shutdown(candidates)
        case _:
            assert_never(strategy)
    # An empty in-sync set would forget who has every acknowledged record (KAFKA-708).
    assert isinstance(elected, NotElected) or elected.leader in elected.isr
    return elected


def _offline(strategy: OfflineElection, of: Candidates) -> Elected | NotElected:
    live = tuple(each for each in of.assigned if each in of.live)
    leader = _first(live, of.isr)
    if leader is not None:
        isr = tuple(each for each in of.isr if each in of.live)
        return Elected(leader=leader, isr=isr, recipients=live)
    if not live:
        return NotElected("none of its replicas is on a live broker")
    if not (strategy.allow_unclean or of.topic in strategy.unclean_topics):
        return NotElected("no live replica is in sync, and an unclean election is not allowed")
    return Elected(
        leader=live[0],
        isr=(live[0],),
        recipients=live,
        recovery_state=RECOVERING if of.can_recover else None,
        unclean=True,
    )


def _reassign(of: Candidates) -> Elected | NotElected:
    leader = _first(of.target, of.live.intersection(of.isr))
    if leader is None:
        return NotElected("none of the reassignment's target replicas is live and in sync")
    return Elected(leader=leader, isr=of.isr, recipients=of.target)


def _preferred(of: Candidates) -> Elected | NotElected:
    leader = _first(of.assigned[:1], of.live.intersection(of.isr))
    if leader is None:
        return NotElected("the preferred replica is not live and in sync")
    return Elected(leader=leader, isr=of.isr, recipients=of.assigned)


def _controlled_shutdown(of: Candidates) -> Elected | NotElected:
    leader = _first(of.assigned, of.live.intersection(of.isr))
    if leader is None:
        return NotElected("no other live replica is in sync")
    return Elected(
        leader=leader,
        # All who leave, not only the one who asked: they would be waited for in vain.
        isr=tuple(each for each in of.isr if each not in of.shutting_down),
        recipients=tuple(
            each for each in of.assigned if each in of.live or each in of.shutting_down
        ),
    )


def _first(replicas: tuple[int, ...], fit: Collection[int]) -> int | None:
    return next((each for each in replicas if each in fit), None)
