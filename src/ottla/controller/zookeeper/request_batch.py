"""The requests to brokers of one round of changes, collated to a few requests each.

A round begins with a new batch; each change adds to it; `send_requests_to_brokers` turns it
into requests, in the order that brokers need: LeaderAndIsr, UpdateMetadata, StopReplica; where
brokers started, an UpdateMetadata with brokers alone precedes all that. A partition's state
is that of the moment when it is added; the live brokers and their
epochs are those of the moment when it is sent.

Unlike Kafka's, a batch exists for one round only. A round that fails midway leaves its batch
behind, and the next one begins with an empty one: in Kafka, a batch that was not sent made every
later round of the same state machine fail.

Source: ControllerBrokerRequestBatch (ControllerChannelManager.scala), Kafka 3.9; KAFKA-499,
KIP-570 (epochs in StopReplica), KIP-516 (topic ids), KIP-704 (recovery state).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.base.ids import NO_EPOCH, Uuid
from ottla.controller.keys import PartitionKey
from ottla.controller.zookeeper.controller_view import ControllerView
from ottla.controller.zookeeper.request_batch_messages import (
    PartitionUpdate,
    StopReplicaState,
    VersionedRequest,
    leader_and_isr,
    stop_replica,
    update_metadata,
)
from ottla.metadata.topics import PartitionImage

EPOCH_DURING_DELETE: Final = -2
"""The leader epoch of a StopReplica that no epoch of the broker may refuse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRequest:
    """One request to one broker, valid only under both of its epochs.

    `deleted`: the partitions that it asks the broker to delete, so that its response counts as a
    deletion only where one was requested (KAFKA-9946). `deleted_topics`: their topics' ids
    then, by name: the request has none, and the response may come when the topic is not being
    deleted any more, or another one has the name. `order`: what its sender needs to understand the
    response.
    """

    broker_id: int
    broker_epoch: int
    controller_epoch: int
    request: Any
    version: int
    deleted: frozenset[PartitionKey] = frozenset()
    deleted_topics: Mapping[str, Uuid] = field(default_factory=dict)
    order: Any = None


class RequestBatch:
    """The batch of one round. `context`: the controller's view while it is filled."""

    def __init__(self, context: ControllerView) -> None:
        self._context = context
        self._leader_and_isr: dict[int, dict[PartitionKey, PartitionUpdate]] = {}
        self._stop_replica: dict[int, dict[PartitionKey, StopReplicaState]] = {}
        self._metadata_brokers: set[int] = set()
        self._metadata_partitions: dict[PartitionKey, PartitionUpdate] = {}
        self._has_purges = False
        self._first_brokers: set[int] = set()
        self._full_brokers: set[int] = set()
        self._full_partitions: dict[PartitionKey, PartitionUpdate] = {}

    def __bool__(self) -> bool:
        return bool(
            self._leader_and_isr
            or self._stop_replica
            or self._metadata_brokers
            or self._first_brokers
            or self._full_brokers
        )

    def add_leader_and_isr(
        self,
        broker_ids: Iterable[int],
        key: PartitionKey,
        partition: PartitionImage,
        *,
        written_by: int,
        is_new: bool,
    ) -> None:
        """Add a partition's LeaderAndIsr state for these brokers.

        A later state of a partition replaces the earlier one, but `is_new` stays set: the broker
        did not get the partition before.
        """
        for broker_id in _valid_ids(broker_ids):
            states = self._leader_and_isr.setdefault(broker_id, {})
            before = states.get(key)
            is_new_here = is_new or (before is not None and before.is_new)
            states[key] = PartitionUpdate(
                partition=partition, written_by=written_by, is_new=is_new_here
            )

    def add_stop_replica(
        self,
        broker_ids: Iterable[int],
        key: PartitionKey,
        partition: PartitionImage | None,
        *,
        delete_partition: bool,
    ) -> None:
        """Add a StopReplica of a partition; once added with deletion, it stays with it."""
        if self._context.is_queued_for_deletion(key.topic):
            leader_epoch = EPOCH_DURING_DELETE
        else:
            leader_epoch = NO_EPOCH if partition is None else partition.leader_epoch
        for broker_id in _valid_ids(broker_ids):
            states = self._stop_replica.setdefault(broker_id, {})
            before = states.get(key)
            deletes = delete_partition or (before is not None and before.delete)
            states[key] = StopReplicaState(leader_epoch=leader_epoch, delete=deletes)

    def add_update_metadata(
        self,
        broker_ids: Iterable[int],
        partitions: Iterable[tuple[PartitionKey, PartitionImage]],
        *,
        written_by: int,
    ) -> None:
        """Add an UpdateMetadata with all brokers, and these partitions if they ever had a leader.

        And with those in deletion: a broker may have read of one in ZooKeeper that never had one.
        """
        self._metadata_brokers.update(_valid_ids(broker_ids))
        for key, partition in partitions:
            if self._is_included(key, partition):
                self._metadata_partitions[key] = PartitionUpdate(
                    partition=partition, written_by=written_by
                )

    def add_pending_purges(self, broker_ids: Iterable[int]) -> None:
        """Add an UpdateMetadata with the deleted topics whose objects are to be deleted."""
        self._metadata_brokers.update(_valid_ids(broker_ids))
        self._has_purges = True

    def add_brokers_first(self, broker_ids: Iterable[int]) -> None:
        """Add an UpdateMetadata with all brokers that precedes LeaderAndIsr (KAFKA-4443)."""
        self._first_brokers.update(_valid_ids(broker_ids))

    def add_full_metadata(
        self,
        broker_ids: Iterable[int],
        partitions: Iterable[tuple[PartitionKey, PartitionImage]],
        *,
        written_by: int,
    ) -> None:
        """Add an UpdateMetadata with all partitions, which these are, besides the changed ones.

        For brokers that have no metadata yet, or the metadata of before they started.
        """
        self._full_brokers.update(_valid_ids(broker_ids))
        for key, partition in partitions:
            if self._is_included(key, partition):
                self._full_partitions[key] = PartitionUpdate(
                    partition=partition, written_by=written_by
                )

    def _is_included(self, key: PartitionKey, partition: PartitionImage) -> bool:
        is_led = partition.leader_epoch != NO_EPOCH
        return is_led or self._context.is_queued_for_deletion(key.topic)

    def send_requests_to_brokers(self, context: ControllerView) -> tuple[BrokerRequest, ...]:
        """Return the requests of this round, and clear the batch.

        `context`: the present view. Brokers are in order, the requests to each in sending order.
        """
        leader_and_isrs, self._leader_and_isr = self._leader_and_isr, {}
        stop_replicas, self._stop_replica = self._stop_replica, {}
        brokers_first, self._first_brokers = self._first_brokers, set()
        metadata = self._take_metadata(context)

        def add_request(
            broker_id: int, made: tuple[Any, int], deleted: Iterable[PartitionKey] = ()
        ) -> None:
            request, version = made
            requests.append(
                BrokerRequest(
                    broker_id=broker_id,
                    broker_epoch=context.brokers[broker_id].epoch,
                    controller_epoch=context.controller_epoch,
                    request=request,
                    version=version,
                    deleted=frozenset(deleted),
                    deleted_topics={key.topic: context.topic_id(key.topic) for key in deleted},
                )
            )

        requests: list[BrokerRequest] = []
        brokers_request = update_metadata(context, {}) if brokers_first else None
        for broker_id in context.live_or_shutting_down_ids():
            registered = self._context.brokers.get(broker_id)
            if registered is None or registered.epoch != context.brokers[broker_id].epoch:
                continue
            if brokers_request is not None and broker_id in brokers_first:
                add_request(broker_id, brokers_request(broker_id))
            if broker_id in leader_and_isrs:
                add_request(
                    broker_id, leader_and_isr(context, broker_id, leader_and_isrs[broker_id])
                )
            if broker_id in metadata:
                add_request(broker_id, metadata[broker_id](broker_id))
            for made, deleted in stop_replica(context, broker_id, stop_replicas.get(broker_id, {})):
                add_request(broker_id, made, deleted)
        return tuple(requests)

    def _take_metadata(
        self, context: ControllerView
    ) -> dict[int, Callable[[int], VersionedRequest]]:
        """Return the builder of each broker's UpdateMetadata, and clear these.

        One body serves all brokers, and one all that need full metadata; only the epochs differ.
        """
        brokers, self._metadata_brokers = self._metadata_brokers, set()
        partitions, self._metadata_partitions = self._metadata_partitions, {}
        full_brokers, self._full_brokers = self._full_brokers, set()
        full_partitions, self._full_partitions = self._full_partitions, {}
        has_purges, self._has_purges = self._has_purges, False
        made: dict[int, Callable[[int], VersionedRequest]] = {}
        if brokers - full_brokers:
            request = update_metadata(context, partitions, with_purges=has_purges)
            made = dict.fromkeys(brokers, request)
        if full_brokers:
            # What changed in this round is newer than what was known before it.
            full = update_metadata(context, full_partitions | partitions, is_full=True)
            made |= dict.fromkeys(full_brokers, full)
        return made


def _valid_ids(broker_ids: Iterable[int]) -> list[int]:
    """Return the ids without -1, which means no broker."""
    return [each for each in broker_ids if each >= 0]
