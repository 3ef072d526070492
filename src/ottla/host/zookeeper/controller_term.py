"""One term of a ZooKeeper cluster's controller, from its election to its end.

In the order of Kafka's failover: the image is loaded (watches first, topic ids written back);
channels are opened and brokers get the live brokers; leaders are elected where there is none or a
dead one, new partitions get their first leader, reassignments whose replicas are in sync end;
brokers get the complete state; deletions continue, and topics that are DISABLING; requests by znode
are processed; then periodic elections begin. API requests are decided once the image is loaded.

After that everything follows from changes of the image, whoever made them, in their order: a change
is sent to brokers at once, then the deletions and the requests by znode process it, then the
elections that it requires are queued.

Nothing outlives the end of the term: queued requests get NOT_CONTROLLER, channels and timers stop,
and operations under way find the store closed. A controller that was paused over the end of its
term does not notice it; but ZooKeeper rejects its writes and brokers reject its requests, both by
the epoch of its election (KAFKA-1096, KAFKA-6082).

Source: KafkaController.{onControllerFailover, onControllerResignation, processBrokerChange},
Kafka 3.9.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_EPOCH, OFFSETS_TOPIC
from ottla.base.ports import Clock
from ottla.base.timers import Timer, Timers
from ottla.base.zookeeper import Session, ZkCode, ZkError
from ottla.controller.context import DecisionContext
from ottla.controller.deletion.deletion_events import IneligibleTopics, MarkersChanged
from ottla.controller.deletion.deletion_manager import DeletionManager
from ottla.controller.elections.elections import elect_after_failover
from ottla.controller.elections.new_partitions import bring_online
from ottla.controller.partitions.reassignment import finish_reassignments
from ottla.controller.step import Step
from ottla.controller.zookeeper.broker_changes import process_broker_change, process_missed_restarts
from ottla.controller.zookeeper.observed_tiering import (
    brokers_without_remote_storage,
    follow_configurations,
    topics_to_check,
    topics_with_remote_storage,
)
from ottla.controller.zookeeper.offline_log_dirs import take_replicas_offline
from ottla.controller.zookeeper.previous_broker_epochs import previous_epochs_at_start
from ottla.host.controller.controller_channel import ChannelEvent, ControllerChannels
from ottla.host.controller.controller_runtime import ControllerRuntime, DecisionMetrics
from ottla.host.controller.deletions import DeletionDriver
from ottla.host.controller.disabling import DisablingDriver
from ottla.host.controller.periodic_elections import PeriodicElections
from ottla.host.zookeeper.admin_requests import AdminRequests
from ottla.host.zookeeper.broker_request_sender import BrokerRequestSender
from ottla.host.zookeeper.controller_events import (
    ControllerMoved,
    LogDirFailure,
    event_of,
)
from ottla.host.zookeeper.election import Term
from ottla.host.zookeeper.marker_requests import MarkerRequests
from ottla.host.zookeeper.store.store import ZooKeeperStore
from ottla.metadata.brokers import BrokerImage
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.topics import TopicImage

log = logging.getLogger(__name__)

FIRST_REBALANCE_MS = 5_000
"""The delay of a new controller's first preferred leader rebalance."""

RELOAD_MS = 1_000
"""The backoff of reading the metadata."""

UNCLEAN = "unclean.leader.election.enable"


@dataclass(frozen=True, slots=True, kw_only=True)
class TermEnvironment:
    """What outlives a term.

    Fields: `on_controller_moved`: another broker is the controller; `on_failure`: this node cannot
            be a controller; `metrics`: of all terms.
    """

    context: DecisionContext
    clock: Clock
    timers: Timers
    channels: ControllerChannels
    disabling: DisablingDriver
    metrics: DecisionMetrics
    on_controller_moved: Callable[[], None]
    on_failure: Callable[[str], None]


class ControllerTerm:
    """One term. `begin` it once, `end` it once."""

    def __init__(self, session: Session, term: Term, environment: TermEnvironment) -> None:
        self.term = term
        self.runtime: ControllerRuntime | None = None
        self._session = session
        self._environment = environment
        self._config = environment.context.config
        self._store: ZooKeeperStore | None = None
        self._sender = BrokerRequestSender(environment.channels, self._config, epoch=term.epoch)
        self._deletions: DeletionDriver | None = None
        self._requests: AdminRequests | None = None
        self._markers: MarkerRequests | None = None
        self._elections = PeriodicElections(
            lambda: self._loaded_runtime,
            self._config,
            clock=environment.clock,
            timers=environment.timers,
            first_rebalance_ms=FIRST_REBALANCE_MS,
        )
        self._timer: Timer | None = None
        self._is_over = False
        self._refused_configs: frozenset[str] = frozenset()
        """Why configurations that other tools wrote have no effect, as logged."""

    @property
    def image(self) -> ClusterImage:
        """Return the appended image; empty until it is loaded."""
        return EMPTY if self.runtime is None else self.runtime.image

    @property
    def is_active(self) -> bool:
        """Tell whether it is active: the image is loaded, the term not over."""
        return self.runtime is not None and self.runtime.active

    @property
    def is_taking_over(self) -> bool:
        """Tell whether brokers have not been sent the complete state yet."""
        return self._deletions is None

    @property
    def _loaded_runtime(self) -> ControllerRuntime:
        assert self.runtime is not None, "nothing is decided before the image is loaded"
        return self.runtime

    # -- the beginning -------------------------------------------------------------------------

    def begin(self) -> None:
        """Load the image, then take over."""
        environment = self._environment
        store = self._store = ZooKeeperStore(
            self._session,
            epoch=self.term.epoch,
            epoch_version=self.term.epoch_version,
            clock=environment.clock,
            timers=environment.timers,
        )
        store.load().then(lambda failure: self._loaded(store, failure))

    def _loaded(self, store: ZooKeeperStore, failure: ZkError | None) -> None:
        if self._is_over:
            return
        if failure is None:
            self._take_over(store)
        elif failure.code is ZkCode.BAD_VERSION:
            self._environment.on_controller_moved()
        elif failure.code is ZkCode.NO_AUTH:
            self._environment.on_failure(f"not authorized to read the metadata: {failure}")
        elif failure.code is not ZkCode.SESSION_EXPIRED:
            log.error("reading the metadata failed: %s; retrying", failure)
            self._schedule(RELOAD_MS, self.begin)

    def _take_over(self, store: ZooKeeperStore) -> None:
        environment, config = self._environment, self._config
        runtime = self.runtime = ControllerRuntime(
            store,
            epoch=self.term.epoch,
            clock=environment.clock,
            on_fenced=environment.on_controller_moved,
            on_effect=self._elections.on_effect,
            metrics=environment.metrics,
        )
        log.info(
            "controller epoch %d: loaded %d brokers, %d topics",
            self.term.epoch,
            len(runtime.image.brokers),
            len(runtime.image.topics),
        )
        runtime.subscribe(self._changed)
        self._sender.send_live_brokers(
            runtime.image, previous_epochs_at_start(runtime.image, store.started_since)
        )
        runtime.run_step(lambda image: process_missed_restarts(image, config, store.started_since))
        runtime.run_step(lambda image: elect_after_failover(image, config))
        self._log_older_brokers(runtime.image.brokers)
        self._follow_configurations(topics_with_remote_storage(runtime.image))
        runtime.run_step(lambda image: bring_online(image, config))
        runtime.run_step(lambda image: finish_reassignments(image, config)).then(self._settled)

    def _settled(self, _failure: ApiError | None) -> None:
        if self._is_over or not self._loaded_runtime.active:
            return  # A write was fenced: the end of the term follows.
        runtime, store = self._loaded_runtime, self._store
        assert store is not None
        self._sender.send_everything(runtime.image)
        self._deletions = DeletionDriver(
            DeletionManager(
                enabled=self._config["delete.topic.enable"],
                retention_ms=self._config["ottla.deletion.receipt.retention.ms"],
            ),
            runtime,
            self._sender.send_deletions,
            clock=self._environment.clock,
            timers=self._environment.timers,
            marked=lambda: store.known.marked,
        )
        self._deletions.start(runtime.image)
        self._environment.disabling.begin(runtime)
        self._serve_requests(runtime, store, self._deletions)
        self._elections.start()

    def _serve_requests(
        self, runtime: ControllerRuntime, store: ZooKeeperStore, deletions: DeletionDriver
    ) -> None:
        self._requests = AdminRequests(
            runtime,
            self._environment.context,
            change=store.change,
            resend=lambda broker_id: self._sender.resend(runtime.image, broker_id),
            on_pending_requests=lambda preferred_elections, reassignments: deletions.step(
                IneligibleTopics(
                    preferred_elections=frozenset(preferred_elections),
                    reassignments=frozenset(reassignments),
                )
            ),
        )
        self._requests.serve(store.hooks)
        markers = self._markers = MarkerRequests(
            runtime,
            self._environment.context,
            clock=self._environment.clock,
            timers=self._environment.timers,
            change=store.change,
            exists=self._session.exists,
            marked=lambda: store.known.marked,
            on_removed=store.markers_gone,
            unreadable=lambda: store.known.unreadable,
        )

        def markers_changed(marked: tuple[str, ...]) -> None:
            deletions.step(MarkersChanged(frozenset(marked)))
            markers.process_markers(marked)

        store.hooks.on_deletion_requests = markers_changed
        store.start_requests()

    def _schedule(self, delay_ms: int, call: Callable[[], None]) -> None:
        now_ms = self._environment.clock.monotonic_ms()
        self._timer = self._environment.timers.at(now_ms + delay_ms, call)

    # -- the end -------------------------------------------------------------------------------

    def end(self) -> None:
        """End at once: requests are answered, nothing is sent or written any more."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self._elections.stop()
        if self._store is not None:
            self._store.close()
        if self._deletions is not None:
            self._deletions.stop()
        self._environment.disabling.end()
        if self._markers is not None:
            self._markers.stop()
        self._sender.close()
        if self.runtime is not None:
            self.runtime.resign()

    # -- events --------------------------------------------------------------------------------

    def _changed(self, delta: ClusterDelta) -> None:
        if self._is_over:
            return
        self._sender.send_changes(delta)
        if self._deletions is not None:
            self._deletions.changed(delta)
        self._environment.disabling.changed(delta)
        if self._requests is not None:
            self._requests.changed(delta)
        if self._markers is not None:
            self._markers.changed(delta)
        self._decide_what_follows(delta)

    def _decide_what_follows(self, delta: ClusterDelta) -> None:
        runtime, config = self._loaded_runtime, self._config
        # First: new partitions are led with their tiering state.
        self._follow_configurations(topics_to_check(delta, self._environment.context.mode))
        if _brokers_changed(delta):
            self._log_older_brokers(delta.changed_brokers)
            # Nothing may be decided on the new registrations before: a state that is written with
            # them says that its replicas run as these processes (`restarted_replicas`).
            runtime.run_step(lambda image: process_broker_change(image, config, delta), first=True)
            runtime.run_step(lambda image: bring_online(image, config))
        elif _has_new_partitions(delta) or _is_restored(delta):
            runtime.run_step(lambda image: bring_online(image, config))
        _log_grown_offsets_topic(delta)
        if _allows_unclean_elections(delta):
            self._elections.elect_uncleanly()

    def _follow_configurations(self, topics: Collection[str]) -> None:
        """Add the tiering states that follow from configurations which other tools wrote."""
        context = self._environment.context

        def log_refused(refused: tuple[str, ...] | ApiError) -> None:
            if isinstance(refused, ApiError):
                if refused.error is not Error.NOT_CONTROLLER:
                    log.error("adding tiering states failed: %s", refused)
                return
            for text in refused:
                if text not in self._refused_configs:
                    log.error("ignoring remote storage in a configuration: %s", text)
            self._refused_configs |= frozenset(refused)

        if topics:
            decided = self._loaded_runtime.run(
                lambda image: follow_configurations(image, topics, context)
            )
            decided.then(log_refused)

    def _log_older_brokers(self, broker_ids: Iterable[int]) -> None:
        image = self._loaded_runtime.image
        for broker_id in brokers_without_remote_storage(image, broker_ids):
            log.error(
                "broker %d does not support remote storage, and %d topics have it: while it"
                " leads them, consumers cannot read their remote segments; start it with newer"
                " software",
                broker_id,
                len(image.tiering),
            )

    def answered(self, channel_event: ChannelEvent) -> None:
        """Process a broker's response, or that there will be none."""
        if self._is_over or self.runtime is None:
            return
        event = event_of(self.runtime.image, channel_event)
        if isinstance(event, ControllerMoved):
            log.info("broker %d has a newer controller epoch; resigning", event.broker_id)
            self._environment.on_controller_moved()
        elif isinstance(event, LogDirFailure):
            self._take_replicas_offline(event)
        elif event is not None and self._deletions is not None:
            self._deletions.step(event)

    def _take_replicas_offline(self, event: LogDirFailure) -> None:
        def decide(image: ClusterImage) -> Step:
            broker = image.brokers.get(event.broker_id)
            if broker is None or broker.epoch != event.broker_epoch:
                return Step()
            return take_replicas_offline(image, self._config, event.broker_id, event.partitions)

        self._loaded_runtime.run_step(decide)


def _brokers_changed(delta: ClusterDelta) -> bool:
    """Tell whether brokers registered, unregistered or restarted."""
    before, after = delta.before.brokers, delta.image.brokers
    return any(
        _epoch_of(before.get(each)) != _epoch_of(after.get(each)) for each in delta.changed_brokers
    )


def _epoch_of(broker: BrokerImage | None) -> int:
    return NO_EPOCH if broker is None else broker.epoch


def _has_new_partitions(delta: ClusterDelta) -> bool:
    """Tell whether there are new partitions, without a leader epoch."""
    changed: list[tuple[TopicImage, Any]] = [
        (topic, topic.partitions) for topic in delta.created_topics.values()
    ]
    changed += [(change.new, change.partitions) for change in delta.changed_topics.values()]
    return any(
        topic.partitions[partition_id].leader_epoch == NO_EPOCH
        for topic, partition_ids in changed
        for partition_id in partition_ids
    )


def _log_grown_offsets_topic(delta: ClusterDelta) -> None:
    """Log that a tool added partitions to the offsets topic: a request is refused."""
    for change in delta.changed_topics.values():
        before, count = len(change.old.partitions), len(change.new.partitions)
        if change.new.name == OFFSETS_TOPIC and count > before:
            log.error(
                "topic %s has %d partitions instead of %d: groups that belong to another partition"
                " now do not find their committed offsets",
                *(OFFSETS_TOPIC, count, before),
            )


def _is_restored(delta: ClusterDelta) -> bool:
    """Tell whether a deletion that had begun was removed, of a topic that exists.

    Partitions that were added to it meanwhile have no leader.
    """
    before, after = delta.before.deletions, delta.image.deletions
    return any(
        before.is_being_deleted(each)
        and not after.is_being_deleted(each)
        and delta.image.topics.by_id(each) is not None
        for each in delta.changed_deletions
    )


def _allows_unclean_elections(delta: ClusterDelta) -> bool:
    """Tell whether a config change may allow unclean elections."""
    before, after = delta.before.configs, delta.image.configs
    return any(
        before.of(*each).get(UNCLEAN) != after.of(*each).get(UNCLEAN)
        for each in delta.changed_configs
    )
