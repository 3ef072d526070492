"""AlterClientQuotas (key 49). Source: AlterClientQuotas{Request,Response}.json."""

from ottla.wire.schema import BOOL, FLOAT64, INT16, INT32, STRING, array, field, message, struct_of


@struct_of
class EntityData:
    entity_type: str = field(STRING)
    entity_name: str | None = field(STRING, nullable="0+")
    """None = the default entity."""


@struct_of
class OpData:
    key: str = field(STRING)
    value: float = field(FLOAT64)
    remove: bool = field(BOOL)


@struct_of
class RequestEntryData:
    entity: tuple[EntityData, ...] = field(array(EntityData))
    ops: tuple[OpData, ...] = field(array(OpData))


@message(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    entries: tuple[RequestEntryData, ...] = field(array(RequestEntryData))
    validate_only: bool = field(BOOL)


@struct_of
class ResponseEntryData:
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    entity: tuple[EntityData, ...] = field(array(EntityData))


@message(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    throttle_time_ms: int = field(INT32, default=0)
    entries: tuple[ResponseEntryData, ...] = field(array(ResponseEntryData))
