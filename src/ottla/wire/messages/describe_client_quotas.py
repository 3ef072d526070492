"""DescribeClientQuotas (key 48). Source: DescribeClientQuotas{Request,Response}.json."""

from ottla.wire.schema import (
    BOOL,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    STRING,
    array,
    field,
    message,
    struct_of,
)


@struct_of
class ComponentData:
    entity_type: str = field(STRING)
    match_type: int = field(INT8)
    """0 = exactly this name, 1 = the default entity, 2 = any name."""
    match: str | None = field(STRING, nullable="0+")


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    components: tuple[ComponentData, ...] = field(array(ComponentData))
    strict: bool = field(BOOL)


@struct_of
class EntityData:
    entity_type: str = field(STRING)
    entity_name: str | None = field(STRING, nullable="0+")


@struct_of
class ValueData:
    key: str = field(STRING)
    value: float = field(FLOAT64)


@struct_of
class EntryData:
    entity: tuple[EntityData, ...] = field(array(EntityData))
    values: tuple[ValueData, ...] = field(array(ValueData))


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    entries: tuple[EntryData, ...] | None = field(array(EntryData), nullable="0+")
