"""The record of a controller's registration. Source: RegisterControllerRecord; KIP-919."""

from ottla.base.ids import Uuid
from ottla.wire.schema import (
    BOOL,
    INT16,
    INT32,
    STRING,
    UINT16,
    UUID,
    array,
    field,
    record,
    struct_of,
)


@struct_of
class ControllerEndpoint:
    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)
    security_protocol: int = field(INT16)


@struct_of
class ControllerFeature:
    name: str = field(STRING)
    min_supported_version: int = field(INT16)
    max_supported_version: int = field(INT16)


@record(type=27, versions="0")
class RegisterControllerRecord:
    controller_id: int = field(INT32)
    incarnation_id: Uuid = field(UUID)
    zk_migration_ready: bool = field(BOOL, default=False)
    end_points: tuple[ControllerEndpoint, ...] = field(array(ControllerEndpoint))
    features: tuple[ControllerFeature, ...] = field(array(ControllerFeature))
