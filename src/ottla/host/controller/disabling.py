"""The active controller has brokers acknowledge that topics' tiered storage is disabled.

Both modes use this. `controller.disabling.disabling_manager` says what to order, what to decide and
when to wake it; here orders are sent and decisions run.

Orders have channels of their own: a broker may take up to a second to answer one, and LeaderAndIsr
or DeleteReplicas must not wait behind it. A channel is opened with the first order to a broker, and
closed when the broker is fenced, unregistered or registers again.

In order: a term begins once its image is complete; all topics that are DISABLING are checked. A
committed change first closes channels, then is processed. Nothing outlives the term.
"""

import logging
from collections.abc import Callable

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.base.ports import Clock
from ottla.base.timers import Timer, Timers
from ottla.controller.deletion.deletion_policy import is_reachable
from ottla.controller.disabling.acknowledgements import Acknowledgements
from ottla.controller.disabling.disabling_manager import (
    DisablingAnswered,
    DisablingDropped,
    DisablingManager,
    Event,
    Work,
    finish_disabling,
)
from ottla.controller.disabling.disabling_orders import DisablingOrder, request_of, results_of
from ottla.controller.manager_events import Committed, Elected
from ottla.controller.step import Decision
from ottla.host.controller.controller_channel import (
    ChannelEvent,
    ControllerChannels,
    links_of_image,
    response_of,
)
from ottla.host.controller.manager_runner import (
    RETRY_AFTER_FAILURE_MS,
    ManagerRunner,
    TermRuntime,
)
from ottla.host.node_ports import Connect
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.node_config import NodeConfig

log = logging.getLogger(__name__)


class DisablingDriver:
    """Disables topics over all terms of one controller node.

    Fields: `channels`: to brokers, during a term.
    Exceptions are logged and not raised.
    """

    def __init__(
        self,
        config: NodeConfig,
        acknowledgements: Acknowledgements,
        *,
        connect: Connect,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._node_id = config.node_id
        self._acknowledgements = acknowledgements
        self._clock = clock
        self._timers = timers
        self._restart_timer: Timer | None = None
        self._runtime: TermRuntime | None = None
        self._runner: ManagerRunner[DisablingOrder, Work, tuple[Uuid, ...]] | None = None
        """None = there is no term, or it failed and begins again: what was missed is unknown."""
        self._image = EMPTY
        self.channels = ControllerChannels(
            links_of_image(
                connect,
                lambda: self._image,
                listener_name=config.inter_broker_listener_name,
                client_id=f"controller-{config.node_id}",
            ),
            clock=clock,
            timers=timers,
            on_event=self._on_channel_event,
        )

    # -- terms ---------------------------------------------------------------------------------

    def begin(self, runtime: TermRuntime) -> None:
        """Begin a term: what is stored is in the runtime's committed image."""
        self.end()
        self._runtime = runtime
        self._guard(self._start)

    def end(self) -> None:
        """End the term, if there is one: responses to orders in flight are ignored."""
        self._runtime = None
        if self._restart_timer is not None:
            self._restart_timer.cancel()
        self._stop()

    def changed(self, delta: ClusterDelta) -> None:
        """Process a committed change."""
        if self._runtime is not None:
            self._guard(lambda: self._follow(delta))

    # -- inside a term -------------------------------------------------------------------------

    def _start(self) -> None:
        assert self._runtime is not None
        self._runner = ManagerRunner(
            DisablingManager(self._acknowledgements),
            self._runtime,
            self,
            clock=self._clock,
            timers=self._timers,
        )
        self._image = image = self._runtime.committed_image
        self.channels.begin_epoch(self._runtime.epoch)
        self._step(Elected(image))

    def _follow(self, delta: ClusterDelta) -> None:
        self._image = delta.image
        for broker_id in sorted(delta.changed_brokers):
            before, broker = (each.brokers.get(broker_id) for each in (delta.before, delta.image))
            is_same = before is not None and broker is not None and before.epoch == broker.epoch
            if not is_same or not is_reachable(delta.image, broker_id):
                self.channels.remove_broker(broker_id)
        self._step(Committed(delta))

    def _step(self, event: Event) -> None:
        if self._runner is not None:
            self._runner.step(event)

    def _stop(self) -> None:
        if self._runner is not None:
            self._runner.stop()
            self._runner = None
        self.channels.resign()
        self._acknowledgements.clear()

    def _guard(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            self.failed()

    def _restart(self) -> None:
        if self._runtime is not None:
            self._guard(self._start)

    def _on_channel_event(self, channel_event: ChannelEvent) -> None:
        self._guard(lambda: self._step(event_of(channel_event)))

    # -- for the runner ------------------------------------------------------------------------

    def send(self, orders: tuple[DisablingOrder, ...]) -> None:
        """Do as `Owner.send`."""
        for order in orders:
            self.channels.add_broker(order.broker_id, order.broker_epoch)
        self.channels.send([
            request_of(
                self._image,
                order,
                controller_id=self._node_id,
                controller_epoch=self.channels.controller_epoch,
            )
            for order in orders
        ])  # fmt: skip

    def decide(self, image: ClusterImage, work: Work) -> Decision[tuple[Uuid, ...]]:
        """Do as `Owner.decide`."""
        return finish_disabling(image, work)

    def decided(self, reply: tuple[Uuid, ...]) -> None:
        """Do as `Owner.decided`."""
        for topic_id in reply:
            self._log_disabled(topic_id)

    def refused(self, _work: Work, error: ApiError) -> None:
        """Do as `Owner.refused`."""
        if error.error is not Error.NOT_CONTROLLER:
            log.error("writing that tiered storage is disabled failed: %s", error)

    def failed(self) -> None:
        """Do as `Owner.failed`: begin again later with what is stored."""
        log.exception("disabling tiered storage failed; retrying")
        self._stop()
        retry_ms = self._clock.monotonic_ms() + RETRY_AFTER_FAILURE_MS
        self._restart_timer = self._timers.move(self._restart_timer, retry_ms, self._restart)

    def _log_disabled(self, topic_id: Uuid) -> None:
        topic, tiering = self._image.topics.by_id(topic_id), self._image.tiering.get(topic_id)
        if topic is not None and tiering is not None:
            log.info(
                "tiered storage of topic %s is DISABLED (%s), tiered epoch %d: all brokers have"
                " acknowledged",
                topic.name,
                tiering.policy.name.lower(),
                tiering.tiered_epoch,
            )


def event_of(event: ChannelEvent) -> DisablingAnswered | DisablingDropped:
    """Return what the end of a request means for its replicas."""
    sent = event.sent
    order: DisablingOrder = sent.order
    response = response_of(event, "DisableRemoteTopic")
    if response is None:
        return DisablingDropped(sent.broker_id, sent.broker_epoch, order.replicas)
    results = results_of(order, response)
    return DisablingAnswered(sent.broker_id, sent.broker_epoch, results)
