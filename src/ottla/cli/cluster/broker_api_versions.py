"""`ottla broker-api-versions`: which versions of which APIs each broker serves.

As kafka-broker-api-versions.sh, and Ottla's own APIs (keys from 1000) of Ottla's brokers.
Source: BrokerApiVersionsCommand and NodeApiVersions, Kafka 4.3.
"""

from collections.abc import Mapping

from ottla.cli.errors import CommandError
from ottla.cli.options import (
    DEFAULT_TIMEOUT_SECONDS,
    BootstrapServer,
    CommandConfig,
    Timeout,
    connect,
)
from ottla.cli.typing_app import examples, new_app
from ottla.client.errors import ClientError
from ottla.wire.registry import APIS

app = new_app()

EPILOG = examples("ottla broker-api-versions --bootstrap-server localhost:9092")

BETWEEN_NODES = frozenset({4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82})
"""Inter-broker and controller APIs. Kafka's tool does not list them."""

OWN_FROM = 1000
"""Keys from here on are Ottla's own. Not listed for a broker that does not serve them."""


@app.command("broker-api-versions", epilog=EPILOG)
def broker_api_versions(
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_SECONDS,
) -> None:
    """Show which versions of which APIs each broker serves, and which version this client uses."""
    failed = 0
    with connect(bootstrap_server, command_config, timeout, "broker-api-versions") as client:
        brokers = sorted(client.cluster().brokers, key=lambda each: each.node_id)
        for broker in brokers:
            rack = "null" if broker.rack is None else broker.rack
            name = (
                f"{broker.host}:{broker.port} (id: {broker.node_id} rack: {rack} isFenced: false)"
            )
            try:
                versions = client.versions(broker.node_id)
            except ClientError as error:
                print(f"{name} -> ERROR: {error}")
                failed += 1
                continue
            print(f"{name} -> (")
            print(",\n".join(f"\t{line}" for line in version_lines(versions)))
            print(")")
    if failed:
        raise CommandError(f"{failed} of {len(brokers)} brokers did not answer")


def version_lines(served: Mapping[int, range]) -> list[str]:
    """Return a line for each API in the order of keys, in Kafka's format."""
    known = {key for key in APIS if key not in BETWEEN_NODES and key < OWN_FROM}
    return [_line(key, served.get(key)) for key in sorted(known | set(served))]


def _line(key: int, versions: range | None) -> str:
    info = APIS.get(key)
    name = f"{'UNKNOWN' if info is None else info.name}({key}): "
    if versions is None:
        return f"{name}UNSUPPORTED"
    first, last = versions[0], versions[-1]
    versions_text = f"{first}" if first == last else f"{first} to {last}"
    if info is None:
        return f"{name}{versions_text}"
    usable = min(last, info.last)
    if usable < info.first:
        return f"{name}{versions_text} [unusable: node too old]"
    if usable < first:
        return f"{name}{versions_text} [unusable: node too new]"
    return f"{name}{versions_text} [usable: {usable}]"
