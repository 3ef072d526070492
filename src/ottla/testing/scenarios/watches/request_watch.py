"""Watches the requests between nodes, and what controllers and brokers make of them.

- A broker is unfenced only once a heartbeat has asked for it and said that it knows of its
  registration.
- A registration after a stop that was not clean leaves the broker in no ISR and no ELR (KIP-966).
- A replica joins an ISR only by an AlterPartition that names the partition epoch, and the leader
  epoch, that the partition has then (KIP-497), and the present registrations (KIP-903). So does the
  last replica of a reassignment, which then ends in the same change.
- A voter votes only for a candidate whose log is not behind its own (Raft, 5.4.1; KIP-595).
- A controller refuses the heartbeat of a registration that has ended (STALE_BROKER_EPOCH).
- A leader refuses what a follower fetches under a registration that has ended (KIP-903).
- Over ZooKeeper: a request of a former controller, or to a former registration of the broker, is
  refused (KIP-380).
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from ottla.base.ids import NO_EPOCH, Uuid
from ottla.metadata.brokers import BrokerImage
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.metadata.topics import RECOVERING
from ottla.testing.history.history import History
from ottla.testing.history.nodes import FENCING, RuleBroken, Unfenced
from ottla.testing.history.topics import TopicPartition
from ottla.testing.scenarios.watches.awaited import AwaitedChecks, Check
from ottla.testing.sim import Sim
from ottla.testing.sim.watch import observations as seen
from ottla.wire.codec import decode
from ottla.wire.frames import RequestHeader, decode_request_header, decode_response
from ottla.wire.messages.alter_partition import AlterPartitionRequest
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.wire.messages.broker_registration import BrokerRegistrationRequest
from ottla.wire.messages.fetch import FetchRequest, FetchResponse
from ottla.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from ottla.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from ottla.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from ottla.wire.messages.vote import VoteRequest, VoteResponse

T = TypeVar("T")

FETCH, VOTE, ALTER_PARTITION, BROKER_REGISTRATION, BROKER_HEARTBEAT = 1, 52, 56, 62, 63
REPLICA_STATE: Final = struct.Struct(">2siqB")
REPLICA_STATE_TAG: Final = b"\x01\x0d"
"""The last tagged field of a fetch request: its tag and size, replica id and epoch, and no tags."""
NO_REPLICA_STATE: Final = (-1, -1)

FROM_CONTROLLER: dict[int, tuple[type[Any], type[Any]]] = {
    4: (LeaderAndIsrRequest, LeaderAndIsrResponse),
    5: (StopReplicaRequest, StopReplicaResponse),
    6: (UpdateMetadataRequest, UpdateMetadataResponse),
}
"""What a controller sends to brokers over ZooKeeper, by API key."""


class RequestedIsr(NamedTuple):
    """An ISR that a leader has requested, and the epochs that its request names."""

    leader_epoch: int
    partition_epoch: int
    isr: frozenset[int]
    broker_epochs: frozenset[tuple[int, int]] = frozenset()
    """Of the members, where the request has them."""


class RequestWatch:
    """Writes what does not fit the requests into a history."""

    def __init__(self, sim: Sim, history: History) -> None:
        self._sim = sim
        self._history = history
        self._ready: set[tuple[int, int]] = set()
        """Brokers and their epochs that have asked to be unfenced."""
        self._previous_epochs: dict[Uuid, set[int]] = {}
        """By incarnation id, what its registrations name as the epoch of the last clean stop."""
        self._epochs: dict[int, int] = {}
        """The epoch under which each broker is registered."""
        self._active: dict[int, int] = {}
        """The last epoch in which each broker was unfenced."""
        self._images: dict[int, ClusterImage] = {}
        """The image of each node."""
        self._requested: dict[TopicPartition, set[RequestedIsr]] = {}
        self._fetches = FollowerFetches(sim, self._broken, self._images)
        self._from_controllers = ControllerRequests(sim, self._broken)
        self._arrived: dict[int, Callable[[int, RequestHeader, bytes], Check | None]] = {
            VOTE: self._vote_requested,
            BROKER_HEARTBEAT: self._heartbeat_sent,
        }
        """By API key, what returns a check of the response."""
        self._awaited = AwaitedChecks()
        """Of the requests whose responses are checked."""
        sim.observe(self._observe)
        sim.net.observe(self._frame)
        sim.net.observe_responses(self._awaited.check)

    def _broken(self, partition: TopicPartition | None, node: int, reason: str) -> None:
        self._history.rules_broken.append(
            RuleBroken(FENCING, partition, node, reason, self._sim.now_ms)
        )

    def _observe(self, observation: seen.Observation) -> None:
        match observation:
            case seen.ImagePublished():
                if self._sim.zookeeper is None:
                    self._images[observation.node] = observation.image
                    self._look_at_brokers(observation.image)
            case seen.NodeChanged(what="started"):
                # The next process may not know yet what the one before it knew.
                self._images.pop(observation.node, None)
            case seen.PartitionSet():
                if observation.before is not None:
                    key = (observation.topic_id, observation.partition)
                    self._look_at_isr(key, observation.before, observation.state)

    # -- requests ------------------------------------------------------------------------------

    def _frame(self, what: str, _source: int, target: int, frame: bytes) -> None:
        """Note a request that arrives. A redelivered one may arrive first."""
        if what == "response":
            return
        connection = self._sim.net.arriving_on
        key = int.from_bytes(frame[4:6], "big")
        if key == FETCH:
            if what == "request":
                self._fetches.arrived(connection, target, frame)
            return
        if key in FROM_CONTROLLER:
            self._from_controllers.arrived(connection, target, frame)
        elif key in self._arrived:
            header, _ = decode_request_header(memoryview(frame)[4:])
            check = self._arrived[key](target, header, frame)
            if check is not None:
                self._awaited.keep(connection, header.correlation_id, check)
        if key == ALTER_PARTITION:
            self._isr_requested(_request(AlterPartitionRequest, frame))
        elif key == BROKER_REGISTRATION:
            registration = _request(BrokerRegistrationRequest, frame)
            named = self._previous_epochs.setdefault(registration.incarnation_id, set())
            named.add(registration.previous_broker_epoch)
        elif key == BROKER_HEARTBEAT:
            report = _request(BrokerHeartbeatRequest, frame)
            if not report.want_fence and report.current_metadata_offset >= report.broker_epoch:
                self._ready.add((report.broker_id, report.broker_epoch))

    def _vote_requested(self, voter: int, header: RequestHeader, frame: bytes) -> Check | None:
        """Return what checks the vote, if the candidate's log is behind that of the voter."""
        log_end = self._sim.nodes[voter].metadata_log_end
        (asked,) = _request(VoteRequest, frame).topics[0].partitions
        if log_end is None or (asked.last_offset_epoch, asked.last_offset) >= log_end.rank:
            return None

        def check(response_frame: bytes) -> None:
            _, response = decode_response(
                VoteResponse, memoryview(response_frame)[4:], header.api_version
            )
            if any(each.vote_granted for topic in response.topics for each in topic.partitions):
                self._broken(
                    None,
                    voter,
                    f"votes for {asked.replica_id} in epoch {asked.replica_epoch}, whose log ends "
                    f"at {asked.last_offset} of epoch {asked.last_offset_epoch}; its own ends at "
                    f"{log_end.offset} of epoch {log_end.epoch}",
                )

        return check

    def _heartbeat_sent(self, controller: int, header: RequestHeader, frame: bytes) -> Check | None:
        """Return what checks the response, if the controller knows a later registration."""
        report = _request(BrokerHeartbeatRequest, frame)
        image = self._images.get(controller)
        broker = None if image is None else image.brokers.get(report.broker_id)
        if broker is None or broker.epoch <= report.broker_epoch:
            return None
        newest_epoch = broker.epoch

        def check(response_frame: bytes) -> None:
            _, response = decode_response(
                BrokerHeartbeatResponse, memoryview(response_frame)[4:], header.api_version
            )
            if response.error_code == 0:
                self._broken(
                    None,
                    controller,
                    f"took a heartbeat of broker {report.broker_id} in epoch "
                    f"{report.broker_epoch} though it is registered in {newest_epoch}",
                )

        return check

    def _isr_requested(self, request: AlterPartitionRequest) -> None:
        for topic in request.topics:
            for each in topic.partitions:
                epochs = [(it.broker_id, it.broker_epoch) for it in each.new_isr_with_epochs]
                members = [broker for broker, _ in epochs] or each.new_isr
                wanted = RequestedIsr(
                    each.leader_epoch,
                    each.partition_epoch,
                    frozenset(members),
                    frozenset(pair for pair in epochs if pair[1] != NO_EPOCH),
                )
                key = (topic.topic_id, each.partition_index)
                self._requested.setdefault(key, set()).add(wanted)

    # -- decisions -----------------------------------------------------------------------------

    def _look_at_brokers(self, image: ClusterImage) -> None:
        for broker in image.brokers.values():
            if broker.active and self._active.get(broker.id, -1) < broker.epoch:
                self._active[broker.id] = broker.epoch
                requested = (broker.id, broker.epoch) in self._ready
                self._history.unfenced_brokers.append(
                    Unfenced(broker.id, broker.epoch, requested, self._sim.now_ms)
                )
            before = self._epochs.get(broker.id, -1)
            if broker.epoch > before:
                self._epochs[broker.id] = broker.epoch
                self._registered(before, broker, image)

    def _registered(self, before: int, broker: BrokerImage, image: ClusterImage) -> None:
        """Check what a broker is for the partitions, before it is unfenced in this epoch."""
        named = self._previous_epochs.get(broker.incarnation_id, set())
        # A registration between the two may have passed unseen.
        if before in named or max(named, default=-1) > before or not broker.fenced:
            return
        for topic in image.topics:
            for number, state in topic.in_order():
                if broker.id in (*state.isr, *state.elr):
                    self._broken(
                        (topic.id, number),
                        broker.id,
                        f"is in sync, or eligible, in its new epoch {broker.epoch}, whose "
                        f"registration does not name the one before it, {before}",
                    )

    def _look_at_isr(
        self, key: TopicPartition, before: PartitionImage, state: PartitionImage
    ) -> None:
        if state.partition_epoch != before.partition_epoch + 1:
            return
        if state.leader_epoch != before.leader_epoch and not _ends_reassignment(before, state):
            return
        joined = set(state.isr) - set(before.isr)
        if not joined:
            return
        requests = [
            each
            for each in self._requested.get(key, ())
            if each.leader_epoch == before.leader_epoch
            and each.partition_epoch == before.partition_epoch
            and joined <= each.isr
        ]
        got = f"got {sorted(joined)} into the ISR at partition epoch {state.partition_epoch}"
        if not requests:
            self._broken(
                key, state.leader, f"{got} without a request of epoch {before.partition_epoch}"
            )
        elif all(any(self._is_former(*pair) for pair in each.broker_epochs) for each in requests):
            self._broken(key, state.leader, f"{got} by a request that names former registrations")

    def _is_former(self, broker: int, epoch: int) -> bool:
        """Tell whether a broker had registered under a later epoch before the present change.

        Images are published after the changes that are in them: none has what comes with this one.
        """
        return epoch < self._epochs.get(broker, NO_EPOCH)


def _ends_reassignment(before: PartitionImage, state: PartitionImage) -> bool:
    """Tell whether a change removes replicas because all others are in sync.

    A cancelled reassignment takes away those that were added. An election of an eligible replica,
    or an unclean one, makes the leader the ISR, which may end a reassignment, too.
    """
    gone = {*before.replicas} - {*state.replicas, *before.adding_replicas}
    may_lead = state.leader in before.elr or state.leader_recovery_state == RECOVERING
    return bool(gone) and not (may_lead and state.isr == (state.leader,))


class FollowerFetches:
    """Checks what leaders respond to fetches of followers' former registrations.

    A response is checked when it is sent, since the process that asked has ended by then. Each
    partition that the request names must have an error in it. Others of its fetch session have one
    if they are in it: an idle partition is not looked at, and left out.

    Only in KRaft mode: over ZooKeeper a leader knows no broker epochs but those of the fetches that
    it has taken for a partition in the present leader epoch.
    """

    def __init__(
        self,
        sim: Sim,
        broken: Callable[[TopicPartition | None, int, str], None],
        images: Mapping[int, ClusterImage],
    ) -> None:
        self._broken = broken
        self._images = images
        self._awaited = AwaitedChecks()
        sim.net.observe_responses(self._awaited.check)

    def arrived(self, connection: int, leader: int, frame: bytes) -> None:
        """Note a fetch that arrives if its leader knows a later registration of the follower."""
        image = self._images.get(leader)
        replica, epoch = _replica_state(frame)
        broker = None if image is None or epoch == NO_EPOCH else image.brokers.get(replica)
        if broker is None or broker.epoch <= epoch:
            return
        header, _ = decode_request_header(memoryview(frame)[4:])
        request = _request(FetchRequest, frame)
        named = {
            (topic.topic_id, each.partition)
            for topic in request.topics
            for each in topic.partitions
        }
        for topic in request.forgotten_topics_data:
            named.difference_update((topic.topic_id, each) for each in topic.partitions)
        newest_epoch = broker.epoch

        def check(response_frame: bytes) -> None:
            _, response = decode_response(
                FetchResponse, memoryview(response_frame)[4:], header.api_version
            )
            if response.error_code != 0:
                return
            errors = {
                (topic.topic_id, each.partition_index): each.error_code
                for topic in response.responses
                for each in topic.partitions
            }
            taken = [key for key in sorted(named | errors.keys()) if not errors.get(key)]
            if taken:
                self._broken(
                    taken[0],
                    leader,
                    f"took a fetch of broker {replica} in epoch {epoch} though it is registered "
                    f"in {newest_epoch}",
                )

        self._awaited.keep(connection, header.correlation_id, check)


def _replica_state(frame: bytes) -> tuple[int, int]:
    """Return the replica id and epoch of a fetch request; (-1, -1) where it has none.

    They are at the end of its frame: most requests of a history are fetches, and decoding each
    would take long.
    """
    if len(frame) >= REPLICA_STATE.size:
        tag, replica, epoch, tags = REPLICA_STATE.unpack_from(
            frame, len(frame) - REPLICA_STATE.size
        )
        if tag == REPLICA_STATE_TAG and tags == 0:
            return replica, epoch
    return NO_REPLICA_STATE


class ControllerRequests:
    """Checks what brokers answer to requests of former controllers, or to former registrations.

    A broker knows the epochs of a request once it has answered it without an error: LeaderAndIsr of
    a new topic waits for its configuration first, and others are handled meanwhile.
    """

    def __init__(self, sim: Sim, broken: Callable[[None, int, str], None]) -> None:
        self._sim = sim
        self._broken = broken
        self._newest: dict[tuple[int, int], tuple[int, int]] = {}
        """By broker and incarnation: the largest controller epoch, and broker epoch."""
        self._awaited = AwaitedChecks()
        sim.net.observe_responses(self._awaited.check)

    def arrived(self, connection: int, target: int, frame: bytes) -> None:
        """Note a request that arrives, and what is stale in it then."""
        node = self._sim.nodes[target]
        if node.broker is None:
            return
        header, _ = decode_request_header(memoryview(frame)[4:])
        request_type, response_type = FROM_CONTROLLER[header.api_key]
        request: Any = _request(request_type, frame)
        place = (target, node.incarnation)
        stale = self._stale(request, place, node.broker.epoch)

        def check(response_frame: bytes) -> None:
            response: Any
            _, response = decode_response(
                response_type, memoryview(response_frame)[4:], header.api_version
            )
            if response.error_code != 0:
                return
            if stale is not None:
                self._broken(None, target, f"took {request_type.__name__[:-7]} with {stale}")
                return
            controller_epoch, broker_epoch = self._newest.get(place, (-1, -1))
            self._newest[place] = (
                max(request.controller_epoch, controller_epoch),
                max(request.broker_epoch, broker_epoch),
            )

        self._awaited.keep(connection, header.correlation_id, check)

    def _stale(self, request: Any, place: tuple[int, int], own_epoch: int) -> str | None:
        """Return what is stale in a request; None = nothing."""
        controller_epoch, broker_epoch = self._newest.get(place, (-1, -1))
        broker_epoch = max(broker_epoch, own_epoch)
        if -1 != request.broker_epoch < broker_epoch:
            return f"the broker epoch {request.broker_epoch} though it has {broker_epoch}"
        if request.controller_epoch < controller_epoch:
            return (
                f"the controller epoch {request.controller_epoch} though it knows "
                f"{controller_epoch}"
            )
        return None


def _request(message: type[T], frame: bytes) -> T:
    header, body_at = decode_request_header(memoryview(frame)[4:])
    return decode(message, memoryview(frame)[4 + body_at :], header.api_version, lenient=True)
