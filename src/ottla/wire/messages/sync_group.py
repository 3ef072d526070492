"""SyncGroup (key 14). Source: SyncGroup{Request,Response}.json; KIP-559."""

from ottla.wire.schema import BYTES, INT16, INT32, STRING, array, field, message, struct_of


@struct_of
class SyncGroupRequestAssignment:
    member_id: str = field(STRING)
    assignment: bytes = field(BYTES)


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupRequest:
    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, versions="3+", nullable="3+", default=None)
    protocol_type: str | None = field(
        STRING, versions="5+", nullable="5+", default=None, ignorable=True
    )
    protocol_name: str | None = field(
        STRING, versions="5+", nullable="5+", default=None, ignorable=True
    )
    assignments: tuple[SyncGroupRequestAssignment, ...] = field(array(SyncGroupRequestAssignment))


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupResponse:
    throttle_time_ms: int = field(INT32, versions="1+", default=0, ignorable=True)
    error_code: int = field(INT16)
    protocol_type: str | None = field(
        STRING, versions="5+", nullable="5+", default=None, ignorable=True
    )
    protocol_name: str | None = field(
        STRING, versions="5+", nullable="5+", default=None, ignorable=True
    )
    assignment: bytes = field(BYTES)
