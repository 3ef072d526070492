"""PushTelemetry (key 72). Source: PushTelemetry{Request,Response}.json."""

from ottla.base.ids import Uuid
from ottla.wire.schema import BOOL, BYTES, INT8, INT16, INT32, UUID, field, message


@message(key=72, versions="0", flexible="0+")
class PushTelemetryRequest:
    client_instance_id: Uuid = field(UUID)
    subscription_id: int = field(INT32)
    terminating: bool = field(BOOL)
    compression_type: int = field(INT8)
    metrics: bytes = field(BYTES)


@message(key=72, versions="0", flexible="0+")
class PushTelemetryResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
