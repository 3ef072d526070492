"""Metadata (key 3): the live brokers, and topics with their partitions' leaders and replicas.

Behaviour: addresses are those of the listener that the client is connected to; a leader without it
           is LISTENER_NOT_FOUND. No topics = all (v0) or none (v1+); null = all. Missing topics are
           created where both sides allow it, and are UNKNOWN_TOPIC_OR_PARTITION until they exist;
           __remote_log_metadata is not created for clients.
           Where no broker is live this one is listed: see `live_nodes_or_self`. The controller's id
           is that of any live broker, since each forwards the controller's requests (KIP-590).
           A topic that has or had remote storage comes with its tiered epoch and state (tags 10001
           and 10002, in flexible versions).
           A request of v10 or v11 that has a topic without a name is refused as a whole, topic by
           topic (INVALID_REQUEST).
Versions:  v0 only names live replicas; v4 may forbid auto creation (KIP-487); v5 offline
           replicas; v6 LISTENER_NOT_FOUND instead of LEADER_NOT_AVAILABLE; v7 leader epochs;
           v8 authorized operations (KIP-430), of the cluster until v10; v9 flexible; v10 topic
           ids in responses; v12 topics by id (KIP-516); v13 top-level error (KIP-1102).
Not done:  nothing.
"""

from ottla.base.authorizer import CLUSTER, Access, Operation, ResourceType
from ottla.base.errors import Error
from ottla.base.ids import INTERNAL_TOPICS, NO_UUID, REMOTE_LOG_METADATA_TOPIC, Uuid
from ottla.base.turns import Steps
from ottla.broker.api.base import OPERATIONS_NOT_REQUESTED, Answer, Api, Context, InSteps
from ottla.broker.nodes import (
    leader_of,
    live_nodes_or_self,
    node_of,
    offline_replicas,
)
from ottla.metadata.image import ClusterImage
from ottla.metadata.topic_names import fault_of
from ottla.metadata.topics import PartitionImage, TopicImage
from ottla.wire.messages import metadata as wire

DESCRIBE_TOPIC = Access(Operation.DESCRIBE, ResourceType.TOPIC)
CREATE_CLUSTER = Access(Operation.CREATE, ResourceType.CLUSTER)
CREATE_TOPIC = Access(Operation.CREATE, ResourceType.TOPIC)
DESCRIBE_CLUSTER = Access(Operation.DESCRIBE, ResourceType.CLUSTER)
"""Without it the response says that no operation is authorized."""

API = Api(
    key=3,
    versions=range(14),
    large_answers=True,
    access=(DESCRIBE_TOPIC, CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_CLUSTER),
)


@InSteps
def handle(ctx: Context, request: wire.MetadataRequest) -> Steps[Answer]:
    """Respond from the broker's image; start the creation of missing topics."""
    broker, version = ctx.broker, ctx.version
    if version < 12 and _has_nameless(request):
        return _refusal(request)
    image = broker.image
    listener = ctx.connection.listener_name
    nodes = live_nodes_or_self(image, listener, broker.config.node_id)
    topics = yield from _topics(ctx, request)
    return wire.MetadataResponse(
        brokers=tuple(
            wire.MetadataResponseBroker(
                node_id=node.id, host=node.host, port=node.port, rack=node.rack
            )
            for node in nodes
        ),
        cluster_id=broker.cluster_id,
        controller_id=broker.controller_id,
        topics=topics,
        cluster_authorized_operations=_cluster_operations(ctx, request),
    )


def _cluster_operations(ctx: Context, request: wire.MetadataRequest) -> int:
    if not (8 <= ctx.version <= 10 and request.include_cluster_authorized_operations):
        return OPERATIONS_NOT_REQUESTED
    return ctx.authorized_operations(CLUSTER) if ctx.allows(DESCRIBE_CLUSTER) else 0


def _has_nameless(request: wire.MetadataRequest) -> bool:
    """Tell whether a topic lacks a name or has an id: ids in v10 and v11 are for responses only."""
    return request.topics is not None and any(
        each.name is None or each.topic_id != NO_UUID for each in request.topics
    )


def _refusal(request: wire.MetadataRequest) -> wire.MetadataResponse:
    """Refuse each topic, in a response without brokers, as Kafka does."""
    return wire.MetadataResponse(
        brokers=(),
        topics=tuple(
            wire.MetadataResponseTopic(
                error_code=Error.INVALID_REQUEST,
                name=each.name or "",
                topic_id=each.topic_id,
                partitions=(),
            )
            for each in request.topics or ()
        ),
    )


def _topics(
    ctx: Context, request: wire.MetadataRequest
) -> Steps[tuple[wire.MetadataResponseTopic, ...]]:
    image = ctx.broker.client_image
    describer = _TopicDescriber(
        ctx, image, with_operations=request.include_topic_authorized_operations
    )
    described_topics: list[wire.MetadataResponseTopic] = []
    if request.topics is None or (ctx.version == 0 and not request.topics):
        refused = ctx.refused(DESCRIBE_TOPIC, (each.name for each in image.topics))
        for each in image.topics:
            if each.name in refused:
                continue
            described = yield from describer.topic(each)
            described_topics.append(described)
        return tuple(described_topics)
    ids = list(dict.fromkeys(each.topic_id for each in request.topics if each.topic_id != NO_UUID))
    if ids:
        # A request names topics by id or by name; with any id, the names are ignored.
        known = (image.topics.by_id(topic_id) for topic_id in ids)
        refused = ctx.refused(DESCRIBE_TOPIC, (each.name for each in known if each is not None))
        for topic_id in ids:
            topic = image.topics.by_id(topic_id)
            if topic is None:
                described_topics.append(describer.missing(None, Error.UNKNOWN_TOPIC_ID, topic_id))
                yield
            elif topic.name in refused:
                described_topics.append(_refused(None, topic_id))
                yield
            else:
                described_topics.append((yield from describer.topic(topic)))
        return tuple(described_topics)
    names = dict.fromkeys(each.name for each in request.topics if each.name is not None)
    refused = ctx.refused(DESCRIBE_TOPIC, names)
    missing = [name for name in names if name not in image.topics and name not in refused]
    missing = [name for name in missing if name != REMOTE_LOG_METADATA_TOPIC]
    yield
    errors: dict[str, Error] = {}
    creates = request.allow_auto_topic_creation and ctx.broker.config["auto.create.topics.enable"]
    if missing and creates:
        if not ctx.allows(CREATE_CLUSTER):
            denied = ctx.refused(CREATE_TOPIC, missing)
            errors |= dict.fromkeys(denied, CREATE_TOPIC.error)
            missing = [name for name in missing if name not in denied]
        errors |= ctx.broker.auto_create.create(missing)
    for name in names:
        topic = image.topics.by_name(name)
        if name in refused:
            described_topics.append(_refused(name))
            yield
        elif topic is None:
            described_topics.append(describer.missing(name, errors.get(name) or _why_missing(name)))
            yield
        else:
            described_topics.append((yield from describer.topic(topic)))
    return tuple(described_topics)


def _refused(name: str | None, topic_id: Uuid = NO_UUID) -> wire.MetadataResponseTopic:
    """Return the entry of a topic that may or may not exist."""
    return wire.MetadataResponseTopic(
        error_code=DESCRIBE_TOPIC.error, name=name, topic_id=topic_id, partitions=()
    )


PARTITIONS_PER_STEP = 64


def _why_missing(name: str) -> Error:
    if fault_of(name) is not None:
        return Error.INVALID_TOPIC_EXCEPTION
    return Error.UNKNOWN_TOPIC_OR_PARTITION


class _TopicDescriber:
    """Builds the topics of one response."""

    def __init__(self, ctx: Context, image: ClusterImage, *, with_operations: bool) -> None:
        self._ctx = ctx
        self._image = image
        self._listener = ctx.connection.listener_name
        self._version = ctx.version
        self._with_operations = with_operations
        # Most partitions have the same few brokers: each is looked up once.
        self._alive: dict[int, bool] = {}
        self._leaders: dict[int, int] = {}
        self._offline: dict[tuple[tuple[int, ...], tuple[Uuid, ...]], tuple[int, ...]] = {}

    def topic(self, topic: TopicImage) -> Steps[wire.MetadataResponseTopic]:
        partitions: list[wire.MetadataResponsePartition] = []
        for partition_id, state in topic.in_order():
            partitions.append(self._partition(partition_id, state))
            if not len(partitions) % PARTITIONS_PER_STEP:
                yield
        yield
        tiering = self._image.tiering.get(topic.id)
        return wire.MetadataResponseTopic(
            error_code=0,
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=tuple(partitions),
            topic_authorized_operations=self._operations(topic.name),
            tiered_epoch=0 if tiering is None else tiering.tiered_epoch,
            tiering_state=0 if tiering is None else tiering.state,
        )

    def missing(
        self, name: str | None, error: Error, topic_id: Uuid = NO_UUID
    ) -> wire.MetadataResponseTopic:
        return wire.MetadataResponseTopic(
            error_code=error,
            name=name,
            topic_id=topic_id,
            is_internal=name in INTERNAL_TOPICS,
            partitions=(),
            topic_authorized_operations=self._operations(name),
        )

    def _operations(self, name: str | None) -> int:
        if name is None or not self._with_operations:
            return OPERATIONS_NOT_REQUESTED
        return self._ctx.authorized_topic_operations(name)

    def _partition(
        self, partition_id: int, state: PartitionImage
    ) -> wire.MetadataResponsePartition:
        replicas, isr = state.replicas, state.isr
        leader = self._leaders.get(state.leader)
        if leader is None:
            leader = leader_of(self._image, state, self._listener)
            self._leaders[state.leader] = leader
        places = (replicas, state.directories)
        offline = self._offline.get(places)
        if offline is None:
            offline = offline_replicas(self._image, state, self._listener)
            self._offline[places] = offline
        error = Error.NONE
        if self._version == 0:
            replicas, isr = self._live(replicas), self._live(isr)
            if len(replicas) < len(state.replicas) or len(isr) < len(state.isr):
                error = Error.REPLICA_NOT_AVAILABLE
        if leader < 0:
            error = self._why_no_leader(state)
        return wire.MetadataResponsePartition(
            error_code=error,
            partition_index=partition_id,
            leader_id=leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=offline,
        )

    def _why_no_leader(self, state: PartitionImage) -> Error:
        if state.leader not in self._image.brokers or self._version < 6:
            return Error.LEADER_NOT_AVAILABLE
        return Error.LISTENER_NOT_FOUND

    def _live(self, nodes: tuple[int, ...]) -> tuple[int, ...]:
        for node_id in nodes:
            if node_id not in self._alive:
                node = node_of(self._image, node_id, self._listener)
                self._alive[node_id] = node is not None
        return tuple(node_id for node_id in nodes if self._alive[node_id])
