"""A ZooKeeper cluster for tests: its image, its controller's view, brokers that act on requests.

`ModelBroker` knows nothing but what requests say, with the merge rules that brokers keep: a
request of an older controller is refused, a later state of a partition replaces the earlier one,
brokers are always named in full.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ottla.base.ids import NO_EPOCH, Uuid
from ottla.controller.context import DecisionContext
from ottla.controller.keys import PartitionKey
from ottla.controller.mode_policy import ZOOKEEPER_MODE
from ottla.controller.zookeeper.broker_changes import reset_lost_directories
from ottla.controller.zookeeper.broker_requests import delta_batch
from ottla.controller.zookeeper.controller_view import ControllerView
from ottla.controller.zookeeper.request_batch import BrokerRequest, RequestBatch
from ottla.metadata.brokers import BrokerImage, Endpoint, record_of
from ottla.metadata.delta import ClusterDelta, replay
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.records import Record, UnregisterBrokerRecord
from ottla.metadata.topics import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    PartitionImage,
    TopicImage,
    topic_records,
)
from ottla.wire.codec import decode, encode
from ottla.wire.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.wire.messages.stop_replica import StopReplicaRequest
from ottla.wire.messages.update_metadata import UpdateMetadataRequest

from . import builders as any_mode

PROPERTIES = {
    "broker.id": "1",
    "zookeeper.connect": "localhost:2181",
    "listeners": "PLAINTEXT://localhost:9092",
}


def context(given: Mapping[str, str] | None = None) -> DecisionContext:
    """Return a controller's context with `given` properties over the usual ones."""
    config = NodeConfig.parse({**PROPERTIES, **(given or {})})
    return replace(any_mode.context(), config=config, mode=ZOOKEEPER_MODE)


CONFIG = context().config
CONTROLLER = 1
Ids = tuple[int, ...]


def topic_id(name: str) -> Uuid:
    return Uuid(name.encode().ljust(16, b"."))


def a_broker(broker_id: int, epoch: int | None = None, **changes: Any) -> BrokerImage:
    """Return a broker as its registration in ZooKeeper says it is."""
    czxid = 100 + broker_id if epoch is None else epoch
    usual = BrokerImage(
        id=broker_id,
        epoch=czxid,
        incarnation_id=Uuid(czxid.to_bytes(16, "big")),
        endpoints=(Endpoint("PLAINTEXT", f"host{broker_id}", 9092),),
        rack=f"rack{broker_id}",
        fenced=False,
    )
    return replace(usual, **changes)


def registered(*brokers: BrokerImage) -> dict[int, BrokerImage]:
    return {each.id: each for each in brokers}


def led(
    replicas: Iterable[int], isr: Iterable[int] | None = None, leader: int | None = None, **how: Any
) -> PartitionImage:
    """Return a partition that its first in-sync replica leads, in leader epoch 3, version 7."""
    listed = tuple(replicas)
    members = listed if isr is None else tuple(isr)
    usual = PartitionImage(
        replicas=listed,
        directories=(DIRECTORY_MIGRATING,) * len(listed),
        isr=members,
        leader=members[0] if leader is None else leader,
        leader_epoch=3,
        partition_epoch=7,
    )
    return replace(usual, **how)


def never_led(*replicas: int) -> PartitionImage:
    """Return a partition that is assigned and no more."""
    return led(replicas, (), -1, leader_epoch=NO_EPOCH, partition_epoch=NO_EPOCH)


def topic(name: str, *partitions: PartitionImage) -> TopicImage:
    made = TopicImage(name=name, id=topic_id(name))
    for partition_id, each in enumerate(partitions):
        made = made.with_partition(partition_id, each)
    return made


def change(image: ClusterImage, records: Iterable[Record]) -> ClusterDelta:
    """Return what records change; a place is a count of changes, as over ZooKeeper."""
    return replay(image, records, offset=image.position[0] + 1, epoch=5)


def cluster_image(brokers: Iterable[int | BrokerImage], *topics: TopicImage) -> ClusterImage:
    listed = [a_broker(each) if isinstance(each, int) else each for each in brokers]
    image = change(EMPTY, map(record_of, listed)).image
    for each in topics:
        image = change(image, topic_records(each)).image
    return image


def compare(image: ClusterImage, there: Mapping[int, BrokerImage]) -> list[Record]:
    """Return what is observed where these registrations are there (`host.zookeeper.store`)."""
    records: list[Record] = []
    came: set[int] = set()
    for broker_id in sorted({*image.brokers, *there}):
        before, after = image.brokers.get(broker_id), there.get(broker_id)
        if before is not None and (after is None or after.epoch != before.epoch):
            records.append(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=before.epoch))
            before = None
        if after is not None and before is None:
            came.add(broker_id)
        elif after is not None and before is not None:
            after = replace(after, in_controlled_shutdown=before.in_controlled_shutdown)
        if after is not None and after != before:
            records.append(record_of(after))
    return [*records, *reset_lost_directories(image, frozenset(came))]


def of(image: ClusterImage, name: str = "t", partition_id: int = 0) -> PartitionImage:
    found = image.topics.by_name(name)
    assert found is not None
    return found.partitions[partition_id]


def view(image: ClusterImage, controller_epoch: int = 5, **how: Any) -> ControllerView:
    return ControllerView(
        image=image, controller_id=CONTROLLER, controller_epoch=controller_epoch, **how
    )


def sent(batch: RequestBatch, of_view: ControllerView) -> list[BrokerRequest]:
    """Send a batch; each request must be one that its version can say."""
    requests = list(batch.send_requests_to_brokers(of_view))
    for each in requests:
        wire = memoryview(encode(each.request, each.version))
        assert decode(type(each.request), wire, each.version) is not None
    assert not batch
    return requests


def requests_of(delta: ClusterDelta) -> list[BrokerRequest]:
    """Return the requests that follow from a delta."""
    seen = view(delta.image)
    return sent(delta_batch(seen, delta), seen)


# -- what requests say -------------------------------------------------------------------------


def kinds(requests: Iterable[BrokerRequest]) -> list[tuple[int, str]]:
    """Return who gets which kind of request, in order; "brokers" has no partition."""
    return [(each.broker_id, _kind(each.request)) for each in requests]


def _kind(request: object) -> str:
    if isinstance(request, UpdateMetadataRequest):
        return "metadata" if request.topic_states else "brokers"
    return "lead" if isinstance(request, LeaderAndIsrRequest) else "stop"


def leads(requests: Iterable[BrokerRequest]) -> dict[tuple[int, PartitionKey], Any]:
    """Return LeaderAndIsr's partition states by broker and partition."""
    return {
        (each.broker_id, PartitionKey(states.topic_name, state.partition_index)): state
        for each in requests
        if isinstance(each.request, LeaderAndIsrRequest)
        for states in each.request.topic_states
        for state in states.partition_states
    }


def stops(requests: Iterable[BrokerRequest]) -> dict[tuple[int, PartitionKey], tuple[int, bool]]:
    """Return StopReplica's (leader epoch, deletes) by broker and partition."""
    return {
        (each.broker_id, PartitionKey(states.topic_name, state.partition_index)): (
            state.leader_epoch,
            state.delete_partition,
        )
        for each in requests
        if isinstance(each.request, StopReplicaRequest)
        for states in each.request.topic_states
        for state in states.partition_states
    }


def metadata(requests: Iterable[BrokerRequest]) -> dict[int, dict[PartitionKey, Any]]:
    """Return UpdateMetadata's partition states by broker; a broker that gets none has none."""
    found: dict[int, dict[PartitionKey, Any]] = {}
    for each in requests:
        if isinstance(each.request, UpdateMetadataRequest):
            states = found.setdefault(each.broker_id, {})
            for there in each.request.topic_states:
                for state in there.partition_states:
                    states[PartitionKey(there.topic_name, state.partition_index)] = state
    return found


# -- a broker that knows only what it is sent --------------------------------------------------


@dataclass(slots=True)
class ModelBroker:
    """One process of a broker."""

    id: int
    epoch: int
    controller_epoch: int = -1
    brokers: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    partitions: dict[PartitionKey, tuple[Any, ...]] = field(default_factory=dict)
    """Leader, its epoch, ISR, version, replicas."""
    hosted: dict[PartitionKey, tuple[Any, ...]] = field(default_factory=dict)
    """Topic id, leader, its epoch, recovery state, replicas, adding and removing ones."""
    stopped: set[PartitionKey] = field(default_factory=set)

    @classmethod
    def knowing_nothing(cls, broker_id: int, epoch: int, _stored: ClusterImage) -> "ModelBroker":
        """Return a process that has just started."""
        return cls(broker_id, epoch)

    def receive(self, sent_one: BrokerRequest) -> None:
        """Take a request, or refuse it."""
        request = sent_one.request
        if request.broker_epoch < self.epoch or request.controller_epoch < self.controller_epoch:
            return
        self.controller_epoch = request.controller_epoch
        if isinstance(request, LeaderAndIsrRequest):
            self._lead(request)
        elif isinstance(request, UpdateMetadataRequest):
            self._learn(request)
        else:
            assert isinstance(request, StopReplicaRequest)
            self._stop(request)

    def _lead(self, request: LeaderAndIsrRequest) -> None:
        # A broker must know the live brokers before it follows them (KAFKA-4443).
        assert {each.broker_id for each in request.live_leaders} <= self.brokers.keys()
        for topics in request.topic_states:
            for state in topics.partition_states:
                key = PartitionKey(topics.topic_name, state.partition_index)
                assert self.id in state.replicas
                known = self.hosted.get(key)
                assert known is None or known[0] == topics.topic_id
                assert known is None or known[2] <= state.leader_epoch
                assert known is None or not state.is_new
                self.hosted[key] = (
                    topics.topic_id,
                    state.leader,
                    state.leader_epoch,
                    state.leader_recovery_state,
                    state.replicas,
                    state.adding_replicas,
                    state.removing_replicas,
                )
                self.stopped.discard(key)

    def _learn(self, request: UpdateMetadataRequest) -> None:
        self.brokers = {
            each.id: (
                each.rack,
                tuple((there.listener, there.host, there.port) for there in each.endpoints),
            )
            for each in request.live_brokers
        }
        for topics in request.topic_states:
            for state in topics.partition_states:
                key = PartitionKey(topics.topic_name, state.partition_index)
                if state.leader == -2:
                    self.partitions.pop(key, None)
                    self.hosted.pop(key, None)
                    continue
                self.partitions[key] = (
                    state.leader,
                    state.leader_epoch,
                    state.isr,
                    state.zk_version,
                    state.replicas,
                )
                if self.id not in state.replicas:
                    self.hosted.pop(key, None)

    def _stop(self, request: StopReplicaRequest) -> None:
        for topics in request.topic_states:
            for state in topics.partition_states:
                key = PartitionKey(topics.topic_name, state.partition_index)
                known = self.hosted.get(key)
                if known is not None and 0 <= state.leader_epoch < known[2]:
                    raise AssertionError("a stop that its broker refuses")
                if state.delete_partition:
                    self.hosted.pop(key, None)
                else:
                    assert known is not None
                    self.stopped.add(key)

    def check(self, image: ClusterImage) -> None:
        """Compare with what the controller knows."""
        assert self.brokers == {
            broker_id: (
                broker.rack,
                tuple((each.name, each.host, each.port) for each in broker.endpoints),
            )
            for broker_id, broker in image.brokers.items()
        }
        assert self.partitions == {
            key: (
                each.leader,
                each.leader_epoch,
                each.isr,
                each.partition_epoch,
                each.replicas,
            )
            for key, _, each in _served(image)
        }
        expected = {
            key: (
                its_topic,
                each.leader,
                each.leader_epoch,
                each.leader_recovery_state,
                each.replicas,
                each.adding_replicas,
                each.removing_replicas,
            )
            for key, its_topic, each in _served(image)
            if self.id in each.replicas
        }
        lost = {
            key
            for key, _, each in _served(image)
            if self.id in each.replicas and each.directory(self.id) == DIRECTORY_LOST
        }
        assert _but(self.hosted, lost) == _but(expected, lost)


def _but(found: Mapping[PartitionKey, Any], lost: set[PartitionKey]) -> dict[PartitionKey, Any]:
    return {key: value for key, value in found.items() if key not in lost}


def _served(image: ClusterImage) -> list[tuple[PartitionKey, Uuid, PartitionImage]]:
    """Return what brokers must know: what was ever led and is not being deleted."""
    return [
        (PartitionKey(each.name, partition_id), each.id, partition)
        for each in image.topics
        if not image.deletions.is_being_deleted(each.id)
        for partition_id, partition in each.in_order()
        if partition.leader_epoch != NO_EPOCH
    ]
