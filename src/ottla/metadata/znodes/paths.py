"""The znode path of each fact of a cluster, below the chroot.

Names of topics and brokers need no escaping: no legal one has a slash. Users' and clients'
names in `/config` are percent-encoded by the tools that write them; Ottla does not touch those.
Source: ZkData, Kafka 3.9.
"""

from enum import Enum
from typing import Final, NamedTuple

from ottla.base.ids import Uuid, parse_uuid, uuid_text
from ottla.metadata.configs import ALL_BROKERS, Resource, ResourceType

CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER_ID: Final = "/cluster/id"
FEATURE: Final = "/feature"
PRODUCER_IDS: Final = "/latest_producer_id_block"

BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQUENCE: Final = "/brokers/seqid"
TOPICS: Final = "/brokers/topics"

TIERED_STORAGE: Final = "tieredstorage"
"""The node below a topic's; KIP-950."""

CONFIGS: Final = "/config"
CONFIG_CHANGES: Final = "/config/changes"
CONFIG_CHANGE: Final = "/config/changes/config_change_"
"""Sequential, as the two below: ZooKeeper appends ten digits."""
DEFAULT_ENTITY: Final = "<default>"
"""The znode's name for the default of all brokers (or clients, or users)."""

DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_ELECTION: Final = "/admin/preferred_replica_election"

ISR_CHANGES: Final = "/isr_change_notification"
ISR_CHANGE: Final = "/isr_change_notification/isr_change_"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
LOG_DIR_EVENT: Final = "/log_dir_event_notification/log_dir_event_"

DELETIONS: Final = "/ottla/deletions"
"""Ottla's own: the deletion ledger, a znode a topic id."""

CONFIG_TYPES: Final = {ResourceType.TOPIC: "topics", ResourceType.BROKER: "brokers"}
"""The entities under `/config` that Ottla reads and writes."""

FOREIGN_CONFIG_TYPES: Final = ("clients", "users", "ips")
"""The entities whose configurations (quotas, credentials) Ottla does not touch."""

PERSISTENT: Final = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGES,
    PRODUCER_IDS,
    LOG_DIR_EVENTS,
    DELETIONS,
    *(f"{CONFIGS}/{each}" for each in (*CONFIG_TYPES.values(), *FOREIGN_CONFIG_TYPES)),
)
"""The paths that every broker creates at start, with all above them, where missing; no data."""


def broker(broker_id: int) -> str:
    """Return the path of a broker's registration."""
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    """Return the path of a topic's assignment."""
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    """Return the parent of a topic's partitions."""
    return f"{TOPICS}/{name}/partitions"


def partition(name: str, partition_id: int) -> str:
    """Return the parent of a partition's state."""
    return f"{TOPICS}/{name}/partitions/{partition_id}"


def state(name: str, partition_id: int) -> str:
    """Return the path of a partition's leader and in-sync replicas."""
    return f"{TOPICS}/{name}/partitions/{partition_id}/state"


def tiering(name: str) -> str:
    """Return the parent of a topic's tiering state."""
    return f"{TOPICS}/{name}/{TIERED_STORAGE}"


def tiered_epoch(name: str) -> str:
    """Return the path of a topic's tiered epoch."""
    return f"{TOPICS}/{name}/{TIERED_STORAGE}/tiered_epoch"


def tiering_state(name: str) -> str:
    """Return the path of a topic's whole tiering state."""
    return f"{TOPICS}/{name}/{TIERED_STORAGE}/state"


def config(resource: Resource) -> str:
    """Return the path of a resource's configuration; topics and brokers only."""
    resource_type, _ = resource
    return f"{CONFIGS}/{CONFIG_TYPES[ResourceType(resource_type)]}/{entity(resource)}"


def entity(resource: Resource) -> str:
    """Return a resource's name as `/config` has it."""
    resource_type, name = resource
    is_default = resource_type == ResourceType.BROKER and name == ALL_BROKERS
    return DEFAULT_ENTITY if is_default else name


def resource(type_name: str, entity_name: str) -> Resource | None:
    """Return the resource of an entity's type and name in `/config`; None = not Ottla's."""
    for resource_type, listed in CONFIG_TYPES.items():
        if listed == type_name:
            is_default = resource_type is ResourceType.BROKER and entity_name == DEFAULT_ENTITY
            return (int(resource_type), ALL_BROKERS if is_default else entity_name)
    return None


def marker(name: str) -> str:
    """Return the path of a topic's deletion marker."""
    return f"{DELETE_TOPICS}/{name}"


def deletion(topic_id: Uuid) -> str:
    """Return the path of a topic's entry in the deletion ledger."""
    return f"{DELETIONS}/{uuid_text(topic_id)}"


def deletion_id(text: str) -> Uuid:
    """Return the topic id that a znode under `/ottla/deletions` is named after.

    Raises: ValueError where it is none.
    """
    return parse_uuid(text)


class Kind(Enum):
    """What a znode is about."""

    BROKER = "broker"
    TOPIC = "topic"
    PARTITIONS = "partitions"
    PARTITION = "partition"
    STATE = "state"
    TIERING = "tiering"
    TIERED_EPOCH = "tiered epoch"
    TIERING_STATE = "tiering state"
    CONFIG = "config"
    FEATURE = "feature"
    PRODUCER_IDS = "producer ids"
    MARKER = "marker"
    DELETION = "deletion"
    OTHER = "other"


class ParsedPath(NamedTuple):
    """The meaning of a path. `name`: of the topic or resource, or a topic id's text; `id`:
    of the broker or partition, or the resource's type.
    """

    kind: Kind
    name: str = ""
    id: int = -1


_SINGLE: Final = {FEATURE: ParsedPath(Kind.FEATURE), PRODUCER_IDS: ParsedPath(Kind.PRODUCER_IDS)}
_OTHER: Final = ParsedPath(Kind.OTHER)
_TIERING: Final[dict[tuple[str, ...], Kind]] = {
    (): Kind.TIERING,
    ("tiered_epoch",): Kind.TIERED_EPOCH,
    ("state",): Kind.TIERING_STATE,
}


def parse_path(path: str) -> ParsedPath:
    """Return the meaning of a path; OTHER where the image does not hold it."""
    if path.startswith("/brokers/"):
        return _below_brokers(path.split("/")[2:])
    if path.startswith("/config/"):
        parts = path.split("/")[2:]
        found = resource(parts[0], parts[1]) if len(parts) == 2 else None
        return _OTHER if found is None else ParsedPath(Kind.CONFIG, found[1], found[0])
    if path.startswith(f"{DELETE_TOPICS}/"):
        return ParsedPath(Kind.MARKER, path[len(DELETE_TOPICS) + 1 :])
    if path.startswith(f"{DELETIONS}/"):
        return ParsedPath(Kind.DELETION, path[len(DELETIONS) + 1 :])
    return _SINGLE.get(path, _OTHER)


def _below_brokers(parts: list[str]) -> ParsedPath:
    if parts[0] == "ids":
        is_broker = len(parts) == 2 and is_number(parts[1])
        return ParsedPath(Kind.BROKER, id=int(parts[1])) if is_broker else _OTHER
    if parts[0] != "topics" or len(parts) < 2:
        return _OTHER
    if len(parts) == 2:
        return ParsedPath(Kind.TOPIC, parts[1])
    if parts[2] == TIERED_STORAGE:
        kind = _TIERING.get(tuple(parts[3:]))
        return _OTHER if kind is None else ParsedPath(kind, parts[1])
    if parts[2] != "partitions":
        return _OTHER
    if len(parts) == 3:
        return ParsedPath(Kind.PARTITIONS, parts[1])
    if not is_number(parts[3]):
        return _OTHER
    if len(parts) == 4:
        return ParsedPath(Kind.PARTITION, parts[1], int(parts[3]))
    is_state = parts[4:] == ["state"]
    return ParsedPath(Kind.STATE, parts[1], int(parts[3])) if is_state else _OTHER


def is_number(text: str) -> bool:
    """Tell whether a znode's name is a broker id or a partition."""
    return text.isascii() and text.isdecimal()
