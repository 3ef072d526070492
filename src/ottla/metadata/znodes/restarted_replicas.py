"""Replicas that have restarted since the decision that their partition's state was written for.

A controller that was not running when a broker restarted cannot compare epochs
with an earlier image. The znodes show it: a state may be about the previous process, which had
what this one may lack: a high watermark that it returned to clients, or records lost with the
power.

Each state has the broker epochs that the controller which wrote it had read. The order of the
writes alone does not show it, because a write may be under way while a broker registers:

1. Broker 2 leads in epoch 11. It proposes to expand the ISR; the controller sends the new state
   to ZooKeeper, and dies. The write is slow.
2. Broker 2 restarts and registers. Then the write is executed, and is the later one.
3. Without the epochs the next controller would take it for written about the new process,
   which would lead on in epoch 11, with a high watermark from its checkpoint.

A state from one of Kafka's controllers has no epochs. It is about the previous process where it was
written before the registration.

A controller that has read a new registration decides on it before all else: another change of the
partition would have the new epoch, and could be the last that it writes.

Kafka's controllers check neither: such a broker leads on in its former leader epoch.
"""

from collections.abc import Mapping

from ottla.base.zookeeper import Stat
from ottla.metadata.znodes.fields import ZnodeError
from ottla.metadata.znodes.load import Snapshot
from ottla.metadata.znodes.partition_state import StateZnode, decode_state

RestartedReplicas = Mapping[tuple[str, int], frozenset[int]]
"""Replicas by topic and partition; partitions without any are left out."""


def restarted_replicas(snapshot: Snapshot) -> RestartedReplicas:
    """Return the leaders and in-sync replicas that run as another process than their state says."""
    found = {}
    for (topic, partition_id), got in snapshot.states.items():
        if got is None:
            continue
        try:
            state = decode_state(topic, partition_id, got.data)
        except ZnodeError:
            continue  # A problem of `load`.
        started = frozenset(
            each
            for each in (state.leader, *state.isr)
            if (broker := snapshot.brokers.get(each)) is not None
            and _has_restarted(each, broker.stat.czxid, state, got.stat)
        )
        if started:
            found[topic, partition_id] = started
    return found


def _has_restarted(broker_id: int, epoch: int, state: StateZnode, stat: Stat) -> bool:
    if state.broker_epochs is None:
        return epoch > stat.mzxid
    return state.broker_epochs.get(broker_id) != epoch
