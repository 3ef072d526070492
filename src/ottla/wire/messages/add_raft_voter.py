"""AddRaftVoter (key 80). Source: AddRaftVoter{Request,Response}.json."""

from ottla.base.ids import Uuid
from ottla.wire.schema import (
    BOOL,
    INT16,
    INT32,
    STRING,
    UINT16,
    UUID,
    array,
    field,
    message,
    struct_of,
)


@struct_of
class Listener:
    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)


@message(key=80, versions="0-1", flexible="0+")
class AddRaftVoterRequest:
    cluster_id: str | None = field(STRING, nullable="0+")
    timeout_ms: int = field(INT32)
    voter_id: int = field(INT32)
    voter_directory_id: Uuid = field(UUID)
    listeners: tuple[Listener, ...] = field(array(Listener))
    ack_when_committed: bool = field(BOOL, versions="1+", default=True)


@message(key=80, versions="0-1", flexible="0+")
class AddRaftVoterResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
