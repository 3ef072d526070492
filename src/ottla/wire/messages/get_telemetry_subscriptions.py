"""GetTelemetrySubscriptions (key 71). Source: GetTelemetrySubscriptions{Request,Response}.json."""

from ottla.base.ids import Uuid
from ottla.wire.schema import BOOL, INT8, INT16, INT32, STRING, UUID, array, field, message


@message(key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsRequest:
    client_instance_id: Uuid = field(UUID)


@message(key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    client_instance_id: Uuid = field(UUID)
    subscription_id: int = field(INT32)
    accepted_compression_types: tuple[int, ...] = field(array(INT8))
    push_interval_ms: int = field(INT32)
    telemetry_max_bytes: int = field(INT32)
    delta_temporality: bool = field(BOOL)
    requested_metrics: tuple[str, ...] = field(array(STRING))
