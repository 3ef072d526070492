"""What a simulation tells of deletions: how the ledger changes, and what disks hold meanwhile.

The ledger is the one of the cluster's committed metadata. At the moment in which it calls a
replica deleted, the disk of that broker is looked at. Where a disk holds a replica no more, what
the cluster and what that node itself knew of its topic is told, too.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ottla.base.ids import uuid_text
from ottla.host.node_core import NodeCore
from ottla.host.steps import Steps
from ottla.metadata.deletions import DeletionImage, DeletionState, HaltReason, ReplicaStatus
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import EMPTY, ClusterImage, PartitionImage
from ottla.metadata.node_config import NodeConfig
from ottla.testing.sim.folder_watch import FolderWatch, Replica
from ottla.testing.sim.observations import (
    DeletionConfirmed,
    DeletionSet,
    FolderGone,
    FolderSeen,
    TopicSet,
)

if TYPE_CHECKING:
    from ottla.testing.sim.node import SimNode
    from ottla.testing.sim.sim import Sim


def follow_deletions(sim: "Sim", delta: ClusterDelta) -> None:
    """Tell what a change of the metadata did to topics and to their deletions."""
    now_ms, offset = sim.now_ms, delta.image.position[0]
    for topic_id in delta.deleted_topics:
        sim.tell(TopicSet(now_ms, offset, topic_id, False))
    for topic in delta.created_topics.values():
        sim.tell(TopicSet(now_ms, offset, topic.id, True))
    for topic_id in sorted(delta.changed_deletions):
        before, after = delta.before.deletions.of(topic_id), delta.image.deletions.of(topic_id)
        sim.marks.update(_marks(before, after))
        sim.tell(DeletionSet(now_ms, before, after))
        if after is None:
            continue
        known = set() if before is None else set(_confirmed(before))
        for broker_id, number in _confirmed(after):
            if (broker_id, number) not in known:
                left = _left(sim.nodes[broker_id], (topic_id, number))
                sim.tell(DeletionConfirmed(now_ms, broker_id, topic_id, number, left))


def _left(node: "SimNode", replica: Replica) -> tuple[str, ...]:
    """Return what a node has of a replica: folders, and what it would serve without one."""
    served = () if node.broker is None else node.broker.replicas.hosted()
    is_served = any((each.topic_id, each.index) == replica for each in served)
    return node.folders.of(replica) + (("a partition that it serves",) if is_served else ())


def _confirmed(deletion: DeletionImage) -> Iterator[tuple[int, int]]:
    """Yield (broker, partition) of what is called deleted."""
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


def folder_watch(sim: "Sim", node: "SimNode") -> FolderWatch:
    """Return what looks at a node's folders, and tells the simulation."""

    def came(replica: Replica, path: str) -> None:
        sim.tell(FolderSeen(sim.now_ms, node.id, *replica, path))

    def went(replica: Replica, was_own: bool) -> None:
        state = _living(sim.image, replica)
        in_sync = state is not None and node.id in state.isr
        assigned = state is not None and node.id in state.replicas
        sim.tell(FolderGone(sim.now_ms, node.id, *replica, in_sync, assigned and was_own))

    def is_own(replica: Replica) -> bool:
        state = _living(node.known.image, replica)
        return state is not None and node.id in state.replicas

    return FolderWatch(node.disk, node.config.log_dirs, came=came, went=went, is_own=is_own)


def _living(image: ClusterImage, replica: Replica) -> PartitionImage | None:
    """Return the state of a replica's partition; None = it is gone, or on its way out."""
    topic_id, number = replica
    topic = image.topics.by_id(topic_id)
    if topic is None or image.deletions.is_being_deleted(topic_id):
        return None
    return topic.partitions.get(number)


class KnownMetadata:
    """The metadata by which a node keeps its folders and lets them go.

    While it loads its logs that is what it had read when it began to, whatever it hears meanwhile;
    then it is the newest that it knows.
    """

    def __init__(self) -> None:
        self._read_at_start = EMPTY
        self._core: NodeCore | None = None
        """Of a process that has loaded its logs."""

    @property
    def image(self) -> ClusterImage:
        """Return it."""
        return self._read_at_start if self._core is None else self._core.image

    def opened(self, core: NodeCore) -> None:
        """Follow a process that has opened its folders."""
        self._read_at_start, self._core = EMPTY, None
        folders: Any = core._node_dirs
        load_logs = folders.load_logs

        def watched(image: ClusterImage, config: NodeConfig) -> Steps[None]:
            self._read_at_start = image
            yield from load_logs(image, config)
            self._core = core

        # Watched from outside, as all else: nothing of the product knows of it.
        folders.load_logs = watched


def deletions_left(sim: "Sim") -> list[str]:
    """Return the deletions that are not finished, in words, or not as the ledger says."""
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
        what = "has a receipt too early" if each.is_finished else "is not finished"
        found.append(f"the deletion of {each.name} ({uuid_text(each.topic_id)}) {what}: {why}")
    return found


def folders_left(sim: "Sim") -> list[str]:
    """Return the folders, on their way out or not, of topics whose deletion has a receipt.

    Those of brokers that the receipt calls abandoned may stay.
    """
    receipts = {each.topic_id: each for each in sim.image.deletions.receipts()}
    return [
        f"node {node.id} still has {path} of {uuid_text(replica[0])}"
        for node in sim.nodes.values()
        for replica, path in node.folders.all()
        if replica[0] in receipts
        and not _is_abandoned(receipts[replica[0]].status(node.id, replica[1]))
    ]


def _is_abandoned(standing: ReplicaStatus | None) -> bool:
    return standing is not None and standing.state is DeletionState.ABANDONED
