"""Sends the controller's requests to the brokers of a ZooKeeper cluster, in one term.

The requests follow from the deltas (`ottla.controller.zookeeper.broker_requests`); here they are
queued in the brokers' channels, at once and in the order of the deltas. There is a channel for each
registration: a broker that registers has an empty one, and the requests to its previous
registration are dropped.

A restarted broker is not asked to lead a partition that its previous process led until a leader was
elected again: `ottla.controller.zookeeper.previous_broker_epochs` tracks where that has not
happened yet.
"""

from collections.abc import Iterable

from ottla.controller.deletion.deletion_orders import DeletionOrder, add_to_batch
from ottla.controller.zookeeper.broker_requests import (
    delta_batch,
    full_batch,
    live_brokers_batch,
    resend_batch,
)
from ottla.controller.zookeeper.controller_view import ControllerView
from ottla.controller.zookeeper.inter_broker_protocol import parse_level
from ottla.controller.zookeeper.previous_broker_epochs import PreviousEpochs, previous_epochs_after
from ottla.controller.zookeeper.request_batch import RequestBatch
from ottla.host.controller.controller_channel import ControllerChannels
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import ClusterImage
from ottla.metadata.node_config import NodeConfig


class BrokerRequestSender:
    """The requests of one controller epoch."""

    def __init__(self, channels: ControllerChannels, config: NodeConfig, *, epoch: int) -> None:
        self._channels = channels
        self._config = config
        self._epoch = epoch
        self._level = parse_level(config["inter.broker.protocol.version"])
        self._previous_epochs: PreviousEpochs = {}

    def send_live_brokers(self, image: ClusterImage, previous_epochs: PreviousEpochs) -> None:
        """Open the channels and send all brokers the live brokers, and nothing else.

        Brokers must know one another before they receive leaders (KAFKA-4443). `previous_epochs`:
        replicas whose broker has restarted and whose leader has not been elected again.
        """
        self._previous_epochs = previous_epochs
        self._channels.begin_epoch(self._epoch)
        self._channels.set_brokers((each.id, each.epoch) for each in image.brokers.values())
        self._send(image, live_brokers_batch(self._view(image)))

    def send_everything(self, image: ClusterImage) -> None:
        """Send brokers the complete state, as a new controller does."""
        self._send(image, full_batch(self._view(image)))

    def send_changes(self, delta: ClusterDelta) -> None:
        """Send brokers the requests that follow from a change."""
        for broker_id in sorted(delta.changed_brokers):
            broker = delta.image.brokers.get(broker_id)
            if broker is None:
                self._channels.remove_broker(broker_id)
            else:
                self._channels.add_broker(broker_id, broker.epoch)
        batch = delta_batch(self._view(delta.image), delta)
        self._previous_epochs = previous_epochs_after(self._previous_epochs, delta)
        self._send(delta.image, batch)

    def resend(self, image: ClusterImage, broker_id: int) -> None:
        """Send a broker all its partitions again: its response names offline replicas."""
        if broker_id in image.brokers:
            self._send(image, resend_batch(self._view(image), broker_id))

    def send_deletions(self, image: ClusterImage, orders: Iterable[DeletionOrder]) -> None:
        """Send StopReplica to delete replicas."""
        batch = RequestBatch(self._view(image))
        for order in orders:
            add_to_batch(batch, order)
        self._send(image, batch)

    def close(self) -> None:
        """Close the channels; unanswered requests are dropped."""
        self._channels.resign()

    def _view(self, image: ClusterImage) -> ControllerView:
        return ControllerView(
            image=image,
            controller_id=self._config.node_id,
            controller_epoch=self._epoch,
            level=self._level,
            inter_broker_listener=self._config.inter_broker_listener_name,
            previous_epochs=self._previous_epochs,
        )

    def _send(self, image: ClusterImage, batch: RequestBatch) -> None:
        self._channels.send(batch.send_requests_to_brokers(self._view(image)))
