"""SyncGroup (key 14): a member gets its assignment; the leader sends all assignments.

Behaviour: the response comes when the leader's assignment is stored in the offsets topic.
Versions:  v3 group instance ids (KIP-345); v4 flexible; v5 the protocol's type and name, both
           required (KIP-559).
Not done:  groups of the consumer protocol (KIP-848).
"""

from ottla.base.authorizer import Access, Operation, ResourceType
from ottla.base.errors import ApiError, Error
from ottla.broker.api.base import Answer, Api, Context
from ottla.coordinator.syncing import sync
from ottla.coordinator.values import Sync, SyncResponse
from ottla.wire.messages import sync_group as wire

READ_GROUP = Access(Operation.READ, ResourceType.GROUP)

API = Api(key=14, versions=range(6), access=(READ_GROUP,))

FIRST_VERSION_WITH_PROTOCOL = 5


def handle(ctx: Context, request: wire.SyncGroupRequest) -> Answer:
    """Respond when the assignment is stored, or at once where it is already."""
    names = (request.protocol_type, request.protocol_name)
    if ctx.version >= FIRST_VERSION_WITH_PROTOCOL and None in names:
        return _answer(SyncResponse(error=Error.INCONSISTENT_GROUP_PROTOCOL))
    try:
        ctx.require(READ_GROUP, request.group_id)
        shard = ctx.broker.groups.shard_of(request.group_id)
    except ApiError as refusal:
        return _answer(SyncResponse(error=refusal.error))
    synced = sync(
        shard,
        Sync(
            group_id=request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments=tuple((each.member_id, each.assignment) for each in request.assignments),
        ),
    )
    return synced.map(_answer)


def _answer(answer: SyncResponse) -> wire.SyncGroupResponse:
    return wire.SyncGroupResponse(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )
