"""DescribeTransactions (key 65). Source: DescribeTransactions{Request,Response}.json."""

from ottla.wire.schema import INT16, INT32, INT64, STRING, array, field, message, struct_of


@message(key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    transactional_ids: tuple[str, ...] = field(array(STRING))


@struct_of
class TopicData:
    topic: str = field(STRING)
    partitions: tuple[int, ...] = field(array(INT32))


@struct_of
class TransactionState:
    error_code: int = field(INT16)
    transactional_id: str = field(STRING)
    transaction_state: str = field(STRING)
    transaction_timeout_ms: int = field(INT32)
    transaction_start_time_ms: int = field(INT64)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    topics: tuple[TopicData, ...] = field(array(TopicData))


@message(key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    transaction_states: tuple[TransactionState, ...] = field(array(TransactionState))
