"""The properties of a topic, where their values come from, and which values are refused.

The value is the first that is set of: the topic's override, the broker's dynamic value, the
cluster's dynamic default, the broker's property file, the default. Most of these properties have
another name for brokers, some in other units: `SYNONYMS`.
Source: TopicConfig, LogConfig, ServerTopicConfigSynonyms, Kafka 4.0; KIP-1030.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from ottla.base.errors import ApiError, Error
from ottla.base.ids import INTERNAL_TOPICS
from ottla.metadata.config_def import (
    COMPRESSION_TYPES,
    DAY_MS,
    GZIP_LEVELS,
    INT_MAX,
    LONG_MAX,
    LZ4_LEVELS,
    SEGMENT_BYTES_MIN,
    ZSTD_LEVELS,
    Check,
    ConfigDef,
    ConfigError,
    ConfigKey,
    Type,
    at_least,
    between,
    each_of,
    invalid_config,
    one_of,
    parse_value,
)
from ottla.metadata.configs import ALL_BROKERS, ResourceType
from ottla.metadata.remote_definitions import SYSTEM_ENABLE

if TYPE_CHECKING:
    from ottla.metadata.image import ClusterImage
    from ottla.metadata.node_config import NodeConfig

_THROTTLED: Final = Check(
    "of partition:broker pairs, or * alone",
    lambda value: value == ("*",) or all(_is_pair(each) for each in value),
)


def _is_pair(text: str) -> bool:
    partition, _, broker = text.partition(":")
    return partition.isdecimal() and broker.isdecimal()


TTL: Final = "ottla.topic.ttl.ms"
NO_TTL: Final = -1
TTL_MS_MIN: Final = 1_000
TTLS: Final = Check(
    f"{TTL_MS_MIN} or more, or {NO_TTL}",
    lambda value: bool(value >= TTL_MS_MIN or value == NO_TTL),
)

REMOTE_STORAGE: Final = "remote.storage.enable"
COPY_DISABLE: Final = "remote.log.copy.disable"
DELETE_ON_DISABLE: Final = "remote.log.delete.on.disable"
DISABLE_POLICY: Final = "remote.log.disable.policy"
RETAIN_POLICY: Final = "retain"
DELETE_POLICY: Final = "delete"
LOCAL_RETENTIONS: Final = (
    ("local.retention.bytes", "retention.bytes"),
    ("local.retention.ms", "retention.ms"),
)
"""What the local disk of a topic with remote storage keeps, and what both tiers do."""
INHERITED: Final = -2
UNLIMITED: Final = -1

_K = ConfigKey
DEFINITIONS: Final = ConfigDef.of(
    _K(
        "cleanup.policy",
        Type.LIST,
        ("delete",),
        "What happens to old segments: delete drops them by age or size, compact keeps the last"
        " record of each key and refuses records without one.",
        each_of("compact", "delete"),
    ),
    _K(
        "compression.gzip.level",
        Type.INT,
        -1,
        "The level where compression.type is gzip.",
        GZIP_LEVELS,
    ),
    _K(
        "compression.lz4.level",
        Type.INT,
        9,
        "The level where compression.type is lz4.",
        LZ4_LEVELS,
    ),
    _K(
        "compression.type",
        Type.STRING,
        "producer",
        "How batches are compressed on disk; producer keeps what the producer chose.",
        one_of(*COMPRESSION_TYPES),
    ),
    _K(
        "compression.zstd.level",
        Type.INT,
        3,
        "The level where compression.type is zstd.",
        ZSTD_LEVELS,
    ),
    _K(
        "delete.retention.ms",
        Type.LONG,
        DAY_MS,
        "How long tombstones stay after the first cleaning.",
        at_least(0),
    ),
    _K(
        "file.delete.delay.ms",
        Type.LONG,
        60_000,
        "How long a deleted file stays on disk.",
        at_least(0),
    ),
    _K(
        "flush.messages",
        Type.LONG,
        LONG_MAX,
        "Records after which a log is forced to disk.",
        at_least(1),
    ),
    _K(
        "flush.ms",
        Type.LONG,
        LONG_MAX,
        "Milliseconds after which a log is forced to disk.",
        at_least(0),
    ),
    _K(
        "follower.replication.throttled.replicas",
        Type.LIST,
        (),
        "Replicas whose fetching is throttled; kept, without an effect yet.",
        _THROTTLED,
    ),
    _K(
        "index.interval.bytes",
        Type.INT,
        4096,
        "Bytes of log between two entries of the offset index.",
        at_least(0),
    ),
    _K(
        "internal.segment.bytes",
        Type.INT,
        None,
        "segment.bytes without its minimum, for tests.",
        at_least(1),
        internal=True,
    ),
    _K(
        "leader.replication.throttled.replicas",
        Type.LIST,
        (),
        "Replicas whose serving to followers is throttled; kept, without an effect yet.",
        _THROTTLED,
    ),
    _K(
        "local.retention.bytes",
        Type.LONG,
        INHERITED,
        "Bytes that a partition with remote storage keeps on the broker's disk; -2 = as many as"
        " retention.bytes, -1 = no limit.",
        at_least(-2),
    ),
    _K(
        "local.retention.ms",
        Type.LONG,
        INHERITED,
        "Milliseconds that a partition with remote storage keeps its records on the broker's disk;"
        " -2 = as long as retention.ms, -1 = no limit.",
        at_least(-2),
    ),
    _K(
        "max.compaction.lag.ms",
        Type.LONG,
        LONG_MAX,
        "How old an uncompacted record may get before its log is cleaned.",
        at_least(1),
    ),
    _K(
        "max.message.bytes",
        Type.INT,
        1024 * 1024 + 12,
        "The largest batch that is taken, compressed.",
        at_least(0),
    ),
    _K(
        "message.timestamp.after.max.ms",
        Type.LONG,
        3_600_000,
        "How far in the future of the broker's clock a record may be.",
        at_least(0),
    ),
    _K(
        "message.timestamp.before.max.ms",
        Type.LONG,
        LONG_MAX,
        "How far in the past of the broker's clock a record may be.",
        at_least(0),
    ),
    _K(
        "message.timestamp.type",
        Type.STRING,
        "CreateTime",
        "Whose clock records bear: the producer's or the broker's at append.",
        one_of("CreateTime", "LogAppendTime"),
    ),
    _K(
        "min.cleanable.dirty.ratio",
        Type.DOUBLE,
        0.5,
        "Which part of a log must be dirty before it is cleaned.",
        between(0, 1),
    ),
    _K(
        "min.compaction.lag.ms",
        Type.LONG,
        0,
        "How long a record stays uncompacted at least.",
        at_least(0),
    ),
    _K(
        "min.insync.replicas",
        Type.INT,
        1,
        "In-sync replicas that a write with acks=all needs.",
        at_least(1),
    ),
    _K(
        TTL,
        Type.LONG,
        NO_TTL,
        "How long a topic may be without a produce, a consumer's fetch or an offset commit before"
        " it is deleted; -1 = forever. Ottla's own.",
        TTLS,
    ),
    _K(
        "preallocate",
        Type.BOOLEAN,
        False,
        "Without an effect: files grow as they are written.",
    ),
    _K(
        COPY_DISABLE,
        Type.BOOLEAN,
        False,
        "Whether copies to remote storage stop while remote.storage.enable stays true; what is"
        " there is read until it expires.",
    ),
    _K(
        DELETE_ON_DISABLE,
        Type.BOOLEAN,
        False,
        "Kafka's name for remote.log.disable.policy=delete.",
    ),
    _K(
        DISABLE_POLICY,
        Type.STRING,
        RETAIN_POLICY,
        "What becomes of a topic's remote segments when remote.storage.enable becomes false: retain"
        " has them read until they expire, delete deletes them. Ottla's own, after KIP-950.",
        one_of(RETAIN_POLICY, DELETE_POLICY),
    ),
    _K(
        REMOTE_STORAGE,
        Type.BOOLEAN,
        False,
        "Whether old segments are copied to remote storage and read from there.",
    ),
    _K(
        "retention.bytes",
        Type.LONG,
        -1,
        "Bytes that a partition keeps; -1 = no limit.",
    ),
    _K(
        "retention.ms",
        Type.LONG,
        7 * DAY_MS,
        "Milliseconds that a partition keeps its records; -1 = no limit.",
        at_least(-1),
    ),
    _K(
        "segment.bytes",
        Type.INT,
        1 << 30,
        "The size at which a segment is closed and a new one begins.",
        at_least(SEGMENT_BYTES_MIN),
    ),
    _K(
        "segment.index.bytes",
        Type.INT,
        10 * 1024 * 1024,
        "The size that an offset index may have.",
        at_least(4),
    ),
    _K(
        "segment.jitter.ms",
        Type.LONG,
        0,
        "The most that is randomly taken off segment.ms.",
        at_least(0),
    ),
    _K(
        "segment.ms",
        Type.LONG,
        7 * DAY_MS,
        "Milliseconds after which a segment is closed even where it is not full.",
        at_least(1),
    ),
    _K(
        "unclean.leader.election.enable",
        Type.BOOLEAN,
        False,
        "Whether a replica that is not in sync may lead where no other can; records may be lost.",
    ),
)

Convert = Callable[[int], int]


def _hours(value: int) -> int:
    return value * 3_600_000


def _minutes(value: int) -> int:
    return value * 60_000


SYNONYMS: Final[Mapping[str, tuple[tuple[str, Convert | None], ...]]] = {
    "cleanup.policy": (("log.cleanup.policy", None),),
    "compression.gzip.level": (("compression.gzip.level", None),),
    "compression.lz4.level": (("compression.lz4.level", None),),
    "compression.type": (("compression.type", None),),
    "compression.zstd.level": (("compression.zstd.level", None),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", None),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", None),),
    "flush.messages": (("log.flush.interval.messages", None),),
    "flush.ms": (("log.flush.interval.ms", None), ("log.flush.scheduler.interval.ms", None)),
    "index.interval.bytes": (("log.index.interval.bytes", None),),
    "local.retention.bytes": (("log.local.retention.bytes", None),),
    "local.retention.ms": (("log.local.retention.ms", None),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", None),),
    "max.message.bytes": (("message.max.bytes", None),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", None),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", None),),
    "message.timestamp.type": (("log.message.timestamp.type", None),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", None),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", None),),
    "min.insync.replicas": (("min.insync.replicas", None),),
    "preallocate": (("log.preallocate", None),),
    "retention.bytes": (("log.retention.bytes", None),),
    "retention.ms": (
        ("log.retention.ms", None),
        ("log.retention.minutes", _minutes),
        ("log.retention.hours", _hours),
    ),
    "segment.bytes": (("log.segment.bytes", None),),
    "segment.index.bytes": (("log.index.size.max.bytes", None),),
    "segment.jitter.ms": (("log.roll.jitter.ms", None), ("log.roll.jitter.hours", _hours)),
    "segment.ms": (("log.roll.ms", None), ("log.roll.hours", _hours)),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", None),),
}
"""Topic name → the broker's names for it, the first that is set counts."""
assert set(SYNONYMS) <= set(DEFINITIONS.keys)


def parse_overrides(overrides: Mapping[str, str]) -> dict[str, Any]:
    """Return typed values. Raises: ApiError for the first name that is bad: INVALID_CONFIG;
    INVALID_REQUEST for a policy that there is not, as KIP-950 says."""
    values: dict[str, Any] = {}
    for name in sorted(overrides):
        key = DEFINITIONS.keys.get(name)
        if key is None:
            near = DEFINITIONS.similar(name)
            hint = f" Did you mean {near}?" if near else ""
            raise invalid_config(f"Unknown topic config name: {name}.{hint}")
        try:
            values[name] = parse_value(key, overrides[name])
        except ConfigError as error:
            code = Error.INVALID_REQUEST if name == DISABLE_POLICY else Error.INVALID_CONFIG
            raise ApiError(code, f"Invalid value for a topic config: {error}.") from None
    return values


def validate_topic_configs(
    overrides: Mapping[str, str],
    node_config: "NodeConfig | None" = None,
    image: "ClusterImage | None" = None,
) -> dict[str, Any]:
    """Check a topic's whole set of overrides; return them typed.

    Rules between properties use the node's values for those not set, as in Kafka's controllers.
    Raises: ApiError with the name at fault; see `parse_overrides`.
    """
    given = parse_overrides(overrides)
    values = {**_defaults(node_config, image), **given}
    if values[REMOTE_STORAGE]:
        _check_remote_storage(values, node_config)
    if values["min.compaction.lag.ms"] > values["max.compaction.lag.ms"]:
        raise invalid_config(
            f"min.compaction.lag.ms ({values['min.compaction.lag.ms']}) is larger than"
            f" max.compaction.lag.ms ({values['max.compaction.lag.ms']})."
        )
    return given


def _check_remote_storage(values: Mapping[str, Any], node_config: "NodeConfig | None") -> None:
    """Check the values of a topic with remote storage. Raises: ApiError(INVALID_CONFIG).

    Source: LogConfig.validateTopicLogConfigValues, Kafka 3.9, with Kafka's first message.
    """
    if node_config is not None and not node_config[SYSTEM_ENABLE]:
        raise invalid_config(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured"
            " with remote log storage."
        )
    if "compact" in values["cleanup.policy"]:
        raise invalid_config(
            f"cleanup.policy={','.join(values['cleanup.policy'])}: a topic with"
            f" {REMOTE_STORAGE}=true cannot be compacted."
        )
    if values[COPY_DISABLE]:
        return  # All expires by the total limits, and the local ones count when copies begin again.
    for local, total in LOCAL_RETENTIONS:
        kept, limit = values[local], values[total]
        if kept == INHERITED or limit <= UNLIMITED:
            continue
        if kept == UNLIMITED:
            raise invalid_config(f"{local} must not be -1 (no limit), since {total} is {limit}.")
        if kept > limit:
            raise invalid_config(f"{local} ({kept}) must not be more than {total} ({limit}).")


def wants_remote_storage(overrides: Mapping[str, str]) -> bool:
    """Tell whether a topic's checked overrides ask for remote storage."""
    text = overrides.get(REMOTE_STORAGE)
    return text is not None and bool(parse_value(DEFINITIONS.keys[REMOTE_STORAGE], text))


def effective_topic_config(
    image: "ClusterImage", node_config: "NodeConfig", topic: str
) -> dict[str, Any]:
    """Return every property's value for a topic on this node, typed, by topic config name."""
    return topic_values(image, node_config, image.configs.of(ResourceType.TOPIC, topic))


def follow_tiering(values: dict[str, Any], *, has_remote_log: bool, copies: bool) -> None:
    """Change a topic's typed values to what its tiering state allows, whatever others wrote.

    The state counts: the configuration only asks for it. A tool can write a configuration that the
    controller would refuse, and a log must not be compacted while its segments are copied.
    `copies`: whether leaders copy segments; the local retention counts only then.
    """
    values[REMOTE_STORAGE] = has_remote_log
    values[COPY_DISABLE] = not copies
    if has_remote_log:
        values["cleanup.policy"] = ["delete"]


def effective_topic_value(
    image: "ClusterImage", node_config: "NodeConfig", topic: str, name: str
) -> Any:
    """Return one property's value for a topic, as in `effective_topic_config`.

    Controllers need one or two of them for each of thousands of topics. For properties with one
    broker name only.
    """
    text = image.configs.of(ResourceType.TOPIC, topic).get(name)
    if text is not None:
        with suppress(ConfigError):
            return parse_value(DEFINITIONS.keys[name], text)
    [(broker_name, convert)] = SYNONYMS[name]
    assert convert is None
    for resource in (str(node_config.node_id), ALL_BROKERS):
        text = image.configs.of(ResourceType.BROKER, resource).get(broker_name)
        if text is not None:
            with suppress(ConfigError):
                return parse_value(DEFINITIONS.keys[name], text)
    return node_config[broker_name]


def ttl_of(image: "ClusterImage", topic: str) -> int:
    """Return how long a topic may be idle, in milliseconds; -1 = forever.

    Only the topic's own override counts: no default of a broker or a cluster deletes topics.
    """
    text = image.configs.of(ResourceType.TOPIC, topic).get(TTL)
    return NO_TTL if text is None else _ttl(text)


def check_may_go(topic: str, overrides: Mapping[str, str]) -> None:
    """Refuse a limit for an internal topic. Raises: ApiError(INVALID_CONFIG)."""
    text = overrides.get(TTL, str(NO_TTL))
    if topic in INTERNAL_TOPICS and _ttl(text) != NO_TTL:
        raise invalid_config(
            f"{TTL}={text}: the internal topic {topic} is never deleted automatically."
        )


@lru_cache(maxsize=256)
def _ttl(text: str) -> int:
    with suppress(ConfigError):
        return int(parse_value(DEFINITIONS.keys[TTL], text))
    return NO_TTL


def topic_values(
    image: "ClusterImage", node_config: "NodeConfig", overrides: Mapping[str, str]
) -> dict[str, Any]:
    """Return every property's value for a topic of these overrides.

    Values that this version cannot parse are skipped: a newer one wrote them.
    """
    values = _defaults(node_config, image)
    for name, text in overrides.items():
        key = DEFINITIONS.keys.get(name)
        if key is None:
            continue
        try:
            values[name] = parse_value(key, text)
        except ConfigError:
            continue
    if values["internal.segment.bytes"] is not None:
        values["segment.bytes"] = values["internal.segment.bytes"]
    return values


def _defaults(node_config: "NodeConfig | None", image: "ClusterImage | None") -> dict[str, Any]:
    values = dict(DEFINITIONS.defaults)
    if node_config is None:
        return values
    config = node_config if image is None else node_config.dynamic(image)
    for name, synonyms in SYNONYMS.items():
        values[name] = config[synonyms[0][0]]
    return values


assert DEFINITIONS.keys["max.message.bytes"].default <= INT_MAX
