"""AlterConfigs (key 33): replace all dynamic properties of a topic or broker.

Behaviour: what the request does not name loses its value; IncrementalAlterConfigs (key 44) is
           the one to use. Each resource stands or falls by itself.
Versions:  v2 flexible.
Not done:  authorization; policy classes.
"""

from ottla.base.errors import ApiError
from ottla.broker.api.base import Answer, Api, Context, Listener, RunsOn
from ottla.controller.configs import Alteration, AlteredResource, Operation, alter_configs
from ottla.wire.messages import alter_configs as wire

API = Api(
    key=33,
    versions=range(3),
    listeners=frozenset({Listener.CLIENT, Listener.CONTROLLER}),
    runs_on=RunsOn.CONTROLLER,
    acl="cluster:alter-configs",
)


def handle(ctx: Context, request: wire.AlterConfigsRequest) -> Answer:
    """Decide on the controller; translate."""
    wanted = [
        Alteration(
            (resource.resource_type, resource.resource_name),
            tuple((each.name, int(Operation.SET), each.value) for each in resource.configs),
        )
        for resource in request.resources
    ]
    context = ctx.controller.context
    decided = ctx.controller.run(
        lambda image: alter_configs(
            image,
            wanted,
            incremental=False,
            validate_only=request.validate_only,
            context=context,
        )
    )
    return decided.map(lambda reply: _answer(wanted, reply))


def _answer(
    wanted: list[Alteration], reply: tuple[AlteredResource, ...] | ApiError
) -> wire.AlterConfigsResponse:
    if isinstance(reply, ApiError):
        refusal = reply
        reply = tuple(
            AlteredResource(each.resource, refusal.error, refusal.message) for each in wanted
        )
    return wire.AlterConfigsResponse(
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
