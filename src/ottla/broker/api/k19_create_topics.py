"""CreateTopics (key 19): create topics, with automatic or manual replica assignment.

Behaviour: each topic has its own result. Many topics are created in parts, with other requests
           served in between; where a later part fails (NOT_CONTROLLER, REQUEST_TIMED_OUT), its
           topics and all later ones get that error, and the earlier ones exist. The response comes
           when all are committed; brokers receive them a moment later. REQUEST_TIMED_OUT where the
           controller's response was lost: they may have been created, and deleted since.
Versions:  v1 validate_only and error messages; v4 -1 for the node's defaults (KIP-464);
           v5 flexible, with configurations and counts (KIP-525); v6 THROTTLING_QUOTA_EXCEEDED;
           v7 topic ids.
Not done:  mutation quotas (KIP-599); policy classes.
"""

from collections import Counter
from collections.abc import Sequence, Set

from ottla.base.authorizer import Access, Operation, ResourceType
from ottla.base.errors import ApiError, Error
from ottla.base.ids import METADATA_TOPIC
from ottla.base.pending import Pending
from ottla.base.turns import Steps
from ottla.broker.api.base import Answer, Api, Context, InSteps, RunsOn
from ottla.broker.api.parts import decide_in_parts
from ottla.broker.ports import Listener
from ottla.controller.topics.create_topics import CreatedTopic, NewTopic, create_topics, parts_of
from ottla.metadata.config_describe import Entry
from ottla.wire.messages import create_topics as wire

CREATE_CLUSTER = Access(Operation.CREATE, ResourceType.CLUSTER)
CREATE_TOPIC = Access(Operation.CREATE, ResourceType.TOPIC)
DESCRIBE_CONFIGS = Access(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC)

API = Api(
    key=19,
    versions=range(8),
    listeners=frozenset({Listener.CLIENT, Listener.CONTROLLER}),
    runs_on=RunsOn.CONTROLLER,
    at_most_once=True,
    access=(CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_CONFIGS),
)


Topics = tuple[CreatedTopic, ...]


@InSteps
def handle(ctx: Context, request: wire.CreateTopicsRequest) -> Steps[Answer]:
    """Decide on the controller; translate."""
    asked = _authorized_names(request)
    refused: Set[str] = frozenset()
    if not ctx.allows(CREATE_CLUSTER):
        refused = ctx.refused(CREATE_TOPIC, asked)
    hidden = ctx.refused(DESCRIBE_CONFIGS, asked)
    wanted = [_wanted(topic) for topic in request.topics if topic.name not in refused]
    denied = tuple(CreatedTopic(name, CREATE_TOPIC.error) for name in sorted(refused))
    context = ctx.controller.context
    try:
        parts = parts_of(wanted, context)
    except ApiError as refusal:
        return _answer(_failed(wanted, refusal) + denied, hidden)
    found = yield from decide_in_parts(
        ctx,
        parts,
        lambda image, part: create_topics(
            image, part, validate_only=request.validate_only, context=context
        ),
        _failed,
    )
    if isinstance(found, Pending):
        return found.map(lambda late: _answer(late + denied, hidden))
    return _answer(found + denied, hidden)


def _authorized_names(request: wire.CreateTopicsRequest) -> list[str]:
    """Return the names to authorize: others are refused by the decision, whoever asks."""
    counts = Counter(topic.name for topic in request.topics)
    return [name for name, count in counts.items() if count == 1 and name != METADATA_TOPIC]


def _wanted(topic: wire.CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=tuple((each.partition_index, each.broker_ids) for each in topic.assignments),
        configs=tuple((each.name, each.value) for each in topic.configs),
    )


def _failed(wanted: Sequence[NewTopic], failure: ApiError) -> Topics:
    names = dict.fromkeys(topic.name for topic in wanted)
    return tuple(CreatedTopic(name, failure.error, failure.message) for name in names)


def _answer(topics: Topics, hidden: Set[str]) -> wire.CreateTopicsResponse:
    # Topics of one request mostly share their configuration.
    configs: dict[int, tuple[wire.CreatableTopicConfigs, ...]] = {}
    for topic in topics:
        if id(topic.configs) not in configs:
            configs[id(topic.configs)] = _configs(topic.configs)
    return wire.CreateTopicsResponse(
        topics=tuple(
            _hidden_result(topic)
            if topic.name in hidden and topic.error is Error.NONE
            else _result(topic, configs[id(topic.configs)])
            for topic in topics
        )
    )


def _configs(entries: tuple[Entry, ...]) -> tuple[wire.CreatableTopicConfigs, ...]:
    return tuple(
        wire.CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
        )
        for entry in entries
    )


def _hidden_result(topic: CreatedTopic) -> wire.CreatableTopicResult:
    """Return the result for a client that may not see the topic's configuration."""
    return wire.CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=Error.NONE,
        topic_config_error_code=DESCRIBE_CONFIGS.error,
        configs=(),
    )


def _result(
    topic: CreatedTopic, configs: tuple[wire.CreatableTopicConfigs, ...]
) -> wire.CreatableTopicResult:
    if topic.error is not Error.NONE:
        return wire.CreatableTopicResult(
            name=topic.name, error_code=topic.error, error_message=topic.message, configs=()
        )
    return wire.CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=Error.NONE,
        num_partitions=topic.partition_count,
        replication_factor=topic.replication_factor,
        configs=configs,
    )
