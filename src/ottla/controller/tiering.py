"""A topic's tiering state follows from its configuration: on, off, and on again.

The state is decided together with the configuration, and is a record of the same step. Where a
configuration leads is a table (`tiering_states`); here are the checks beside it, and what a
transition does to epoch, policy and floor:

- Each transition into ENABLED and into DISABLING raises the tiered epoch.
- The policy is stored with the transition: a later change of the configuration does not affect it.
- A disablement with delete raises the floor to the epoch before it: these segments are dead, those
  that a disablement with retain has kept are not.

While a topic is DISABLING its tiering configuration cannot be changed; requests that repeat it, as
AlterConfigs does, succeed. Brokers acknowledge (`controller.disabling`), and then it is DISABLED.
Source: KIP-950, draft and Kafka 3.9; ConfigurationControlManager, LogConfig.validate.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ottla.base.errors import ApiError, Error
from ottla.base.ids import INTERNAL_TOPICS, METADATA_TOPIC, Uuid
from ottla.controller.context import DecisionContext
from ottla.controller.tiering_states import (
    BY_ACKNOWLEDGEMENT,
    BY_CONFIGURATION,
    Refusal,
    Standing,
    standing_of,
)
from ottla.metadata.config_def import invalid_config
from ottla.metadata.features import OTTLA_VERSION, TIERING
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import TopicTieringRecord
from ottla.metadata.remote_definitions import STORAGE_URI
from ottla.metadata.tiering import DisablePolicy, TieringState, TopicTiering, tiering_record
from ottla.metadata.tiering_config import (
    TIERING_NAMES,
    TieringConfig,
    tiering_config,
    tiering_config_if_valid,
)
from ottla.metadata.topic_config import DISABLE_POLICY, REMOTE_STORAGE, topic_values
from ottla.metadata.topic_names import DIRECTORY_STORE_NAME_LENGTH_MAX

OBSERVED: Final = None
"""In place of the overrides before: others wrote the new ones, and the old ones are not known."""


def tiering_change(
    image: ClusterImage,
    context: DecisionContext,
    topic: str,
    topic_id: Uuid,
    before: Mapping[str, str] | None,
    overrides: Mapping[str, str],
) -> TopicTieringRecord | None:
    """Return the record of the state that follows from a topic's whole set of overrides.

    `overrides`: checked by `validate_topic_configs`; `before`: those that they replace.
    None = the state stays. Raises: ApiError.
    TIERED_STORAGE_DISABLEMENT_IN_PROGRESS: the topic is DISABLING and this would change it;
    INVALID_REQUEST: names that contradict each other, or what was deleted is to be retained;
    INVALID_CONFIG: the topic may not have remote storage, or not with this configuration, or not in
    a directory, by its name;
    UNSUPPORTED_VERSION: the cluster's level is too low.
    """
    known = image.tiering.get(topic_id)
    standing = standing_of(known)
    asked = None if before is OBSERVED else tiering_config_if_valid(before)
    try:
        wanted = tiering_config(overrides)
    except ApiError:
        if before is not OBSERVED and all(
            before.get(each) == overrides.get(each) for each in TIERING_NAMES
        ):
            return None  # A tool wrote this; a request that leaves it as it is is not to blame.
        raise
    if standing.is_disabling and before is not OBSERVED:
        if asked is None or not asked.means(wanted):
            raise _in_progress(topic, known)
        target = standing  # Also where a tool changed the configuration meanwhile.
    else:
        target = _next_standing(topic, known, standing, wanted)
    if wanted.enable and (topic in INTERNAL_TOPICS or topic == METADATA_TOPIC):
        raise invalid_config(
            f"{REMOTE_STORAGE}=true: the internal topic {topic} cannot have remote storage."
        )
    if target is standing:
        _check_compaction(image, context, topic, known, overrides)
        return None
    _check_level(image, context, target)
    _check_name(context, topic, target)
    tiering = _entered(known or TopicTiering(topic_id=topic_id), standing, target)
    _check_compaction(image, context, topic, tiering, overrides)
    return tiering_record(tiering)


def disabled(tiering: TopicTiering) -> TopicTiering:
    """Return the state of a topic after the last acknowledgement."""
    after = BY_ACKNOWLEDGEMENT[standing_of(tiering)]
    assert after.state is not None
    return replace(tiering, state=after.state)


def _entered(tiering: TopicTiering, source: Standing, target: Standing) -> TopicTiering:
    """Return the state after a transition that a configuration asks for."""
    assert target.state in (TieringState.ENABLED, TieringState.DISABLING)
    if source is Standing.NEVER_TIERED:
        return tiering
    epoch, floor, pending = (
        tiering.tiered_epoch,
        tiering.remote_floor_epoch,
        tiering.purge_pending,
    )
    if target is Standing.DISABLING_DELETE:
        floor, pending = epoch, True
    return replace(
        tiering,
        state=target.state,
        policy=target.policy,
        tiered_epoch=epoch + 1,
        remote_floor_epoch=floor,
        purge_pending=pending,
    )


def _next_standing(
    topic: str, known: TopicTiering | None, standing: Standing, wanted: TieringConfig
) -> Standing:
    target = BY_CONFIGURATION[standing][wanted.target]
    if isinstance(target, Standing):
        return target
    if target is Refusal.IN_PROGRESS:
        raise _in_progress(topic, known)
    assert target is Refusal.DELETED
    assert known is not None
    # Without a remote segment, and without the name, nothing is asked for.
    if known.purge_pending and wanted.names_policy and not wanted.enable:
        raise ApiError(
            Error.INVALID_REQUEST,
            f"{DISABLE_POLICY}=retain: the remote segments of the topic {topic} are deleted"
            f" already. Remove {DISABLE_POLICY}, or set {REMOTE_STORAGE}=true to begin again.",
        )
    return standing


def _in_progress(topic: str, known: TopicTiering | None) -> ApiError:
    assert known is not None
    return ApiError(
        Error.TIERED_STORAGE_DISABLEMENT_IN_PROGRESS,
        f"Tiered storage of the topic {topic} is being disabled"
        f" ({DISABLE_POLICY}={known.policy.name.lower()}, tiered epoch {known.tiered_epoch}):"
        " brokers have to acknowledge it before its tiering configuration can be changed. Wait"
        f" until 'ottla tier describe --topic {topic}' shows DISABLED, then try again.",
    )


def _check_level(image: ClusterImage, context: DecisionContext, target: Standing) -> None:
    level = context.mode.ottla_level(image)
    if level >= TIERING:
        return
    is_on = target is Standing.ENABLED
    what = f"{REMOTE_STORAGE}=true" if is_on else "Turning remote storage off"
    raise ApiError(
        Error.UNSUPPORTED_VERSION,
        f"{what} needs the feature {OTTLA_VERSION} at level {TIERING}, and the cluster has level"
        f" {level}.",
    )


def _check_name(context: DecisionContext, topic: str, target: Standing) -> None:
    """Refuse to enable a topic of which a store that is a directory can keep no object."""
    uri = context.config[STORAGE_URI] or ""
    if target is not Standing.ENABLED or not uri.strip().lower().startswith("file:"):
        return
    if len(topic) > DIRECTORY_STORE_NAME_LENGTH_MAX:
        raise invalid_config(
            f"{REMOTE_STORAGE}=true: the name of the topic {topic} has {len(topic)} characters,"
            f" and where remote storage is a directory ({STORAGE_URI}={uri.strip()}) it may have"
            f" at most {DIRECTORY_STORE_NAME_LENGTH_MAX}: with the topic's id it is the name of a"
            " directory there."
        )


def _check_compaction(
    image: ClusterImage,
    context: DecisionContext,
    topic: str,
    tiering: TopicTiering | None,
    overrides: Mapping[str, str],
) -> None:
    """Refuse to compact a topic as long as it may have remote segments that are read."""
    if tiering is None or not _may_be_read(tiering):
        return
    if "compact" not in topic_values(image, context.config, overrides)["cleanup.policy"]:
        return
    raise invalid_config(
        f"cleanup.policy=compact: the topic {topic} may have remote segments (tiering state"
        f" {tiering.state.name}). Set {REMOTE_STORAGE}=false and {DISABLE_POLICY}=delete and wait"
        " until it is DISABLED, or wait until all remote segments have expired."
    )


def _may_be_read(tiering: TopicTiering) -> bool:
    """Tell whether a replica may read remote segments."""
    if tiering.state is TieringState.DISABLED and tiering.policy is DisablePolicy.DELETE:
        return False
    return not tiering.is_remote_empty
