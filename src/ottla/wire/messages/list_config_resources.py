"""ListConfigResources (key 74). Source: ListConfigResources{Request,Response}.json; KIP-1142."""

from ottla.wire.schema import INT8, INT16, INT32, STRING, array, field, message, struct_of


@message(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    resource_types: tuple[int, ...] = field(array(INT8), versions="1+", default=())


@struct_of
class ConfigResource:
    resource_name: str = field(STRING)
    resource_type: int = field(INT8, versions="1+", default=16, ignorable=True)


@message(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    config_resources: tuple[ConfigResource, ...] = field(array(ConfigResource))
