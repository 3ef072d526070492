"""ControllerRegistration (key 70). Source: ControllerRegistration{Request,Response}.json."""

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
    message,
    struct_of,
)


@struct_of
class Listener:
    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)
    security_protocol: int = field(INT16)


@struct_of
class Feature:
    name: str = field(STRING)
    min_supported_version: int = field(INT16)
    max_supported_version: int = field(INT16)


@message(key=70, versions="0", flexible="0+")
class ControllerRegistrationRequest:
    controller_id: int = field(INT32)
    incarnation_id: Uuid = field(UUID)
    zk_migration_ready: bool = field(BOOL)
    listeners: tuple[Listener, ...] = field(array(Listener))
    features: tuple[Feature, ...] = field(array(Feature))


@message(key=70, versions="0", flexible="0+")
class ControllerRegistrationResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
