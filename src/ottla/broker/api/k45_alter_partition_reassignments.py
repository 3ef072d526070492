"""AlterPartitionReassignments (key 45): reassign partitions, or cancel reassignments (KIP-455).

Behaviour: each partition has its own result; replicas null = cancel. The response comes when the
           reassignment has begun; ListPartitionReassignments shows those in progress.
Versions:  v1 allow_replication_factor_change (KIP-860).
Not done:  nothing.
"""

from ottla.base.authorizer import Operation
from ottla.base.errors import ApiError
from ottla.broker.api.base import Answer, Api, Context, RunsOn
from ottla.broker.ports import Listener
from ottla.controller.partitions.reassignment import Reassigned, Target, alter_reassignments
from ottla.wire.messages import alter_partition_reassignments as wire

API = Api(
    key=45,
    versions=range(2),
    listeners=frozenset({Listener.CLIENT, Listener.CONTROLLER}),
    runs_on=RunsOn.CONTROLLER,
    at_most_once=True,
    cluster_operation=Operation.ALTER,
    refuse=lambda _ctx, request, refusal: _answer(request, refusal),
)


def handle(ctx: Context, request: wire.AlterPartitionReassignmentsRequest) -> Answer:
    """Decide on the controller; translate."""
    wanted = [
        Target(topic.name, each.partition_index, each.replicas)
        for topic in request.topics
        for each in topic.partitions
    ]
    context = ctx.controller.context
    decided = ctx.controller.run(
        lambda image: alter_reassignments(
            image,
            wanted,
            may_change_factor=request.allow_replication_factor_change,
            context=context,
        ),
    )
    return decided.map(lambda reply: _answer(request, reply))


def _answer(
    request: wire.AlterPartitionReassignmentsRequest, reply: tuple[Reassigned, ...] | ApiError
) -> wire.AlterPartitionReassignmentsResponse:
    if isinstance(reply, ApiError):
        return wire.AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_code=reply.error,
            error_message=reply.message,
            responses=(),
        )
    results = iter(reply)
    return wire.AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=0,
        responses=tuple(
            wire.ReassignableTopicResponse(
                name=topic.name,
                partitions=tuple(_partition(next(results)) for _ in topic.partitions),
            )
            for topic in request.topics
        ),
    )


def _partition(reassigned: Reassigned) -> wire.ReassignablePartitionResponse:
    return wire.ReassignablePartitionResponse(
        partition_index=reassigned.partition_id,
        error_code=reassigned.error,
        error_message=reassigned.message,
    )
