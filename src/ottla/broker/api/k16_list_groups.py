"""ListGroups (key 16): the groups that this broker coordinates.

Behaviour: tools send it to every broker. While a partition of the offsets topic loads here the
           result is COORDINATOR_LOAD_IN_PROGRESS, as its groups would be missing.
Versions:  v3 flexible; v4 filter by state (KIP-518); v5 filter by type (KIP-848).
Not done:  nothing; all groups here are of the type "classic".
"""

from collections.abc import Set

from ottla.base.authorizer import Access, Operation, ResourceType
from ottla.base.errors import ApiError, Error
from ottla.broker.api.base import Answer, Api, Context
from ottla.coordinator.groups import CLASSIC, list_groups
from ottla.wire.messages import list_groups as wire

DESCRIBE_CLUSTER = Access(Operation.DESCRIBE, ResourceType.CLUSTER)
DESCRIBE_GROUP = Access(Operation.DESCRIBE, ResourceType.GROUP)

API = Api(key=16, versions=range(6), access=(DESCRIBE_CLUSTER, DESCRIBE_GROUP))


def handle(ctx: Context, request: wire.ListGroupsRequest) -> Answer:
    """Answer at once."""
    try:
        shards = ctx.broker.groups.shards()
    except ApiError as refusal:
        return wire.ListGroupsResponse(error_code=refusal.error, groups=())
    views = [
        view
        for shard in shards
        for view in list_groups(shard, request.states_filter, request.types_filter)
    ]
    refused: Set[str] = frozenset()
    if not ctx.allows(DESCRIBE_CLUSTER):
        refused = ctx.refused(DESCRIBE_GROUP, (view.group_id for view in views))
    return wire.ListGroupsResponse(
        error_code=Error.NONE,
        groups=tuple(
            wire.ListedGroup(
                group_id=view.group_id,
                protocol_type=view.protocol_type,
                group_state=view.state,
                group_type=CLASSIC,
            )
            for view in views
            if view.group_id not in refused
        ),
    )
