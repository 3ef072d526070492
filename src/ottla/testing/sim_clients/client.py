"""The common part of simulated clients: network port, timers, and metadata cache.

The cache works as a real client's: it is filled from the Metadata responses of any broker, kept
until an error shows that it is stale, and never goes back to an older leader epoch of the same
topic (KIP-320, KAFKA-12257), nor to a topic that was replaced by another one of its name.
"""

from typing import Any, NamedTuple, Protocol

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_LEADER, Uuid
from ottla.base.pending import Pending
from ottla.base.ports import Clock, Dice
from ottla.base.timers import Timers
from ottla.testing.history.history import History
from ottla.testing.history.topics import TopicPartition
from ottla.testing.sim_clients.dialogue import Dialogue, start
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

METADATA_VERSION = 12
REQUEST_TIMEOUT_MS = 4_000
REFRESH_PAUSE_MS = 100
"""The pause before each Metadata request (retry.backoff.ms)."""


class Port(Protocol):
    """One client's connections to the simulated nodes."""

    def send(
        self, to: int, request: object, version: int, timeout_ms: int
    ) -> Pending[Any | ApiError]:
        """Send a request to a node by its id; return the promise of the response or an error."""
        ...

    def close(self) -> None:
        """Close all connections; pending requests fail. The next request opens new ones."""
        ...


class Leader(NamedTuple):
    """The leader of a partition, in this client's metadata."""

    node: int
    epoch: int


class SimClient:
    """One client's environment and metadata.

    Fields: `nodes`: its bootstrap brokers; `ids`: of topics, by
            name; `leaders`: by topic id and partition number.
    """

    def __init__(
        self,
        name: str,
        *,
        port: Port,
        nodes: tuple[int, ...],
        timers: Timers,
        clock: Clock,
        dice: Dice,
        history: History,
    ) -> None:
        self.name = name
        self.port = port
        self.nodes = nodes
        self.timers = timers
        self.clock = clock
        self.dice = dice
        self.history = history
        self.ids: dict[str, Uuid] = {}
        self.leaders: dict[TopicPartition, Leader] = {}
        self._topics: set[str] = set()
        self._gone: set[Uuid] = set()
        self._refresh: Pending[bool] | None = None

    @property
    def now_ms(self) -> int:
        """The time in the history."""
        return self.clock.monotonic_ms()

    def run(self, dialogue: Dialogue[Any]) -> Pending[Any]:
        """Start a dialogue of this client."""
        return start(dialogue, self.timers, self.clock)

    def send(
        self, to: int, request: object, version: int, timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> Pending[Any | ApiError]:
        """Send a request to a node."""
        return self.port.send(to, request, version, timeout_ms)

    def any_node(self) -> int:
        """Return a random bootstrap broker."""
        return self.nodes[self.dice.below(len(self.nodes))]

    def follow(self, topic: str) -> None:
        """Include a topic in Metadata requests from now on."""
        self._topics.add(topic)

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """Return the known partitions of a topic, in order."""
        topic_id = self.ids.get(topic)
        return sorted(each for each in self.leaders if each[0] == topic_id)

    def refresh(self) -> Pending[bool]:
        """Refresh the metadata, one request for concurrent calls; tell whether it succeeded."""
        if self._refresh is None:
            self._refresh = self.run(self._ask_metadata())
            self._refresh.then(self._refreshed)  # Never at once: it begins with a pause.
        return self._refresh

    def _refreshed(self, _: bool) -> None:
        self._refresh = None

    def _ask_metadata(self) -> Dialogue[bool]:
        yield REFRESH_PAUSE_MS
        request = MetadataRequest(
            topics=tuple(MetadataRequestTopic(name=name) for name in sorted(self._topics)),
            allow_auto_topic_creation=False,
        )
        response = yield self.send(self.any_node(), request, METADATA_VERSION)
        if isinstance(response, ApiError):
            return False
        self._learn(response)
        return True

    def _learn(self, response: MetadataResponse) -> None:
        for topic in response.topics:
            if topic.name is None:
                continue
            if topic.error_code == Error.NONE:
                self._learn_topic(topic, topic.name)
            elif topic.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION:
                # It may be deleted; producers wait until it has a leader again.
                for partition in self.partitions_of(topic.name):
                    epoch = self.leaders[partition].epoch
                    self.leaders[partition] = Leader(NO_LEADER, epoch)

    def _learn_topic(self, topic: MetadataResponseTopic, name: str) -> None:
        if topic.topic_id in self._gone:
            return  # The broker's metadata is older than the deletion.
        if self.ids.get(name, topic.topic_id) != topic.topic_id:
            self.forget(name)
        self.ids[name] = topic.topic_id
        for partition in topic.partitions:
            key = (topic.topic_id, partition.partition_index)
            known = self.leaders.get(key)
            if known is None or partition.leader_epoch >= known.epoch:
                node = NO_LEADER if partition.error_code else partition.leader_id
                self.leaders[key] = Leader(node, partition.leader_epoch)

    def update_epoch(self, partition: TopicPartition, epoch: int) -> None:
        """Forget the leader of an epoch older than `epoch` (KIP-320)."""
        known = self.leaders.get(partition)
        if known is not None and known.epoch < epoch:
            self.leaders[partition] = Leader(NO_LEADER, epoch)

    def forget(self, topic: str) -> None:
        """Drop a topic: it was deleted, or replaced by another one of its name."""
        for partition in self.partitions_of(topic):
            del self.leaders[partition]
        topic_id = self.ids.pop(topic, None)
        if topic_id is not None:
            self._gone.add(topic_id)
