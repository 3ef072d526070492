"""The properties of a node's listeners, its advertised endpoints, and the voters.

Source: SocketServerConfigs, KafkaConfig's checks of listeners and quorum, QuorumConfig, 4.0.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Any, Final

from ottla.metadata.brokers import PLAINTEXT, Endpoint
from ottla.metadata.config_def import ConfigError, Problem, parse_list

PROTOCOLS: Final = {"PLAINTEXT": PLAINTEXT, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
"""Security protocols by name, with the ids that endpoints carry."""

ANY_ADDRESS: Final = "0.0.0.0"
PORT_MAX: Final = 65_535

_LISTENER = re.compile(
    r"(?P<name>[^:/\s]+)://\[?(?P<host>[0-9a-zA-Z\-%._:]*)\]?:(?P<port>[0-9]+)\Z"
)
_HOST_PORT = re.compile(r"\[?(?P<host>[0-9a-zA-Z\-%._:]+)\]?:(?P<port>[0-9]+)\Z")


@dataclass(frozen=True, slots=True)
class Voter:
    """A controller as `controller.quorum.voters` names it."""

    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """A node's listeners and advertised endpoints: each endpoint has its listener's name.

    An empty host of `own` means every address of the machine; the advertised host is then
    determined when the socket is bound.
    """

    own: tuple[Endpoint, ...]
    advertised: tuple[Endpoint, ...]
    """The broker's; none of a controller's."""
    advertised_controller: tuple[Endpoint, ...]
    controller_names: tuple[str, ...]
    inter_broker_name: str

    @property
    def broker(self) -> tuple[Endpoint, ...]:
        """Return the listeners that clients and brokers use."""
        return tuple(each for each in self.own if each.name not in self.controller_names)

    @property
    def controller(self) -> tuple[Endpoint, ...]:
        """Return the listeners of the controller role."""
        return tuple(each for each in self.own if each.name in self.controller_names)


def fail(name: str, value: object, reason: str) -> ConfigError:
    """Return the error of one property."""
    return ConfigError([Problem(name, None if value is None else str(value), reason)])


def parse_listeners(
    values: Mapping[str, Any],
    given: Mapping[str, str],
    roles: tuple[str, ...],
    *,
    zookeeper: bool = False,
) -> Listeners:
    """Return the node's listeners; raise ConfigError for the first rule that is broken.

    `zookeeper`: controllers are brokers, and have no listeners of their own.
    """
    controller_names = _names(values["controller.listener.names"])
    if not controller_names and not zookeeper:
        raise fail("controller.listener.names", None, "must name a listener in KRaft mode")
    protocols = _protocol_map(values, given, controller_names)
    own = _endpoints("listeners", values["listeners"], protocols, distinct_ports=True)
    advertised = own
    if values["advertised.listeners"] is not None:
        advertised = _endpoints(
            "advertised.listeners", values["advertised.listeners"], protocols, distinct_ports=False
        )
    advertised = tuple(each for each in advertised if each.name not in controller_names)
    found = {each.name: each for each in (*own, *advertised) if each.name in controller_names}
    if values["advertised.listeners"] is None:
        # Only clients' listeners must have an address; a controller's may be any.
        found = {
            name: replace(each, host="" if each.host == ANY_ADDRESS else each.host)
            for name, each in found.items()
        }
    listeners = Listeners(
        own=own,
        advertised=advertised,
        advertised_controller=tuple(found[each] for each in controller_names if each in found),
        controller_names=controller_names,
        inter_broker_name=_inter_broker_name(values, given, protocols),
    )
    _check_roles(listeners, values, roles, protocols)
    for endpoint in (*listeners.advertised, *listeners.advertised_controller):
        if endpoint.host == ANY_ADDRESS:
            raise fail(
                "advertised.listeners" if values["advertised.listeners"] else "listeners",
                values["advertised.listeners"] or values["listeners"],
                f"clients cannot connect to {ANY_ADDRESS}: advertise an address that others can"
                " route to",
            )
    return listeners


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.upper() for name in parse_list(text or ""))


def _protocol_map(
    values: Mapping[str, Any], given: Mapping[str, str], controller_names: tuple[str, ...]
) -> dict[str, str]:
    """Return protocols by listener name; controllers' default to PLAINTEXT where no map is."""
    name = "listener.security.protocol.map"
    found: dict[str, str] = {}
    for entry in parse_list(values[name]):
        listener, colon, protocol = entry.partition(":")
        if not colon or protocol.strip().upper() not in PROTOCOLS:
            raise fail(name, values[name], f"expected NAME:PROTOCOL, not {entry!r}")
        found[listener.strip().upper()] = protocol.strip().upper()
    if name not in given:
        for controller in controller_names:
            found.setdefault(controller, "PLAINTEXT")
    return found


def _endpoints(
    name: str, text: str, protocols: Mapping[str, str], *, distinct_ports: bool
) -> tuple[Endpoint, ...]:
    endpoints = tuple(_endpoint(name, entry, protocols) for entry in parse_list(text))
    if len({each.name for each in endpoints}) < len(endpoints):
        raise fail(name, text, "each listener must have a different name")
    if distinct_ports:
        by_port: dict[int, list[str]] = {}
        for each in endpoints:
            if each.port:
                by_port.setdefault(each.port, []).append(each.host)
        for port, hosts in by_port.items():
            if len(hosts) > 1 and sorted(map(_ip_version, hosts)) != [4, 6]:
                raise fail(
                    name,
                    text,
                    f"each listener must have a different port, but several have {port}; only an"
                    " IPv4 and an IPv6 address may share one",
                )
    return endpoints


def _endpoint(name: str, entry: str, protocols: Mapping[str, str]) -> Endpoint:
    match = _LISTENER.match(entry)
    if match is None:
        raise fail(name, entry, "expected NAME://host:port")
    listener, port = match["name"].upper(), int(match["port"])
    if port > PORT_MAX:
        raise fail(name, entry, f"a port is at most {PORT_MAX}")
    protocol = protocols.get(listener)
    if protocol is None:
        raise fail(
            name,
            entry,
            f"no security protocol is defined for the listener {listener}"
            " (listener.security.protocol.map)",
        )
    if protocol != "PLAINTEXT":
        raise fail(name, entry, f"{protocol} is not supported yet: Ottla supports PLAINTEXT only")
    return Endpoint(listener, match["host"], port, PROTOCOLS[protocol])


def _ip_version(host: str) -> int:
    try:
        return ip_address(host).version
    except ValueError:
        return 0


def _inter_broker_name(
    values: Mapping[str, Any], given: Mapping[str, str], protocols: Mapping[str, str]
) -> str:
    name: str | None = values["inter.broker.listener.name"]
    protocol: str = values["security.inter.broker.protocol"].upper()
    if protocol not in PROTOCOLS:
        raise fail("security.inter.broker.protocol", protocol, f"expected one of {[*PROTOCOLS]}")
    if name is None:
        return protocol
    if "security.inter.broker.protocol" in given:
        raise fail(
            "inter.broker.listener.name",
            name,
            "only one of it and security.inter.broker.protocol can be set",
        )
    if name.upper() not in protocols:
        raise fail("inter.broker.listener.name", name, "is not in listener.security.protocol.map")
    return name.upper()


def _check_roles(
    listeners: Listeners,
    values: Mapping[str, Any],
    roles: tuple[str, ...],
    protocols: Mapping[str, str],
) -> None:
    """Check the listener names by role."""
    names = {each.name for each in listeners.own}
    controllers = values["controller.listener.names"]
    if "controller" in roles:
        missing = [each for each in listeners.controller_names if each not in names]
        if missing:
            raise fail(
                "controller.listener.names",
                controllers,
                "must only contain listeners of this node when it is a controller;"
                f" {missing[0]} is not in listeners={values['listeners']}",
            )
    elif listeners.controller:
        raise fail(
            "controller.listener.names",
            controllers,
            "must not contain a listener of this node when process.roles=broker",
        )
    unmapped = [each for each in listeners.controller_names if each not in protocols]
    if unmapped:
        raise fail(
            "controller.listener.names",
            controllers,
            f"{unmapped[0]} is not in listener.security.protocol.map",
        )
    if "broker" in roles:
        _check_broker(listeners, values, names)
    elif listeners.broker:
        raise fail(
            "listeners",
            values["listeners"],
            "must only contain listeners of controller.listener.names when"
            " process.roles=controller",
        )


def _check_broker(listeners: Listeners, values: Mapping[str, Any], names: set[str]) -> None:
    advertised = [each.name for each in listeners.advertised]
    shown = values["advertised.listeners"] or values["listeners"]
    if not advertised:
        raise fail(
            "advertised.listeners",
            shown,
            "a broker must advertise at least one listener; perhaps all of them are in"
            " controller.listener.names",
        )
    unknown = [each for each in advertised if each not in names]
    if unknown:
        raise fail(
            "advertised.listeners",
            shown,
            f"{unknown[0]} is not a listener of this node (listeners={values['listeners']})",
        )
    if listeners.inter_broker_name not in advertised:
        raise fail(
            "inter.broker.listener.name",
            listeners.inter_broker_name,
            f"must be an advertised listener: {', '.join(advertised)}",
        )


def parse_ip_limits(text: str) -> dict[str, int]:
    """Return counts by address: `127.0.0.1:5,::1:6`. Raises: ValueError."""
    found: dict[str, int] = {}
    for entry in parse_list(text):
        address, _, count = entry.rpartition(":")
        if not count.isdecimal():
            raise ValueError(f"{entry!r} is not address:count")
        found[str(ip_address(address.strip().strip("[]")))] = int(count)
    return found


def is_zookeeper_connect(text: str) -> bool:
    """Tell whether `text` names ZooKeeper servers: `zk1:2181,zk2:2181/chroot`; no port = 2181."""
    servers, _, _chroot = text.strip().partition("/")
    named = [entry if ":" in entry else f"{entry}:2181" for entry in servers.split(",")]
    matches = [_HOST_PORT.match(entry.strip()) for entry in named]
    return all(match is not None and int(match["port"]) <= PORT_MAX for match in matches)


def parse_voters(entries: tuple[str, ...]) -> tuple[Voter, ...]:
    """Return the voters of `controller.quorum.voters`, by id."""
    name = "controller.quorum.voters"
    voters: dict[int, Voter] = {}
    for entry in entries:
        voter_id, _, address = entry.partition("@")
        match = _HOST_PORT.match(address)
        if not voter_id.isdecimal() or match is None or int(match["port"]) > PORT_MAX:
            raise fail(name, entry, "expected {id}@{host}:{port}")
        if int(voter_id) in voters:
            raise fail(name, entry, f"the voter {voter_id} comes twice")
        voters[int(voter_id)] = Voter(int(voter_id), match["host"], int(match["port"]))
    return tuple(voters[voter_id] for voter_id in sorted(voters))


def parse_servers(entries: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """Return hosts and ports of `controller.quorum.bootstrap.servers`."""
    return tuple(_servers(entries))


def _servers(entries: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    for entry in entries:
        match = _HOST_PORT.match(entry)
        if match is None or int(match["port"]) > PORT_MAX:
            raise fail("controller.quorum.bootstrap.servers", entry, "expected {host}:{port}")
        yield match["host"], int(match["port"])
