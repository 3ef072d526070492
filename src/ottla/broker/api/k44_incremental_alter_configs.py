"""IncrementalAlterConfigs (key 44): set, delete or edit dynamic properties (KIP-339).

Behaviour: SET, DELETE, and for lists APPEND and SUBTRACT; other properties stay as they are. Each
           resource has its own result.
Versions:  v1 flexible.
Not done:  policy classes.
"""

from ottla.base.turns import Steps
from ottla.broker.api.altering import ALTER_ACCESS, alter
from ottla.broker.api.base import Answer, Api, Context, InSteps, RunsOn
from ottla.broker.ports import Listener
from ottla.controller.topics.configs import Alteration
from ottla.wire.messages import incremental_alter_configs as wire

API = Api(
    key=44,
    versions=range(2),
    listeners=frozenset({Listener.CLIENT, Listener.CONTROLLER}),
    runs_on=RunsOn.CONTROLLER,
    at_most_once=True,
    access=tuple(dict.fromkeys(ALTER_ACCESS.values())),
)


@InSteps
def handle(ctx: Context, request: wire.IncrementalAlterConfigsRequest) -> Steps[Answer]:
    """Decide on the controller; translate."""
    wanted = [
        Alteration(
            (resource.resource_type, resource.resource_name),
            tuple((each.name, each.config_operation, each.value) for each in resource.configs),
        )
        for resource in request.resources
    ]
    return alter(
        ctx,
        wanted,
        incremental=True,
        validate_only=request.validate_only,
        response=wire.IncrementalAlterConfigsResponse,
        resource_response=wire.AlterConfigsResourceResponse,
    )
