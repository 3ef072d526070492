"""AddPartitionsToTxn (key 24). Source: AddPartitionsToTxn{Request,Response}.json; KIP-890."""

from ottla.wire.schema import BOOL, INT16, INT32, INT64, STRING, array, field, message, struct_of


@struct_of
class AddPartitionsToTxnTopic:
    name: str = field(STRING)
    partitions: tuple[int, ...] = field(array(INT32))


@struct_of
class AddPartitionsToTxnTransaction:
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    verify_only: bool = field(BOOL, default=False)
    topics: tuple[AddPartitionsToTxnTopic, ...] = field(array(AddPartitionsToTxnTopic))


@message(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    transactions: tuple[AddPartitionsToTxnTransaction, ...] = field(
        array(AddPartitionsToTxnTransaction), versions="4+", default=()
    )
    v3_and_below_transactional_id: str = field(STRING, versions="0-3", default="")
    v3_and_below_producer_id: int = field(INT64, versions="0-3", default=0)
    v3_and_below_producer_epoch: int = field(INT16, versions="0-3", default=0)
    v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...] = field(
        array(AddPartitionsToTxnTopic), versions="0-3", default=()
    )


@struct_of
class AddPartitionsToTxnPartitionResult:
    partition_index: int = field(INT32)
    partition_error_code: int = field(INT16)


@struct_of
class AddPartitionsToTxnTopicResult:
    name: str = field(STRING)
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = field(
        array(AddPartitionsToTxnPartitionResult)
    )


@struct_of
class AddPartitionsToTxnResult:
    transactional_id: str = field(STRING)
    topic_results: tuple[AddPartitionsToTxnTopicResult, ...] = field(
        array(AddPartitionsToTxnTopicResult)
    )


@message(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, versions="4+", default=0, ignorable=True)
    results_by_transaction: tuple[AddPartitionsToTxnResult, ...] = field(
        array(AddPartitionsToTxnResult), versions="4+", default=()
    )
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...] = field(
        array(AddPartitionsToTxnTopicResult), versions="0-3", default=()
    )
