"""`/brokers/topics/T/partitions/P/state`: a partition's leader and in-sync replicas.

The znode's version is the partition epoch. A recovery state is written only after an unclean
election, until the leader has recovered. `ottla_broker_epochs` is a field that Kafka ignores, and
drops when it writes the znode: see `restarted_replicas`.
Source: TopicPartitionStateZNode, Kafka 3.9; KIP-704.
"""

from collections.abc import Collection
from dataclasses import dataclass

from immutables import Map

from ottla.metadata.topics import RECOVERED, RECOVERING
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.fields import (
    NO_EXTRA,
    Extra,
    Fields,
    ZnodeError,
    decimal,
    parse,
    written,
)

BROKER_EPOCHS = "ottla_broker_epochs"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateZnode:
    """The content of the znode. `controller_epoch`: of the controller that wrote it.

    `broker_epochs`: of the leader and the in-sync replicas, by id, as that controller knew them;
    those that it did not know to be registered are left out. None = it wrote none, as Kafka's do.
    """

    leader: int
    leader_epoch: int
    controller_epoch: int
    isr: tuple[int, ...]
    leader_recovery_state: int = RECOVERED
    broker_epochs: Map[int, int] | None = None
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
        broker_epochs=_broker_epochs(fields),
        extra=fields.rest(),
    )
    if state.leader_epoch < 0:
        raise fields.fail(f"leader_epoch is {state.leader_epoch}: expected 0 or more")
    return state


def _broker_epochs(fields: Fields) -> Map[int, int] | None:
    if not fields.has(BROKER_EPOCHS):
        return None
    epochs = fields.object(BROKER_EPOCHS)
    return Map(
        {decimal(fields.path, each, BROKER_EPOCHS): epochs.number(each) for each in epochs.values}
    )


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
    if state.broker_epochs is not None:
        values[BROKER_EPOCHS] = {
            str(each): epoch for each, epoch in sorted(state.broker_epochs.items())
        }
    return written(values, state.extra)
