"""AddOffsetsToTxn (key 25). Source: AddOffsetsToTxn{Request,Response}.json; KIP-890."""

from ottla.wire.schema import INT16, INT32, INT64, STRING, field, message


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    group_id: str = field(STRING)


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
