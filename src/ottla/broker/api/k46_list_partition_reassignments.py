"""ListPartitionReassignments (key 46): reassignments in progress (KIP-455).

Behaviour: topics null = all. Partitions without a reassignment, or unknown ones, are left out.
Versions:  v0.
Not done:  nothing.
"""

from ottla.base.authorizer import Operation
from ottla.base.errors import ApiError
from ottla.broker.api.base import Answer, Api, Context, RunsOn
from ottla.broker.ports import Listener
from ottla.controller.partitions.reassignment import Ongoing, list_reassignments
from ottla.controller.step import Decision, Step
from ottla.wire.messages import list_partition_reassignments as wire

API = Api(
    key=46,
    versions=range(1),
    listeners=frozenset({Listener.CLIENT, Listener.CONTROLLER}),
    runs_on=RunsOn.CONTROLLER,
    cluster_operation=Operation.DESCRIBE,
)


def handle(ctx: Context, request: wire.ListPartitionReassignmentsRequest) -> Answer:
    """Read the controller's image; translate."""
    wanted = None
    if request.topics is not None:
        wanted = [(topic.name, topic.partition_indexes) for topic in request.topics]
    listed = ctx.controller.run(lambda image: Decision(Step(), list_reassignments(image, wanted)))
    return listed.map(_answer)


def _answer(reply: tuple[Ongoing, ...] | ApiError) -> wire.ListPartitionReassignmentsResponse:
    if isinstance(reply, ApiError):
        return wire.ListPartitionReassignmentsResponse(
            error_code=reply.error, error_message=reply.message, topics=()
        )
    topics: dict[str, list[wire.OngoingPartitionReassignment]] = {}
    for ongoing in reply:
        topics.setdefault(ongoing.topic, []).append(
            wire.OngoingPartitionReassignment(
                partition_index=ongoing.partition_id,
                replicas=ongoing.partition.replicas,
                adding_replicas=ongoing.partition.adding_replicas,
                removing_replicas=ongoing.partition.removing_replicas,
            )
        )
    return wire.ListPartitionReassignmentsResponse(
        error_code=0,
        topics=tuple(
            wire.OngoingTopicReassignment(name=name, partitions=tuple(partitions))
            for name, partitions in topics.items()
        ),
    )
