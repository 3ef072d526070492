"""IncrementalAlterConfigs (key 44): set, delete or edit dynamic properties (KIP-339).

Behaviour: SET, DELETE, and for lists APPEND and SUBTRACT; what is not named stays as it is. Each
           resource stands or falls by itself.
Versions:  v1 flexible.
Not done:  authorization; policy classes.
"""

from ottla.base.errors import ApiError
from ottla.broker.api.base import Answer, Api, Context, Listener, RunsOn
from ottla.controller.configs import Alteration, AlteredResource, alter_configs
from ottla.wire.messages import incremental_alter_configs as wire

API = Api(
    key=44,
    versions=range(2),
    listeners=frozenset({Listener.CLIENT, Listener.CONTROLLER}),
    runs_on=RunsOn.CONTROLLER,
    acl="cluster:alter-configs",
)


def handle(ctx: Context, request: wire.IncrementalAlterConfigsRequest) -> Answer:
    """Decide on the controller; translate."""
    wanted = [
        Alteration(
            (resource.resource_type, resource.resource_name),
            tuple((each.name, each.config_operation, each.value) for each in resource.configs),
        )
        for resource in request.resources
    ]
    context = ctx.controller.context
    decided = ctx.controller.run(
        lambda image: alter_configs(
            image,
            wanted,
            incremental=True,
            validate_only=request.validate_only,
            context=context,
        )
    )
    return decided.map(lambda reply: _answer(wanted, reply))


def _answer(
    wanted: list[Alteration], reply: tuple[AlteredResource, ...] | ApiError
) -> wire.IncrementalAlterConfigsResponse:
    if isinstance(reply, ApiError):
        refusal = reply
        reply = tuple(
            AlteredResource(each.resource, refusal.error, refusal.message) for each in wanted
        )
    return wire.IncrementalAlterConfigsResponse(
        responses=tuple(
            wire.AlterConfigsResourceResponse(
                error_code=each.error,
                error_message=each.message,
                resource_type=each.resource[0],
                resource_name=each.resource[1],
            )
            for each in reply
        )
    )
