"""What `ottla features` prints, in the format of kafka-features.sh; the levels of a release.

Source: FeatureCommand, Kafka 4.0. Reasons are the controller's error messages.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.cli.errors import CommandError, shown
from ottla.metadata.features import (
    DEFAULT_LEVELS,
    METADATA_VERSION,
    METADATA_VERSION_NAMES,
    SUPPORTED,
)
from ottla.wire.messages.api_versions import ApiVersionsResponse


@dataclass(frozen=True, slots=True)
class Change:
    """A requested change. `action`: upgrade, downgrade or disable; `levels`: by feature."""

    action: str
    levels: Mapping[str, int]
    dry_run: bool = False


def describe_lines(response: ApiVersionsResponse) -> list[str]:
    """Return a line a feature: the node's supported range and the cluster's level."""
    finalized = {each.name: each.max_version_level for each in response.finalized_features}
    epoch = response.finalized_features_epoch
    return [
        "\t".join(
            (
                f"Feature: {each.name}",
                f"SupportedMinVersion: {_level(each.name, each.min_version)}",
                f"SupportedMaxVersion: {_level(each.name, each.max_version)}",
                f"FinalizedVersionLevel: {_level(each.name, finalized.get(each.name, 0))}",
                f"Epoch: {'-' if epoch < 0 else epoch}",
            )
        )
        for each in sorted(response.supported_features, key=lambda each: each.name)
    ]


def _level(name: str, level: int) -> str:
    if name == METADATA_VERSION:
        return METADATA_VERSION_NAMES.get(level, f"UNKNOWN {level}")
    return str(level)


def outcome_lines(change: Change, refusal: str | None) -> list[str]:
    """Return a line a feature with its result. `refusal`: why the change failed, if it did."""
    is_off = change.action == "disable"
    lines = []
    for name, level in sorted(change.levels.items()):
        if refusal is not None:
            what = f"disable {name}" if is_off else f"{change.action} {name} to {level}"
            lines.append(f"{'Can' if change.dry_run else 'Could'} not {what}. {refusal}")
        else:
            done = "disabled" if is_off else f"{change.action}d to {level}"
            lines.append(f"{name} {'can be' if change.dry_run else 'was'} {done}.")
    return lines


def metadata_level(option: str, text: str) -> int:
    """Return the level of a metadata version's name: 4.0-IV3, or 4.0.

    Raises: CommandError, naming the option.
    """
    for level, name in METADATA_VERSION_NAMES.items():
        if text in (name, name.partition("-")[0]):
            return level
    raise CommandError(
        f"{option} {shown(text)}: expected {', '.join(METADATA_VERSION_NAMES.values())}"
    )


def levels_of_release(release: str | None) -> dict[str, int]:
    """Return the levels of a release's new clusters. Raises: CommandError."""
    if release is None:
        return dict(DEFAULT_LEVELS)
    return {**DEFAULT_LEVELS, METADATA_VERSION: metadata_level("--release-version", release)}


def mapping_lines(levels: Mapping[str, int]) -> list[str]:
    """Return the levels of a release, the metadata version first."""
    names = sorted(levels, key=lambda name: (name != METADATA_VERSION, name))
    return [_named(name, levels[name]) for name in names]


def dependency_lines(levels: Mapping[str, int]) -> list[str]:
    """Return the dependencies of levels; this version has none. Raises: CommandError."""
    ranges = {each.name: each for each in SUPPORTED}
    for name, level in levels.items():
        if name not in ranges:
            raise CommandError(f"unknown feature {name}: expected one of {', '.join(ranges)}")
        low, high = ranges[name].min_version, ranges[name].max_version
        if not low <= level <= high:
            raise CommandError(f"{name} has no level {level}: expected {low} to {high}")
    return [f"{_named(name, level)} has no dependencies." for name, level in levels.items()]


def _named(name: str, level: int) -> str:
    if name == METADATA_VERSION:
        return f"{name}={level} ({METADATA_VERSION_NAMES[level]})"
    return f"{name}={level}"
