"""JoinGroup (key 11): become a member of a group's next generation.

Behaviour: the response comes when the generation begins; its leader gets all members. A new member
           without a group instance id is given an id and has to join again (KIP-394).
           More than JOIN_PROTOCOLS_MAX protocols are INCONSISTENT_GROUP_PROTOCOL. What the group's
           record cannot hold, strings of more than 32 KB, is INVALID_GROUP_ID or INVALID_REQUEST.
Versions:  v1 rebalance timeout (v0: the session's); v4 MEMBER_ID_REQUIRED; v5 group instance
           ids (KIP-345); v6 flexible; v7 the protocol's type, and null for no protocol
           (KIP-559); v8 a reason (KIP-800); v9 skip_assignment (KIP-814).
Not done:  groups of the consumer protocol (KIP-848).
"""

from ottla.base.authorizer import Access, Operation, ResourceType
from ottla.base.errors import ApiError, Error
from ottla.base.limits import JOIN_PROTOCOLS_MAX
from ottla.broker.api.base import Answer, Api, Context
from ottla.coordinator.joining import join
from ottla.coordinator.values import Join, JoinResponse
from ottla.wire.messages import join_group as wire

READ_GROUP = Access(Operation.READ, ResourceType.GROUP)

API = Api(key=11, versions=range(10), access=(READ_GROUP,))

FIRST_VERSION_WITH_REBALANCE_TIMEOUT = 1
FIRST_VERSION_THAT_NEEDS_MEMBER_ID = 4
FIRST_VERSION_WITH_NULL_PROTOCOL = 7
FIRST_VERSION_WITH_SKIP_ASSIGNMENT = 9


def handle(ctx: Context, request: wire.JoinGroupRequest) -> Answer:
    """Respond when the group's generation begins."""
    try:
        ctx.require(READ_GROUP, request.group_id)
        if len(request.protocols) > JOIN_PROTOCOLS_MAX:
            raise ApiError(Error.INCONSISTENT_GROUP_PROTOCOL)
        shard = ctx.broker.groups.shard_of(request.group_id)
    except ApiError as refusal:
        return _answer(ctx, JoinResponse(error=refusal.error, member_id=request.member_id))
    has_timeout = ctx.version >= FIRST_VERSION_WITH_REBALANCE_TIMEOUT
    joined = join(
        shard,
        Join(
            group_id=request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            client_id=ctx.header.client_id or "",
            # As Java prints an address without a host name: tools expect the slash.
            client_host=f"/{ctx.connection.client_host}",
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=(
                request.rebalance_timeout_ms if has_timeout else request.session_timeout_ms
            ),
            protocol_type=request.protocol_type,
            # A name given twice is one protocol.
            protocols=tuple({each.name: each.metadata for each in request.protocols}.items()),
            reason=request.reason,
            requires_member_id=ctx.version >= FIRST_VERSION_THAT_NEEDS_MEMBER_ID,
            can_skip_assignment=ctx.version >= FIRST_VERSION_WITH_SKIP_ASSIGNMENT,
        ),
    )
    return joined.map(lambda answer: _answer(ctx, answer))


def _answer(ctx: Context, answer: JoinResponse) -> wire.JoinGroupResponse:
    knows_null = ctx.version >= FIRST_VERSION_WITH_NULL_PROTOCOL
    return wire.JoinGroupResponse(
        error_code=answer.error,
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name or (None if knows_null else ""),
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=tuple(
            wire.JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata,
            )
            for member in answer.members
        ),
    )
