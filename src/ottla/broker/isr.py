"""In-sync replicas as their leader proposes them, and what counts while the answer is out.

| Proposal | counts for the high watermark meanwhile      | why                                  |
|----------|----------------------------------------------|--------------------------------------|
| expand   | the larger set, newcomers included           | the controller may have taken them   |
| shrink   | the larger set, the laggards included        | the controller may have refused      |

Meanwhile is until the metadata has the change; over ZooKeeper, until the answer (`isr_manager`).
So the high watermark rests on the maximal set that the controller may believe in, and whoever
it elects has all that was ever acknowledged.

Source: KIP-497, KIP-841, KIP-903; PendingExpandIsr and PendingShrinkIsr of Kafka's Partition.scala.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import Error
from ottla.base.ids import NO_EPOCH
from ottla.metadata.brokers import BrokerImage

if TYPE_CHECKING:
    from ottla.broker.partition import Partition

LAG_TIME_MAX_MS = 30_000
"""Kafka's default of replica.lag.time.max.ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChange:
    """What a leader asks the controller for, until the answer or newer metadata comes.

    Fields: `isr`: the proposal, each member with its broker epoch, -1 = not known. `maximal`:
            the set that counts meanwhile. The epochs are those that the proposal rests on.
    """

    isr: tuple[tuple[int, int], ...]
    maximal: tuple[int, ...]
    grows: bool
    leader_epoch: int
    partition_epoch: int


def expansion(
    isr: tuple[int, ...],
    joining: tuple[int, ...],
    epochs: Mapping[int, int],
    *,
    at: tuple[int, int],
) -> IsrChange:
    """Propose to take replicas in. `at`: (leader epoch, partition epoch)."""
    assert joining
    assert not set(joining) & set(isr)
    proposed = (*isr, *joining)
    return IsrChange(
        isr=_with_epochs(proposed, epochs),
        maximal=proposed,
        grows=True,
        leader_epoch=at[0],
        partition_epoch=at[1],
    )


def reduction(
    isr: tuple[int, ...],
    leaving: tuple[int, ...],
    epochs: Mapping[int, int],
    *,
    at: tuple[int, int],
) -> IsrChange:
    """Propose to leave replicas out; the leader itself never is (KAFKA-708)."""
    assert leaving
    left = tuple(node for node in isr if node not in leaving)
    assert left
    return IsrChange(
        isr=_with_epochs(left, epochs),
        maximal=isr,
        grows=False,
        leader_epoch=at[0],
        partition_epoch=at[1],
    )


def _with_epochs(isr: tuple[int, ...], epochs: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    return tuple((node, epochs.get(node, NO_EPOCH)) for node in isr)


NOT_APPLIED = frozenset({Error.INELIGIBLE_REPLICA, Error.OPERATION_NOT_ATTEMPTED})
"""The controller knows the very partition epoch of the proposal and has not done it: what is
committed counts again."""

OVERTAKEN = frozenset(
    {
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.UNKNOWN_TOPIC_ID,
        Error.FENCED_LEADER_EPOCH,
        Error.INVALID_UPDATE_VERSION,
        Error.INVALID_REQUEST,
        Error.NEW_LEADER_ELECTED,
    }
)
"""Whether the proposal was done is not known here, or it was and this broker leads no more: the
maximal set goes on to count until newer metadata says."""


class Propose(Protocol):
    """Whoever brings a proposal to the controller."""

    def __call__(self, partition: "Partition", change: IsrChange) -> None: ...


def _propose_nothing(partition: "Partition", change: IsrChange) -> None:
    """Do nothing: for partitions that are nobody's."""


@dataclass(slots=True, kw_only=True)
class PartitionEnvironment:
    """What all partitions of a broker know of the world.

    Fields: `brokers`: as the newest metadata has them. `broker_epoch`: this broker's own.
    """

    brokers: Mapping[int, BrokerImage]
    monotonic_ms: Callable[[], int] = lambda: 0
    broker_epoch: Callable[[], int] = lambda: NO_EPOCH
    propose: Propose = _propose_nothing
    lag_time_max_ms: int = LAG_TIME_MAX_MS
