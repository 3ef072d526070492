"""Where new replicas go: spread over racks, then over brokers, then over leaders.

The unfenced brokers form a ring in which racks alternate. Partition p is led by the broker
at p plus a random start, so leaders differ by one at most; followers come from further along the
ring, first from racks that the partition does not have yet, each turn of the ring at a greater
distance, so that the partitions of one leader do not share their followers. Fenced brokers are
used only where the others do not suffice, and never lead.
Source: in spirit StripedReplicaPlacer (Kafka 4.0) and AdminUtils' rack-aware assignment (KIP-36).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ottla.base.errors import ApiError, Error
from ottla.base.ports import Dice
from ottla.metadata.image import ClusterImage


@dataclass(frozen=True, slots=True)
class Candidate:
    """A broker that may hold replicas."""

    id: int
    rack: str | None
    fenced: bool


def candidates(image: ClusterImage) -> tuple[Candidate, ...]:
    """Return the brokers that take new replicas: all but those in controlled shutdown.

    One that has stopped counts as fenced, so that new topics may use a node that restarts.
    """
    return tuple(
        Candidate(broker.id, broker.rack, broker.fenced)
        for _, broker in sorted(image.brokers.items())
        if broker.fenced or not broker.in_controlled_shutdown
    )


def place(
    brokers: Sequence[Candidate], *, first: int, count: int, replication_factor: int, dice: Dice
) -> tuple[tuple[int, ...], ...]:
    """Return the replicas, leader first, of partitions `first` to `first + count`.

    Raises: ApiError(INVALID_REPLICATION_FACTOR) where there are too few brokers.
    """
    assert count >= 0
    assert replication_factor >= 1
    ring = alternate(each for each in brokers if not each.fenced)
    if replication_factor > len(brokers):
        raise ApiError(
            Error.INVALID_REPLICATION_FACTOR,
            f"The replication factor {replication_factor} cannot be reached: only"
            f" {len(brokers)} broker(s) are registered and not shutting down.",
        )
    if not ring:
        raise ApiError(Error.INVALID_REPLICATION_FACTOR, "All brokers are fenced at the moment.")
    spare = alternate(each for each in brokers if each.fenced)
    start, shift = dice.below(len(ring)), dice.below(len(ring))
    return tuple(
        _replicas(
            ring, spare, start + partition, shift + partition // len(ring), replication_factor
        )
        for partition in range(first, first + count)
    )


def alternate(brokers: Iterable[Candidate]) -> list[Candidate]:
    """Order brokers so that neighbours stand in different racks as far as racks allow."""
    racks: dict[str, list[Candidate]] = {}
    for broker in sorted(brokers, key=lambda each: each.id):
        racks.setdefault(broker.rack or "", []).append(broker)
    lists = [racks[rack] for rack in sorted(racks)]
    longest = max(map(len, lists), default=0)
    return [each[row] for row in range(longest) for each in lists if row < len(each)]


def _replicas(
    ring: Sequence[Candidate],
    spare: Sequence[Candidate],
    turn: int,
    shift: int,
    replication_factor: int,
) -> tuple[int, ...]:
    leader = turn % len(ring)
    chosen = [ring[leader]]
    if replication_factor == 1:
        return (chosen[0].id,)
    others = len(ring) - 1
    along = [ring[(leader + 1 + (shift + step) % others) % len(ring)] for step in range(others)]
    turned = [spare[(turn + step) % len(spare)] for step in range(len(spare))]
    for pool in (along, turned):
        used = {each.rack for each in chosen}
        elsewhere: list[Candidate] = []
        for each in pool:
            # A second replica in a rack comes after all other racks.
            if each.rack is not None and each.rack in used:
                elsewhere.append(each)
            else:
                used.add(each.rack)
                chosen.append(each)
        chosen += elsewhere
        if len(chosen) >= replication_factor:
            break
    return tuple(each.id for each in chosen[:replication_factor])
