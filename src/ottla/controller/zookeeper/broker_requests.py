"""The LeaderAndIsr, UpdateMetadata and StopReplica requests that follow from a change (ZooKeeper).

They follow from the delta of what was written or observed, and from nothing else: brokers get the
same requests whoever made the change. Build a batch for each delta, in the deltas' order, at once.

- A partition that got a leader, or changed in any way: UpdateMetadata to all brokers.
- Leader, leader epoch, recovery state, replicas, adding or removing replicas changed: LeaderAndIsr
  to its replicas too, with `is_new` for those that did not hold it before. Not for a change of the
  ISR alone: the leader gets that with UpdateMetadata, as all brokers do.
- A topic's tiering state changed: UpdateMetadata with all its partitions to all brokers, also where
  nothing else of the topic changed. Both requests have the state of each topic that they name, so
  that a broker has it before it leads.
- A replica that left the assignment: after that, StopReplica that deletes it.
- A broker that is new or restarted: UpdateMetadata with all partitions, and LeaderAndIsr for those
  that it hosts. Before that all brokers get UpdateMetadata with the live brokers, since they may
  have to fetch from it or to answer it (KAFKA-4443). Where it led before, no request names it as
  the leader until an election has begun a new leader epoch; until then UpdateMetadata says that
  there is no leader (`previous_epochs`), because brokers act as leaders by UpdateMetadata, too.
- A broker that is gone: all get the remaining brokers.
- A broker that begins a controlled shutdown: StopReplica without deletion for the partitions that
  it follows, so that it leaves no lagging replica.
- A topic whose deletion begins: UpdateMetadata with the leader -2 (KAFKA-1355), and nothing else
  from then on: brokers that have deleted a replica would create it again. `deletion_orders` has
  the StopReplica requests for its replicas.
- The purge of a deleted topic's objects begins or ends, gets partitions, or its last replica is
  deleted: UpdateMetadata with all pending purges to all brokers. So has each one with all
  partitions.

No request names partitions that never had a leader (unless their topic is being deleted: a broker
may have read of it in ZooKeeper), topics whose znodes were removed by hand (their replicas keep
running; only a deletion deletes), or brokers' log directories: a replica in a failed one is offline
in UpdateMetadata, and its broker gets no LeaderAndIsr for it until it restarts.

Kafka sends the epoch of the controller that wrote a partition's state; the image does not keep
that, and brokers only store it, so the present controller's epoch is sent.
Source: KafkaController, ReplicaStateMachine, PartitionStateMachine, Kafka 3.9, whose state machines
build the requests while they decide.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ottla.base.ids import NO_EPOCH, NO_LEADER
from ottla.controller.keys import PartitionKey
from ottla.controller.zookeeper.controller_view import ControllerView
from ottla.controller.zookeeper.previous_broker_epochs import (
    new_or_bounced_brokers,
    previous_epochs_after,
)
from ottla.controller.zookeeper.request_batch import RequestBatch
from ottla.metadata.brokers import BrokerImage
from ottla.metadata.deletions import DeletionImage
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import ClusterImage
from ottla.metadata.topics import DIRECTORY_LOST, PartitionImage, TopicImage


def delta_batch(view: ControllerView, delta: ClusterDelta) -> RequestBatch:
    """Return the requests that follow from a change.

    The image of `view` is replaced by the delta's; its previous epochs are those before the delta.
    """
    previous_epochs = previous_epochs_after(view.previous_epochs, delta)
    view = replace(view, image=delta.image, previous_epochs=previous_epochs)
    batch = RequestBatch(view)
    started = new_or_bounced_brokers(delta)
    _add_broker_changes(batch, view, delta, started)
    for topic, partition_ids, old in _changed_partitions(delta):
        if view.is_queued_for_deletion(topic.name):
            continue
        for partition_id in partition_ids:
            before = None if old is None else old.partitions.get(partition_id)
            key = PartitionKey(topic.name, partition_id)
            _add_partition_change(batch, view, key, before, topic.partitions[partition_id])
    _add_tiering_changes(batch, view, delta)
    _add_deletions(batch, view, delta)
    _add_pending_purges(batch, view, delta)
    _add_hosted_partitions(batch, view, started)
    _add_controlled_shutdowns(batch, view, delta)
    return batch


def initial_batches(view: ControllerView) -> tuple[RequestBatch, RequestBatch]:
    """Return what a new controller sends: first the live brokers (KAFKA-4443), then everything."""
    return live_brokers_batch(view), full_batch(view)


def live_brokers_batch(view: ControllerView) -> RequestBatch:
    """Return UpdateMetadata to all brokers, with all brokers and no partitions."""
    batch = RequestBatch(view)
    batch.add_brokers_first(view.live_or_shutting_down_ids())
    return batch


def full_batch(view: ControllerView) -> RequestBatch:
    """Return all that brokers must know, for brokers that got nothing from this controller yet."""
    batch = RequestBatch(view)
    broker_ids = frozenset(view.live_or_shutting_down_ids())
    batch.add_full_metadata(
        broker_ids, _all_metadata_states(view), written_by=view.controller_epoch
    )
    _add_hosted_partitions(batch, view, broker_ids)
    return batch


def resend_batch(view: ControllerView, broker_id: int) -> RequestBatch:
    """Return the requests that one broker gets again when it asks for them (log_dir_event).

    LeaderAndIsr for all that it hosts: its response names the offline replicas. And UpdateMetadata
    with all partitions: it may have had to reject some.
    """
    batch = RequestBatch(view)
    batch.add_full_metadata(
        {broker_id}, _all_metadata_states(view), written_by=view.controller_epoch
    )
    _add_hosted_partitions(batch, view, frozenset({broker_id}))
    return batch


# -- brokers -----------------------------------------------------------------------------------


def _add_broker_changes(
    batch: RequestBatch, view: ControllerView, delta: ClusterDelta, started: frozenset[int]
) -> None:
    """Add the live brokers to all where they changed, and all partitions to started brokers."""
    before, after = delta.before.brokers, delta.image.brokers
    broker_ids = view.live_or_shutting_down_ids()
    kept = [each for each in delta.changed_brokers if each in before and each in after]
    if started or any(_is_metadata_changed(before[each], after[each]) for each in kept):
        batch.add_brokers_first(broker_ids)
    elif any(each in before and each not in after for each in delta.changed_brokers):
        batch.add_update_metadata(broker_ids, (), written_by=view.controller_epoch)
    if started:
        batch.add_full_metadata(
            started, _all_metadata_states(view), written_by=view.controller_epoch
        )


def _is_metadata_changed(before: BrokerImage, after: BrokerImage) -> bool:
    """Tell whether anything changed of a broker that UpdateMetadata contains."""
    return (before.endpoints, before.rack) != (after.endpoints, after.rack)


def _all(image: ClusterImage) -> Iterator[tuple[PartitionKey, PartitionImage]]:
    for topic in image.topics:
        for partition_id, partition in topic.in_order():
            yield PartitionKey(topic.name, partition_id), partition


def _all_metadata_states(view: ControllerView) -> Iterator[tuple[PartitionKey, PartitionImage]]:
    """Yield all partitions as UpdateMetadata shows them."""
    for key, partition in _all(view.image):
        yield key, _metadata_state(view, key, partition)


def _metadata_state(
    view: ControllerView, key: PartitionKey, partition: PartitionImage
) -> PartitionImage:
    return (
        replace(partition, leader=NO_LEADER) if view.is_leader_stale(key, partition) else partition
    )


def _add_hosted_partitions(
    batch: RequestBatch, view: ControllerView, broker_ids: frozenset[int]
) -> None:
    """Add LeaderAndIsr for all that brokers host, changed or not."""
    if not broker_ids:
        return
    for key, partition in _all(view.image):
        if partition.leader_epoch == NO_EPOCH or view.is_queued_for_deletion(key.topic):
            continue
        replicas = broker_ids.intersection(_reachable_replicas(view, key, partition))
        if replicas:
            batch.add_leader_and_isr(
                replicas, key, partition, written_by=view.controller_epoch, is_new=False
            )


def _reachable_replicas(
    view: ControllerView, key: PartitionKey, partition: PartitionImage
) -> list[int]:
    """Return the live brokers that hold a replica in a working log directory.

    Without a stale leader: it gets LeaderAndIsr once the next leader is elected.
    """
    stale_leader = partition.leader if view.is_leader_stale(key, partition) else NO_LEADER
    return [
        broker_id
        for broker_id, directory in zip(partition.replicas, partition.directories, strict=True)
        if broker_id in view.brokers and directory != DIRECTORY_LOST and broker_id != stale_leader
    ]


def _add_controlled_shutdowns(
    batch: RequestBatch, view: ControllerView, delta: ClusterDelta
) -> None:
    """Stop the followers of brokers that have begun a controlled shutdown."""
    before, after = delta.before.brokers, delta.image.brokers
    shutting_down = {
        each
        for each in delta.changed_brokers
        if each in after
        and after[each].in_controlled_shutdown
        and not (each in before and before[each].in_controlled_shutdown)
    }
    for key, partition in _all(view.image) if shutting_down else ():
        followers = shutting_down.intersection(partition.replicas) - {partition.leader}
        if not followers or len(partition.replicas) == 1 or partition.leader_epoch == NO_EPOCH:
            continue
        if not view.is_queued_for_deletion(key.topic):
            batch.add_stop_replica(followers, key, partition, delete_partition=False)


# -- partitions --------------------------------------------------------------------------------


def _changed_partitions(
    delta: ClusterDelta,
) -> Iterator[tuple[TopicImage, Iterable[int], TopicImage | None]]:
    """Yield each topic with new or changed partitions, their ids, and the topic as it was."""
    for topic in delta.created_topics.values():
        yield topic, sorted(topic.partitions), None
    for change in delta.changed_topics.values():
        yield change.new, change.partitions, change.old


def _add_partition_change(
    batch: RequestBatch,
    view: ControllerView,
    key: PartitionKey,
    before: PartitionImage | None,
    after: PartitionImage,
) -> None:
    if after.leader_epoch == NO_EPOCH:
        return
    if before is not None and before.leader_epoch == NO_EPOCH:
        before = None  # No request has named it yet.
    epoch = view.controller_epoch
    state = _metadata_state(view, key, after)
    batch.add_update_metadata(view.live_or_shutting_down_ids(), [(key, state)], written_by=epoch)
    held = () if before is None else before.replicas
    if before is None or _leader_and_isr_fields(before) != _leader_and_isr_fields(after):
        replicas = _reachable_replicas(view, key, after)
        old = [each for each in replicas if each in held]
        added = [each for each in replicas if each not in held]
        batch.add_leader_and_isr(old, key, after, written_by=epoch, is_new=False)
        batch.add_leader_and_isr(added, key, after, written_by=epoch, is_new=True)
    removed = [each for each in held if each not in after.replicas]
    batch.add_stop_replica(removed, key, after, delete_partition=True)


def _leader_and_isr_fields(partition: PartitionImage) -> tuple[object, ...]:
    """Return what replicas must get LeaderAndIsr for when it changes."""
    return (
        partition.leader,
        partition.leader_epoch,
        partition.leader_recovery_state,
        partition.replicas,
        partition.adding_replicas,
        partition.removing_replicas,
    )


def _add_tiering_changes(batch: RequestBatch, view: ControllerView, delta: ClusterDelta) -> None:
    """Add UpdateMetadata for topics whose tiering state changed."""
    broker_ids = view.live_or_shutting_down_ids()
    for topic_id in sorted(delta.changed_tiering):
        topic = delta.image.topics.by_id(topic_id)
        if topic is None or view.is_queued_for_deletion(topic.name):
            continue
        keys = [(PartitionKey(topic.name, number), each) for number, each in topic.in_order()]
        states = [(key, _metadata_state(view, key, each)) for key, each in keys]
        batch.add_update_metadata(broker_ids, states, written_by=view.controller_epoch)


def _add_deletions(batch: RequestBatch, view: ControllerView, delta: ClusterDelta) -> None:
    """Add UpdateMetadata for topics whose deletion has begun in this delta."""
    broker_ids = view.live_or_shutting_down_ids()
    for topic_id in delta.changed_deletions:
        topic = delta.image.topics.by_id(topic_id)
        if topic is None or not view.is_queued_for_deletion(topic.name):
            continue
        deletion = delta.before.deletions.of(topic_id)
        if deletion is not None and deletion.has_begun:
            continue
        partitions = [
            (PartitionKey(topic.name, partition_id), each)
            for partition_id, each in topic.in_order()
        ]
        batch.add_update_metadata(broker_ids, partitions, written_by=view.controller_epoch)


def _add_pending_purges(batch: RequestBatch, view: ControllerView, delta: ClusterDelta) -> None:
    """Add UpdateMetadata where the purge of a deleted topic's objects has changed for brokers."""
    before, after = delta.before.deletions, delta.image.deletions
    if any(_purge(before.of(each)) != _purge(after.of(each)) for each in delta.changed_deletions):
        batch.add_pending_purges(view.live_or_shutting_down_ids())


def _purge(deletion: DeletionImage | None) -> tuple[frozenset[int], bool] | None:
    """Return what brokers must know of a pending purge."""
    if deletion is None or not deletion.is_purging:
        return None
    return deletion.partitions(), deletion.replicas_are_over
