"""Shared by AlterConfigs (33) and IncrementalAlterConfigs (44): the decision and the response.

And by these and DescribeConfigs (32): what they ask the authorizer.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ottla.base.authorizer import ALLOW_ALL, CLUSTER, Access, Operation
from ottla.base.authorizer import ResourceType as AclResource
from ottla.base.errors import ApiError
from ottla.base.limits import ALTERATIONS_PER_STEP_MAX
from ottla.base.pending import Pending
from ottla.base.turns import Steps
from ottla.broker.api.base import Answer, Context
from ottla.broker.api.parts import decide_in_parts
from ottla.broker.ports import Message
from ottla.controller.parts import in_parts
from ottla.controller.topics.configs import Alteration, AlteredResource, alter_configs
from ottla.metadata.configs import ResourceType

ConfigAccess = Mapping[int, Access]
"""By the type of the configuration resource."""


def config_access(operation: Operation) -> ConfigAccess:
    """Return what an operation on each type of configuration resource needs."""
    cluster = Access(operation, AclResource.CLUSTER)
    return {
        ResourceType.TOPIC: Access(operation, AclResource.TOPIC),
        ResourceType.BROKER: cluster,
        ResourceType.BROKER_LOGGER: cluster,
        ResourceType.CLIENT_METRICS: cluster,
        ResourceType.GROUP: Access(operation, AclResource.GROUP),
    }


def require_config(ctx: Context, needed: ConfigAccess, resource: tuple[int, str]) -> None:
    """Raise ApiError where the principal has no access to a configuration resource."""
    access = needed.get(resource[0])
    if access is not None:
        is_cluster = access.resource_type is AclResource.CLUSTER
        ctx.require(access, CLUSTER.name if is_cluster else resource[1])


ALTER_ACCESS = config_access(Operation.ALTER_CONFIGS)


def alter(
    ctx: Context,
    wanted: Sequence[Alteration],
    *,
    incremental: bool,
    validate_only: bool,
    response: Callable[..., Message],
    resource_response: Callable[..., Any],
) -> Steps[Answer]:
    """Decide on the controller; respond in the given message classes, whose fields are alike."""
    context = ctx.controller.context
    wanted, refused = _authorized(ctx, wanted)
    found = yield from decide_in_parts(
        ctx,
        in_parts(wanted, lambda each: each.resource, ALTERATIONS_PER_STEP_MAX),
        lambda image, part: alter_configs(
            image, part, incremental=incremental, validate_only=validate_only, context=context
        ),
        _failed,
    )

    def answer(reply: tuple[AlteredResource, ...]) -> Message:
        return response(
            responses=tuple(
                resource_response(
                    error_code=each.error,
                    error_message=each.message,
                    resource_type=each.resource[0],
                    resource_name=each.resource[1],
                )
                for each in (*reply, *refused)
            )
        )

    return found.map(answer) if isinstance(found, Pending) else answer(found)


def _authorized(
    ctx: Context, wanted: Sequence[Alteration]
) -> tuple[Sequence[Alteration], Sequence[AlteredResource]]:
    """Return what the principal may alter, and the results of the rest.

    A resource that is named twice is refused by the decision, whoever asks.
    """
    if ctx.authorizer is ALLOW_ALL:
        return wanted, ()
    counts = Counter(each.resource for each in wanted)
    allowed: list[Alteration] = []
    refused: list[AlteredResource] = []
    for each in wanted:
        try:
            if counts[each.resource] == 1:
                require_config(ctx, ALTER_ACCESS, each.resource)
            allowed.append(each)
        except ApiError as refusal:
            refused.append(AlteredResource(each.resource, refusal.error, refusal.message))
    return allowed, refused


def _failed(left: Sequence[Alteration], failure: ApiError) -> tuple[AlteredResource, ...]:
    return tuple(AlteredResource(each.resource, failure.error, failure.message) for each in left)
