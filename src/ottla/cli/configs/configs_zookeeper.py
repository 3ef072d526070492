"""`ottla configs --zookeeper`: configuration through znodes, as kafka-configs.sh up to 3.9.

A change writes two znodes in one multi: the entity's values and a change notification for the
brokers. Broker configuration can be written only while the broker is down: a running broker must
validate it.

Source: ConfigCommand.processCommandWithZk, Kafka 3.9.
"""

from collections.abc import Mapping, Sequence

from ottla.base.errors import ApiError
from ottla.base.zookeeper import Create, Operation, SetData
from ottla.cli.errors import CommandError
from ottla.cli.zookeeper_client import Read, WriteConflict, ZooKeeperClient
from ottla.cli.zookeeper_tiering import check_tiering, note_remote_storage
from ottla.metadata.configs import ALL_BROKERS, Resource, ResourceType
from ottla.metadata.topic_config import check_may_go, validate_topic_configs
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.config import ConfigZnode, decode_config, encode_config
from ottla.metadata.znodes.fields import ZnodeError
from ottla.metadata.znodes.notifications import encode_config_change

KINDS = {"topics": ResourceType.TOPIC, "brokers": ResourceType.BROKER}


def describe(connect: str, timeout: float, kind: str, name: str | None) -> None:
    """Print the values that are set for an entity; name None = for all entities of the kind."""
    with ZooKeeperClient(connect, timeout) as client:
        resources = [_resource(kind, name)] if name is not None else _resources(client, kind)
        for resource in resources:
            values = _values(client, resource)[0].values
            listed = ",".join(f"{key}={value}" for key, value in sorted(values.items()))
            print(f"Configs for {_entity(resource)} are {listed}")


def alter(
    connect: str,
    timeout: float,
    kind: str,
    name: str,
    added: Mapping[str, str],
    deleted: Sequence[str],
) -> None:
    """Set and unset values of one entity."""
    resource = _resource(kind, name)
    with ZooKeeperClient(connect, timeout) as client:
        _check(client, resource)
        znode, read = _values(client, resource)
        unknown = [each for each in deleted if each not in znode.values]
        if unknown:
            raise CommandError(f"Invalid config(s): {','.join(unknown)}")
        values = {**znode.values, **added}
        for each in deleted:
            del values[each]
        if kind == "topics":
            try:
                validate_topic_configs(values)
                check_may_go(resource[1], values)
                check_tiering(values)
            except ApiError as error:
                raise CommandError(error.message or error.error.name) from None
        path, data = paths.config(resource), encode_config(values, znode.extra)
        written: Operation = (
            Create(path, data) if read is None else SetData(path, data, read.version)
        )
        change = encode_config_change(resource)
        client.make_parents(path)
        client.make_parents(paths.CONFIG_CHANGE)
        try:
            client.write([written, Create(paths.CONFIG_CHANGE, change, sequential=True)])
        except WriteConflict:
            raise CommandError(f"{_entity(resource)} was changed meanwhile: try again") from None
    print(f"Completed Updating config for entity: {_entity(resource)}.")
    if kind == "topics":
        note_remote_storage(znode.values, values)


def _resource(kind: str, name: str) -> Resource:
    return int(KINDS[kind]), name


def _resources(client: ZooKeeperClient, kind: str) -> list[Resource]:
    found = {
        resource
        for each in client.children(f"{paths.CONFIGS}/{kind}")
        if (resource := paths.resource(kind, each)) is not None
    }
    if kind == "topics":
        found |= {_resource(kind, each) for each in client.topic_names()}
    return sorted(found)


def _check(client: ZooKeeperClient, resource: Resource) -> None:
    kind, name = resource
    if kind == ResourceType.TOPIC:
        if client.topic(name) is None:
            raise CommandError(f"Topic '{name}' does not exist on ZK path {client.connect}")
        return
    alive = client.broker_ids()
    concerned = alive if name == ALL_BROKERS else [each for each in alive if str(each) == name]
    if concerned:
        raise CommandError(
            f"--bootstrap-server option must be specified to update broker configs: "
            f"broker {concerned[0]} is running, and must agree"
        )


def _values(client: ZooKeeperClient, resource: Resource) -> tuple[ConfigZnode, Read | None]:
    read = client.read(paths.config(resource))
    try:
        return (ConfigZnode() if read is None else decode_config(resource, read.data)), read
    except ZnodeError as error:
        raise CommandError(str(error)) from None


def _entity(resource: Resource) -> str:
    kind, name = resource
    what = "topic" if kind == ResourceType.TOPIC else "broker"
    return f"default entity of {what}s" if name == ALL_BROKERS else f"{what} '{name}'"
