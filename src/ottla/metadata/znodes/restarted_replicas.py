"""Replicas that have restarted since their partition's state was last written.

A controller that was not running when a broker restarted cannot compare epochs
with an earlier image. The znodes show it: a state that was written before the broker's registration
is about the previous process, which had what this one may lack: a high watermark that
it returned to clients, or records lost with the power.

Kafka's controllers do not check this: such a broker leads on in its former leader epoch.
"""

from collections.abc import Mapping

from ottla.metadata.znodes.fields import ZnodeError
from ottla.metadata.znodes.load import Snapshot
from ottla.metadata.znodes.partition_state import decode_state

RestartedReplicas = Mapping[tuple[str, int], frozenset[int]]
"""Replicas by topic and partition; partitions without any are left out."""


def restarted_replicas(snapshot: Snapshot) -> RestartedReplicas:
    """Return the leaders and in-sync replicas whose registration is later than the state."""
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
            and broker.stat.czxid > got.stat.mzxid
        )
        if started:
            found[topic, partition_id] = started
    return found
