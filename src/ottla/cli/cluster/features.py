"""`ottla features`: the cluster's feature levels. As kafka-features.sh.

Source: FeatureCommand, Kafka 4.0; KIP-584, KIP-778, KIP-1022.
"""

import sys
from typing import Annotated

import typer

from ottla import __version__
from ottla.cli.bootstrap_options import BootstrapOptions, choose
from ottla.cli.cluster.features_text import (
    Change,
    dependency_lines,
    describe_lines,
    levels_of_release,
    mapping_lines,
    metadata_level,
    outcome_lines,
)
from ottla.cli.errors import CommandError, UsageError
from ottla.cli.local.storage import parse_features
from ottla.cli.options import expect_kraft
from ottla.cli.typing_app import examples, new_app
from ottla.client.cluster import ClusterClient
from ottla.client.errors import Refusal, check
from ottla.metadata.features import METADATA_VERSION
from ottla.wire.messages import update_features as wire
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

app = new_app()

CLIENT_ID = "features-tool"
LEVEL_MAX = 32_767
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3

EPILOG = examples(
    "ottla features --bootstrap-server localhost:9092 describe",
    "ottla features --bootstrap-server localhost:9092 upgrade --feature ottla.version=1 --dry-run",
    "ottla features --bootstrap-server localhost:9092 upgrade --feature ottla.version=1",
    "ottla features version-mapping --release-version 4.0",
)

Levels = Annotated[
    list[str] | None,
    typer.Option("--feature", metavar="NAME=LEVEL", help="A feature and its level; repeatable."),
]
Names = Annotated[
    list[str] | None,
    typer.Option("--feature", metavar="NAME", help="A feature to switch off; repeatable."),
]
Metadata = Annotated[
    str | None,
    typer.Option("--metadata", metavar="VERSION", help="Deprecated: sets metadata.version only."),
]
Release = Annotated[
    str | None,
    typer.Option(
        "--release-version",
        metavar="VERSION",
        help="All features at the levels of a new cluster: see version-mapping.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Validate only; change nothing.")]
Unsafe = Annotated[
    bool,
    typer.Option("--unsafe", help="Accepted; downgrades that may lose metadata are refused."),
]


app.callback(epilog=EPILOG, help="Show the levels of the cluster's features, raise or lower them.")(
    choose
)


@app.command("describe")
def describe(context: typer.Context) -> None:
    """Show the supported levels and the cluster's levels."""
    response = context.obj.ask(CLIENT_ID, _describe)
    print("".join(f"{line}\n" for line in describe_lines(response)), end="")


@app.command("upgrade", epilog=EPILOG)
def upgrade(
    context: typer.Context,
    feature: Levels = None,
    metadata: Metadata = None,
    release_version: Release = None,
    dry_run: DryRun = False,
) -> None:
    """Raise levels, all or none."""
    levels = wanted_levels("upgrade", feature, metadata, release_version)
    apply_change(context.obj, Change("upgrade", levels, dry_run), UPGRADE)


@app.command("downgrade", epilog=EPILOG)
def downgrade(
    context: typer.Context,
    feature: Levels = None,
    metadata: Metadata = None,
    release_version: Release = None,
    unsafe: Unsafe = False,
    dry_run: DryRun = False,
) -> None:
    """Lower levels, all or none."""
    levels = wanted_levels("downgrade", feature, metadata, release_version)
    kind = UNSAFE_DOWNGRADE if unsafe else SAFE_DOWNGRADE
    apply_change(context.obj, Change("downgrade", levels, dry_run), kind)


@app.command("disable")
def disable(
    context: typer.Context, feature: Names = None, unsafe: Unsafe = False, dry_run: DryRun = False
) -> None:
    """Lower features to level 0, all or none."""
    names = feature or []
    if not names:
        raise UsageError("expected one --feature NAME at least to disable")
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--feature {name} is given twice")
    kind = UNSAFE_DOWNGRADE if unsafe else SAFE_DOWNGRADE
    apply_change(context.obj, Change("disable", dict.fromkeys(names, 0), dry_run), kind)


@app.command("version-mapping")
def version_mapping(release_version: Release = None) -> None:
    """Show the levels of a new cluster of a release."""
    print("\n".join(mapping_lines(levels_of_release(release_version))))


@app.command("feature-dependencies")
def feature_dependencies(feature: Levels = None) -> None:
    """Show the dependencies of feature levels."""
    if not feature:
        raise UsageError("expected one --feature NAME=LEVEL at least")
    print("\n".join(dependency_lines(parse_features(feature))))


def wanted_levels(
    action: str, given: list[str] | None, metadata: str | None, release: str | None
) -> dict[str, int]:
    """Return levels by feature. Raises: UsageError, CommandError for an unknown release."""
    if release is not None:
        if metadata is not None or given:
            raise UsageError("--release-version cannot be used with --feature or --metadata")
        return levels_of_release(release)
    levels = parse_features(given or [])
    for name, level in levels.items():
        if level > LEVEL_MAX:
            raise UsageError(f"--feature {name}={level}: expected a level of {LEVEL_MAX} at most")
    if metadata is not None:
        if METADATA_VERSION in levels:
            raise UsageError(
                f"only one of --metadata and --feature {METADATA_VERSION} can be given"
            )
        print("--metadata is deprecated: use --release-version instead", file=sys.stderr)
        levels[METADATA_VERSION] = metadata_level("--metadata", metadata)
    if not levels:
        raise UsageError(f"expected one --feature NAME=LEVEL at least to {action}")
    return levels


def apply_change(bootstrap: BootstrapOptions, requested: Change, kind: int) -> None:
    """Send UpdateFeatures and print the result of each feature. Raises: CommandError on failure."""
    try:
        bootstrap.ask(CLIENT_ID, lambda client: _update(client, requested, kind))
    except Refusal as refusal:
        print("\n".join(outcome_lines(requested, refusal.reason)))
        count = len(requested.levels)
        raise CommandError(f"{count} out of {count} operation(s) failed.") from None
    print("\n".join(outcome_lines(requested, None)))


def _update(client: ClusterClient, requested: Change, kind: int) -> None:
    request = wire.UpdateFeaturesRequest(
        timeout_ms=client.timeout_ms,
        feature_updates=tuple(
            wire.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level in sorted(requested.levels.items())
        ),
        validate_only=requested.dry_run,
    )
    expect_kraft(client, wire.UpdateFeaturesRequest)
    response = client.ask(request, wire.UpdateFeaturesResponse)
    check("", response.error_code, response.error_message)


def _describe(client: ClusterClient) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__)
    response = client.ask(request, ApiVersionsResponse)
    check("the features", response.error_code)
    return response
