"""Tiering states that follow from configurations which other tools wrote, in ZooKeeper mode.

A tool that writes `/config/topics/T` writes no tiering state. The controller checks the
configuration as if it had been requested, and adds the state that follows from it: when it has read
the configuration, when it takes over, and when the cluster's level may have risen. What a request
would be refused for has no effect: the state counts, not the configuration.

Source: KIP-950 for the state; Kafka's brokers act by the configuration alone.
"""

from collections.abc import Iterable, Iterator

from ottla.base.errors import ApiError
from ottla.controller.context import DecisionContext
from ottla.controller.mode_policy import ModePolicy
from ottla.controller.step import Decision, Step
from ottla.controller.tiering import OBSERVED, tiering_change
from ottla.metadata.configs import ResourceType
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.features import TIERING, registered_level
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import TopicTieringRecord
from ottla.metadata.topic_config import REMOTE_STORAGE, validate_topic_configs
from ottla.metadata.znodes import paths


def topics_to_check(delta: ClusterDelta, mode: ModePolicy) -> frozenset[str]:
    """Return the topics whose tiering state may have to follow a change."""
    image = delta.image
    if delta.changed_brokers and mode.ottla_level(delta.before) != mode.ottla_level(image):
        return topics_with_remote_storage(image)
    names = {topic.name for topic in delta.created_topics.values()}
    names |= {name for kind, name in delta.changed_configs if kind == ResourceType.TOPIC}
    # What was refused while a topic was DISABLING may be possible now.
    changed = map(image.topics.by_id, delta.changed_tiering)
    names |= {topic.name for topic in changed if topic is not None}
    # Of a topic that waits for its deletion nothing is changed, and the deletion may be cancelled.
    restored = map(image.topics.by_id, delta.changed_deletions)
    names |= {topic.name for topic in restored if topic is not None}
    return frozenset(name for name in names if _is_concerned(image, name))


def topics_with_remote_storage(image: ClusterImage) -> frozenset[str]:
    """Return the topics whose configuration names remote storage, or that have a tiering state."""
    configured = {
        name
        for (kind, name), values in image.configs
        if kind == ResourceType.TOPIC and REMOTE_STORAGE in values
    }
    tiered = map(image.topics.by_id, image.tiering)
    return frozenset(configured.union(topic.name for topic in tiered if topic is not None))


def brokers_without_remote_storage(image: ClusterImage, ids: Iterable[int]) -> list[int]:
    """Return those registered brokers that cannot read the remote segments that there may be."""
    if not image.tiering:
        return []
    brokers = image.brokers
    return [
        each
        for each in sorted(ids)
        if each in brokers and registered_level([brokers[each]]) < TIERING
    ]


def follow_configurations(
    image: ClusterImage, names: Iterable[str], context: DecisionContext
) -> Decision[tuple[str, ...]]:
    """Return the states that topics lack, and why configurations have no effect."""
    records: list[TopicTieringRecord] = []
    problems: list[str] = []
    for name in sorted(names):
        try:
            records += _state_to_add(image, name, context)
        except ApiError as error:
            resource = (int(ResourceType.TOPIC), name)
            reason = (error.message or error.error.name).rstrip(".")
            problems.append(
                f"{paths.config(resource)}: {reason}; the topic's remote storage stays as it is"
            )
    return Decision(Step(tuple(records), atomic=False), tuple(problems))


def _state_to_add(
    image: ClusterImage, name: str, context: DecisionContext
) -> Iterator[TopicTieringRecord]:
    topic_id = image.topics.id_of(name)
    if topic_id is None or not _is_concerned(image, name) or image.is_queued_for_deletion(name):
        return
    overrides = image.configs.of(ResourceType.TOPIC, name)
    validate_topic_configs(overrides, context.config, image)
    record = tiering_change(image, context, name, topic_id, OBSERVED, overrides)
    if record is not None:
        yield record


def _is_concerned(image: ClusterImage, name: str) -> bool:
    if REMOTE_STORAGE in image.configs.of(ResourceType.TOPIC, name):
        return True
    return image.topics.id_of(name) in image.tiering
