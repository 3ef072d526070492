"""One controller node's registration. Source: ControllerRegistration; KIP-919."""

from dataclasses import dataclass

from ottla.base.ids import Uuid
from ottla.metadata.brokers import Endpoint, FeatureRange, endpoints_of, features_of
from ottla.metadata.records import (
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerImage:
    """One registered controller."""

    id: int
    incarnation_id: Uuid
    zk_migration_ready: bool = False
    endpoints: tuple[Endpoint, ...] = ()
    features: tuple[FeatureRange, ...] = ()


def controller_of(record: RegisterControllerRecord) -> ControllerImage:
    """Return the controller that a registration describes."""
    return ControllerImage(
        id=record.controller_id,
        incarnation_id=record.incarnation_id,
        zk_migration_ready=record.zk_migration_ready,
        endpoints=endpoints_of(record.end_points),
        features=features_of(record.features),
    )


def record_of(controller: ControllerImage) -> RegisterControllerRecord:
    """Return the registration that leads to `controller`."""
    return RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=tuple(
            ControllerEndpoint(
                name=endpoint.name,
                host=endpoint.host,
                port=endpoint.port,
                security_protocol=endpoint.security_protocol,
            )
            for endpoint in controller.endpoints
        ),
        features=tuple(
            ControllerFeature(
                name=feature.name,
                min_supported_version=feature.min_version,
                max_supported_version=feature.max_version,
            )
            for feature in controller.features
        ),
    )
