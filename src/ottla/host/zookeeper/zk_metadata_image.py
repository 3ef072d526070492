"""The broker's image in ZooKeeper mode: from the controller's requests, and the configs.

There is no metadata log. The image begins with what was read in ZooKeeper at the start; then each
request and each changed config is one change. Positions count the changes; their epoch is the
newest controller epoch.

Source: ZkMetadataCache, ReplicaManager, Kafka 3.9.
"""

from collections.abc import Callable, Iterable

from ottla.base.ids import NO_EPOCH
from ottla.base.pending import Pending, completed
from ottla.base.ports import Clock
from ottla.base.timers import Timers
from ottla.broker.zookeeper.zk_metadata import ZkMetadata
from ottla.host.kraft.metadata_follower import Publisher
from ottla.host.metadata_publication import OnImage
from ottla.metadata.delta import replay
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import Record


class ZkMetadataImage(Publisher):
    """See `ottla.broker.zookeeper.zk_metadata.ZkMetadataPort`.

    Fields: `listed_as_live`: kept once a controller has listed this broker among the live ones.
    """

    def __init__(self, node_id: int, *, on_image: OnImage, clock: Clock, timers: Timers) -> None:
        super().__init__(on_image, clock=clock, timers=timers)
        self.facts = ZkMetadata(node_id)
        self.listed_as_live: Pending[None] = self.until(self._names_this_broker)
        self.read_configs: Callable[[Iterable[str]], Pending[None]] = lambda topics: completed(None)
        """Reads the configs of new topics."""
        self.check_missing_topics: Callable[[], None] = lambda: None
        """Checks which topics that the controller does not list were deleted."""

    def _names_this_broker(self, image: ClusterImage) -> bool:
        return self.facts.controller_epoch != NO_EPOCH and self.facts.node_id in image.brokers

    def begin(self, image: ClusterImage) -> None:
        """Begin with an image, without publishing it."""
        assert self.offset < 0, "a change came before the start"
        self.image = self.committed_image = image

    def apply(self, records: Iterable[Record]) -> None:
        """Apply records to the image, and publish the change."""
        listed = tuple(records)
        if listed:
            epoch = max(self.facts.controller_epoch, self.image.position[1])
            self.publish(replay(self.image, listed, offset=self.offset + 1, epoch=epoch))
