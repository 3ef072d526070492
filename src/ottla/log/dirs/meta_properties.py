"""`meta.properties`: the node, cluster and id of a log directory.

Version 1 (KRaft) has node, cluster and directory id; version 0 (ZooKeeper) has `broker.id`. The
file is Java properties; Kafka's `Properties.store` escapes `:`, `=`, `#`, `!` and `\\`.

Source: MetaProperties, MetaPropertiesEnsemble.verify; KIP-858 (directory ids).
"""

import re
from dataclasses import dataclass

from ottla.base.ids import Uuid, parse_uuid, uuid_text
from ottla.log.dirs.checkpoints import MalformedFile

_ESCAPED = re.compile(r"\\(.)")
_SPECIAL = re.compile(r"([\\:=#!])")
_LINE = re.compile(r"((?:\\.|[^\\=:])*?)\s*[=:]\s*(.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """The file's content. `None` = absent.

    Version 0 may lack all three; version 1 must have cluster and node.
    """

    version: int = 1
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: Uuid | None = None


def encode_meta_properties(properties: MetaProperties) -> bytes:
    """Return the file's content, its lines sorted."""
    node_key = "broker.id" if properties.version == 0 else "node.id"
    pairs: dict[str, str] = {"version": str(properties.version)}
    if properties.cluster_id is not None:
        pairs["cluster.id"] = properties.cluster_id
    if properties.node_id is not None:
        pairs[node_key] = str(properties.node_id)
    if properties.directory_id is not None:
        pairs["directory.id"] = uuid_text(properties.directory_id)
    lines = [f"{key}={_escape(value)}" for key, value in sorted(pairs.items())]
    return "\n".join(("#", *lines, "")).encode()


def decode_meta_properties(data: bytes) -> MetaProperties:
    """Return the file's content. Raises: MalformedFile."""
    try:
        pairs = _pairs(data.decode())
        version = int(pairs.get("version", "0"))
        node_text = pairs.get("broker.id" if version == 0 else "node.id")
        directory_text = pairs.get("directory.id")
        properties = MetaProperties(
            version=version,
            cluster_id=pairs.get("cluster.id"),
            node_id=None if node_text is None else int(node_text),
            directory_id=None if directory_text is None else parse_uuid(directory_text),
        )
    except ValueError as error:
        raise MalformedFile(f"meta.properties is malformed: {error}") from None
    if version not in (0, 1):
        raise MalformedFile(f"meta.properties has version {version}, only 0 and 1 are known")
    if version == 1 and properties.cluster_id is None:
        raise MalformedFile("cluster.id was not specified in the version 1 file")
    if version == 1 and properties.node_id is None:
        raise MalformedFile("node.id was not specified in the version 1 file")
    return properties


def check_meta_properties(
    path: str, properties: MetaProperties, *, node_id: int, cluster_id: str | None
) -> None:
    """Raise ValueError where the directory belongs to another node or cluster.

    `cluster_id` None = the caller does not know it yet.
    """
    stored_cluster, stored_node = properties.cluster_id, properties.node_id
    if cluster_id is not None and stored_cluster is not None and stored_cluster != cluster_id:
        raise ValueError(
            f"Invalid cluster.id in: {path}. Expected {cluster_id}, but read {stored_cluster}"
        )
    if stored_node is not None and stored_node != node_id:
        raise ValueError(
            f"Stored node id {stored_node} doesn't match the configured node id {node_id} in "
            f"{path}. If you moved your data, configure the node id that it belongs to; to make "
            "a new node, remove all data from its log directories."
        )


def _escape(value: str) -> str:
    return _SPECIAL.sub(r"\\\1", value)


def _pairs(text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line[0] in "#!":
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise ValueError(f"line {line!r} is not key=value")
        key, value = found.groups()
        pairs[_ESCAPED.sub(r"\1", key)] = _ESCAPED.sub(r"\1", value)
    return pairs
