"""`/brokers/topics/T/partitions/P/state`: a partition's leader and in-sync replicas.

The znode's version is the partition epoch. A recovery state is written only after an unclean
election, until the leader has recovered.
Source: TopicPartitionStateZNode, Kafka 3.9; KIP-704.
"""

from collections.abc import Collection
from dataclasses import dataclass

from ottla.metadata.topics import RECOVERED, RECOVERING
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.fields import NO_EXTRA, Extra, ZnodeError, parse, written


@dataclass(frozen=True, slots=True, kw_only=True)
class StateZnode:
    """The content of the znode. `controller_epoch`: of the controller that wrote it."""

    leader: int
    leader_epoch: int
    controller_epoch: int
    isr: tuple[int, ...]
    leader_recovery_state: int = RECOVERED
    extra: Extra = NO_EXTRA


def decode_state(topic: str, partition_id: int, data: bytes) -> StateZnode:
    """Return a partition's state. Raises: ZnodeError."""
    fields = parse(paths.state(topic, partition_id), data)
    fields.number("version", 1)
    recovery = fields.number("leader_recovery_state", RECOVERED)
    if recovery not in (RECOVERED, RECOVERING):
        raise fields.fail(f"leader_recovery_state is {recovery}: expected 0 or 1")
    state = StateZnode(
        leader=fields.number("leader"),
        leader_epoch=fields.number("leader_epoch"),
        controller_epoch=fields.number("controller_epoch"),
        isr=fields.ids("isr"),
        leader_recovery_state=recovery,
        extra=fields.rest(),
    )
    if state.leader_epoch < 0:
        raise fields.fail(f"leader_epoch is {state.leader_epoch}: expected 0 or more")
    return state


def decode_state_of(
    topic: str, partition_id: int, data: bytes, replicas: Collection[int]
) -> StateZnode:
    """Return the state of a partition with these replicas. Raises: ZnodeError.

    One without any in-sync replica among them is of another topic, which had the name before:
    none of its members could ever be elected.
    """
    state = decode_state(topic, partition_id, data)
    if state.isr and not set(state.isr).intersection(replicas):
        reason = f"isr is {list(state.isr)}: expected some of the replicas {list(replicas)}"
        raise ZnodeError(paths.state(topic, partition_id), reason)
    return state


def encode_state(state: StateZnode) -> bytes:
    """Return the znode's data."""
    values: dict[str, object] = {
        "version": 1,
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "controller_epoch": state.controller_epoch,
        "isr": state.isr,
    }
    if state.leader_recovery_state != RECOVERED:
        values["leader_recovery_state"] = state.leader_recovery_state
    return written(values, state.extra)
