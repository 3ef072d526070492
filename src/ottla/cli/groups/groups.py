"""`ottla groups`: groups of all types. As kafka-groups.sh (KIP-1043).

Source: GroupsCommand, Kafka 4.3.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import typer

from ottla.cli.errors import UsageError, shown
from ottla.cli.options import (
    DEFAULT_TIMEOUT_SECONDS,
    BootstrapServer,
    CommandConfig,
    Timeout,
    connect,
)
from ottla.cli.typing_app import examples, new_app
from ottla.client.cluster import ClusterClient
from ottla.client.errors import check
from ottla.wire.messages import list_groups as wire

app = new_app()

EPILOG = examples(
    "ottla groups --bootstrap-server localhost:9092 --list",
    "ottla groups --bootstrap-server localhost:9092 --list --consumer",
)

TYPES = {"classic": "Classic", "consumer": "Consumer", "share": "Share", "streams": "Streams"}
CONSUMER_PROTOCOLS = ("consumer", "")
"""Protocol types of classic consumer groups; empty for a group of committed offsets only."""

WIDTH_MIN = 20


@dataclass(frozen=True, slots=True)
class Row:
    """One group as brokers list it; `type` in lower case."""

    group: str
    type: str
    protocol: str

    @property
    def is_of_consumers(self) -> bool:
        """Tell whether its members are consumers, whichever protocol they rebalance by."""
        is_classic = self.type == "classic" and self.protocol in CONSUMER_PROTOCOLS
        return is_classic or self.type == "consumer"


@app.command("groups", epilog=EPILOG)
def groups(
    bootstrap_server: BootstrapServer = None,
    list_: Annotated[bool, typer.Option("--list", help="List groups.")] = False,
    consumer: Annotated[
        bool, typer.Option("--consumer", help="Only consumer groups, classic ones included.")
    ] = False,
    share: Annotated[bool, typer.Option("--share", help="Only share groups.")] = False,
    streams: Annotated[bool, typer.Option("--streams", help="Only streams groups.")] = False,
    group_type: Annotated[
        str | None,
        typer.Option(
            "--group-type", metavar="TYPE", help=f"Only groups of this type: {', '.join(TYPES)}."
        ),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option("--protocol", metavar="NAME", help="Only groups of this protocol type."),
    ] = None,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_SECONDS,
) -> None:
    """List groups with their type and protocol."""
    if not list_:
        raise UsageError("Command must include exactly one action: --list.")
    kinds = [name for name, given in (("--consumer", consumer), ("--share", share),
             ("--streams", streams)) if given]  # fmt: skip
    others = [name for name, given in (("--group-type", group_type), ("--protocol", protocol))
              if given is not None]  # fmt: skip
    if len(kinds) > 1 or (kinds and others):
        first, second, *_ = [*kinds, *others]
        raise UsageError(f"{first} cannot be used with {second}")
    wanted = None if group_type is None else group_type.lower()
    if wanted is not None and wanted not in TYPES:
        raise UsageError(f"--group-type {shown(group_type or '')}: expected {', '.join(TYPES)}")
    if share or streams:
        wanted = "share" if share else "streams"
    with connect(bootstrap_server, command_config, timeout, "groups-tool") as client:
        rows = [
            row
            for row in list_groups(client)
            if (wanted is None or row.type == wanted)
            and (protocol is None or row.protocol == protocol)
            and (not consumer or row.is_of_consumers)
        ]
    print("\n".join(lines(rows)))


def list_groups(client: ClusterClient) -> list[Row]:
    """Return the groups of all brokers, sorted."""
    found: dict[str, Row] = {}
    for broker in client.broker_ids():

        def act(broker: int = broker) -> wire.ListGroupsResponse:
            response = client.ask(wire.ListGroupsRequest(), wire.ListGroupsResponse, node=broker)
            check(f"broker {broker}", response.error_code)
            return response

        for each in client.with_retries(act).groups:
            kind = (each.group_type or "classic").lower()
            found[each.group_id] = Row(each.group_id, kind, each.protocol_type)
    return [found[name] for name in sorted(found)]


def lines(rows: Iterable[Row]) -> list[str]:
    """Return the table in Kafka's layout; rows have one trailing blank more than the heading."""
    listed = list(rows)
    width = max([WIDTH_MIN, *(len(row.group) for row in listed)])
    return [f"{'GROUP':<{width}} {'TYPE':<20} {'PROTOCOL':<20}"] + [
        f"{row.group:<{width}} {TYPES.get(row.type, 'Unknown'):<20} {row.protocol:<20} "
        for row in listed
    ]
