"""The options of `ottla consumer-groups`, and which can be combined.

Source: ConsumerGroupCommandOptions.
"""

from dataclasses import dataclass
from typing import Annotated

import typer

from ottla.cli.errors import UsageError
from ottla.cli.options import check_allowed, flag, is_given

OPTIONAL_VALUES = {"--state": "", "--type": ""}
"""Options whose value is optional."""

STATES = {
    "stable": "Stable",
    "empty": "Empty",
    "dead": "Dead",
    "preparingrebalance": "PreparingRebalance",
    "completingrebalance": "CompletingRebalance",
    "assigning": "Assigning",
    "reconciling": "Reconciling",
}
TYPES = {"classic": "classic", "consumer": "consumer"}

List = Annotated[bool, typer.Option("--list", help="List the names of groups.")]
Describe = Annotated[
    bool, typer.Option("--describe", help="Describe groups: --offsets, --members or --state.")
]
Offsets = Annotated[bool, typer.Option("--offsets", help="Describe offsets and lag (the default).")]
Members = Annotated[bool, typer.Option("--members", help="Describe members.")]
State = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="[S,...]",
        help="Describe the state; with --list: show states, or only groups in states S.",
    ),
]
Type = Annotated[
    str | None,
    typer.Option(
        "--type", metavar="[T,...]", help="With --list: show types, or only groups of types T."
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", help="With --members: show assignments.")]
Groups = Annotated[
    list[str], typer.Option("--group", metavar="NAME", help="A group; may be given repeatedly.")
]
AllGroups = Annotated[bool, typer.Option("--all-groups", help="All groups.")]
Delete = Annotated[bool, typer.Option("--delete", help="Delete groups that have no members.")]
DeleteOffsets = Annotated[
    bool, typer.Option("--delete-offsets", help="Delete a group's offsets of --topic.")
]
ResetOffsets = Annotated[
    bool, typer.Option("--reset-offsets", help="Plan new offsets, or set them with --execute.")
]
Topics = Annotated[
    list[str],
    typer.Option("--topic", metavar="T[:0,1]", help="A topic, or some partitions; repeatable."),
]
AllTopics = Annotated[
    bool, typer.Option("--all-topics", help="All topics with committed offsets of the group.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show the plan (the default).")]
Execute = Annotated[bool, typer.Option("--execute", help="Set the offsets.")]
Export = Annotated[bool, typer.Option("--export", help="Show the plan as CSV.")]
ToEarliest = Annotated[bool, typer.Option("--to-earliest", help="To the earliest offset.")]
ToLatest = Annotated[bool, typer.Option("--to-latest", help="To the latest offset.")]
ToCurrent = Annotated[bool, typer.Option("--to-current", help="To the committed offset.")]
ToOffset = Annotated[int | None, typer.Option("--to-offset", metavar="N", help="To this offset.")]
ShiftBy = Annotated[
    int | None, typer.Option("--shift-by", metavar="N", help="By N offsets; N may be negative.")
]
ByDuration = Annotated[
    str | None, typer.Option("--by-duration", metavar="PnDTnHnMnS", help="To this long ago.")
]
ToDatetime = Annotated[
    str | None,
    typer.Option("--to-datetime", metavar="TIME", help="To YYYY-MM-DDTHH:mm:SS.sss (UTC)."),
]
FromFile = Annotated[
    str | None, typer.Option("--from-file", metavar="FILE", help="To the offsets of a CSV file.")
]
TimeoutMs = Annotated[
    int,
    typer.Option(
        "--timeout", metavar="MS", help="How long to wait for brokers and for each answer."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    """The options. Fields are named as the options."""

    group: tuple[str, ...] = ()
    all_groups: bool = False
    topic: tuple[str, ...] = ()
    all_topics: bool = False
    offsets: bool = False
    members: bool = False
    state: str | None = None
    type: str | None = None
    verbose: bool = False
    dry_run: bool = False
    execute: bool = False
    export: bool = False
    to_earliest: bool = False
    to_latest: bool = False
    to_current: bool = False
    to_offset: int | None = None
    shift_by: int | None = None
    by_duration: str | None = None
    to_datetime: str | None = None
    from_file: str | None = None


SCENARIOS = (
    "to_earliest",
    "to_latest",
    "to_current",
    "to_offset",
    "shift_by",
    "by_duration",
    "to_datetime",
    "from_file",
)
_RESET = frozenset({"reset-offsets"})
ALLOWED_ACTIONS: dict[str, frozenset[str]] = {
    "group": frozenset({"describe", "delete", "reset-offsets", "delete-offsets"}),
    "all_groups": frozenset({"describe", "delete", "reset-offsets"}),
    "topic": frozenset({"reset-offsets", "delete-offsets"}),
    "offsets": frozenset({"describe"}),
    "members": frozenset({"describe"}),
    "verbose": frozenset({"describe"}),
    "state": frozenset({"describe", "list"}),
    "type": frozenset({"list"}),
    **dict.fromkeys(("all_topics", "dry_run", "execute", "export", *SCENARIOS), _RESET),
}
"""The actions that an option can be used with."""


def check(action: str, options: GroupOptions) -> None:
    """Raise UsageError for options that cannot be combined."""
    check_allowed(action, options, ALLOWED_ACTIONS)
    if action in ALLOWED_ACTIONS["group"]:
        _check_groups(action, options)
    if action == "describe":
        chosen = [options.members, options.offsets, options.state is not None]
        if sum(chosen) > 1:
            raise UsageError("--describe takes one of --members, --offsets and --state")
        if options.state:
            raise UsageError(f"--state {options.state}: expected no value with --describe")
    if action == "delete-offsets" and (len(options.group) != 1 or not options.topic):
        raise UsageError("--delete-offsets needs one --group, and --topic")
    if action == "reset-offsets":
        _check_reset(options)


def _check_groups(action: str, options: GroupOptions) -> None:
    if options.group and options.all_groups:
        raise UsageError("--group cannot be used with --all-groups")
    if not (options.group or options.all_groups):
        choice = "--group" if action == "delete-offsets" else "--group or --all-groups"
        raise UsageError(f"--{action} needs {choice}")


def _check_reset(options: GroupOptions) -> None:
    if options.dry_run and options.execute:
        raise UsageError("--dry-run cannot be used with --execute")
    given = [name for name in SCENARIOS if is_given(getattr(options, name))]
    if len(given) != 1:
        got = ", ".join(map(flag, given)) or "none"
        raise UsageError(
            f"--reset-offsets needs exactly one of {', '.join(map(flag, SCENARIOS))}, got {got}"
        )
    if options.topic and options.all_topics:
        raise UsageError("--topic cannot be used with --all-topics")
    if not (options.topic or options.all_topics) and options.from_file is None:
        raise UsageError("--reset-offsets needs --topic or --all-topics")


def parse_names(text: str | None, known: dict[str, str], option: str) -> tuple[str, ...]:
    """Return the names of a comma-separated list in Kafka's spelling; case does not matter."""
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    for word in words:
        if word.lower() not in known:
            raise UsageError(f"{option} {word}: expected some of {', '.join(known.values())}")
    return tuple(known[word.lower()] for word in words)
