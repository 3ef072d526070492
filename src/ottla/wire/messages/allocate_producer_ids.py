"""AllocateProducerIds (key 67). Source: AllocateProducerIds{Request,Response}.json."""

from ottla.wire.schema import INT16, INT32, INT64, field, message


@message(key=67, versions="0", flexible="0+")
class AllocateProducerIdsRequest:
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)


@message(key=67, versions="0", flexible="0+")
class AllocateProducerIdsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    producer_id_start: int = field(INT64)
    """The first of a block of `producer_id_len` ids."""
    producer_id_len: int = field(INT32)
