"""`/brokers/ids/N`: the registration of a live broker; the znode is ephemeral.

The znode's czxid is the broker epoch. Versions: 5 is written; 1 (host and port alone) to 4 (no
features) are read. A host and port are written beside the endpoints for clients that read nothing
else: those of the first plaintext endpoint.
Source: BrokerIdZNode, SocketServerConfigs, Kafka 3.9; KIP-103, KIP-584.
"""

import re
from dataclasses import dataclass, field
from typing import Any, Final

from immutables import Map

from ottla.base.ids import Uuid
from ottla.metadata.brokers import PLAINTEXT, BrokerImage, Endpoint, FeatureRange
from ottla.metadata.listeners import PROTOCOLS
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.fields import NO_EXTRA, Extra, Fields, parse, shown, written

VERSION: Final = 5
NO_JMX_PORT: Final = -1

_NAMES: Final = {number: name for name, number in PROTOCOLS.items()}
_ENDPOINT: Final = re.compile(r"(?P<name>[^:/]+)://\[?(?P<host>[^\[\]/]*?)\]?:(?P<port>-?[0-9]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerZnode:
    """The content of the znode. `features`: (lowest, highest) supported level by name."""

    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    jmx_port: int = NO_JMX_PORT
    timestamp_ms: int = 0
    features: Map[str, tuple[int, int]] = field(default_factory=Map)
    version: int = VERSION
    extra: Extra = NO_EXTRA


def broker_image(broker_id: int, znode: BrokerZnode, czxid: int) -> BrokerImage:
    """Return the broker as the image holds it: unfenced, of the epoch that the znode's czxid is."""
    return BrokerImage(
        id=broker_id,
        epoch=czxid,
        incarnation_id=Uuid(czxid.to_bytes(16, "big")),
        endpoints=znode.endpoints,
        features=tuple(
            FeatureRange(name, lowest, highest)
            for name, (lowest, highest) in sorted(znode.features.items())
        ),
        rack=znode.rack,
        fenced=False,
    )


def decode_broker(broker_id: int, data: bytes) -> BrokerZnode:
    """Return a broker's registration. Raises: ZnodeError."""
    fields = parse(paths.broker(broker_id), data)
    version = fields.number("version")
    if version < 1:
        raise fields.fail(f"version is {version}: expected 1 or more")
    host = fields.text("host") if fields.has("host") else ""
    port = fields.number("port", -1)
    if version == 1:
        if not host or port < 0:
            raise fields.fail("expected a host and a port in version 1")
        endpoints: tuple[Endpoint, ...] = (Endpoint("PLAINTEXT", host, port),)
    else:
        endpoints = _endpoints(fields)
    return BrokerZnode(
        endpoints=endpoints,
        rack=fields.text("rack") if fields.has("rack") else None,
        jmx_port=fields.number("jmx_port", NO_JMX_PORT),
        timestamp_ms=fields.timestamp_ms(),
        features=_features(fields),
        version=version,
        extra=fields.rest(),
    )


def _endpoints(fields: Fields) -> tuple[Endpoint, ...]:
    # Before there were listeners' names (version 4), a protocol's name stood in their place.
    given = fields.object("listener_security_protocol_map").values
    protocols = {
        name.upper(): each
        for name, each in (given or dict(zip(PROTOCOLS, PROTOCOLS, strict=True))).items()
    }
    found = []
    for text in fields.items("endpoints"):
        match = _ENDPOINT.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise fields.fail(f"endpoint {shown(text)}: expected NAME://host:port")
        name, port = match["name"].upper(), int(match["port"])
        protocol = PROTOCOLS.get(str(protocols.get(name)))
        if protocol is None:
            raise fields.fail(f"endpoint {text}: expected a known protocol for the listener {name}")
        if not 0 <= port <= 65_535:
            raise fields.fail(f"endpoint {text}: expected a port from 0 to 65535")
        found.append(Endpoint(name, match["host"], port, protocol))
    return tuple(found)


def _features(fields: Fields) -> Map[str, tuple[int, int]]:
    found = {}
    for name, levels in fields.object("features").values.items():
        if not isinstance(levels, dict):
            raise fields.fail(f"feature {name} is {shown(levels)}: expected its levels")
        each = Fields(fields.path, levels)
        found[name] = (each.number("min_version"), each.number("max_version"))
    return Map(found)


def encode_broker(znode: BrokerZnode) -> bytes:
    """Return the znode's data, in version 5."""
    plain = next((each for each in znode.endpoints if each.security_protocol == PLAINTEXT), None)
    values: dict[str, Any] = {
        "version": VERSION,
        "host": None if plain is None else plain.host,
        "port": -1 if plain is None else plain.port,
        "jmx_port": znode.jmx_port,
        "timestamp": str(znode.timestamp_ms),
        "endpoints": [_endpoint_text(each) for each in znode.endpoints],
        "listener_security_protocol_map": {
            each.name: _NAMES[each.security_protocol] for each in znode.endpoints
        },
    }
    if znode.rack is not None:
        values["rack"] = znode.rack
    values["features"] = {
        name: {"min_version": lowest, "max_version": highest}
        for name, (lowest, highest) in sorted(znode.features.items())
    }
    return written(values, znode.extra)


def _endpoint_text(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.name}://{host}:{endpoint.port}"
