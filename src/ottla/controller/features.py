"""The cluster's feature levels are raised or lowered: all that a request names, or none.

A level that the cluster has already is granted without a record. Any other must be one that this
software supports, in the requested direction, and one that every registered broker supports,
fenced ones included: they come back. Brokers that register later are checked then.

Controllers of this software do not register, so a controller's registration is from the time when
the log directories were Kafka's. Where the node is a broker, too, that registration is newer and
counts; and this controller knows its own levels.

What a change of each feature needs:
- `ottla.version` cannot be lowered: the records of a level are in the metadata, where software of
  a lower one cannot read them.
- `eligible.leader.replicas.version` is raised together with one min.insync.replicas for the whole
  cluster, and lowered only while no partition relies on eligible replicas to find a leader.
- `metadata.version` has the one level that records are written for, to which older ones can be
  raised.

Differences from Kafka 4.0: a feature that is named twice and an unknown type of update are an
INVALID_REQUEST.
Source: FeatureControlManager, ConfigurationControlManager.maybeGenerateElrSafetyRecords, Kafka 4.0;
KIP-584, KIP-778, KIP-966, KIP-1022.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ottla.base.errors import ApiError, Error
from ottla.controller.activation import MIN_ISR
from ottla.controller.context import DecisionContext
from ottla.controller.step import Decision, Step, refused
from ottla.metadata.brokers import FeatureRange
from ottla.metadata.configs import ALL_BROKERS, ResourceType
from ottla.metadata.features import (
    ABANDONED_PURGES,
    ELR_VERSION,
    LEDGER,
    METADATA_VERSION,
    METADATA_VERSION_NAMES,
    OTTLA_VERSION,
    OTTLA_VERSION_LEVEL,
    SUPPORTED,
    TIERING,
)
from ottla.metadata.image import ClusterImage
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.records import ConfigRecord, FeatureLevelRecord, Record

RANGES: Final = {each.name: each for each in SUPPORTED}

NOT_SERVED: Final = {
    "group.version": "groups use the classic protocol",
    "kraft.version": "the voters are those of controller.quorum.voters",
    "share.version": "there are no share groups",
    "streams.version": "there are no streams groups",
    "transaction.version": "there are no transactions",
}
"""Kafka's features that stay as they are, and why; its tool names them with every release."""


class UpgradeType(IntEnum):
    """What an update may do; wire values. Source: FeatureUpdate.UpgradeType."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3
    """May lose metadata in Kafka; here no downgrade that loses any is allowed."""


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """A requested level; 0 = the feature is off. `upgrade_type`: as in the request."""

    name: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE


@dataclass(frozen=True, slots=True)
class UpdatedFeature:
    """The result of one update. FEATURE_UPDATE_FAILED = another one was refused."""

    name: str
    error: Error = Error.NONE
    message: str | None = None


def update_features(
    image: ClusterImage,
    updates: Sequence[FeatureUpdate],
    *,
    context: DecisionContext,
    validate_only: bool = False,
) -> Decision[tuple[UpdatedFeature, ...]]:
    """Set all levels or none; one result for each update, in the order asked.

    The result of a refused update is INVALID_UPDATE_VERSION.
    Raises: ApiError(INVALID_REQUEST) for a request that is invalid at any levels.
    """
    _check_form(updates)
    refusals = {
        each.name: message
        for each in updates
        if (message := _refusal(image, each, context.config.node_id)) is not None
    }
    if refusals:
        because = f"Not changed, since {next(iter(refusals))} was refused."
        return refused(
            tuple(
                UpdatedFeature(each.name, Error.INVALID_UPDATE_VERSION, refusals[each.name])
                if each.name in refusals
                else UpdatedFeature(each.name, Error.FEATURE_UPDATE_FAILED, because)
                for each in updates
            )
        )
    granted = tuple(UpdatedFeature(each.name) for each in updates)
    if validate_only:
        return refused(granted)
    # The metadata version comes first: the encoding of the rest depends on it.
    ordered = sorted(updates, key=lambda each: (each.name != METADATA_VERSION, each.name))
    records = [each for update in ordered for each in _records(image, update, context.config)]
    return Decision(Step(tuple(records)), granted)


def _check_form(updates: Sequence[FeatureUpdate]) -> None:
    if not updates:
        raise ApiError(Error.INVALID_REQUEST, "The request names no feature.")
    counts = Counter(each.name for each in updates)
    for each in updates:
        if counts[each.name] > 1:
            raise ApiError(Error.INVALID_REQUEST, f"The request names {each.name} twice.")
        if each.upgrade_type not in set(UpgradeType):
            raise ApiError(
                Error.INVALID_REQUEST,
                f"The update of {each.name} has the unknown type {each.upgrade_type}: expected"
                " 1 (upgrade), 2 (safe downgrade) or 3 (unsafe downgrade).",
            )


def _refusal(image: ClusterImage, update: FeatureUpdate, node_id: int) -> str | None:
    """Return why a level cannot be set, None where it can."""
    name, level = update.name, update.level
    current = image.features.get(name, 0)
    if name not in RANGES and name not in NOT_SERVED:
        return f"Unknown feature {name}: expected one of {', '.join(sorted(RANGES))}."
    if level == current:
        return None
    if name in NOT_SERVED:
        return f"{name} stays at level {current}, and not {level}: {NOT_SERVED[name]}."
    if not _has(RANGES[name], level):
        return f"Level {level} of {name} is not supported: expected {_levels(RANGES[name])}."
    is_upgrade = update.upgrade_type == UpgradeType.UPGRADE
    if is_upgrade != (level > current):
        way = "an upgrade" if is_upgrade else "a downgrade"
        return f"{name} is at level {current}: level {level} is not {way}."
    unable = _first_unable(image, name, level, node_id)
    if unable is not None:
        return f"Level {level} of {name} is not supported by {unable}."
    return _loss(image, update) if level < current else None


def _has(supported: FeatureRange, level: int) -> bool:
    return supported.min_version <= level <= supported.max_version


def _levels(supported: FeatureRange) -> str:
    low, high = supported.min_version, supported.max_version
    if supported.name == METADATA_VERSION:
        return f"{low} ({METADATA_VERSION_NAMES[low]})"
    return f"{low} to {high}"


def _first_unable(image: ClusterImage, name: str, level: int, node_id: int) -> str | None:
    """Name the first registered node that cannot work at a level, and what it can."""
    for broker_id in image.broker_ids():
        supported = _supported_range(image.brokers[broker_id].features, name)
        if not _has(supported, level):
            return (
                f"broker {broker_id}, which has registered with {supported.min_version} to"
                f" {supported.max_version}: start it with newer software, or unregister it"
            )
    for controller_id, controller in sorted(image.controllers.items()):
        supported = _supported_range(controller.features, name)
        if controller_id == node_id or controller_id in image.brokers or _has(supported, level):
            continue
        return (
            f"controller {controller_id}, which has registered with {supported.min_version} to"
            f" {supported.max_version}"
        )
    return None


def _supported_range(features: Iterable[FeatureRange], name: str) -> FeatureRange:
    """Return a registration's range of a feature; one that it does not name is off."""
    absent = 1 if name == METADATA_VERSION else 0
    return next(
        (each for each in features if each.name == name), FeatureRange(name, absent, absent)
    )


_ADDED: Final = {
    LEDGER: "the deletion ledger",
    TIERING: "topics' tiering states",
    ABANDONED_PURGES: "abandoned purges",
}
"""What each level of `ottla.version` adds to the metadata."""
assert sorted(_ADDED) == list(range(1, OTTLA_VERSION_LEVEL + 1))


def _loss(image: ClusterImage, update: FeatureUpdate) -> str | None:
    """Return what a downgrade would lose, None where nothing."""
    if update.name == OTTLA_VERSION:
        what = next(what for level, what in _ADDED.items() if update.level < level)
        return (
            f"{OTTLA_VERSION} cannot go back to level {update.level}: the records of {what} would"
            " stay in the metadata, where that level has none."
        )
    if update.name == ELR_VERSION:
        relying = next(_partitions_relying_on_elr(image), None)
        if relying is not None:
            return (
                f"{ELR_VERSION} cannot go to level {update.level} now: {relying} has eligible"
                " leader replicas or none in sync, and would be left without a safe leader."
                " Expected: all partitions with min.insync.replicas in sync."
            )
    return None


def _partitions_relying_on_elr(image: ClusterImage) -> Iterator[str]:
    """Yield the partitions that may need their eligible replicas to find a leader."""
    for topic in image.topics:
        for partition_id, partition in sorted(topic.partitions.items()):
            if partition.elr or not partition.isr:
                yield f"{topic.name}-{partition_id}"


def _records(image: ClusterImage, update: FeatureUpdate, config: NodeConfig) -> Iterator[Record]:
    if update.level == image.features.get(update.name, 0):
        return
    if update.name == ELR_VERSION and update.level:
        yield from _one_min_isr(image, config)
    yield FeatureLevelRecord(name=update.name, feature_level=update.level)


def _one_min_isr(image: ClusterImage, config: NodeConfig) -> Iterator[ConfigRecord]:
    """Yield the records by which the whole cluster has one min.insync.replicas.

    Which replicas are eligible depends on it, so all nodes must see the same value.
    """
    for (resource_type, name), values in image.configs:
        is_own = resource_type == ResourceType.BROKER and name != ALL_BROKERS
        if is_own and MIN_ISR in values:
            yield _min_isr(name, None)
    if MIN_ISR not in _of_all_brokers(image):
        yield _min_isr(ALL_BROKERS, str(config[MIN_ISR]))


def _of_all_brokers(image: ClusterImage) -> Mapping[str, str]:
    return image.configs.of(ResourceType.BROKER, ALL_BROKERS)


def _min_isr(broker: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(
        resource_type=ResourceType.BROKER, resource_name=broker, name=MIN_ISR, value=value
    )
