"""Formats and describes a node's log directories, and makes ids: `ottla storage`.

Formatting writes `meta.properties` (version 1, with a new directory id) into every log directory
and `bootstrap.checkpoint` beside it, from which the first controller takes the feature levels.
Functions return values; the caller prints.

Source: Formatter, StorageTool, MetaPropertiesEnsemble, BootstrapDirectory of Kafka 4.0; KIP-858.
"""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ottla.base.ids import NO_UUID, Uuid, parse_uuid, uuid_text
from ottla.base.ports import Clock, Dice, Disk
from ottla.log.dirs.durable_mkdir import mkdir_durably
from ottla.log.dirs.meta_properties import (
    MetaProperties,
    check_meta_properties,
    decode_meta_properties,
    encode_meta_properties,
)
from ottla.log.names import META_PROPERTIES
from ottla.metadata.features import (
    DEFAULT_LEVELS,
    METADATA_VERSION_LEVEL,
    METADATA_VERSION_NAMES,
    SUPPORTED,
)
from ottla.metadata.records import FeatureLevelRecord, Record, decode_record, encode_record
from ottla.raft.snapshots import (
    BOOTSTRAP_NAME,
    CorruptSnapshot,
    decode_snapshot,
    encode_snapshot,
)
from ottla.wire.errors import WireError

FIRST_FREE_ID = 100
"""Ids below it have meanings of their own (UNASSIGNED, LOST, the metadata topic's ...)."""

META_PROPERTIES_VERSION = 1


class StorageError(Exception):
    """The operation cannot be done; the message is one line for the operator."""


@dataclass(frozen=True, slots=True)
class FormattedDir:
    """A log directory that was just formatted, or was before (`skipped`)."""

    path: str
    directory_id: Uuid | None
    skipped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatResult:
    """What `format_storage` did, in the order of the log directories."""

    cluster_id: str
    metadata_version: str
    dirs: tuple[FormattedDir, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageInfo:
    """The contents of the log directories, and problems found."""

    found: tuple[str, ...]
    properties: tuple[tuple[str, MetaProperties], ...]
    problems: tuple[str, ...]


def random_uuid(dice: Dice) -> Uuid:
    """Return an id for a cluster, a directory or a topic; its text never starts with "-"."""
    while True:
        raw = bytearray(dice.random_bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        uuid = Uuid(bytes(raw))
        # A leading dash would look like an option to every command that takes an id.
        if int.from_bytes(uuid, "big") >= FIRST_FREE_ID and not uuid_text(uuid).startswith("-"):
            return uuid


def bootstrap_records(features: Mapping[str, int] | None = None) -> tuple[Record, ...]:
    """Return the bootstrap records of a cluster's metadata; `features` = levels other than the
    defaults.

    Raises: StorageError for an unknown feature or level.
    """
    ranges = {each.name: each for each in SUPPORTED}
    for name, level in (features or {}).items():
        if name not in ranges:
            raise StorageError(f"Unknown feature {name}: expected one of {', '.join(ranges)}")
        low, high = ranges[name].min_version, ranges[name].max_version
        if not low <= level <= high:
            raise StorageError(f"Unsupported level {level} of {name}: expected {low} to {high}")
    levels = {**DEFAULT_LEVELS, **(features or {})}
    # The metadata version comes first, because it defines how the rest is read.
    return tuple(
        FeatureLevelRecord(name=name, feature_level=level)
        for name, level in levels.items()
        if level
    )


def format_storage(
    disk: Disk,
    *,
    log_dirs: Sequence[str],
    metadata_log_dir: str,
    node_id: int,
    cluster_id: str | None,
    dice: Dice,
    clock: Clock,
    ignore_formatted: bool = False,
    features: Mapping[str, int] | None = None,
) -> FormatResult:
    """Format log directories. `cluster_id` None = that of directories formatted before, else new.

    Raises: StorageError where a directory is formatted already (without `ignore_formatted`) or
            belongs to another cluster or node, or for unknown features or levels;
            OSError.
    """
    if cluster_id is not None:
        check_cluster_id(cluster_id)
    bootstrap = bootstrap_records(features)
    paths = tuple(dict.fromkeys((*log_dirs, metadata_log_dir)))
    known = {path: found for path in paths if (found := read_meta_properties(disk, path))}
    if cluster_id is None:
        stored = [each.cluster_id for each in known.values() if each.cluster_id]
        cluster_id = stored[0] if stored else uuid_text(random_uuid(dice))
    for path, found in known.items():
        try:
            check_meta_properties(path, found, node_id=node_id, cluster_id=cluster_id)
        except ValueError as error:
            raise StorageError(str(error)) from None
    if known and not ignore_formatted:
        raise StorageError(
            f"Log directory {next(iter(known))} is already formatted. Use --ignore-formatted to "
            "ignore this directory and format the others."
        )
    dirs = tuple(
        FormattedDir(path, known[path].directory_id, skipped=True)
        if path in known
        else _format_dir(disk, path, cluster_id, node_id, dice, clock, bootstrap)
        for path in paths
    )
    return FormatResult(
        cluster_id=cluster_id,
        metadata_version=METADATA_VERSION_NAMES[METADATA_VERSION_LEVEL],
        dirs=dirs,
    )


def check_cluster_id(text: str) -> None:
    """Raise StorageError unless `text` is an id that Kafka's tools take."""
    try:
        valid = parse_uuid(text) != NO_UUID
    except ValueError:
        valid = False
    if not valid:
        raise StorageError(
            f"Cluster ID string {text} does not appear to be a valid UUID: expected 22 "
            "characters of base64url, as `ottla storage random-uuid` prints"
        )


def _format_dir(
    disk: Disk,
    path: str,
    cluster_id: str,
    node_id: int,
    dice: Dice,
    clock: Clock,
    bootstrap: tuple[Record, ...],
) -> FormattedDir:
    mkdir_durably(disk, path)
    content = encode_snapshot(
        map(encode_record, bootstrap),
        epoch=0,
        timestamp=clock.now_ms(),
        last_contained_ms=clock.now_ms(),
    )
    disk.write_atomic(posixpath.join(path, BOOTSTRAP_NAME), b"".join(content))
    # Last: a log directory counts as formatted once it has this file.
    return FormattedDir(path, write_directory_id(disk, path, cluster_id, node_id, dice))


def write_directory_id(disk: Disk, path: str, cluster_id: str, node_id: int, dice: Dice) -> Uuid:
    """Write a meta.properties with a new directory id, and return that. Raises: OSError."""
    directory_id = random_uuid(dice)
    properties = MetaProperties(
        version=META_PROPERTIES_VERSION,
        cluster_id=cluster_id,
        node_id=node_id,
        directory_id=directory_id,
    )
    disk.write_atomic(posixpath.join(path, META_PROPERTIES), encode_meta_properties(properties))
    return directory_id


def read_meta_properties(disk: Disk, path: str) -> MetaProperties | None:
    """Return a directory's meta.properties; None = not formatted. Raises: StorageError, OSError."""
    file = posixpath.join(path, META_PROPERTIES)
    if not disk.exists(file):
        return None
    try:
        return decode_meta_properties(disk.read_bytes(file))
    except ValueError as error:
        raise StorageError(f"{file}: {error}") from None


def read_bootstrap(disk: Disk, metadata_log_dir: str) -> tuple[Record, ...]:
    """Return the bootstrap records of formatting; the defaults where there are none.

    Raises: StorageError where the file is damaged; OSError.
    """
    path = posixpath.join(metadata_log_dir, BOOTSTRAP_NAME)
    if not disk.exists(path):
        return bootstrap_records()
    try:
        values = decode_snapshot(disk.read_bytes(path)).values
        records = tuple(decode_record(value) for value in values)
    except (CorruptSnapshot, WireError) as error:
        raise StorageError(f"{path}: {error}") from None
    return records or bootstrap_records()


def storage_info(disk: Disk, log_dirs: Sequence[str], metadata_log_dir: str) -> StorageInfo:
    """Return the contents of a node's log directories."""
    found: list[str] = []
    properties: list[tuple[str, MetaProperties]] = []
    problems: list[str] = []
    for path in dict.fromkeys((*log_dirs, metadata_log_dir)):
        try:
            if not disk.is_dir(path):
                kind = "is not a directory" if disk.exists(path) else "does not exist"
                problems.append(f"{path} {kind}")
                continue
            found.append(path)
            read = read_meta_properties(disk, path)
        except StorageError as error:
            problems.append(str(error))
            continue
        except OSError as error:
            problems.append(f"{error.filename or path}: {error.strerror or error}")
            continue
        if read is None:
            problems.append(f"{path} is not formatted.")
        else:
            properties.append((path, read))
    for name, values in (
        ("cluster.id", {each.cluster_id for _path, each in properties}),
        ("node.id", {each.node_id for _path, each in properties}),
    ):
        if len(values) > 1:
            listed = ", ".join(sorted(map(str, values)))
            problems.append(f"the directories disagree on {name}: {listed}")
    return StorageInfo(found=tuple(found), properties=tuple(properties), problems=tuple(problems))
