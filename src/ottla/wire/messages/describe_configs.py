"""DescribeConfigs (key 32). Source: DescribeConfigs{Request,Response}.json."""

from ottla.wire.schema import BOOL, INT8, INT16, INT32, STRING, array, field, message, struct_of


@struct_of
class DescribeConfigsResource:
    resource_type: int = field(INT8)
    """2 = topic, 4 = broker, 8 = broker logger, 16 = client metrics, 32 = group."""
    resource_name: str = field(STRING)
    configuration_keys: tuple[str, ...] | None = field(array(STRING), nullable="0+")
    """None = all."""


@message(key=32, versions="0-4", flexible="4+")
class DescribeConfigsRequest:
    resources: tuple[DescribeConfigsResource, ...] = field(array(DescribeConfigsResource))
    include_synonyms: bool = field(BOOL, versions="1+", default=False)
    include_documentation: bool = field(BOOL, versions="3+", default=False)


@struct_of
class DescribeConfigsSynonym:
    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+")
    source: int = field(INT8)


@struct_of
class DescribeConfigsResourceResult:
    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+")
    read_only: bool = field(BOOL)
    config_source: int = field(INT8, versions="1+", default=-1, ignorable=True)
    """1 = topic, 2 = dynamic broker, 3 = dynamic default broker, 4 = static broker, 5 = default,
    6 = dynamic broker logger, 7 = client metrics, 8 = group.
    """
    is_default: bool = field(BOOL, versions="0", default=False)
    is_sensitive: bool = field(BOOL)
    synonyms: tuple[DescribeConfigsSynonym, ...] = field(
        array(DescribeConfigsSynonym), versions="1+", default=(), ignorable=True
    )
    config_type: int = field(INT8, versions="3+", default=0, ignorable=True)
    """1 = boolean, 2 = string, 3 = int, 4 = short, 5 = long, 6 = double, 7 = list, 8 = class,
    9 = password; 0 = unknown.
    """
    documentation: str | None = field(
        STRING, versions="3+", nullable="3+", default=None, ignorable=True
    )


@struct_of
class DescribeConfigsResult:
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: tuple[DescribeConfigsResourceResult, ...] = field(array(DescribeConfigsResourceResult))


@message(key=32, versions="0-4", flexible="4+")
class DescribeConfigsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    results: tuple[DescribeConfigsResult, ...] = field(array(DescribeConfigsResult))
