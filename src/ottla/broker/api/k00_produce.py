"""Produce (key 0): append record batches to partitions that this broker leads.

Behaviour: each partition by itself, in the order given; one batch of format 2 a partition.
           acks=0 has no response, and a failure closes the connection, so that the client notices.
           acks=all waits until the in-sync replicas have it.
           Only Kafka's admin client may write to internal topics, but for the metadata of remote
           segments, which brokers write. More than PRODUCE_ELEMENTS_MAX topics and partitions end
           the connection.
Versions:  v3 transactional id, format 2 only; v5 log start; v7 zstd (KIP-110); v8 what is
           wrong with which record (KIP-467); v9 flexible; v10 the new leader and its address
           on NOT_LEADER_OR_FOLLOWER (KIP-951); v11, v12 transaction errors (KIP-890);
           v13 topics by id (KIP-516). Advertised from v0, as Kafka does (KAFKA-18659): librdkafka
           stops compressing for a broker without v0; v0 to v2 end the connection.
Not done:  transactions: their batches are refused with INVALID_TXN_STATE. Quotas.
"""

import logging
import struct
from collections.abc import Iterator, Set

from ottla.base.authorizer import ALLOW_ALL, Access, Operation, ResourceType
from ottla.base.errors import ApiError, Error
from ottla.base.ids import INTERNAL_TOPICS, REMOTE_LOG_METADATA_TOPIC, Uuid
from ottla.base.limits import PRODUCE_ELEMENTS_MAX
from ottla.base.pending import Pending
from ottla.base.ports import Buffer
from ottla.broker.api.base import (
    NO_ANSWER,
    NOTHING_REFUSED,
    Answer,
    Api,
    Context,
)
from ottla.broker.nodes import node_of, partition_state
from ottla.broker.partition import ACKS_ALL, Partition
from ottla.broker.ports import CloseConnection
from ottla.broker.produce.delayed_produce import AppendResult
from ottla.records.batch import CODEC_MASK, HEADER_SIZE, LOG_OVERHEAD, MAGIC, TRANSACTIONAL_BIT
from ottla.records.compression import Codec
from ottla.wire.messages import produce as wire

logger = logging.getLogger(__name__)

WRITE_TOPIC = Access(Operation.WRITE, ResourceType.TOPIC)
WRITE_TRANSACTIONAL_ID = Access(Operation.WRITE, ResourceType.TRANSACTIONAL_ID)

API = Api(
    key=0,
    versions=range(3, 14),
    advertised=range(14),
    client_elements_max=PRODUCE_ELEMENTS_MAX,
    access=(WRITE_TOPIC, WRITE_TRANSACTIONAL_ID),
)

ADMIN_CLIENT_ID = "__admin_client"

_peek = struct.Struct(">8xi4xb4xh").unpack_from
"""Length, magic and attributes of a record batch."""

Shape = list[tuple[str, Uuid, list[int]]]
"""(name, id, partition ids) of each topic of the request: all that a late response needs of it. The
request itself must not be kept, as its records are in the connection's receive buffer."""

NO_TRANSACTIONS = "transactions are not available on this broker"


def handle(ctx: Context, request: wire.ProduceRequest) -> Answer:
    """Append all batches; respond at once, or when the replicas have them."""
    shape: Shape = [
        (topic.name, topic.topic_id, [each.index for each in topic.partition_data])
        for topic in request.topic_data
    ]
    acks = request.acks
    if acks not in (0, 1, ACKS_ALL):
        refused = AppendResult(Error.INVALID_REQUIRED_ACKS)
        return answer(ctx, shape, [refused for _, _, partition_ids in shape for _ in partition_ids])
    if ctx.authorizer is not ALLOW_ALL and not _may_use_transaction(ctx, request):
        refused = AppendResult(WRITE_TRANSACTIONAL_ID.error)
        results: list[AppendResult | None] = [
            refused for _, _, partition_ids in shape for _ in partition_ids
        ]
        batches: list[tuple[Partition, Buffer]] = []
    else:
        results, batches = _sort(ctx, request)
    appended = ctx.broker.replicas.append_all(
        batches, acks=acks, timeout_ms=request.timeout_ms, closed=ctx.connection.closed
    )
    if not isinstance(appended, Pending):
        merged = _merge(results, appended)
    elif appended.done:
        merged = _merge(results, appended.value)
    elif acks == 0:
        return appended.map(lambda late: _unanswered(ctx, _merge(results, late)))
    else:
        return appended.map(lambda late: answer(ctx, shape, _merge(results, late)))
    if acks != 0:
        return answer(ctx, shape, merged)
    failed = _first_failure(merged)
    if failed is not None:
        raise CloseConnection(f"produce with acks=0 failed: {failed.error.name}")
    return None


def _may_use_transaction(ctx: Context, request: wire.ProduceRequest) -> bool:
    """Tell whether the client may write in its transaction, if it does."""
    transactional = any(
        isinstance(each.records, memoryview | bytes | bytearray)
        and len(each.records) >= HEADER_SIZE
        and _peek(each.records)[2] & TRANSACTIONAL_BIT
        for topic in request.topic_data
        for each in topic.partition_data
    )
    if not transactional:
        return True
    name = request.transactional_id
    return name is not None and ctx.allows(WRITE_TRANSACTIONAL_ID, name)


def _unanswered(ctx: Context, results: list[AppendResult]) -> Answer:
    """Return NO_ANSWER after success; None, which closes the connection, after a failure."""
    failed = _first_failure(results)
    if failed is None:
        return NO_ANSWER
    logger.info("%s: produce with acks=0 failed: %s", ctx.connection.id, failed.error.name)
    return None


def _first_failure(results: list[AppendResult]) -> AppendResult | None:
    return next((result for result in results if result.error is not Error.NONE), None)


def _sort(
    ctx: Context, request: wire.ProduceRequest
) -> tuple[list[AppendResult | None], list[tuple[Partition, Buffer]]]:
    """Return a result for each partition, None where its batch is valid, and the valid batches."""
    replicas, version = ctx.broker.replicas, ctx.version
    refused: Set[str] = NOTHING_REFUSED
    if ctx.authorizer is not ALLOW_ALL:  # Names are not even collected: this is the hot path.
        refused = ctx.refused(WRITE_TOPIC, _topic_names(ctx, request))
    results: list[AppendResult | None] = []
    batches: list[tuple[Partition, Buffer]] = []
    for topic in request.topic_data:
        name, topic_id = topic.name, topic.topic_id
        if refused and _topic_name(ctx, topic) in refused:
            # Before the lookup, which would tell what exists, and where.
            results += [AppendResult(WRITE_TOPIC.error)] * len(topic.partition_data)
            continue
        for each in topic.partition_data:
            data = each.records
            try:
                if version >= 13:
                    partition = replicas.partition_by_id(topic_id, each.index)
                else:
                    partition = replicas.partition(name, each.index)
                if partition.topic in INTERNAL_TOPICS:
                    _check_internal(ctx, partition.topic)
                check_batch(data, version)
            except ApiError as refusal:
                results.append(AppendResult(refusal.error, refusal.message))
            else:
                results.append(None)
                batches.append((partition, data))  # type: ignore[arg-type]
    return results, batches


def _topic_names(ctx: Context, request: wire.ProduceRequest) -> Iterator[str]:
    names = (_topic_name(ctx, topic) for topic in request.topic_data)
    return (name for name in names if name is not None)


def _topic_name(ctx: Context, topic: wire.TopicProduceData) -> str | None:
    """Return the name of a topic in the request; None = its id is unknown."""
    if ctx.version < 13:
        return topic.name
    found = ctx.broker.image.topics.by_id(topic.topic_id)
    return None if found is None else found.name


def _check_internal(ctx: Context, topic: str) -> None:
    # Brokers write to the metadata of remote segments as clients do, in Kafka too.
    if topic != REMOTE_LOG_METADATA_TOPIC and ctx.header.client_id != ADMIN_CLIENT_ID:
        raise ApiError(
            Error.INVALID_TOPIC_EXCEPTION,
            f"clients do not write to the internal topic {topic}",
        )


def check_batch(data: object, version: int) -> None:
    """Raise ApiError unless this is one batch that this version may carry.

    Only what depends on the request is checked here; the log checks the batch itself.
    """
    if not isinstance(data, memoryview | bytes | bytearray) or len(data) < HEADER_SIZE:
        raise ApiError(Error.INVALID_RECORD, "there must be one record batch for each partition")
    length, magic, attributes = _peek(data)
    if magic != MAGIC:
        raise ApiError(Error.INVALID_RECORD, f"message format {magic} is not supported")
    if length + LOG_OVERHEAD != len(data):
        raise ApiError(
            Error.INVALID_RECORD, "there must be exactly one record batch for each partition"
        )
    if attributes & TRANSACTIONAL_BIT:
        raise ApiError(Error.INVALID_TXN_STATE, NO_TRANSACTIONS)
    if version < 7 and attributes & CODEC_MASK == Codec.ZSTD:
        raise ApiError(Error.UNSUPPORTED_COMPRESSION_TYPE)


def _merge(results: list[AppendResult | None], appended: list[AppendResult]) -> list[AppendResult]:
    """Put the log's results where `results` has None."""
    if len(appended) == len(results):
        return appended
    late = iter(appended)
    return [next(late) if result is None else result for result in results]


def answer(ctx: Context, shape: Shape, results: list[AppendResult]) -> wire.ProduceResponse:
    """Return the response: a result for each partition of `shape`, in order."""
    in_order = iter(results)
    endpoints: dict[int, wire.NodeEndpoint] = {}
    topics: list[wire.TopicProduceResponse] = []
    for name, topic_id, partition_ids in shape:
        partitions: list[wire.PartitionProduceResponse] = []
        for partition_id in partition_ids:
            result = next(in_order)
            if result.error is _NONE:
                partitions.append(
                    wire.PartitionProduceResponse(
                        index=partition_id,
                        error_code=0,
                        base_offset=result.base_offset,
                        log_append_time_ms=result.log_append_time_ms,
                        log_start_offset=result.log_start_offset,
                    )
                )
                continue
            leader = NO_NEWS
            if ctx.version >= 10 and result.error is Error.NOT_LEADER_OR_FOLLOWER:
                leader = _leader(ctx, name, topic_id, partition_id, endpoints)
            partitions.append(_refusal(ctx, topic_id, partition_id, result, leader))
        topics.append(
            wire.TopicProduceResponse(
                name=name, topic_id=topic_id, partition_responses=tuple(partitions)
            )
        )
    if endpoints:
        nodes = tuple(endpoints.values())
        return wire.ProduceResponse(responses=tuple(topics), node_endpoints=nodes)
    return wire.ProduceResponse(responses=tuple(topics))


_NONE = Error.NONE
NO_NEWS = wire.PartitionProduceResponse(index=0, error_code=0, base_offset=0).current_leader
"""The default object, which the encoder recognizes by identity."""


def _refusal(
    ctx: Context,
    topic_id: Uuid,
    partition_id: int,
    result: AppendResult,
    leader: wire.LeaderIdAndEpoch,
) -> wire.PartitionProduceResponse:
    error, message = result.error, result.message
    by_id = ctx.version >= 13
    gone = by_id and ctx.broker.image.topics.by_id(topic_id) is None
    if error is Error.UNKNOWN_TOPIC_OR_PARTITION and gone:
        # The topic was deleted while the batch waited for its replicas.
        error, message = Error.UNKNOWN_TOPIC_ID, None
    ctx.broker.partition_errors.add(API.key, error)
    return wire.PartitionProduceResponse(
        index=partition_id,
        error_code=error,
        base_offset=-1,
        log_start_offset=result.log_start_offset,
        record_errors=tuple(
            wire.BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=what)
            for at, what in result.record_errors
        ),
        error_message=None if message == error.message else message,
        current_leader=leader,
    )


def _leader(
    ctx: Context,
    name: str,
    topic_id: Uuid,
    partition_id: int,
    endpoints: dict[int, wire.NodeEndpoint],
) -> wire.LeaderIdAndEpoch:
    """Return who leads now, and note its address for the response."""
    image = ctx.broker.image
    state = partition_state(image, name, topic_id, partition_id)
    if state is None:
        return NO_NEWS
    node = node_of(image, state.leader, ctx.connection.listener_name)
    if node is not None:
        endpoints[node.id] = wire.NodeEndpoint(
            node_id=node.id, host=node.host, port=node.port, rack=node.rack
        )
    return wire.LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)
