"""DescribeConfigs (key 32): properties of topics and brokers, with their sources and types.

Behaviour: a node, broker or controller, describes itself and, under the empty name, the dynamic
           defaults of all brokers; topics from its image. Null or no keys = all; names that do
           not exist are left out. A resource that is named more than once is described once, with
           all requested keys.
Versions:  v1 sources and synonyms (KIP-226); v3 types and documentation (KIP-569); v4 flexible.
Not done:  broker loggers, client metrics and groups (INVALID_REQUEST).
"""

from collections.abc import Iterable

from ottla.base.authorizer import Operation
from ottla.base.errors import ApiError, Error
from ottla.base.turns import Steps
from ottla.broker.api.altering import config_access, require_config
from ottla.broker.api.base import Answer, Api, Context, InSteps
from ottla.broker.ports import Listener
from ottla.metadata.config_describe import (
    Entry,
    Source,
    describe_all_brokers,
    describe_broker,
    describe_topic,
)
from ottla.metadata.configs import ALL_BROKERS, ResourceType
from ottla.metadata.topic_names import fault_of
from ottla.wire.messages import describe_configs as wire

ACCESS = config_access(Operation.DESCRIBE_CONFIGS)

API = Api(
    key=32,
    versions=range(5),
    listeners=frozenset({Listener.CLIENT, Listener.CONTROLLER}),
    access=tuple(dict.fromkeys(ACCESS.values())),
)


Keys = frozenset[str] | None
"""None = all of them."""


@InSteps
def handle(ctx: Context, request: wire.DescribeConfigsRequest) -> Steps[Answer]:
    """Describe each resource by itself, from this node's own state."""
    wanted: dict[tuple[int, str], Keys] = {}
    for resource in request.resources:
        name = (resource.resource_type, resource.resource_name)
        keys = frozenset(resource.configuration_keys or ()) or None
        known = wanted.get(name, keys)
        wanted[name] = None if known is None or keys is None else known | keys
        yield
    results: list[wire.DescribeConfigsResult] = []
    for (resource_type, resource_name), keys in wanted.items():
        results.append(_result(ctx, request, resource_type, resource_name, keys))
        yield
    return wire.DescribeConfigsResponse(results=tuple(results))


def _result(
    ctx: Context, request: wire.DescribeConfigsRequest, resource_type: int, name: str, keys: Keys
) -> wire.DescribeConfigsResult:
    try:
        entries = _entries(ctx, resource_type, name)
    except ApiError as refusal:
        return wire.DescribeConfigsResult(
            error_code=refusal.error,
            error_message=refusal.message,
            resource_type=resource_type,
            resource_name=name,
            configs=(),
        )
    return wire.DescribeConfigsResult(
        error_code=Error.NONE,
        resource_type=resource_type,
        resource_name=name,
        configs=tuple(
            _config(ctx.version, request, entry)
            for entry in entries
            if keys is None or entry.name in keys
        ),
    )


def _entries(ctx: Context, resource_type: int, name: str) -> Iterable[Entry]:
    if resource_type in ACCESS:
        require_config(ctx, ACCESS, (resource_type, name))
    config = ctx.node.config
    image = ctx.node.image if ctx.broker_or_none is None else ctx.broker.image
    if resource_type == ResourceType.TOPIC:
        fault = fault_of(name)
        if fault is not None:
            raise ApiError(Error.INVALID_TOPIC_EXCEPTION, fault)
        if name not in image.topics:
            raise ApiError(Error.UNKNOWN_TOPIC_OR_PARTITION)
        return describe_topic(image, config, image.configs.of(ResourceType.TOPIC, name))
    if resource_type == ResourceType.BROKER:
        if name == ALL_BROKERS:
            return describe_all_brokers(image)
        if name != str(config.node_id):
            raise ApiError(
                Error.INVALID_REQUEST,
                f"Unexpected broker id, expected {config.node_id} or empty string, but received"
                f" {name}",
            )
        return describe_broker(image, config)
    raise ApiError(
        Error.INVALID_REQUEST,
        f"Configurations of the resource type {resource_type} are not supported.",
    )


def _config(
    version: int, request: wire.DescribeConfigsRequest, entry: Entry
) -> wire.DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return wire.DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_default=version == 0 and entry.source is Source.DEFAULT,
        is_sensitive=entry.is_sensitive,
        synonyms=tuple(
            wire.DescribeConfigsSynonym(
                name=synonym.name, value=synonym.value, source=synonym.source
            )
            for synonym in synonyms
        ),
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )
