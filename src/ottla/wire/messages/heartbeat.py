"""Heartbeat (key 12). Source: Heartbeat{Request,Response}.json."""

from ottla.wire.schema import INT16, INT32, STRING, field, message


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatRequest:
    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, versions="3+", nullable="3+", default=None)


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatResponse:
    throttle_time_ms: int = field(INT32, versions="1+", default=0, ignorable=True)
    error_code: int = field(INT16)
