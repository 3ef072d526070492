"""`ottla configs`: describe or alter dynamic configuration. As kafka-configs.sh.

Entity types: topics and brokers. The other types of Kafka's tool are rejected by name.
"""

import re
from collections.abc import Mapping, Sequence

from ottla.cli.bootstrap_options import BootstrapController, BootstrapOptions
from ottla.cli.configs import configs_client, configs_zookeeper
from ottla.cli.configs import configs_options as opt
from ottla.cli.configs.configs_client import BROKER, SOURCES, TOPIC, Entry
from ottla.cli.errors import CommandError, UsageError, shown
from ottla.cli.options import (
    DEFAULT_TIMEOUT_SECONDS,
    BootstrapServer,
    CommandConfig,
    Timeout,
    ZooKeeper,
    check_zookeeper,
    one_of,
    parse_ids,
    read_property_file,
)
from ottla.cli.typing_app import examples, new_app
from ottla.client.cluster import ClusterClient
from ottla.client.errors import check
from ottla.wire.messages import incremental_alter_configs as alter_wire

app = new_app()

EPILOG = examples(
    "ottla configs --bootstrap-server localhost:9092 --describe --topic orders --all",
    "ottla configs --bootstrap-server localhost:9092 --alter --topic orders \\",
    "    --add-config retention.ms=3600000,cleanup.policy=[compact,delete]",
    "ottla configs --bootstrap-server localhost:9092 --alter --topic orders \\",
    "    --delete-config retention.ms",
    "ottla configs --bootstrap-server localhost:9092 --alter --broker-defaults \\",
    "    --add-config log.retention.ms=3600000",
)

CLIENT_ID = "configs-tool"

KINDS = {"topics": TOPIC, "brokers": BROKER}
OTHER_KINDS = ("broker-loggers", "client-metrics", "clients", "groups", "ips", "users")

SET = 0
DELETE = 1
DYNAMIC_SOURCES = {TOPIC: 1, BROKER: 2}
DYNAMIC_DEFAULT_SOURCE = 3

# A comma separates unless square brackets hold it.
_OUTSIDE_BRACKETS = r"(?=[^\]]*(?:\[|$))"
_NAME = re.compile(r"[a-zA-Z0-9._-]+")

Entity = tuple[str, str | None]
"""Entity type (plural) and name: "" = the cluster-wide default, None = all of the type."""


@app.command("configs", epilog=EPILOG)
def configs(
    bootstrap_server: BootstrapServer = None,
    bootstrap_controller: BootstrapController = None,
    zookeeper: ZooKeeper = None,
    describe: opt.Describe = False,
    alter: opt.Alter = False,
    entity_type: opt.EntityType = None,
    entity_name: opt.EntityName = None,
    entity_default: opt.EntityDefault = False,
    topic: opt.Topic = None,
    broker: opt.Broker = None,
    broker_defaults: opt.BrokerDefaults = False,
    add_config: opt.AddConfig = None,
    add_config_file: opt.AddConfigFile = None,
    delete_config: opt.DeleteConfig = None,
    all_: opt.All = False,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_SECONDS,
) -> None:
    """Describe or alter the dynamic configuration of topics and brokers."""
    action = one_of(describe=describe, alter=alter)
    entity = choose_entity(entity_type, entity_name, entity_default, topic, broker, broker_defaults)
    if zookeeper is not None:
        check_zookeeper(bootstrap_server or bootstrap_controller, command_config)
    bootstrap = BootstrapOptions(bootstrap_server, bootstrap_controller, command_config, timeout)
    if action == "describe":
        if add_config or add_config_file or delete_config:
            raise UsageError("--add-config and --delete-config cannot be used with --describe")
        if zookeeper is not None:
            configs_zookeeper.describe(zookeeper, timeout, *entity)
            return
        _describe(bootstrap, entity, all_)
        return
    if add_config is not None and add_config_file is not None:
        raise UsageError("--add-config and --add-config-file cannot be used together")
    added = parse_added(add_config) if add_config else read_property_file(add_config_file)
    named = [name.strip() for name in delete_config.split(",")] if delete_config else []
    deleted = list(dict.fromkeys(named))
    if not added and not deleted:
        raise UsageError("--alter needs --add-config, --add-config-file or --delete-config")
    if entity[1] is None:
        raise UsageError("--alter needs --entity-name, or --entity-default for brokers")
    if zookeeper is not None:
        configs_zookeeper.alter(zookeeper, timeout, entity[0], entity[1], added, deleted)
        return
    _alter(bootstrap, entity[0], entity[1], added, deleted)


def choose_entity(
    entity_type: opt.Option,
    entity_name: opt.Option,
    entity_default: bool,
    topic: opt.Option,
    broker: opt.Option,
    broker_defaults: bool,
) -> Entity:
    """Return the entity that the options name; raise UsageError for none or several."""
    short: list[Entity] = []
    if topic is not None:
        short.append(("topics", topic))
    if broker is not None:
        short.append(("brokers", broker))
    if broker_defaults:
        short.append(("brokers", ""))
    if short and (entity_type or entity_name or entity_default):
        raise UsageError("--entity-* cannot be used with --topic, --broker or --broker-defaults")
    if len(short) > 1:
        raise UsageError("expected one of --topic, --broker and --broker-defaults")
    if entity_name is not None and entity_default:
        raise UsageError("--entity-name cannot be used with --entity-default")
    if not short:
        if entity_type is None:
            raise UsageError("--entity-type is required: expected topics or brokers")
        short = [(entity_type, "" if entity_default else entity_name)]
    kind, name = short[0]
    if kind in OTHER_KINDS:
        raise UsageError(f"--entity-type {kind} is not available in this version")
    if kind not in KINDS:
        raise UsageError(f"--entity-type {shown(kind)}: expected topics or brokers")
    if kind == "topics" and name == "":
        raise UsageError("topics have no default entity: expected --entity-name")
    if kind == "brokers" and name:
        ids = parse_ids(name)
        if ids is None or len(ids) > 1:
            raise UsageError(f"broker {shown(name)}: expected a broker's id, an integer")
        name = str(ids[0])  # Names of znodes are compared as text: 01 would be another broker.
    return kind, name


def parse_added(text: str) -> dict[str, str]:
    """Return the names and values of --add-config. A value in brackets may contain commas."""
    added = {}
    for pair in re.split("," + _OUTSIDE_BRACKETS, text):
        parts = re.split(r"\s*=\s*" + _OUTSIDE_BRACKETS, pair)
        if len(parts) != 2:
            raise UsageError(f"--add-config {shown(pair)}: expected NAME=VALUE")
        name, value = parts[0].strip(), parts[1]
        if not _NAME.fullmatch(name):
            raise UsageError(f"--add-config {shown(name)}: not a configuration name")
        added[name] = value.replace("[", "").replace("]", "").strip()
    return added


def _describe(bootstrap: BootstrapOptions, entity: Entity, everything: bool) -> None:
    kind, name = entity
    if name is not None:
        names = [name]
    elif bootstrap.controllers is not None:
        raise UsageError("--bootstrap-controller needs --entity-name, or --entity-default")
    else:
        names = bootstrap.ask(CLIENT_ID, lambda client: _names(client, kind))

    def describe_all(client: ClusterClient) -> list[str]:
        entries = {each: _entries(bootstrap, client, kind, each) for each in names}
        return [
            line for each in names for line in describe_lines(kind, each, entries[each], everything)
        ]

    for line in bootstrap.ask(CLIENT_ID, describe_all, node=_controller(bootstrap, kind, name)):
        print(line)


def _names(client: ClusterClient, kind: str) -> list[str]:
    if kind == "topics":
        return [topic.name or "" for topic in client.topics()]
    return [*map(str, client.broker_ids()), ""]


def _entries(
    bootstrap: BootstrapOptions, client: ClusterClient, kind: str, name: str
) -> list[Entry]:
    is_own = bootstrap.controllers is not None
    entries = configs_client.describe(client, KINDS[kind], [name], synonyms=True, is_own=is_own)
    return entries.get(name, [])


def _controller(bootstrap: BootstrapOptions, kind: str, name: str | None) -> int | None:
    """Return the controller to ask: only a controller itself knows its static properties."""
    of_node = bootstrap.controllers is not None and kind == "brokers" and name
    return int(name) if of_node and name else None


def describe_lines(kind: str, name: str, entries: Sequence[Entry], everything: bool) -> list[str]:
    """Return the output for one entity."""
    if name:
        which = "All" if everything else "Dynamic"
        lines = [f"{which} configs for {kind[:-1]} {name} are:"]
    else:
        lines = [f"Default configs for {kind} in the cluster are:"]
    source = DYNAMIC_SOURCES[KINDS[kind]] if name else DYNAMIC_DEFAULT_SOURCE
    for entry in entries:
        if everything or entry.source == source:
            synonyms = ", ".join(
                f"{SOURCES.get(each, 'UNKNOWN')}:{synonym}={_text(value)}"
                for each, synonym, value in entry.synonyms
            )
            sensitive = str(entry.is_sensitive).lower()
            lines.append(
                f"  {entry.name}={_text(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}"
            )
    return lines


def _text(value: str | None) -> str:
    return "null" if value is None else value


def _alter(
    bootstrap: BootstrapOptions,
    kind: str,
    name: str,
    added: Mapping[str, str],
    deleted: Sequence[str],
) -> None:
    if deleted:
        source = DYNAMIC_SOURCES[KINDS[kind]] if name else DYNAMIC_DEFAULT_SOURCE
        present = bootstrap.ask(
            CLIENT_ID,
            lambda client: _entries(bootstrap, client, kind, name),
            node=_controller(bootstrap, kind, name),
        )
        dynamic = {entry.name for entry in present if entry.source == source}
        unknown = [each for each in deleted if each not in dynamic]
        if unknown:
            raise CommandError(f"Invalid config(s): {','.join(unknown)}: not set on this entity")
    operations = [
        alter_wire.AlterableConfig(name=key, config_operation=SET, value=value)
        for key, value in added.items()
    ]
    operations += [
        alter_wire.AlterableConfig(name=key, config_operation=DELETE, value=None) for key in deleted
    ]
    request = alter_wire.IncrementalAlterConfigsRequest(
        resources=(
            alter_wire.AlterConfigsResource(
                resource_type=KINDS[kind], resource_name=name, configs=tuple(operations)
            ),
        ),
        validate_only=False,
    )
    # Kafka requires that a broker's own configuration is sent to that broker.
    node = int(name) if kind == "brokers" and name and bootstrap.controllers is None else None

    def act(client: ClusterClient) -> None:
        response = client.ask(request, alter_wire.IncrementalAlterConfigsResponse, node=node)
        for result in response.responses:
            subject = f"{kind[:-1]} {name or 'defaults'}"
            check(subject, result.error_code, result.error_message)

    bootstrap.ask(CLIENT_ID, act)
    if name:
        print(f"Completed updating config for {kind[:-1]} {name}.")
    else:
        print(f"Completed updating default config for {kind} in the cluster.")
