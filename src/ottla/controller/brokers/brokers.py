"""Brokers register, send heartbeats, are fenced and shut down.

A broker's epoch is the offset of its registration's record, so a later process of the same id
always has the larger one. It starts fenced; it is unfenced once it has replayed the log up to
its own registration, because only then does it know what it hosts.

A broker that returns names the epoch under which it stopped cleanly. Only if the image has that
epoch was nothing lost: otherwise it may have acknowledged records that its disk never got, and
before it is registered again it leaves the ISR and the eligible replicas of all partitions.

A broker that was killed and started again need not wait for its previous process's session to
expire, as in Kafka (DUPLICATE_BROKER_REGISTRATION), if it names that process's epoch: it has
locked log directories that only one process can lock and that the registration of that epoch
names, so that process has ended. A broker that names an older epoch may itself be the older
process, whose request is late: it must not replace a live one, fenced or not.

Steps that move leaders are splittable: a broker may lead more partitions than one batch takes,
and must be fenced all the same. They put the leaders first and the broker's own state last. If
the controller dies in between, its successor fences the broker again.
Source: ClusterControlManager.registerBroker, BrokerHeartbeatManager.calculateNextBrokerState,
ReplicationControlManager.processBrokerHeartbeat, Kafka 4.0; KIP-631, KIP-858,
KIP-966.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.controller.context import DecisionContext
from ottla.controller.elections.elections import (
    elect_after_unfencing,
    leads_anything,
    remove_from_isrs,
    remove_offline_replicas,
)
from ottla.controller.step import Decision, Step
from ottla.metadata.brokers import PLAINTEXT, BrokerImage, record_of
from ottla.metadata.delta import replay
from ottla.metadata.features import METADATA_VERSION
from ottla.metadata.image import ClusterImage
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.records import BrokerRegistrationChangeRecord, Record

RESERVED_DIRECTORIES = frozenset(Uuid(bytes(15) + bytes((low,))) for low in range(100))
"""Ids that are no log directory's (DirectoryId.reserved)."""

NO_BROKER_EPOCH = -1
"""The previous epoch of a broker whose last stop was not clean."""

FENCE, UNFENCE = 1, -1
"""The values of BrokerRegistrationChangeRecord.fenced."""


class State(Enum):
    """The state of a broker. SHUTDOWN_NOW is only in heartbeat responses, not in the image."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A broker's heartbeat request."""

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: tuple[Uuid, ...] = ()


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """The response to a heartbeat."""

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


def state_of(broker: BrokerImage) -> State:
    """Return the state that the image gives a broker."""
    if broker.fenced:
        return State.FENCED
    return State.CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else State.UNFENCED


def register_broker(
    image: ClusterImage,
    broker: BrokerImage,
    *,
    cluster_id: str,
    next_offset: int,
    context: DecisionContext,
    now_ms: int,
    previous_epoch: int = NO_BROKER_EPOCH,
    superseded_epoch: int = NO_BROKER_EPOCH,
) -> Decision[int]:
    """Register a broker; the reply is its epoch. `broker.epoch` and `.fenced` do not count.

    `previous_epoch`: that of the broker's registration after which it lost nothing;
    `superseded_epoch`: that of the one whose process has ended, whatever was lost by that.

    Raises: ApiError: INCONSISTENT_CLUSTER_ID; DUPLICATE_BROKER_REGISTRATION while another
            process of that id may be alive; UNSUPPORTED_VERSION where it cannot work
            at the cluster's feature levels; INVALID_REGISTRATION.
    """
    if cluster_id != context.cluster_id:
        raise ApiError(
            Error.INCONSISTENT_CLUSTER_ID,
            f"Expected the cluster id {context.cluster_id}, but the broker sent {cluster_id}.",
        )
    before = image.brokers.get(broker.id)
    same_process = before is not None and before.incarnation_id == broker.incarnation_id
    lost_nothing = before is not None and before.epoch == previous_epoch
    has_ended = before is not None and before.epoch == superseded_epoch
    may_be_running = before is not None and not (same_process or has_ended or lost_nothing)
    if may_be_running and context.liveness.is_alive(broker.id, now_ms):
        raise ApiError(
            Error.DUPLICATE_BROKER_REGISTRATION,
            f"Another broker of the id {broker.id} is registered and alive.",
        )
    _check_directories(image, broker)
    _check_features(image, broker)
    _check_endpoints(broker)

    if before is not None and same_process:
        amended = replace(
            broker,
            epoch=before.epoch,
            fenced=before.fenced,
            in_controlled_shutdown=before.in_controlled_shutdown,
        )
        context.liveness.touch(broker.id, now_ms)
        return Decision(Step((record_of(amended),)), before.epoch)

    # The previous process may still be the leader; this one knows nothing yet.
    records: list[Record] = list(
        remove_from_isrs(image, context.config, broker.id, unclean=not lost_nothing)
    )
    epoch = next_offset + len(records)
    records.append(
        record_of(replace(broker, epoch=epoch, fenced=True, in_controlled_shutdown=False))
    )
    context.liveness.register(broker.id, now_ms)
    return Decision(Step(tuple(records), atomic=False), epoch)


def _check_directories(image: ClusterImage, broker: BrokerImage) -> None:
    listed = broker.log_dirs
    if not listed:
        raise _invalid("The registration names no log directories.")
    if any(each in RESERVED_DIRECTORIES for each in listed):
        raise _invalid("The registration names a reserved directory id.")
    if len(set(listed)) < len(listed):
        raise _invalid("The registration names a directory id twice.")
    for other_id, other in sorted(image.brokers.items()):
        if other_id != broker.id and set(other.log_dirs) & set(listed):
            raise _invalid(
                f"Broker {other_id} is registered with one of these directories already."
            )


def _check_features(image: ClusterImage, broker: BrokerImage) -> None:
    ranges = {each.name: (each.min_version, each.max_version) for each in broker.features}
    # A broker that does not name the metadata version is of level 1.
    absent: Mapping[str, int] = {METADATA_VERSION: 1}
    for name, level in sorted(image.features.items()):
        low, high = ranges.get(name, (absent.get(name, 0), absent.get(name, 0)))
        if not low <= level <= high:
            raise ApiError(
                Error.UNSUPPORTED_VERSION,
                f"The broker does not support level {level} of {name}, which the cluster is at:"
                f" it supports {low} to {high}.",
            )


def _check_endpoints(broker: BrokerImage) -> None:
    if not broker.endpoints:
        raise _invalid("The registration names no listener.")
    names = [each.name for each in broker.endpoints]
    if len(set(names)) < len(names):
        raise _invalid("The registration names a listener twice.")
    for endpoint in broker.endpoints:
        if endpoint.security_protocol != PLAINTEXT:
            raise _invalid(f"The listener {endpoint.name} is not PLAINTEXT.")


def _invalid(message: str) -> ApiError:
    return ApiError(Error.INVALID_REGISTRATION, message)


def heartbeat(
    image: ClusterImage,
    report: Heartbeat,
    *,
    next_offset: int,
    context: DecisionContext,
    now_ms: int,
) -> Decision[HeartbeatReply]:
    """Process a heartbeat: record it, and change the broker's state where it can be changed.

    Raises: ApiError: BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH.
    """
    broker = image.brokers.get(report.broker_id)
    if broker is None:
        raise ApiError(
            Error.BROKER_ID_NOT_REGISTERED, f"Broker {report.broker_id} is not registered."
        )
    if broker.epoch != report.broker_epoch:
        raise ApiError(
            Error.STALE_BROKER_EPOCH,
            f"Expected the broker epoch {broker.epoch}, but broker {report.broker_id} sent"
            f" {report.broker_epoch}.",
        )
    caught_up = report.metadata_offset >= broker.epoch
    records = _offline_directories(image, context.config, broker, report.offline_log_dirs)
    if records:
        # What follows must not elect a replica in a failed log directory.
        image = replay(image, records, offset=next_offset - 1, epoch=image.position[1]).image
        broker = image.brokers[broker.id]
    after = _next_state(image, broker, report, caught_up, context)
    changes = [] if after is state_of(broker) else _transition(image, context.config, broker, after)
    records += changes
    context.liveness.touch(broker.id, now_ms, report.metadata_offset)
    if after is State.CONTROLLED_SHUTDOWN and changes:
        context.liveness.begin_controlled_shutdown(broker.id, next_offset + len(records) - 1)
    reply = HeartbeatReply(
        is_caught_up=caught_up,
        is_fenced=after in (State.FENCED, State.SHUTDOWN_NOW),
        should_shut_down=after is State.SHUTDOWN_NOW,
    )
    return Decision(Step(tuple(records), atomic=False), reply)


def _next_state(
    image: ClusterImage,
    broker: BrokerImage,
    report: Heartbeat,
    caught_up: bool,
    context: DecisionContext,
) -> State:
    current = state_of(broker)
    if current is State.FENCED:
        if report.want_shut_down or broker.in_controlled_shutdown:
            # After a controlled shutdown has begun, only a new process is unfenced.
            return State.SHUTDOWN_NOW
        return State.UNFENCED if caught_up and not report.want_fence else State.FENCED
    if current is State.UNFENCED:
        if report.want_fence:
            return State.SHUTDOWN_NOW if report.want_shut_down else State.FENCED
        if not report.want_shut_down:
            return State.UNFENCED
        leads = leads_anything(image, broker.id)
        return State.CONTROLLED_SHUTDOWN if leads else State.SHUTDOWN_NOW
    assert current is State.CONTROLLED_SHUTDOWN
    if leads_anything(image, broker.id):
        return State.CONTROLLED_SHUTDOWN
    # The new leaders must have replayed their election first, or clients would find no leader.
    active = [each for each in image.broker_ids() if image.is_active(each)]
    replayed_offset = context.liveness.lowest_metadata_offset(active)
    if context.liveness.shutdown_offset(broker.id) <= replayed_offset:
        return State.SHUTDOWN_NOW
    return State.CONTROLLED_SHUTDOWN


def _transition(
    image: ClusterImage, config: NodeConfig, broker: BrokerImage, after: State
) -> list[Record]:
    if after is State.UNFENCED:
        change = BrokerRegistrationChangeRecord(
            broker_id=broker.id, broker_epoch=broker.epoch, fenced=UNFENCE
        )
        return [*elect_after_unfencing(image, config, broker.id), change]
    if after is State.CONTROLLED_SHUTDOWN:
        change = BrokerRegistrationChangeRecord(
            broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=1
        )
        return [*remove_from_isrs(image, config, broker.id), change]
    return fencing_records(image, config, broker)


def fencing_records(image: ClusterImage, config: NodeConfig, broker: BrokerImage) -> list[Record]:
    """Return the records that fence a broker; none for a fenced one."""
    if broker.fenced:
        return []
    fencing = BrokerRegistrationChangeRecord(
        broker_id=broker.id, broker_epoch=broker.epoch, fenced=FENCE
    )
    return [*remove_from_isrs(image, config, broker.id), fencing]


def _offline_directories(
    image: ClusterImage, config: NodeConfig, broker: BrokerImage, offline: tuple[Uuid, ...]
) -> list[Record]:
    """Return what changes when log directories of a broker are reported offline."""
    failed = frozenset(offline) & frozenset(broker.log_dirs)
    remaining = tuple(each for each in broker.log_dirs if each not in failed)
    if not failed or not remaining:
        return []  # Without a working directory a broker stops by itself; () means no change.
    change = BrokerRegistrationChangeRecord(
        broker_id=broker.id, broker_epoch=broker.epoch, log_dirs=remaining
    )
    return [*remove_offline_replicas(image, config, broker.id, failed), change]


def fence_stalest(
    image: ClusterImage, context: DecisionContext, now_ms: int
) -> Decision[int | None]:
    """Fence the unfenced broker with the oldest heartbeat, if its session expired; reply its id.

    One broker a step keeps the batch bounded, and lets the next decision see its effect;
    `liveness.next_check_ms` says when the next check is due.
    """
    stalest = context.liveness.stalest(image)
    if stalest is None or stalest[0] > now_ms:
        return Decision(Step(), None)
    broker = image.brokers[stalest[1]]
    records = tuple(fencing_records(image, context.config, broker))
    return Decision(Step(records, atomic=False), broker.id)
