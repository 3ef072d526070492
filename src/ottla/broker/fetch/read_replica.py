"""A consumer's preferred read replica: one in its own rack.

Only in-sync replicas that have the requested offset qualify, in their local log or in remote
storage, from which each replica reads: a consumer of a lagging one would never reach the end. Of
several in the rack it is the one with the largest log end; where the leader is in the rack, the
leader.

Source: KIP-392; Kafka's RackAwareReplicaSelector, ReplicaManager.findPreferredReadReplica.
"""

from collections.abc import Callable

from ottla.broker.fetch.reading import NO_REPLICA
from ottla.broker.partition import Partition

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The value of replica.selector.class; Ottla has no JVM to load another class into."""

Selector = Callable[[Partition, int, str, str], int]
"""(partition, offset, rack, listener name) → broker id, or -1 = the leader itself."""


def same_rack(partition: Partition, offset: int, rack: str, listener_name: str) -> int:
    """Return the preferred read replica in a consumer's rack; -1 = the leader."""
    environment = partition.environment
    leader = environment.brokers.get(partition.node_id)
    if not rack or (leader is not None and leader.rack == rack):
        return NO_REPLICA
    now_ms = environment.monotonic_ms()
    best, chosen = None, NO_REPLICA
    for node, follower in partition.followers.items():
        broker = environment.brokers.get(node)
        if broker is None or broker.rack != rack or broker.fenced or node not in partition.isr:
            continue
        if not follower.log_start_offset <= offset <= follower.log_end_offset:
            continue
        if broker.endpoint(listener_name) is None:
            continue
        rank = (follower.log_end_offset, follower.last_caught_up_ms - now_ms, node)
        if best is None or rank > best:
            best, chosen = rank, node
    return chosen
