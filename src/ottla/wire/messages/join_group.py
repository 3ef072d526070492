"""JoinGroup (key 11). Source: JoinGroup{Request,Response}.json; KIP-559, KIP-800."""

from ottla.wire.schema import BOOL, BYTES, INT16, INT32, STRING, array, field, message, struct_of


@struct_of
class JoinGroupRequestProtocol:
    name: str = field(STRING)
    metadata: bytes = field(BYTES)


@message(key=11, versions="0-9", flexible="6+")
class JoinGroupRequest:
    group_id: str = field(STRING)
    session_timeout_ms: int = field(INT32)
    rebalance_timeout_ms: int = field(INT32, versions="1+", default=-1, ignorable=True)
    member_id: str = field(STRING)
    """Empty on a first join: the coordinator names the member."""
    group_instance_id: str | None = field(STRING, versions="5+", nullable="5+", default=None)
    protocol_type: str = field(STRING)
    protocols: tuple[JoinGroupRequestProtocol, ...] = field(array(JoinGroupRequestProtocol))
    reason: str | None = field(STRING, versions="8+", nullable="8+", default=None, ignorable=True)


@struct_of
class JoinGroupResponseMember:
    member_id: str = field(STRING)
    group_instance_id: str | None = field(
        STRING, versions="5+", nullable="5+", default=None, ignorable=True
    )
    metadata: bytes = field(BYTES)


@message(key=11, versions="0-9", flexible="6+")
class JoinGroupResponse:
    throttle_time_ms: int = field(INT32, versions="2+", default=0, ignorable=True)
    error_code: int = field(INT16)
    generation_id: int = field(INT32, default=-1)
    protocol_type: str | None = field(
        STRING, versions="7+", nullable="7+", default=None, ignorable=True
    )
    protocol_name: str | None = field(STRING, nullable="7+")
    leader: str = field(STRING)
    skip_assignment: bool = field(BOOL, versions="9+", default=False)
    """The leader of a static group that restarted need not assign again (KIP-814)."""
    member_id: str = field(STRING)
    members: tuple[JoinGroupResponseMember, ...] = field(array(JoinGroupResponseMember))
