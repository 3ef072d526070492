"""ISR changes that a leader proposes, and the ISR that is in effect until they are decided.

| Proposal | in effect for the high watermark meanwhile   | why                                  |
|----------|----------------------------------------------|--------------------------------------|
| expand   | the larger set, with the new members         | the controller may have added them   |
| shrink   | the larger set, with the lagging members     | the controller may have refused      |

Meanwhile is until the metadata has the change; over ZooKeeper, until the response (`isr_manager`).
So the high watermark depends on the maximal ISR, the largest set that the controller may have, and
any replica that it elects has all acknowledged records.

Source: KIP-497, KIP-841, KIP-903; PendingExpandIsr and PendingShrinkIsr of Kafka's Partition.scala.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.base.errors import Error
from ottla.base.ids import NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChange:
    """A leader's pending proposal to the controller, until the response or newer metadata comes.

    Fields: `isr`: the proposal, each member with its broker epoch, -1 = not known. `maximal`:
            the set in effect meanwhile. The epochs are those on which the proposal is based.
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
    """Propose to add replicas. `at`: (leader epoch, partition epoch)."""
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
    """Propose to remove replicas, never the leader itself (KAFKA-708)."""
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
"""The controller has the proposal's partition epoch, and has rejected it: the committed ISR is in
effect again."""

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
"""Whether the proposal was applied is not known here, or it was and this broker no longer leads:
the maximal ISR stays in effect until newer metadata comes."""
