"""Options that Kafka's tools share, and the client for them."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ottla.base.ids import Uuid, parse_uuid
from ottla.cli.errors import CommandError, UsageError, shown
from ottla.cli.progress import print_stderr
from ottla.client.cluster import ClientConfig, ClusterClient
from ottla.client.errors import request_name
from ottla.client.transport import PLAINTEXT, SecurityProtocolError, transport_of
from ottla.client.waiting import RETRY_SECONDS

DEFAULT_DATA_DIR = "ottla-data"
DEFAULT_TIMEOUT_SECONDS = 15.0
SECONDS_MAX = 1_000_000.0
CLIENT_ID_BYTES_MAX = 32_767
NUMBER_MAX = 2**31 - 1
"""The largest id, partition or count: the protocol's integers have 32 bits."""
DIGITS_MAX = 100
"""Digits of a number, leading zeros included: Python refuses to parse thousands."""


def bootstrap_server_option(*short: str) -> Any:
    """Return the option, with Kafka's short form where its tool has one."""
    return typer.Option(
        "--bootstrap-server",
        *short,
        metavar="HOST:PORT[,...]",
        help="Brokers to connect to.  [default: the cluster of ./ottla-data, if it runs]",
        show_default=False,
    )


def command_config_option(*short: str) -> Any:
    """Return the option, with Kafka's short form where its tool has one."""
    return typer.Option(
        "--command-config",
        *short,
        metavar="FILE",
        help="Property file for the client, e.g. client.id.",
        show_default=False,
    )


BootstrapServer = Annotated[str | None, bootstrap_server_option()]
ZooKeeper = Annotated[
    str | None,
    typer.Option(
        "--zookeeper",
        metavar="HOST:PORT[,...][/CHROOT]",
        help="Use the znodes of a ZooKeeper cluster instead of the brokers.",
        show_default=False,
    ),
]
CommandConfig = Annotated[str | None, command_config_option()]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", metavar="SECONDS", help="How long to wait for brokers, and for each response."
    ),
]


def bootstrap_or_local(given: str | None) -> str:
    """Return `given`, else the address of the cluster that runs from ./ottla-data.

    Kafka's tools require the option; the default is printed on stderr.
    """
    if given is not None:
        return given
    from ottla.testing import cluster_file
    from ottla.testing.layout import ClusterError
    from ottla.testing.local_cluster import LocalCluster

    data_dir = Path(DEFAULT_DATA_DIR)
    if cluster_file.exists(data_dir):
        local = LocalCluster(data_dir, bound=False)
        try:
            if any(node.plan.is_broker for node in local.alive()):
                bootstrap = local.entry().bootstrap
                print(f"using the cluster of ./{data_dir} at {bootstrap}", file=sys.stderr)
                return bootstrap
        except ClusterError as error:
            raise CommandError(str(error)) from None
    raise UsageError(
        "--bootstrap-server HOST:PORT is required, since no cluster runs from ./" + str(data_dir)
    )


def connect(
    bootstrap: str | None,
    command_config: str | None,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
    client_id: str = "ottla",
) -> ClusterClient:
    """Return an administration client for the options."""
    check_seconds(timeout)
    properties = read_property_file(command_config)
    protocol = properties.get("security.protocol", PLAINTEXT)
    try:
        transport_of(protocol)
    except SecurityProtocolError as error:
        raise CommandError(
            f"{command_config}: {error}, "
            "the only protocol of this version's administration commands"
        ) from None
    client_id = properties.get("client.id", client_id)
    if len(client_id.encode()) > CLIENT_ID_BYTES_MAX:
        raise CommandError(
            f"{command_config}: client.id={client_id}: expected {CLIENT_ID_BYTES_MAX} bytes at most"
        )
    servers = bootstrap_or_local(bootstrap)
    try:
        config = ClientConfig(
            bootstrap=servers,
            client_id=client_id,
            security_protocol=protocol,
            backoff_s_max=RETRY_SECONDS,
        )
    except ValueError:
        raise UsageError(
            f"--bootstrap-server {shown(servers)}: expected HOST:PORT[,HOST:PORT...]"
        ) from None
    return ClusterClient(config.with_timeout(timeout), print_stderr)


def expect_kraft(client: ClusterClient, request: type) -> None:
    """Raise CommandError where the cluster does not serve a request of KRaft mode."""
    if not client.serves(request):
        raise CommandError(
            f"the cluster at {client.config.bootstrap} does not serve {request_name(request)}: "
            "expected a KRaft cluster, not ZooKeeper mode"
        )


def choose_config(name: str, given: str | None, former: str, formerly: str | None) -> str | None:
    """Return the property file of an option that Kafka 4.2 has given another name (KIP-1147).

    Raises UsageError where both names are used. The deprecation warning goes to stderr; Kafka's
    tools print it on stdout, where the console consumer's records are.
    """
    if given is not None and formerly is not None:
        raise UsageError(f"Options {name} and {former} cannot be specified together.")
    if formerly is not None:
        warn_deprecated(former, name)
    return given if formerly is None else formerly


def warn_deprecated(former: str, name: str) -> None:
    """Print that an option is deprecated."""
    print(
        f"Warning: {former} is deprecated and will be removed in a future version. "
        f"Use {name} instead.",
        file=sys.stderr,
    )


def check_zookeeper(bootstrap: str | None, command_config: str | None) -> None:
    """Raise UsageError for options of brokers together with --zookeeper."""
    if bootstrap is not None:
        raise UsageError("only one of --bootstrap-server and --zookeeper can be given")
    if command_config is not None:
        raise UsageError("--command-config cannot be used with --zookeeper")


def check_seconds(timeout: float, option: str = "--timeout") -> None:
    """Raise UsageError for a timeout out of range: 0, infinity, not a number."""
    if not 0 < timeout <= SECONDS_MAX:
        raise UsageError(
            f"{option} {timeout:g}: expected more than 0 seconds, at most {SECONDS_MAX:g}"
        )


def check_number(option: str, value: int | None, lowest: int, highest: int = NUMBER_MAX) -> None:
    """Raise UsageError where an option that was given is out of its range."""
    if value is not None and not lowest <= value <= highest:
        raise UsageError(f"{option} {value}: expected {lowest} to {highest}")


def parse_ids(text: str, separator: str = ",") -> list[int] | None:
    """Return the broker or partition ids of a list; None where it is not a list of ids."""
    ids = []
    for word in text.split(separator):
        number = parse_number(word.strip())
        if number is None or number > NUMBER_MAX:
            return None
        ids.append(number)
    return ids


def checked_topic_id(text: str, expected: str = "the 22 characters of a topic id") -> Uuid:
    """Return the value of `--topic-id`. Raises: UsageError."""
    try:
        return parse_uuid(text)
    except ValueError:
        raise UsageError(f"--topic-id {text}: expected {expected}") from None


def parse_number(text: str) -> int | None:
    """Return a number of decimal digits; None where it is not one, or has too many digits."""
    if not (text.isascii() and text.isdecimal()) or len(text) > DIGITS_MAX:
        return None
    return int(text)


def read_property_file(path: str | None) -> dict[str, str]:
    """Return the properties of a file; none for None."""
    if path is None:
        return {}
    from ottla.cli.local.server import read_file

    return read_file(path)


def key_values(pairs: list[str], option: str, *, empty: bool = True) -> dict[str, str]:
    """Return `NAME=VALUE` arguments as a dict; the value may hold "=" and may be empty."""
    values: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not name.strip() or not (separator or empty):
            raise UsageError(f"{option} {shown(pair)}: expected NAME=VALUE")
        values[name.strip()] = value
    return values


def one_of(**flags: bool) -> str:
    """Return the name of the flag that is set; raise UsageError unless it is exactly one."""
    chosen = [name for name, given in flags.items() if given]
    if len(chosen) != 1:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in flags)
        got = ", ".join(f"--{name.replace('_', '-')}" for name in chosen) or "none"
        raise UsageError(f"expected exactly one of {names}, got {got}")
    return chosen[0]


def is_given(value: object) -> bool:
    """Tell whether an option was given: 0 and "" are values; None, False and () are not."""
    return value is not None and value is not False and value != ()


def check_allowed(action: str, options: object, allowed: Mapping[str, frozenset[str]]) -> None:
    """Raise UsageError for an option that cannot be used with the action."""
    for name, actions in allowed.items():
        if is_given(getattr(options, name)) and action not in actions:
            raise UsageError(f"{flag(name)} cannot be used with {flag(action)}")


def flag(name: str) -> str:
    """Return the option's name for a field's name."""
    return f"--{name.replace('_', '-')}"
