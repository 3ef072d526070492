"""Write docs/state-machines.md from the tables of the two state machines.

    python tools/diagrams.py            writes the page
    python tools/diagrams.py --check    exit code 1 where the page is not what it would write

The diagrams are Mermaid, which code hosts draw. Transitions come from the tables alone; the words
on what a state is are here, and a state without its words stops the tool.
"""

import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from ottla.controller import partition_states, replica_states
from ottla.controller.partition_states import PartitionState
from ottla.controller.replica_states import ReplicaState

S = TypeVar("S", bound=Enum)


class Words(NamedTuple):
    """What a state is in the metadata, and what brokers are told of it by requests."""

    what: str
    told: str


PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "state-machines.md"

INTRODUCTION: Final = """\
# The controller's state machines

Written by `tools/diagrams.py` from `controller/partition_states.py` and
`controller/replica_states.py`; a test fails where it is not current. The names are Kafka's, the
ids those of its metrics.

In both modes one controller decides on the metadata, and which state a partition or a replica is in
follows from that at any moment (`partition_state_of`, `replica_state_of`). Nobody walks these
tables on the way to a decision: what is decided at once is one change, though it takes several
steps here, as where a topic is made with its leaders. Brokers learn of a change from the metadata
log in KRaft, and act on it by themselves; in clusters over ZooKeeper they are sent requests
(`controller/broker_requests.py`).

Deletions do walk the replicas' table (`controller/deletion_policy.py`), and the ledger of deletions
keeps how far each replica is. A transition that is not drawn is refused, for that replica alone,
and logged; all others proceed. This is seen over ZooKeeper, where a topic stays until all its
replicas have gone. In KRaft the topic leaves the metadata at once, and with it its replicas do.
"""

PARTITION_WORK: Final = {
    PartitionState.NEW: Words(
        "It is assigned, and nobody ever led it: over ZooKeeper it has no state yet. In KRaft"
        " never, since partitions are made with their leaders.",
        "Nothing.",
    ),
    PartitionState.ONLINE: Words(
        "It has a leader.",
        "UpdateMetadata to all, of any change. LeaderAndIsr to its replicas where they have to act"
        " on it, as new to those that did not hold it before.",
    ),
    PartitionState.OFFLINE: Words(
        "Somebody led it, and nobody does: no replica that may lead is there.",
        "The same, with the leader -1.",
    ),
    PartitionState.NON_EXISTENT: Words(
        "It is not there. Over ZooKeeper also: the deletion of its topic has begun.",
        "UpdateMetadata with the leader -2 to all when the deletion begins; nothing after that.",
    ),
}

REPLICA_WORK: Final = {
    ReplicaState.NEW: Words(
        "A reassignment adds it, and it is not in sync yet.", "LeaderAndIsr as new."
    ),
    ReplicaState.ONLINE: Words(
        "Its broker is there and stays, and its folder works.",
        "LeaderAndIsr of what changes; of all that it hosts when its broker comes.",
    ),
    ReplicaState.OFFLINE: Words(
        "Its broker is gone, fenced or about to go, or its folder has failed.",
        "All hear by UpdateMetadata that it is offline. A broker that is about to go gets"
        " StopReplica without deletion for what it follows, where there are other replicas.",
    ),
    ReplicaState.DELETION_STARTED: Words(
        "In the ledger: its broker was ordered to delete it.",
        "StopReplica with deletion, until there is an answer.",
    ),
    ReplicaState.DELETION_SUCCESSFUL: Words("In the ledger: its broker has confirmed.", "Nothing."),
    ReplicaState.DELETION_INELIGIBLE: Words(
        "In the ledger: its broker is gone, its folder has failed, or it was refused. It goes on"
        " from OfflineReplica when its broker is back, or says that it is gone.",
        "StopReplica with deletion now and then, where its broker is there.",
    ),
    ReplicaState.NON_EXISTENT: Words(
        "It is not assigned.",
        "StopReplica with deletion, where a reassignment took it out.",
    ),
}


def page() -> str:
    """Return the whole page."""
    partitions = _machine("Partitions", partition_states.PREVIOUS, PARTITION_WORK)
    replicas = _machine("Replicas", replica_states.PREVIOUS, REPLICA_WORK)
    return "\n".join([INTRODUCTION, *partitions, "", *replicas, ""])


def _machine(
    title: str, previous: Mapping[S, frozenset[S]], work: Mapping[S, Words]
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
    yield "| State | Id | Entered from | In the metadata | Told over ZooKeeper |"
    yield "|---|---|---|---|---|"
    for state in previous:
        sources = ", ".join(_name(each) for each in _in_order(previous[state]))
        what, told = work[state]
        yield f"| {_name(state)} | {state.value} | {sources} | {what} | {told} |"


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
