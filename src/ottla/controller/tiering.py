"""A topic's tiering state follows from its configuration: remote.storage.enable=true begins it.

The state is decided together with the configuration and is a record of the same step. So far it
only begins: a write after which an enabled topic would not have remote storage is refused.
Source: ConfigurationControlManager, LogConfig.validate, Kafka 3.9; KIP-405, KIP-950.
"""

from collections.abc import Mapping

from ottla.base.errors import ApiError, Error
from ottla.base.ids import INTERNAL_TOPICS, METADATA_TOPIC, Uuid
from ottla.controller.mode_policy import ModePolicy
from ottla.metadata.config_def import invalid_config
from ottla.metadata.features import OTTLA_VERSION, TIERING
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import TopicTieringRecord
from ottla.metadata.tiering import TopicTiering, tiering_record
from ottla.metadata.topic_config import REMOTE_STORAGE, wants_remote_storage


def tiering_change(
    image: ClusterImage,
    mode: ModePolicy,
    topic: str,
    topic_id: Uuid,
    overrides: Mapping[str, str],
) -> TopicTieringRecord | None:
    """Return the record of the state that follows from a topic's whole set of overrides.

    None = the state stays. Raises: ApiError, INVALID_CONFIG where the topic may not have remote
    storage or may not lose it, UNSUPPORTED_VERSION where the cluster cannot hold the state yet.
    """
    before = image.tiering.get(topic_id)
    if not wants_remote_storage(overrides):
        if before is not None and before.copies:
            raise invalid_config(
                f"{REMOTE_STORAGE} of the topic {topic} must stay true: turning remote storage off"
                f" is not supported yet. Expected {REMOTE_STORAGE}=true in a request that replaces"
                " all configs; to give up remote storage, copy the records to a new topic and"
                " delete this one."
            )
        return None
    if topic in INTERNAL_TOPICS or topic == METADATA_TOPIC:
        raise invalid_config(
            f"{REMOTE_STORAGE}=true: the internal topic {topic} cannot have remote storage."
        )
    if before is not None:
        if not before.copies:
            raise invalid_config(f"{REMOTE_STORAGE}=true: enabling it again is not supported yet.")
        return None
    level = mode.ottla_level(image)
    if level < TIERING:
        raise ApiError(
            Error.UNSUPPORTED_VERSION,
            f"{REMOTE_STORAGE}=true needs the feature {OTTLA_VERSION} at level {TIERING}, and the"
            f" cluster has level {level}.",
        )
    return tiering_record(TopicTiering(topic_id=topic_id))
