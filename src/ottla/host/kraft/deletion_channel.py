"""The active controller of a KRaft cluster has brokers confirm topic deletions.

A topic is deleted for clients with the record that removes it, and brokers delete their replicas
when they replay it. The deletion ledger still has them as STARTED: the controller sends each broker
DeleteReplicas, by topic id, and takes its response as the confirmation. The driver is
`ottla.host.controller.deletions`, `ottla.controller.deletion.deletion_policy` decides.

In order: a term begins once its first record is committed, so that the image is complete; channels
are opened to all brokers that are not fenced; the ledger is processed. A committed change first
opens and closes channels, then sends requests. Nothing outlives the term; the next controller
begins with the ledger. Where the cluster has no ledger (`ottla.version` 0) there is no channel and
no timer.

A fenced broker has no channel, so that no request is retried for weeks while it is down. When it is
back the request is sent again; a broker answers the same for what it has deleted already.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from ottla.base.ports import Clock
from ottla.base.timers import Timers
from ottla.controller.deletion.deletion_events import DeletionsAnswered, OrdersDropped
from ottla.controller.deletion.deletion_manager import DeletionManager
from ottla.controller.deletion.deletion_orders import (
    DeletionOrder,
    delete_replicas_request,
    delete_replicas_results,
    named_replicas,
)
from ottla.controller.deletion.deletion_policy import is_reachable
from ottla.host.controller.controller_channel import (
    ChannelEvent,
    ControllerChannels,
    endpoint_between_brokers,
    links_of_image,
    response_of,
)
from ottla.host.controller.deletions import DeletionDriver
from ottla.host.controller.manager_runner import TermRuntime
from ottla.host.node_ports import Connect
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.features import ledger_enabled
from ottla.metadata.image import ClusterImage
from ottla.metadata.node_config import NodeConfig

log = logging.getLogger(__name__)


class ControllerRuntimePort(TermRuntime, Protocol):
    """What is needed of `ottla.host.controller.controller_runtime.ControllerRuntime`."""

    def subscribe(self, listener: Callable[[ClusterDelta], None]) -> None:
        """Call `listener` with each change that is committed."""
        ...


class DeletionChannel:
    """The deletions of one controller node, over all its terms.

    Fields: `channels`: to brokers, while this node is active and the cluster has a ledger.
    Exceptions are logged and not raised.
    """

    def __init__(
        self,
        runtime: ControllerRuntimePort,
        config: NodeConfig,
        *,
        connect: Connect,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._clock = clock
        self._timers = timers
        self._is_active = False
        self._driver: DeletionDriver | None = None
        self.channels = ControllerChannels(
            links_of_image(
                connect,
                lambda: runtime.committed_image,
                listener_name=config.inter_broker_listener_name,
                client_id=f"controller-{config.node_id}",
            ),
            clock=clock,
            timers=timers,
            on_event=self._on_channel_event,
        )
        runtime.subscribe(self._changed)

    # -- terms ---------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a term: its first record is committed."""
        self._is_active = True
        _guarded(lambda: self._start_driver(self._runtime.committed_image))

    def end(self) -> None:
        """End the term, if there is one: responses to requests in flight are ignored."""
        self._is_active = False
        self._stop_driver()

    def _stop_driver(self) -> None:
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.stop()
            self.channels.resign()

    def _start_driver(self, image: ClusterImage) -> None:
        """Start the driver with the stored ledger, where there is one."""
        if self._driver is not None or not ledger_enabled(image.features):
            return
        self.channels.begin_epoch(self._runtime.epoch)
        self._follow_brokers(image, image.brokers)
        self._driver = DeletionDriver(
            DeletionManager(
                enabled=True,  # What is in this ledger was deleted; nothing halts it.
                retention_ms=self._config["ottla.deletion.receipt.retention.ms"],
            ),
            self._runtime,
            self._send,
            clock=self._clock,
            timers=self._timers,
        )
        self._driver.start(image)

    # -- events --------------------------------------------------------------------------------

    def _changed(self, delta: ClusterDelta) -> None:
        if not self._is_active:
            return
        _guarded(lambda: self._follow(delta))

    def _follow(self, delta: ClusterDelta) -> None:
        driver = self._driver
        if driver is None:
            self._start_driver(delta.image)
            return
        try:
            self._follow_brokers(delta.image, delta.changed_brokers)
            driver.changed(delta)
        except Exception:
            # A driver that missed a change has a stale view of brokers. The next change restarts
            # it.
            self._stop_driver()
            raise

    def _follow_brokers(self, image: ClusterImage, broker_ids: Iterable[int]) -> None:
        """Open or close the channels to these brokers, as they are registered now."""
        for broker_id in sorted(broker_ids):
            if not is_reachable(image, broker_id):
                self.channels.remove_broker(broker_id)
                continue
            broker = image.brokers[broker_id]
            self.channels.add_broker(broker_id, broker.epoch)
            name = self._config.inter_broker_listener_name
            if endpoint_between_brokers(broker, name) is None:
                log.error(
                    "broker %d has no listener %s, the inter.broker.listener.name of this node; "
                    "its replica deletions cannot be confirmed",
                    broker_id,
                    name,
                )

    def _send(self, _image: ClusterImage, orders: Iterable[DeletionOrder]) -> None:
        self.channels.send(
            delete_replicas_request(
                order,
                controller_id=self._config.node_id,
                controller_epoch=self.channels.controller_epoch,
            )
            for order in orders
        )

    def _on_channel_event(self, event: ChannelEvent) -> None:
        if self._driver is None:
            return
        self._driver.step(event_of(event))


def event_of(event: ChannelEvent) -> DeletionsAnswered | OrdersDropped:
    """Return what the end of a DeleteReplicas request means for its replicas."""
    sent = event.sent
    response = response_of(event, "DeleteReplicas")
    if response is None:
        replicas = tuple(named_replicas(sent).values())
        return OrdersDropped(sent.broker_id, sent.broker_epoch, replicas)
    results = delete_replicas_results(sent, response)
    return DeletionsAnswered(sent.broker_id, sent.broker_epoch, results)


def _guarded(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:
        log.exception("processing topic deletions failed")
