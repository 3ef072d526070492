"""Observes topic deletions: changes of the deletion ledger, and partition directories on disks.

The ledger is that of the cluster's committed metadata. When it lists a replica as deleted, the disk
of that broker is inspected. When a replica's directories are gone, the observation says whether the
cluster's metadata and the node's own image assigned the replica to the node.
"""

from collections.abc import Iterator
from typing import Any

from ottla.base.ids import uuid_text
from ottla.host.node_core import NodeCore
from ottla.host.steps import Steps
from ottla.metadata.deletions import DeletionImage, DeletionState, HaltReason, ReplicaStatus
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import EMPTY, ClusterImage, PartitionImage
from ottla.metadata.node_config import NodeConfig
from ottla.testing.sim.ports import SimulatedCluster, SimulatedNode
from ottla.testing.sim.watch.observations import (
    DeletionConfirmed,
    DeletionSet,
    PartitionDirGone,
    PartitionDirSeen,
    TopicSet,
)
from ottla.testing.sim.watch.partition_dir_watch import Assignment, PartitionDirWatch, Replica


def follow_deletions(sim: SimulatedCluster, delta: ClusterDelta) -> None:
    """Emit the observations of what a metadata change did to topics and their deletions."""
    now_ms, offset = sim.now_ms, delta.image.position[0]
    for topic_id in delta.deleted_topics:
        sim.notify(TopicSet(now_ms, offset, topic_id, False))
    for topic in delta.created_topics.values():
        sim.notify(TopicSet(now_ms, offset, topic.id, True))
    for topic_id in sorted(delta.changed_deletions):
        before, after = delta.before.deletions.of(topic_id), delta.image.deletions.of(topic_id)
        sim.marks.update(_marks(before, after))
        sim.notify(DeletionSet(now_ms, before, after))
        if after is None:
            continue
        known = set() if before is None else set(_confirmed(before))
        for broker_id, number in _confirmed(after):
            if (broker_id, number) not in known:
                left = _left(sim.nodes[broker_id], (topic_id, number))
                sim.notify(DeletionConfirmed(now_ms, broker_id, topic_id, number, left))


def _left(node: SimulatedNode, replica: Replica) -> tuple[str, ...]:
    """Return what a node has of a replica: directories, and a hosted partition without one."""
    served = () if node.broker is None else node.broker.replicas.hosted()
    is_served = any((each.topic_id, each.partition_id) == replica for each in served)
    return node.partition_dirs.of(replica) + (("a hosted partition",) if is_served else ())


def _confirmed(deletion: DeletionImage) -> Iterator[tuple[int, int]]:
    """Yield (broker, partition) of the replicas listed as deleted."""
    for broker_id, standing, partitions in deletion.rows():
        if standing.state is DeletionState.SUCCESSFUL:
            for number in partitions:
                yield broker_id, number


def _marks(before: DeletionImage | None, after: DeletionImage | None) -> Iterator[str]:
    if after is None:
        return
    if before is None:
        yield "deletion-asked"
    if after.is_finished:
        yield "deletion-finished"
    if after.halted not in (HaltReason.NONE, HaltReason.NONE if before is None else before.halted):
        yield f"deletion-halted-by-{after.halted.name.lower().replace('_', '-')}"
    for state in (DeletionState.INELIGIBLE, DeletionState.ABANDONED):
        if after.count(state) > (0 if before is None else before.count(state)):
            yield f"deletion-{state.name.lower()}"


class KnownMetadata:
    """The image by which a node keeps its partition directories or removes them.

    While it loads its logs that is the image with which the loading began; afterwards it is the
    newest one.
    """

    def __init__(self) -> None:
        self._read_at_start = EMPTY
        self._core: NodeCore | None = None
        """Of the process, once it has loaded its logs."""

    @property
    def image(self) -> ClusterImage:
        """Return the image."""
        return self._read_at_start if self._core is None else self._core.image

    def opened(self, core: NodeCore) -> None:
        """Watch a process that has opened its log directories."""
        self._read_at_start, self._core = EMPTY, None
        node_dirs: Any = core._node_dirs
        load_logs = node_dirs.load_logs

        def watched(image: ClusterImage, config: NodeConfig) -> Steps[None]:
            self._read_at_start = image
            yield from load_logs(image, config)
            self._core = core

        # Wrapped from outside: the product has no hook for it.
        node_dirs.load_logs = watched


def partition_dir_watch(
    sim: SimulatedCluster, node: SimulatedNode, known: KnownMetadata
) -> PartitionDirWatch:
    """Return the watch of a node's partition directories; it emits observations."""

    def came(replica: Replica, path: str) -> None:
        sim.notify(PartitionDirSeen(sim.now_ms, node.id, *replica, path))

    def went(replica: Replica, assignment: Assignment) -> None:
        is_over = assignment is Assignment.NOT_OWN_ANY_MORE
        state = None if is_over else _living(sim.image, replica)
        in_sync = state is not None and node.id in state.isr
        is_own = assignment is Assignment.OWN
        assigned = is_own and state is not None and node.id in state.replicas
        sim.notify(PartitionDirGone(sim.now_ms, node.id, *replica, in_sync, assigned))

    def assignment(replica: Replica) -> Assignment:
        state = _living(known.image, replica)
        if state is not None and node.id in state.replicas:
            return Assignment.OWN
        # Over ZooKeeper the cluster's metadata are the znodes, which no broker is ahead of.
        if sim.zookeeper is None and known.image.position[0] > sim.image.position[0]:
            return Assignment.NOT_OWN_ANY_MORE
        return Assignment.NOT_OWN

    return PartitionDirWatch(
        node.disk, node.config.log_dirs, came=came, went=went, assignment=assignment
    )


def _living(image: ClusterImage, replica: Replica) -> PartitionImage | None:
    """Return the state of a replica's partition; None = deleted, or being deleted."""
    topic_id, number = replica
    topic = image.topics.by_id(topic_id)
    if topic is None or image.deletions.is_being_deleted(topic_id):
        return None
    return topic.partitions.get(number)


def deletions_left(sim: SimulatedCluster) -> list[str]:
    """Return the deletions that are not finished, or have a premature receipt, in words."""
    found = []
    for each in sim.image.deletions:
        rows = "; ".join(
            f"node {broker_id}: {standing.state.name} ({standing.reason.name}) {partitions}"
            for broker_id, standing, partitions in each.rows()
            if not standing.is_over
        )
        if each.is_finished and not rows:
            continue
        why = each.halted.name if each.halted is not HaltReason.NONE else rows or "it has not begun"
        if each.is_purging and not rows:
            why = "its objects are not purged"
        what = "has a receipt too early" if each.is_finished else "is not finished"
        found.append(f"the deletion of {each.name} ({uuid_text(each.topic_id)}) {what}: {why}")
    return found


def is_purging(sim: SimulatedCluster) -> bool:
    """Tell whether nothing but objects in the store is left of all deleted topics.

    A purge waits some minutes for writes that may still be executed.
    """
    left = [each for each in sim.image.deletions if not each.is_finished]
    return bool(left) and all(each.is_purging and each.replicas_are_over for each in left)


def partition_dirs_left(sim: SimulatedCluster) -> list[str]:
    """Return the directories, renamed or not, of topics whose deletion has a receipt.

    Those of brokers that the receipt lists as abandoned may stay. Of which topic a directory was
    that is half removed is not known: none may stay.
    """
    receipts = {each.topic_id: each for each in sim.image.deletions.receipts()}
    return [
        f"node {node.id} still has {path}, half removed"
        for node in sim.nodes.values()
        for path in node.partition_dirs.nameless()
    ] + [
        f"node {node.id} still has {path} of {uuid_text(replica[0])}"
        for node in sim.nodes.values()
        for replica, path in node.partition_dirs.all()
        if replica[0] in receipts
        and not _is_abandoned(receipts[replica[0]].status(node.id, replica[1]))
    ]


def _is_abandoned(standing: ReplicaStatus | None) -> bool:
    return standing is not None and standing.state is DeletionState.ABANDONED
