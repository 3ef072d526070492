"""`ottla storage`: random-uuid, format, info. As kafka-storage.sh."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.errors import CommandError, UsageError, shortened, shown
from ottla.cli.options import parse_number
from ottla.cli.typing_app import examples, new_app

if TYPE_CHECKING:
    from ottla.host.log_dirs.storage import FormatResult, StorageInfo
    from ottla.metadata.node_config import NodeConfig

app = new_app()

ConfigFile = Annotated[
    str, typer.Option("--config", "-c", metavar="FILE", help="The node's property file.")
]
ClusterId = Annotated[
    str,
    typer.Option(
        "--cluster-id", "-t", metavar="ID", help="The cluster's id: the same for all its nodes."
    ),
]

EPILOG = examples(
    "ottla storage random-uuid",
    "ottla storage format --cluster-id $(ottla storage random-uuid) --config node.properties",
    "ottla storage info --config node.properties",
)


@app.callback(epilog=EPILOG)
def storage() -> None:
    """Format a node's log directories, or show them."""


@app.command("random-uuid")
def random_uuid_command() -> None:
    """Print a random UUID for a cluster id."""
    from ottla.base.ids import uuid_text
    from ottla.host.log_dirs.storage import random_uuid
    from ottla.host.system_ports import SystemDice

    print(uuid_text(random_uuid(SystemDice())))


@app.command("format", epilog=EPILOG)
def format_command(
    config: ConfigFile,
    cluster_id: ClusterId,
    ignore_formatted: Annotated[
        bool,
        typer.Option(
            "--ignore-formatted", "-g", help="Skip log directories that are formatted already."
        ),
    ] = False,
    release_version: Annotated[
        str | None,
        typer.Option("--release-version", "-r", metavar="V", help="The metadata version: 4.0."),
    ] = None,
    feature: Annotated[
        list[str] | None,
        typer.Option(
            "--feature",
            "-f",
            metavar="NAME=LEVEL",
            help="The level of a feature; eligible.leader.replicas.version=0 or ottla.version=0"
            " disables it.",
        ),
    ] = None,
    standalone: Annotated[
        bool,
        typer.Option(
            "--standalone",
            "-s",
            help="Accepted without effect: the voters are those of controller.quorum.voters.",
        ),
    ] = False,
    no_initial_controllers: Annotated[
        bool, typer.Option("--no-initial-controllers", "-N", help="Accepted without effect.")
    ] = False,
) -> None:
    """Format a node's log directories, once, before its first start."""
    if standalone and no_initial_controllers:
        raise CommandError("--standalone and --no-initial-controllers cannot be used together")
    check_release(release_version)
    node = _read_config(config)
    if node.zookeeper_connect is not None:
        raise CommandError(
            f"{config}: zookeeper.connect is set: only nodes of KRaft mode are formatted, and "
            "brokers refuse such log directories in ZooKeeper mode"
        )
    result = format_node(
        node,
        cluster_id,
        ignore_formatted=ignore_formatted,
        features=parse_features(feature or []),
    )
    for line in format_lines(result, os.path.abspath(node.metadata_log_dir)):
        print(line)


@app.command("info", epilog=EPILOG)
def info_command(config: ConfigFile) -> int:
    """Show the contents of a node's log directories; exit code 1 if there are problems."""
    from ottla.host.log_dirs.disk import OsDisk
    from ottla.host.log_dirs.storage import storage_info

    node = _read_config(config)
    found = storage_info(OsDisk(), *_log_dirs(node))
    print("\n".join(info_lines(found)))
    return 1 if found.problems else 0


def parse_features(given: list[str]) -> dict[str, int]:
    """Return levels by feature. Raises: UsageError."""
    levels: dict[str, int] = {}
    for text in given:
        name, separator, level = text.partition("=")
        number = parse_number(level.strip())
        if not separator or not name.strip() or number is None:
            raise UsageError(f"--feature {shown(shortened(text))}: expected NAME=LEVEL")
        if name.strip() in levels:
            raise UsageError(f"--feature {text}: {name.strip()} is given twice")
        levels[name.strip()] = number
    return levels


def format_node(
    node: "NodeConfig",
    cluster_id: str,
    *,
    ignore_formatted: bool,
    features: Mapping[str, int] | None = None,
) -> "FormatResult":
    """Format a node's log directories. Raises: CommandError."""
    from ottla.host.log_dirs.disk import OsDisk
    from ottla.host.log_dirs.storage import StorageError, format_storage
    from ottla.host.system_ports import SystemClock, SystemDice

    log_dirs, metadata_log_dir = _log_dirs(node)
    try:
        return format_storage(
            OsDisk(),
            log_dirs=log_dirs,
            metadata_log_dir=metadata_log_dir,
            node_id=node.node_id,
            cluster_id=cluster_id,
            dice=SystemDice(),
            clock=SystemClock(),
            ignore_formatted=ignore_formatted,
            features=features,
        )
    except StorageError as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"{error.filename}: {(error.strerror or str(error)).lower()}") from None


def check_release(release_version: str | None) -> None:
    """Raise CommandError for an unsupported metadata version."""
    from ottla.metadata.features import METADATA_VERSION_LEVEL, METADATA_VERSION_NAMES

    known = METADATA_VERSION_NAMES[METADATA_VERSION_LEVEL]
    if release_version is not None and release_version not in (known, known.partition("-")[0]):
        raise CommandError(f"--release-version {shown(release_version)}: expected {known}")


def format_lines(result: "FormatResult", metadata_log_dir: str) -> list[str]:
    """Return what formatting prints."""
    if all(each.skipped for each in result.dirs):
        return ["All of the log directories are already formatted."]
    return [
        f"Formatting {'metadata' if each.path == metadata_log_dir else 'data'} directory "
        f"{each.path} with metadata.version {result.metadata_version}."
        for each in result.dirs
        if not each.skipped
    ]


def info_lines(found: "StorageInfo") -> list[str]:
    """Return the output of `storage info`: log directories, their properties, problems."""
    lines: list[str] = []
    if found.found:
        lines.append("Found log directory:" if len(found.found) == 1 else "Found log directories:")
        lines += [f"  {path}" for path in found.found]
        lines.append("")
    if found.properties:
        lines += [f"Found metadata: {_properties_text(found)}", ""]
    if found.problems:
        lines.append("Found problem:" if len(found.problems) == 1 else "Found problems:")
        lines += [f"  {problem}" for problem in found.problems]
        lines.append("")
    return lines


def _properties_text(found: "StorageInfo") -> str:
    from ottla.log.dirs.meta_properties import encode_meta_properties

    _, properties = found.properties[0]
    lines = encode_meta_properties(properties).decode().splitlines()
    return "{" + ", ".join(line for line in lines if not line.startswith("#")) + "}"


def _read_config(path: str) -> "NodeConfig":
    from ottla.cli.local.server import parse_config, read_file

    return parse_config(read_file(path), path)


def _log_dirs(node: "NodeConfig") -> tuple[list[str], str]:
    return [os.path.abspath(path) for path in node.log_dirs], os.path.abspath(node.metadata_log_dir)
