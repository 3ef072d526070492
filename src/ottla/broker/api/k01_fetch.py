"""Fetch (key 1): read record batches; on a controller's listener, the metadata log.

Behaviour: partitions in the order of the request, or of the session (KIP-227), where those that
           returned records go last; waits for min_bytes until max_wait_ms; the first batch is sent
           whatever its size (KIP-74). Records are sent as slices of the log's files. Followers
           read to the log's end, and their fetch offset is their log end. Consumers may read from
           any replica; replica.selector.class directs them to one of their rack (KIP-392). What
           is below the local log start comes from the remote tier, as bytes (KIP-405); followers
           get OFFSET_MOVED_TO_TIERED_STORAGE for it.
Versions:  v4 isolation level; v5 log start; v7 sessions; v9 leader epochs (KIP-320);
           v10 zstd (KIP-110); v11 rack; v12 flexible, diverging epoch (KIP-595); v13 topics by
           id (KIP-516); v15 replica state (KIP-903); v16 the new leader and its address
           (KIP-951); v17 directory id (KIP-853); v18 high watermark (KIP-1166).
Not done:  quotas.
"""

from ottla.base.authorizer import ALLOW_ALL, Access, Operation, ResourceType
from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_UUID
from ottla.base.pending import Pending
from ottla.base.turns import Steps, at_once
from ottla.broker.api.base import EVERYWHERE, Answer, Api, Context, InSteps
from ottla.broker.fetch.delayed_fetch import NO_WAIT, FetchLimits, Reads
from ottla.broker.fetch.fetch_sessions import Fetching, FetchPartition, Key
from ottla.broker.fetch.reading import NO_REPLICA, PartitionRead
from ottla.broker.nodes import node_of, partition_state
from ottla.broker.ports import Listener
from ottla.records.compression import Codec
from ottla.wire.messages import fetch as wire

READ_TOPIC = Access(Operation.READ, ResourceType.TOPIC)
REPLICATE = Access(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
"""Of followers: they get the error of topics."""
REPLICATE_METADATA = Access(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
"""On a controller."""

API = Api(
    key=1,
    versions=range(4, 19),
    listeners=EVERYWHERE,
    access=(READ_TOPIC, REPLICATE, REPLICATE_METADATA),
)

READ_COMMITTED = 1

Asked = dict[Key, FetchPartition]


PARTITIONS_PER_STEP = 64


@InSteps
def handle(ctx: Context, request: wire.FetchRequest) -> Steps[Answer]:
    """Respond with the records that are there, or wait for more."""
    connection = ctx.connection
    if connection.listener is Listener.CONTROLLER:
        if not ctx.allows(REPLICATE_METADATA):
            return wire.FetchResponse(error_code=REPLICATE_METADATA.error, responses=())
        return ctx.quorum.fetch(ctx, request)
    broker, version = ctx.broker, ctx.version
    replica_id, replica_epoch = request.replica_id, -1
    if version >= 15:
        replica_id, replica_epoch = (
            request.replica_state.replica_id,
            request.replica_state.replica_epoch,
        )
    requested: Asked = {}
    for topic in request.topics:
        for begin in range(0, len(topic.partitions), PARTITIONS_PER_STEP):
            _ask(requested, topic, topic.partitions[begin : begin + PARTITIONS_PER_STEP])
            yield
    fetching = broker.sessions.open(
        requested,
        _forgotten(request) if request.forgotten_topics_data else (),
        session_id=request.session_id,
        epoch=request.session_epoch,
        uses_topic_ids=version >= 13,
        privileged=replica_id >= 0,
        now_ms=ctx.now_ms,
    )
    if isinstance(fetching, Error):
        return wire.FetchResponse(error_code=fetching, responses=())
    max_bytes = min(request.max_bytes, broker.config["fetch.max.bytes"])
    limits = FetchLimits(
        request.max_wait_ms,
        min(request.min_bytes, max_bytes),
        max_bytes,
        request.isolation_level == READ_COMMITTED and replica_id < 0,
        replica_id,
        replica_epoch,
        version >= 11,
        request.rack_id,
        connection.listener_name,
        connection.closed,
    )
    reads: Reads | Pending[Reads]
    if ctx.authorizer is not ALLOW_ALL and (refused := _refused(ctx, fetching, replica_id)):
        reads = yield from _read_rest(ctx, fetching, limits, refused)
    else:
        reads = yield from broker.replicas.fetch_reader.fetch_in_steps(
            fetching, limits, connection.closed
        )
    if isinstance(reads, Pending):
        return reads.map(lambda late: at_once(_answer(ctx, fetching, late)))
    try:
        return (yield from _answer(ctx, fetching, reads))
    except GeneratorExit:  # The connection is gone.
        _release_unsent(reads, [])
        raise


def _refused(ctx: Context, fetching: Fetching, replica_id: int) -> Asked:
    """Return the partitions that the principal may not read, of the whole session."""
    if replica_id >= 0:
        return {} if ctx.allows(REPLICATE) else dict(fetching.partitions)
    names: dict[Key, str] = {}
    for key, each in fetching.partitions.items():
        topic = None if each.topic else ctx.broker.image.topics.by_id(each.topic_id)
        name = each.topic if topic is None else topic.name
        if name:
            names[key] = name
    refused = ctx.refused(READ_TOPIC, names.values())
    return {key: fetching.partitions[key] for key, name in names.items() if name in refused}


def _read_rest(
    ctx: Context, fetching: Fetching, limits: FetchLimits, refused: Asked
) -> Steps[Reads]:
    """Read the other partitions without a wait, as there are errors to respond with."""
    rest = {key: each for key, each in fetching.partitions.items() if key not in refused}
    denied = [(each, PartitionRead(READ_TOPIC.error)) for each in refused.values()]
    if not rest:
        return denied
    reads = yield from ctx.broker.replicas.fetch_reader.fetch_in_steps(
        Fetching(rest), limits._replace(max_wait_ms=NO_WAIT), ctx.connection.closed
    )
    assert not isinstance(reads, Pending)
    return [*reads, *denied]


def _ask(
    requested: Asked, topic: wire.FetchTopic, partitions: tuple[wire.FetchPartition, ...]
) -> None:
    name, topic_id = topic.topic, topic.topic_id
    for each in partitions:
        partition = FetchPartition(
            name,
            topic_id,
            each.partition,
            each.fetch_offset,
            each.partition_max_bytes,
            each.current_leader_epoch,
            each.last_fetched_epoch,
            each.log_start_offset,
        )
        requested[partition.key] = partition


def _forgotten(request: wire.FetchRequest) -> list[Key]:
    return [
        (topic.topic if topic.topic_id == NO_UUID else topic.topic_id, partition_id)
        for topic in request.forgotten_topics_data
        for partition_id in topic.partitions
    ]


def _answer(ctx: Context, fetching: Fetching, reads: Reads) -> Steps[wire.FetchResponse]:
    if ctx.version < 10:
        reads = _without_zstd(ctx, reads)
    error, session_id, sent = fetching.finish(reads, ctx.broker.clock.now_ms())
    if len(sent) < len(reads):
        _release_unsent(reads, sent)
    endpoints: dict[int, wire.NodeEndpoint] = {}
    responses: list[wire.FetchableTopicResponse] = []
    partitions: list[wire.PartitionData] = []
    topic: FetchPartition | None = None
    for count, (requested, found) in enumerate(sent, 1):
        if count % PARTITIONS_PER_STEP == 0:
            yield
        # Neighbours of one topic share an entry; the order of partitions stays.
        if topic is None or requested.topic_id != topic.topic_id or requested.topic != topic.topic:
            if topic is not None:
                responses.append(_topic(topic, partitions))
            topic, partitions = requested, []
        is_plain = found.error is _NONE and found.diverging is None and found.preferred < 0
        if is_plain and not found.aborted:
            partitions.append(
                wire.PartitionData(
                    partition_index=requested.partition_id,
                    error_code=0,
                    high_watermark=found.high_watermark,
                    last_stable_offset=found.last_stable_offset,
                    log_start_offset=found.log_start_offset,
                    aborted_transactions=found.aborted,  # type: ignore[arg-type]
                    records=found.records,
                )
            )
        else:
            partitions.append(_special(ctx, requested, found, endpoints))
    if topic is not None:
        responses.append(_topic(topic, partitions))
    if not endpoints:
        return wire.FetchResponse(
            error_code=error, session_id=session_id, responses=tuple(responses)
        )
    return wire.FetchResponse(
        error_code=error,
        session_id=session_id,
        responses=tuple(responses),
        node_endpoints=tuple(endpoints.values()),
    )


_NONE = Error.NONE


def _topic(
    topic: FetchPartition, partitions: list[wire.PartitionData]
) -> wire.FetchableTopicResponse:
    return wire.FetchableTopicResponse(
        topic=topic.topic, topic_id=topic.topic_id, partitions=tuple(partitions)
    )


PLAIN = wire.PartitionData(partition_index=0, error_code=0, high_watermark=0, records=None)
"""Holds the default objects of the tagged fields, which the encoder recognizes by identity."""


def _special(
    ctx: Context,
    requested: FetchPartition,
    found: PartitionRead,
    endpoints: dict[int, wire.NodeEndpoint],
) -> wire.PartitionData:
    """Return the response of a partition with an error, a diverging log or aborted transactions."""
    diverging, error, leader = PLAIN.diverging_epoch, found.error, PLAIN.current_leader
    if error is Error.KAFKA_STORAGE_ERROR and ctx.version <= 5:
        # Clients of these versions do not know the code, and retry this one.
        error = Error.NOT_LEADER_OR_FOLLOWER
    if ctx.version >= 16 and error in LEADER_ERRORS:
        leader = _leader(ctx, requested, endpoints)
    if error is not _NONE:
        ctx.broker.partition_errors.add(API.key, error)
    if found.diverging is not None:
        epoch, end_offset = found.diverging
        diverging = wire.EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return wire.PartitionData(
        partition_index=requested.partition_id,
        error_code=error,
        high_watermark=found.high_watermark,
        last_stable_offset=found.last_stable_offset,
        log_start_offset=found.log_start_offset,
        aborted_transactions=None if found.aborted is None else _aborted(found.aborted),
        records=found.records,
        diverging_epoch=diverging,
        current_leader=leader,
        preferred_read_replica=found.preferred if ctx.version >= 11 else NO_REPLICA,
    )


def _aborted(aborted: tuple[tuple[int, int], ...]) -> tuple[wire.AbortedTransaction, ...]:
    return tuple(
        wire.AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
        for producer_id, first_offset in aborted
    )


LEADER_ERRORS = frozenset({Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH})


def _leader(
    ctx: Context, requested: FetchPartition, endpoints: dict[int, wire.NodeEndpoint]
) -> wire.LeaderIdAndEpoch:
    """Return who leads now, and note its address for the response."""
    image = ctx.broker.image
    state = partition_state(image, requested.topic, requested.topic_id, requested.partition_id)
    if state is None:
        return PLAIN.current_leader
    node = node_of(image, state.leader, ctx.connection.listener_name)
    if node is not None:
        endpoints[node.id] = wire.NodeEndpoint(
            node_id=node.id, host=node.host, port=node.port, rack=node.rack
        )
    return wire.LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)


def _without_zstd(ctx: Context, reads: Reads) -> Reads:
    """Refuse partitions whose topic compresses with zstd, which such an old client cannot read.

    A batch that a producer compressed with zstd in a topic of another setting gets through, as in
    Kafka: checking every batch would cost too much for such clients.
    """
    checked: Reads = []
    for requested, found in reads:
        if found.size:
            refused = _NONE
            try:
                log = ctx.broker.replicas.partition_for(requested).log
                if log is not None and log.config.codec is Codec.ZSTD:
                    refused = Error.UNSUPPORTED_COMPRESSION_TYPE
            except ApiError as refusal:  # It was deleted since it was read, in steps.
                refused = refusal.error
            if refused is not _NONE:
                found.release()
                found = PartitionRead(refused)
        checked.append((requested, found))
    return checked


def _release_unsent(reads: Reads, sent: Reads) -> None:
    """Unpin the reads of partitions that the response leaves out."""
    kept = {id(found) for _, found in sent}
    for _, found in reads:
        if found.records and id(found) not in kept:
            found.release()
