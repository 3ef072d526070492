"""LeaveGroup (key 13). Source: LeaveGroup{Request,Response}.json; KIP-800."""

from ottla.wire.schema import INT16, INT32, STRING, array, field, message, struct_of


@struct_of
class MemberIdentity:
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, nullable="0+", default=None)
    reason: str | None = field(STRING, versions="5+", nullable="5+", default=None, ignorable=True)


@message(key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    group_id: str = field(STRING)
    member_id: str = field(STRING, versions="0-2", default="")
    members: tuple[MemberIdentity, ...] = field(array(MemberIdentity), versions="3+", default=())


@struct_of
class MemberResponse:
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, nullable="0+")
    error_code: int = field(INT16)


@message(key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    throttle_time_ms: int = field(INT32, versions="1+", default=0, ignorable=True)
    error_code: int = field(INT16)
    members: tuple[MemberResponse, ...] = field(array(MemberResponse), versions="3+", default=())
