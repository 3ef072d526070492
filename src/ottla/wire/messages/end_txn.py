"""EndTxn (key 26). Source: EndTxn{Request,Response}.json; KIP-890."""

from ottla.wire.schema import BOOL, INT16, INT32, INT64, STRING, field, message


@message(key=26, versions="0-5", flexible="3+")
class EndTxnRequest:
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    committed: bool = field(BOOL)
    """True = commit, False = abort."""


@message(key=26, versions="0-5", flexible="3+")
class EndTxnResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    producer_id: int = field(INT64, versions="5+", default=-1, ignorable=True)
    producer_epoch: int = field(INT16, versions="5+", default=-1, ignorable=True)
