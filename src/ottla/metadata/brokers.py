"""One broker's registration. Source: BrokerRegistration, ClusterImage, Kafka 4.0."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ottla.base.ids import Uuid
from ottla.metadata.records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    RegisterBrokerRecord,
)
from ottla.metadata.topics import DIRECTORY_LOST, UNKNOWN_DIRECTORIES

PLAINTEXT = 0
"""The id of the security protocol PLAINTEXT, as endpoints carry it."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a node is reached under a listener's name."""

    name: str
    host: str
    port: int
    security_protocol: int = PLAINTEXT


@dataclass(frozen=True, slots=True)
class FeatureRange:
    """The levels of a feature that a node's software can work at, both ends included."""

    name: str
    min_version: int
    max_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    """One registered broker. `epoch` is the offset of its registration record."""

    id: int
    epoch: int
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...] = ()
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[Uuid, ...] = ()

    def endpoint(self, listener_name: str) -> Endpoint | None:
        """Return the broker's endpoint of a listener, or None."""
        for endpoint in self.endpoints:
            if endpoint.name == listener_name:
                return endpoint
        return None

    @property
    def active(self) -> bool:
        """Tell whether the broker may lead and join in-sync replicas."""
        return not self.fenced and not self.in_controlled_shutdown

    def has_online_dir(self, directory: Uuid) -> bool:
        """Tell whether a replica's log directory is online, as far as the metadata knows.

        A broker over ZooKeeper registers none: there a failed one is DIRECTORY_LOST.
        """
        if directory in UNKNOWN_DIRECTORIES:
            return True
        if directory == DIRECTORY_LOST:
            return False
        return not self.log_dirs or directory in self.log_dirs


def broker_of(record: RegisterBrokerRecord) -> BrokerImage:
    """Return the broker that a registration describes."""
    return BrokerImage(
        id=record.broker_id,
        epoch=record.broker_epoch,
        incarnation_id=record.incarnation_id,
        endpoints=endpoints_of(record.end_points),
        features=features_of(record.features),
        rack=record.rack,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        log_dirs=record.log_dirs,
    )


def record_of(broker: BrokerImage) -> RegisterBrokerRecord:
    """Return the registration that leads to `broker` by itself."""
    return RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=tuple(
            BrokerEndpoint(
                name=endpoint.name,
                host=endpoint.host,
                port=endpoint.port,
                security_protocol=endpoint.security_protocol,
            )
            for endpoint in broker.endpoints
        ),
        features=tuple(
            BrokerFeature(
                name=feature.name,
                min_supported_version=feature.min_version,
                max_supported_version=feature.max_version,
            )
            for feature in broker.features
        ),
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=broker.log_dirs,
    )


def changed_broker(broker: BrokerImage, record: BrokerRegistrationChangeRecord) -> BrokerImage:
    """Return `broker` with a change applied."""
    return replace(
        broker,
        fenced=broker.fenced if record.fenced == 0 else record.fenced > 0,
        in_controlled_shutdown=broker.in_controlled_shutdown or record.in_controlled_shutdown > 0,
        log_dirs=record.log_dirs or broker.log_dirs,
    )


def endpoints_of(
    listed: Iterable[BrokerEndpoint] | Iterable[ControllerEndpoint],
) -> tuple[Endpoint, ...]:
    """Return a registration's endpoints as values of the image."""
    return tuple(
        Endpoint(each.name, each.host, each.port, each.security_protocol) for each in listed
    )


def features_of(
    listed: Iterable[BrokerFeature] | Iterable[ControllerFeature],
) -> tuple[FeatureRange, ...]:
    """Return a registration's features as values of the image."""
    return tuple(
        FeatureRange(each.name, each.min_supported_version, each.max_supported_version)
        for each in listed
    )
