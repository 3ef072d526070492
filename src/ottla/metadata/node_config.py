"""A node's configuration: Kafka's property names and defaults, parsed and checked as a whole.

A property file is checked in three rounds, and all problems of a round are reported at
once: names and types; the rules between properties; the listeners and the quorum.
Values that dynamic configurations changed come from `NodeConfig.dynamic(image)`.
Source: KafkaConfig.validateValues, DynamicBrokerConfig, Kafka 4.0.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from ottla.metadata import unsupported
from ottla.metadata.brokers import Endpoint
from ottla.metadata.config_def import (
    ConfigDef,
    ConfigError,
    Problem,
    Update,
    parse_list,
    parse_value,
)
from ottla.metadata.configs import ALL_BROKERS, ResourceType
from ottla.metadata.listeners import (
    Listeners,
    Voter,
    fail,
    parse_listeners,
    parse_servers,
    parse_voters,
)
from ottla.metadata.node_definitions import NODE_DEFINITIONS
from ottla.metadata.properties import read_properties
from ottla.metadata.remote_definitions import STORAGE_URI, SYSTEM_ENABLE

if TYPE_CHECKING:
    from ottla.metadata.image import ClusterImage

DERIVED: Final = (
    ("log.retention.ms", "log.retention.minutes", 60_000),
    ("log.retention.ms", "log.retention.hours", 3_600_000),
    ("log.roll.ms", "log.roll.hours", 3_600_000),
    ("log.roll.jitter.ms", "log.roll.jitter.hours", 3_600_000),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms", 1),
)
"""A property that is not set, the one that sets it instead, and the factor of its unit."""

HIDDEN: Final = "[hidden]"
SECRET_WORDS: Final = ("password", "secret", "jaas", "credential", "keystore.key")
"""A refused property with one of these in its name is reported without its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """One node's properties: `config["log.segment.bytes"]` is its typed value.

    Fields: `given`: the property file's text values. `values`: every property, typed; where one
            is given in another unit (log.retention.hours) the finest (log.retention.ms) has it.
            `log_dirs`: absolute or relative paths as written.
            `quorum_voters`: by id; empty where bootstrap servers are used.
    """

    given: Mapping[str, str]
    values: Mapping[str, Any]
    roles: tuple[str, ...]
    node_id: int
    listener_set: Listeners
    quorum_voters: tuple[Voter, ...]
    quorum_bootstrap_servers: tuple[tuple[str, int], ...]
    log_dirs: tuple[str, ...]
    metadata_log_dir: str

    definitions = NODE_DEFINITIONS

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> "NodeConfig":
        """Return the configuration; raise ConfigError with name, value and what was expected."""
        given = {name: value for name, value in properties.items() if value.strip()}
        values = _parse_all(properties)
        zookeeper = _is_zookeeper(given, values)
        node_id = _node_id(values, zookeeper)
        roles = ("broker",) if zookeeper else values["process.roles"]
        derive(values, given)
        _check_values(values)
        voters = parse_voters(values["controller.quorum.voters"])
        servers = parse_servers(values["controller.quorum.bootstrap.servers"])
        if not zookeeper:
            _check_quorum(node_id, roles, voters, servers, values)
        log_dirs = parse_list(values["log.dirs"] or values["log.dir"])
        return cls(
            given=given,
            values=values,
            roles=roles,
            node_id=node_id,
            listener_set=parse_listeners(values, given, roles, zookeeper=zookeeper),
            quorum_voters=voters,
            quorum_bootstrap_servers=servers,
            log_dirs=log_dirs,
            metadata_log_dir=values["metadata.log.dir"] or log_dirs[0],
        )

    @classmethod
    def read(cls, text: str, overrides: Mapping[str, str] | None = None) -> "NodeConfig":
        """Parse a property file's text; `overrides` replace its values."""
        try:
            properties = read_properties(text)
        except ValueError as error:
            raise ConfigError([Problem("the property file", None, str(error))]) from None
        return cls.parse({**properties, **(overrides or {})})

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    @property
    def zookeeper_connect(self) -> str | None:
        """Return where the ZooKeeper ensemble is; None in KRaft mode."""
        connect: str | None = self.values["zookeeper.connect"]
        return connect

    @property
    def is_broker(self) -> bool:
        """Tell whether the node has the broker role."""
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        """Tell whether the node has the controller role."""
        return "controller" in self.roles

    @property
    def listeners(self) -> tuple[Endpoint, ...]:
        """Return all listeners of the node, of both roles."""
        return self.listener_set.own

    @property
    def advertised_listeners(self) -> tuple[Endpoint, ...]:
        """Return the endpoints that the broker advertises to clients."""
        return self.listener_set.advertised

    @property
    def advertised_controller_listeners(self) -> tuple[Endpoint, ...]:
        """Return the endpoints that the controller advertises."""
        return self.listener_set.advertised_controller

    @property
    def broker_listeners(self) -> tuple[Endpoint, ...]:
        """Return the listeners of the broker role."""
        return self.listener_set.broker

    @property
    def controller_listeners(self) -> tuple[Endpoint, ...]:
        """Return the listeners of the controller role."""
        return self.listener_set.controller

    @property
    def inter_broker_listener_name(self) -> str:
        """Return the name of the listener that brokers use among themselves."""
        return self.listener_set.inter_broker_name

    @property
    def rack(self) -> str | None:
        rack: str | None = self.values["broker.rack"]
        return rack

    def dynamic(self, image: "ClusterImage") -> "NodeConfig":
        """Return the configuration with the image's dynamic values over the file's.

        A broker's own value overrides the cluster's default. A value that this version cannot
        parse is skipped: a newer version wrote it.
        """
        found = dynamic_values(image, self.node_id)
        if not found:
            return self
        values = {**self.values, **found}
        given = {**self.given, **dict.fromkeys(found, "")}
        derive(values, given)
        return replace(self, values=values)


def dynamic_values(image: "ClusterImage", node_id: int) -> dict[str, Any]:
    """Return the typed dynamic values that apply to a broker."""
    found: dict[str, Any] = {}
    for resource in (ALL_BROKERS, str(node_id)):
        for name, text in image.configs.of(ResourceType.BROKER, resource).items():
            key = NODE_DEFINITIONS.keys.get(name)
            if key is None or key.update is Update.READ_ONLY:
                continue
            try:
                found[name] = parse_value(key, text)
            except ConfigError:
                continue
    return found


def derive(values: dict[str, Any], given: Mapping[str, str]) -> None:
    """Fill in the properties that are set by another one in its own unit."""
    settled: set[str] = set()
    for name, source, factor in DERIVED:
        if name in given or name in settled or values[source] is None:
            continue
        values[name] = values[source] * factor
        settled.add(name)
    if values["log.retention.ms"] < 0:
        values["log.retention.ms"] = -1


def _parse_all(properties: Mapping[str, str]) -> dict[str, Any]:
    values = dict(NODE_DEFINITIONS.defaults)
    problems: list[Problem] = []
    for name in sorted(properties):
        text = properties[name]
        key = NODE_DEFINITIONS.keys.get(name)
        if key is None:
            problem = _unknown(NODE_DEFINITIONS, name, text)
            if problem is not None:
                problems.append(problem)
            continue
        if not text.strip() and key.default is None:
            continue  # As good as not set: `broker.rack=`.
        try:
            values[name] = parse_value(key, text)
        except ConfigError as error:
            problems.extend(error.problems)
    if problems:
        raise ConfigError(problems)
    return values


def _unknown(definitions: ConfigDef, name: str, text: str) -> Problem | None:
    """Return what is wrong with an undefined property; None where it is ignored."""
    shown = HIDDEN if any(word in name for word in SECRET_WORDS) else text
    reason = unsupported.refusal(name, text)
    if reason is not None:
        return Problem(name, shown, reason)
    if unsupported.is_listed(name) or unsupported.is_ignored(name):
        return None
    known = [*definitions.keys, *unsupported.NAMES]
    near = get_close_matches(name, known, n=1, cutoff=0.7)
    hint = f"; did you mean {near[0]}?" if near else ""
    return Problem(name, shown, f"is not a property of Kafka's or Ottla's nodes{hint}")


KRAFT_ONLY: Final = (
    "controller.listener.names",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
)
"""Properties of the KRaft quorum, refused in ZooKeeper mode."""

ZOOKEEPER_LEVELS: Final = ("3.9", "3.9-IV0")


def _is_zookeeper(given: Mapping[str, str], values: dict[str, Any]) -> bool:
    """Tell which mode the file asks for, and check what only that one allows."""
    roles, connect = values["process.roles"], values["zookeeper.connect"]
    level = "inter.broker.protocol.version"
    if connect is None:
        _check_roles(given, roles)
        if level in given:
            reason = "is of ZooKeeper mode: in KRaft mode metadata.version stands for it"
            raise fail(level, given[level], reason)
        return False
    if roles:
        raise fail(
            "process.roles",
            given["process.roles"],
            f"cannot be set together with zookeeper.connect={connect}: one says KRaft mode, the"
            " other ZooKeeper mode",
        )
    for name in KRAFT_ONLY:
        if name in given:
            raise fail(name, given[name], "is of KRaft mode, and zookeeper.connect is set")
    if values[level] not in ZOOKEEPER_LEVELS:
        raise fail(level, values[level], f"expected {' or '.join(ZOOKEEPER_LEVELS)}")
    if values["zookeeper.connection.timeout.ms"] is None:
        values["zookeeper.connection.timeout.ms"] = values["zookeeper.session.timeout.ms"]
    return True


def _check_roles(given: Mapping[str, str], roles: tuple[str, ...]) -> None:
    if not roles:
        raise fail(
            "process.roles",
            given.get("process.roles"),
            "must say broker, controller or both; or zookeeper.connect must be set instead",
        )
    if len(set(roles)) < len(roles):
        raise fail("process.roles", given["process.roles"], "names a role twice")


def _node_id(values: dict[str, Any], zookeeper: bool) -> int:
    """Return the id, which may have either name or both; both then say the same."""
    node_id, broker_id = values["node.id"], values["broker.id"]
    if node_id >= 0 and broker_id >= 0 and node_id != broker_id:
        raise fail("node.id", node_id, f"must have the same value as broker.id={broker_id}")
    found: int = node_id if node_id >= 0 else broker_id
    if zookeeper:
        _check_broker_id(found, values)
    elif found < 0:
        raise fail("node.id", node_id, "must be set, to 0 or more, in KRaft mode")
    values["node.id"] = values["broker.id"] = found
    return found


def _check_broker_id(broker_id: int, values: Mapping[str, Any]) -> None:
    reserved = values["reserved.broker.max.id"]
    if broker_id < 0:
        raise fail("broker.id", broker_id, "must be set, to 0 or more: Ottla generates no ids")
    if values["broker.id.generation.enable"] and broker_id > reserved:
        raise fail(
            "broker.id",
            broker_id,
            f"must not be above reserved.broker.max.id={reserved} while"
            " broker.id.generation.enable is true",
        )


Values = Mapping[str, Any]


def _not_above(name: str, limit: str) -> tuple[str, Callable[[Values], bool], str]:
    return name, lambda values: values[name] <= values[limit], f"must not be above {limit}"


RULES: Final[tuple[tuple[str, Callable[[Values], bool], str], ...]] = (
    ("log.roll.ms", lambda v: v["log.roll.ms"] >= 1, "expected at least 1"),
    ("log.roll.jitter.ms", lambda v: v["log.roll.jitter.ms"] >= 0, "expected at least 0"),
    (
        "log.retention.ms",
        lambda v: v["log.retention.ms"] >= 1 or v["log.retention.ms"] == -1,
        "expected at least 1, or -1 for no limit",
    ),
    (
        "log.dirs",
        lambda v: all(parse_list(v["log.dirs"] or v["log.dir"]) or [""]),
        "must name at least one log directory",
    ),
    (
        "default.replication.factor",
        lambda v: v["default.replication.factor"] >= 1,
        "expected at least 1",
    ),
    (
        "log.cleaner.dedupe.buffer.size",
        lambda v: v["log.cleaner.dedupe.buffer.size"] > max(1, v["log.cleaner.threads"]) << 20,
        "must be more than 1 MiB for each of log.cleaner.threads",
    ),
    (
        STORAGE_URI,
        lambda v: not v[SYSTEM_ENABLE] or bool((v[STORAGE_URI] or "").strip()),
        f"must be set where {SYSTEM_ENABLE}=true: file:///DIRECTORY or s3://BUCKET/PREFIX",
    ),
    _not_above("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    _not_above("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    _not_above("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    _not_above("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    _not_above("metadata.log.segment.min.bytes", "metadata.log.segment.bytes"),
    (
        "queued.max.request.bytes",
        lambda v: not 0 < v["queued.max.request.bytes"] < v["socket.request.max.bytes"],
        "must not be below socket.request.max.bytes",
    ),
    (
        "max.connections.per.ip",
        lambda v: v["max.connections.per.ip"] != 0 or v["max.connections.per.ip.overrides"] != "",
        "can be 0 only where max.connections.per.ip.overrides is set",
    ),
    (
        "broker.heartbeat.interval.ms",
        lambda v: 0 < v["broker.heartbeat.interval.ms"] < v["broker.session.timeout.ms"],
        "must be above 0 and below broker.session.timeout.ms",
    ),
)
"""Rules for one property once derived, or between two."""


def broken_rules(values: Values) -> list[Problem]:
    """Return the rules that typed values break."""
    return [
        Problem(name, None if values[name] is None else str(values[name]), reason)
        for name, holds, reason in RULES
        if not holds(values)
    ]


def _check_values(values: Values) -> None:
    problems = broken_rules(values)
    if problems:
        raise ConfigError(problems)


def _check_quorum(
    node_id: int,
    roles: tuple[str, ...],
    voters: tuple[Voter, ...],
    servers: tuple[tuple[str, int], ...],
    values: Mapping[str, Any],
) -> None:
    name = "controller.quorum.voters"
    shown = ",".join(values[name])
    if not voters and not servers:
        raise fail(
            name,
            None,
            "must name the controllers, or controller.quorum.bootstrap.servers must say where"
            " they are",
        )
    ids = {voter.id for voter in voters}
    if "controller" in roles and voters and node_id not in ids:
        raise fail(name, shown, f"must contain node.id={node_id}, which is a controller")
    if "controller" not in roles and node_id in ids:
        raise fail(name, shown, f"must not contain node.id={node_id}, which is only a broker")
