"""UnregisterBroker (key 64). Source: UnregisterBroker{Request,Response}.json."""

from ottla.wire.schema import INT16, INT32, STRING, field, message


@message(key=64, versions="0", flexible="0+")
class UnregisterBrokerRequest:
    broker_id: int = field(INT32)


@message(key=64, versions="0", flexible="0+")
class UnregisterBrokerResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
