"""Which replicas have started again since anybody last wrote of their partition.

A controller that was not there when a broker came back as another process cannot compare epochs
with an image of before. The znodes tell: a state that was written before the broker's registration
speaks of the process that was there then, which had what this one may lack: a high watermark that
it told clients, or records that a loss of power took.

Kafka's controllers do not look; theirs lets such a broker lead on in the epoch that it led before.
"""

from collections.abc import Mapping

from ottla.metadata.znodes.fields import ZnodeError
from ottla.metadata.znodes.load import Snapshot
from ottla.metadata.znodes.partition_state import decode_state

RestartedReplicas = Mapping[tuple[str, int], frozenset[int]]
"""Replicas by topic and partition; partitions of which there is nothing to say are left out."""


def restarted_replicas(snapshot: Snapshot) -> RestartedReplicas:
    """Return the leaders and in-sync replicas whose registration is later than the state."""
    found = {}
    for (topic, partition_id), got in snapshot.states.items():
        if got is None:
            continue
        try:
            state = decode_state(topic, partition_id, got.data)
        except ZnodeError:
            continue  # Told where the snapshot is taken into the image.
        started = frozenset(
            each
            for each in (state.leader, *state.isr)
            if (broker := snapshot.brokers.get(each)) is not None
            and broker.stat.czxid > got.stat.mzxid
        )
        if started:
            found[topic, partition_id] = started
    return found
