"""ListTransactions (key 66). Source: ListTransactions{Request,Response}.json; KIP-994, KIP-1152."""

from ottla.wire.schema import INT16, INT32, INT64, STRING, array, field, message, struct_of


@message(key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest:
    state_filters: tuple[str, ...] = field(array(STRING))
    producer_id_filters: tuple[int, ...] = field(array(INT64))
    duration_filter: int = field(INT64, versions="1+", default=-1)
    """Milliseconds: only transactions open for longer; -1 = any."""
    transactional_id_pattern: str | None = field(STRING, versions="2+", nullable="2+", default=None)


@struct_of
class TransactionState:
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    transaction_state: str = field(STRING)


@message(key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    unknown_state_filters: tuple[str, ...] = field(array(STRING))
    transaction_states: tuple[TransactionState, ...] = field(array(TransactionState))
