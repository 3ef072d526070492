"""The broker's replica of the metadata log, replayed as far as it is committed.

`MetadataFollower` is an observer of the quorum: it fetches from the controller, keeps log and
snapshots as a Kafka broker does, and starts from them after a restart. `LocalFollower` has the
same interface for a combined node, which uses the controller's log.

Both call `on_image` with each change, in order, once it is committed; the first delta leads from
the empty image to the whole state.

Source: KIP-595, KIP-630, KIP-631; MetadataLoader, BrokerMetadataPublisher.
"""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ottla.base.pending import Pending, completed
from ottla.base.ports import Clock, Workers
from ottla.base.timers import Timers
from ottla.broker.ports import Sender
from ottla.host.kraft.quorum_driver import QuorumDriver, QuorumLinks
from ottla.host.kraft.quorum_peers import ChannelPeers
from ottla.host.kraft.quorum_replay import (
    DecodedBatch,
    decode_batches,
    image_of,
    load_image,
    replay_batches,
)
from ottla.host.kraft.quorum_snapshots import SnapshotLimits, Snapshotter
from ottla.host.kraft.quorum_storage import QuorumStorage
from ottla.host.metadata_publication import MetadataErrors, OnImage, Publication
from ottla.metadata.delta import ClusterDelta, delta_between
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.raft.node import RaftNode
from ottla.raft.snapshots import SnapshotContent
from ottla.raft.values import OffsetAndEpoch, ReplicaKey

if TYPE_CHECKING:
    from ottla.host.controller.controller_runtime import ControllerRuntime
    from ottla.host.kraft.metadata_log import MetadataLog

log = logging.getLogger(__name__)


Prepare = Callable[[ClusterDelta], Pending[None]]
"""Prepares a broker for a change; the promise is kept once it is ready."""


def prepare_nothing(_: ClusterDelta) -> Pending[None]:
    """Be ready at once."""
    return completed(None)


class Publisher:
    """Publishes the metadata of a node, and completes promises that wait for it.

    `prepare`: what a broker does before a change is applied, in several turns of the loop. Changes
    that are committed meanwhile wait.

    Fields: `image`: the published image, which the broker uses; `committed_image`: the newest.
    """

    def __init__(
        self,
        on_image: OnImage,
        *,
        clock: Clock,
        timers: Timers,
        prepare: Prepare = prepare_nothing,
    ) -> None:
        self.image = EMPTY
        self.committed_image = EMPTY
        self.leader_id = -1
        self.leader_epoch = -1
        self._publication = Publication(on_image, clock=clock, timers=timers)
        self._prepare = prepare
        self._is_preparing = False
        self._unpublished: deque[ClusterDelta] = deque()
        self._waiting: dict[Pending[None], Callable[[ClusterImage], bool]] = {}

    @property
    def offset(self) -> int:
        """Return the offset of the last record in the image; -1 = none yet."""
        return self.image.position[0]

    @property
    def load_errors(self) -> int:
        """Return how often metadata could not be loaded."""
        return 0

    @property
    def errors(self) -> MetadataErrors:
        """Return how often metadata could not be applied, or loaded."""
        return MetadataErrors(apply=self._publication.errors, load=self.load_errors)

    def close(self) -> None:
        """Publish nothing more to a broker that stops."""
        self._publication.close()

    def caught_up_to(self, offset: int) -> Pending[None]:
        """Return a promise kept once the image holds the record at `offset`."""
        return self.until(lambda image: image.position[0] >= offset)

    def until(self, holds: Callable[[ClusterImage], bool]) -> Pending[None]:
        """Return a promise kept once `holds` is true of the image.

        A caller that gives up completes it, which removes it.
        """
        pending: Pending[None] = Pending()
        if holds(self.image):
            pending.complete(None)
        else:
            self._waiting[pending] = holds
            pending.then(lambda _: self._remove_waiter(pending))
        return pending

    def _remove_waiter(self, pending: Pending[None]) -> None:
        self._waiting.pop(pending, None)

    def publish(self, delta: ClusterDelta) -> None:
        """Publish `delta.image`: apply it to the broker, then complete waiting promises.

        Nothing once it is closed: in ZooKeeper mode a request may still wait for an answer then.
        """
        if self._publication.is_closed:
            return
        assert delta.before.position == self.committed_image.position, "a change was left out"
        self.committed_image = delta.image
        self._unpublished.append(delta)
        self._publish_next()

    def _publish_next(self) -> None:
        while self._unpublished and not self._is_preparing:
            delta = self._unpublished.popleft()
            prepared = self._prepare(delta)
            if prepared.done:
                self._apply(delta)
            else:
                self._is_preparing = True
                prepared.then(partial(self._prepared, delta))

    def _prepared(self, delta: ClusterDelta, _: None) -> None:
        self._is_preparing = False
        if not self._publication.is_closed:
            self._apply(delta)
            self._publish_next()

    def _apply(self, delta: ClusterDelta) -> None:
        self.image = delta.image
        self._publication.hand_over(delta)
        for pending, holds in list(self._waiting.items()):
            if not pending.done and holds(self.image):
                try:
                    pending.complete(None)
                except Exception:
                    # Not an error of the metadata, which would end the node.
                    log.exception("a callback waiting for metadata offset %d failed", self.offset)


class MetadataFollower(Publisher):
    """An observer of the metadata quorum. `on_failure` is called with the reason of a failure.

    `start` raises MetadataDamaged where the broker's own log cannot be read.
    """

    def __init__(
        self,
        sender_to: Callable[[int], Sender],
        *,
        node_id: int,
        cluster_id: str,
        voters: tuple[int, ...],
        storage: QuorumStorage,
        clock: Clock,
        timers: Timers,
        workers: Workers,
        on_image: OnImage,
        on_failure: Callable[[str], None],
        on_leader: Callable[[int, int], None] = lambda leader_id, epoch: None,
        snapshot_limits: SnapshotLimits | None = None,
        prepare: Prepare = prepare_nothing,
    ) -> None:
        super().__init__(on_image, clock=clock, timers=timers, prepare=prepare)
        self._storage = storage
        self._on_failure = on_failure
        self._on_leader = on_leader
        self._loaded: tuple[int, ClusterImage] | None = None
        self._fetched: deque[DecodedBatch] = deque()
        local = ReplicaKey(node_id)
        self._driver = QuorumDriver(
            local=local,
            voters=voters,
            storage=storage,
            clock=clock,
            timers=timers,
            listener=self,
            links=QuorumLinks(
                peers=ChannelPeers(sender_to, cluster_id=cluster_id, replica=local, clock=clock)
            ),
        )
        assert not self._driver.node.is_voter, "a voter follows its own log"
        self._snapshotter = Snapshotter(
            self._driver,
            lambda: self.committed_image,
            clock=clock,
            timers=timers,
            workers=workers,
            limits=snapshot_limits or SnapshotLimits(),
        )

    def start(self) -> None:
        """Load the log, then fetch. Nothing is published until the leader confirms it."""
        self._load()
        node = self._driver.node
        self.leader_id, self.leader_epoch = node.leader_id, node.epoch
        self._driver.start()
        self._snapshotter.start()

    def stop(self) -> None:
        """Stop fetching; the log stays for the next start."""
        self.close()
        self._snapshotter.stop()
        self._driver.stop()

    @property
    def load_errors(self) -> int:
        """Return how often metadata could not be loaded, which ends the node."""
        return self._driver.load_errors

    @property
    def raft(self) -> RaftNode:
        """Return the quorum's observer, for metrics and tests."""
        return self._driver.node

    def _load(self) -> None:
        self._loaded = (self._storage.log.end_offset, load_image(self._storage))

    # -- QuorumListener ------------------------------------------------------------------------

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        """Store the leader."""
        self.leader_id, self.leader_epoch = leader_id, epoch
        self._on_leader(leader_id, epoch)

    def fetched(self, data: bytes) -> None:
        """Keep decoded batches until they are committed."""
        self._fetched.extend(decode_batches(self._storage, data))

    def truncated(self, offset: int) -> None:
        """Drop batches; what was published stays, because it was committed."""
        log.info("metadata log truncated to offset %d", offset)
        if self._loaded is not None and self._loaded[0] > offset:
            self._fetched.clear()
            self._load()
            return
        while self._fetched and self._fetched[-1].batch.next_offset > offset:
            self._fetched.pop()

    def snapshot_adopted(self, snapshot: OffsetAndEpoch, content: SnapshotContent) -> None:
        """Replace the state with a snapshot's."""
        log.info("loading metadata snapshot at offset %d, epoch %d", *snapshot)
        self._fetched.clear()
        self._loaded = (snapshot.offset, image_of(snapshot, content, self._storage))

    def committed(self, offset: int) -> None:
        """Publish all that is committed, as one change."""
        if self._loaded is not None:
            end_offset, image = self._loaded
            if offset < end_offset:
                return  # A later response of the leader has a higher offset.
            self._loaded = None
            if image.position != self.committed_image.position:
                self.publish(delta_between(self.committed_image, image))
        batches: list[DecodedBatch] = []
        while self._fetched and self._fetched[0].batch.next_offset <= offset:
            batches.append(self._fetched.popleft())
        if batches:
            self.publish(replay_batches(self.committed_image, batches, self._storage))
            size_bytes = sum(each.batch.size_bytes for each in batches)
            self._snapshotter.committed(size_bytes, batches[-1].batch.timestamp)

    def failed(self, reason: str) -> None:
        """Report the failure to the node."""
        log.critical("following the metadata log failed: %s; the node stops", reason)
        self._snapshotter.stop()
        self._on_failure(reason)


class LocalFollower(Publisher):
    """Publishes the metadata of the controller in the same process."""

    def __init__(
        self,
        runtime: "ControllerRuntime",
        metadata_log: "MetadataLog",
        *,
        on_image: OnImage,
        clock: Clock,
        timers: Timers,
        prepare: Prepare = prepare_nothing,
    ) -> None:
        super().__init__(on_image, clock=clock, timers=timers, prepare=prepare)
        self._runtime = runtime
        self._log = metadata_log

    def start(self) -> None:
        """Publish the controller's committed image, then each change."""
        self._runtime.follow(self._changed)

    def stop(self) -> None:
        """Stop publishing."""
        self.close()
        self._runtime.unsubscribe(self._changed)

    @property
    def load_errors(self) -> int:
        """Return how often the controller could not load metadata, which ends the node."""
        return self._log.load_errors

    @property
    def raft(self) -> RaftNode:
        """Return the controller's member of the quorum."""
        return self._log.raft

    def _changed(self, delta: ClusterDelta) -> None:
        self.leader_id = self._log.leader_id
        self.leader_epoch = self._log.epoch
        self.publish(delta)
