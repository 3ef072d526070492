"""BrokerHeartbeat (key 63). Source: BrokerHeartbeat{Request,Response}.json."""

from ottla.base.ids import Uuid
from ottla.wire.schema import BOOL, INT16, INT32, INT64, UUID, array, field, message


@message(key=63, versions="0-2", flexible="0+")
class BrokerHeartbeatRequest:
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)
    current_metadata_offset: int = field(INT64)
    want_fence: bool = field(BOOL)
    """The broker would rather stay fenced for now."""
    want_shut_down: bool = field(BOOL)
    offline_log_dirs: tuple[Uuid, ...] = field(array(UUID), versions="1+", tag=0, default=())
    cordoned_log_dirs: tuple[Uuid, ...] | None = field(
        array(UUID), versions="2+", nullable="2+", tag=1, default=None
    )


@message(key=63, versions="0-2", flexible="0+")
class BrokerHeartbeatResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    is_caught_up: bool = field(BOOL, default=False)
    is_fenced: bool = field(BOOL, default=True)
    should_shut_down: bool = field(BOOL)
