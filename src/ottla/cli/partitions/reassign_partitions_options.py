"""The options of `ottla reassign-partitions`, and which can be combined.

Source: ReassignPartitionsCommandOptions, ReassignPartitionsCommand.validateAndParseArgs.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.errors import CommandError, UsageError, shown
from ottla.cli.options import check_allowed, flag, is_given, parse_ids
from ottla.cli.partitions import partition_file as files

NO_LIMIT = -1
DEFAULT_TIMEOUT_MS = 10_000

BootstrapController = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-controller",
        metavar="HOST:PORT[,...]",
        help="Controllers to ask, instead of brokers; for --cancel and --list.",
        show_default=False,
    ),
]
Generate = Annotated[
    bool, typer.Option("--generate", help="Propose an assignment; change nothing.")
]
Execute = Annotated[bool, typer.Option("--execute", help="Start the reassignments of a file.")]
Verify = Annotated[
    bool, typer.Option("--verify", help="Show the progress of the reassignments of a file.")
]
Cancel = Annotated[bool, typer.Option("--cancel", help="Cancel the reassignments of a file.")]
List = Annotated[bool, typer.Option("--list", help="List reassignments under way.")]
ReassignmentFile = Annotated[
    Path | None,
    typer.Option("--reassignment-json-file", metavar="FILE", help="Partitions and replicas."),
]
TopicsFile = Annotated[
    Path | None,
    typer.Option(
        "--topics-to-move-json-file", metavar="FILE", help="The topics to move, for --generate."
    ),
]
BrokerList = Annotated[
    str | None,
    typer.Option("--broker-list", metavar="1,2,3", help="The brokers to move to, for --generate."),
]
DisableRackAware = Annotated[
    bool, typer.Option("--disable-rack-aware", help="Ignore racks in --generate.")
]
Additional = Annotated[
    bool, typer.Option("--additional", help="Execute even if other reassignments are under way.")
]
Throttle = Annotated[
    int | None,
    typer.Option("--throttle", metavar="BYTES", help="Refused: brokers do not throttle."),
]
LogDirsThrottle = Annotated[
    int | None,
    typer.Option(
        "--replica-alter-log-dirs-throttle",
        metavar="BYTES",
        help="Refused: brokers do not throttle.",
    ),
]
PreserveThrottles = Annotated[
    bool, typer.Option("--preserve-throttles", help="Do not remove throttles.")
]
TimeoutMs = Annotated[
    int,
    typer.Option(
        "--timeout", metavar="MS", help="How long to wait for brokers and for each answer."
    ),
]

ALLOWED_ACTIONS = {
    "bootstrap_controller": frozenset({"cancel", "list"}),
    "reassignment_json_file": frozenset({"execute", "verify", "cancel"}),
    "topics_to_move_json_file": frozenset({"generate"}),
    "broker_list": frozenset({"generate"}),
    "disable_rack_aware": frozenset({"generate"}),
    "additional": frozenset({"execute"}),
    "throttle": frozenset({"execute"}),
    "replica_alter_log_dirs_throttle": frozenset({"execute"}),
    "preserve_throttles": frozenset({"verify", "cancel"}),
}
REQUIRED = {
    "generate": ("topics_to_move_json_file", "broker_list"),
    "execute": ("reassignment_json_file",),
    "verify": ("reassignment_json_file",),
    "cancel": ("reassignment_json_file",),
    "list": (),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignOptions:
    """The options. Fields are named as the options."""

    bootstrap_server: str | None = None
    bootstrap_controller: str | None = None
    reassignment_json_file: Path | None = None
    topics_to_move_json_file: Path | None = None
    broker_list: str | None = None
    disable_rack_aware: bool = False
    additional: bool = False
    throttle: int | None = None
    replica_alter_log_dirs_throttle: int | None = None
    preserve_throttles: bool = False


def check(action: str, options: ReassignOptions) -> None:
    """Raise UsageError for options that cannot be combined, CommandError for throttles."""
    if options.bootstrap_server is not None and options.bootstrap_controller is not None:
        raise UsageError("only one of --bootstrap-server and --bootstrap-controller can be given")
    check_allowed(action, options, ALLOWED_ACTIONS)
    for name in REQUIRED[action]:
        if not is_given(getattr(options, name)):
            raise UsageError(f"{flag(name)} is required with --{action}")
    for name in ("throttle", "replica_alter_log_dirs_throttle"):
        limit = getattr(options, name)
        if limit is not None and limit > NO_LIMIT:
            raise CommandError(f"{flag(name)} is not supported: brokers enforce no quotas so far")


def parse_brokers(text: str) -> list[int]:
    """Return the ids that --broker-list names."""
    brokers = parse_ids(text)
    if brokers is None:
        raise UsageError(f"--broker-list {shown(text)}: expected broker ids, as 1,2,3")
    twice = sorted({each for each in brokers if brokers.count(each) > 1})
    if twice:
        raise CommandError(f"Broker list contains duplicate entries: {files.ids(twice)}")
    return brokers
