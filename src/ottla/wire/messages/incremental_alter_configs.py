"""IncrementalAlterConfigs (key 44). Source: IncrementalAlterConfigs{Request,Response}.json."""

from ottla.wire.schema import BOOL, INT8, INT16, INT32, STRING, array, field, message, struct_of


@struct_of
class AlterableConfig:
    name: str = field(STRING)
    config_operation: int = field(INT8)
    """0 = set, 1 = delete, 2 = append to a list, 3 = subtract from a list."""
    value: str | None = field(STRING, nullable="0+")


@struct_of
class AlterConfigsResource:
    resource_type: int = field(INT8)
    """2 = topic, 4 = broker, 8 = broker logger, 16 = client metrics, 32 = group."""
    resource_name: str = field(STRING)
    configs: tuple[AlterableConfig, ...] = field(array(AlterableConfig))


@message(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    resources: tuple[AlterConfigsResource, ...] = field(array(AlterConfigsResource))
    validate_only: bool = field(BOOL)


@struct_of
class AlterConfigsResourceResponse:
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)


@message(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    responses: tuple[AlterConfigsResourceResponse, ...] = field(array(AlterConfigsResourceResponse))
