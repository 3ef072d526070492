"""Write docs/state-machines.md from the tables of the two state machines.

    python tools/diagrams.py            writes the page
    python tools/diagrams.py --check    exit code 1 where the page is not what it would write

The diagrams are Mermaid, which code hosts draw. Transitions come from the tables alone; the words
on what is done are here, one for each state, and a state without its words stops the tool.
"""

import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Final, TypeVar

from ottla.controller import partition_states, replica_states
from ottla.controller.partition_states import PartitionState
from ottla.controller.replica_states import ReplicaState

S = TypeVar("S", bound=Enum)

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "state-machines.md"

INTRODUCTION: Final = """\
# The controller's state machines

Written by `tools/diagrams.py` from `controller/partition_states.py` and
`controller/replica_states.py`; a test fails where it is not current. The names are Kafka's, the
ids those of its metrics.

A transition that is not drawn is refused, for that partition or replica alone, and reported; all
others of the same round proceed. What entering a state brings is decided by
`controller/partition_changes.py` and `controller/replica_changes.py`, and comes out as records to
write and requests to send.

The tables are walked where the controller tells its brokers by requests, as in clusters over
ZooKeeper, which Ottla does not run yet. Where brokers follow the metadata log (KRaft) nobody
walks them: the state of a partition or replica follows from the metadata at any moment, and
brokers act on it by themselves. Replicas of deleted topics are no longer in the metadata, so
none of the states of deletion is ever seen there.
"""

PARTITION_WORK: Final = {
    PartitionState.NEW: "Nothing yet: it has replicas, and waits for its first leader.",
    PartitionState.ONLINE: (
        "From NewPartition the first live replica leads, and all live ones are in sync; they get"
        " LeaderAndIsr as new. Else an election by one of the four strategies, with the leader"
        " epoch raised, and LeaderAndIsr to those whom the strategy names. Without a leader it"
        " stays where it was."
    ),
    PartitionState.OFFLINE: "In memory only: its leader is gone.",
    PartitionState.NON_EXISTENT: "In memory only: its topic is being deleted.",
}

REPLICA_WORK: Final = {
    ReplicaState.NEW: "LeaderAndIsr as new, where the partition is led; never for its leader.",
    ReplicaState.ONLINE: (
        "From NewReplica it joins the assignment where it is missing. Else LeaderAndIsr, where"
        " the partition is led and its topic is to stay."
    ),
    ReplicaState.OFFLINE: (
        "StopReplica without deletion. It leaves the in-sync set, but for the last member, and"
        " the lead; the other replicas get LeaderAndIsr, unless the topic is to go. A partition"
        " that nobody ever led only has everybody told of the live brokers."
    ),
    ReplicaState.DELETION_STARTED: "StopReplica with deletion.",
    ReplicaState.DELETION_SUCCESSFUL: "In memory only: the broker has confirmed.",
    ReplicaState.DELETION_INELIGIBLE: (
        "In memory only: its broker or disk is gone. It is tried again from OfflineReplica."
    ),
    ReplicaState.NON_EXISTENT: "It leaves the assignment and is forgotten.",
}


def page() -> str:
    """Return the whole page."""
    partitions = _machine("Partitions", partition_states.PREVIOUS, PARTITION_WORK)
    replicas = _machine("Replicas", replica_states.PREVIOUS, REPLICA_WORK)
    return "\n".join([INTRODUCTION, *partitions, "", *replicas, ""])


def _machine(
    title: str, previous: Mapping[S, frozenset[S]], work: Mapping[S, str]
) -> Iterator[str]:
    assert set(work) == set(previous), f"a state of {title} has no words"
    yield f"## {title}"
    yield ""
    yield "```mermaid"
    yield "stateDiagram-v2"
    for target, source in _transitions(previous):
        yield f"    {_name(source)} --> {_name(target)}"
    yield "```"
    yield ""
    yield "| State | Id | Entered from | On entry |"
    yield "|---|---|---|---|"
    for state in previous:
        sources = ", ".join(_name(each) for each in _in_order(previous[state]))
        yield f"| {_name(state)} | {state.value} | {sources} | {work[state]} |"


def _transitions(previous: Mapping[S, frozenset[S]]) -> Iterator[tuple[S, S]]:
    for target, sources in previous.items():
        for source in _in_order(sources):
            yield target, source


def _in_order(states: frozenset[S]) -> list[S]:
    return sorted(states, key=lambda state: state.value)


def _name(state: Enum) -> str:
    assert isinstance(state, PartitionState | ReplicaState)
    return state.kafka_name


def main(arguments: list[str]) -> int:
    """Write the page, or check it; return the exit code."""
    wanted = page()
    if arguments == ["--check"]:
        current = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        if current != wanted:
            print(f"{PAGE.name} is not current: run python tools/diagrams.py", file=sys.stderr)
        return int(current != wanted)
    if arguments:
        print("usage: diagrams.py [--check]", file=sys.stderr)
        return 2
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
