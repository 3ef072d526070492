"""AlterConfigs (key 33): replace all dynamic properties of a topic or broker.

Behaviour: properties that the request does not name return to their defaults; use
           IncrementalAlterConfigs (key 44) instead. Each resource has its own result.
Versions:  v2 flexible.
Not done:  policy classes.
"""

from ottla.base.turns import Steps
from ottla.broker.api.altering import ALTER_ACCESS, alter
from ottla.broker.api.base import Answer, Api, Context, InSteps, RunsOn
from ottla.broker.ports import Listener
from ottla.controller.topics.configs import Alteration, Operation
from ottla.wire.messages import alter_configs as wire

API = Api(
    key=33,
    versions=range(3),
    listeners=frozenset({Listener.CLIENT, Listener.CONTROLLER}),
    runs_on=RunsOn.CONTROLLER,
    at_most_once=True,
    access=tuple(dict.fromkeys(ALTER_ACCESS.values())),
)


@InSteps
def handle(ctx: Context, request: wire.AlterConfigsRequest) -> Steps[Answer]:
    """Decide on the controller; translate."""
    wanted = [
        Alteration(
            (resource.resource_type, resource.resource_name),
            tuple((each.name, int(Operation.SET), each.value) for each in resource.configs),
        )
        for resource in request.resources
    ]
    return alter(
        ctx,
        wanted,
        incremental=False,
        validate_only=request.validate_only,
        response=wire.AlterConfigsResponse,
        resource_response=wire.AlterConfigsResourceResponse,
    )
