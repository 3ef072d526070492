"""Write docs/state-machines.md from the tables of the three state machines.

    python tools/diagrams.py            writes the page
    python tools/diagrams.py --check    exit code 1 where the page is not what it would write

The diagrams are Mermaid, which code hosts draw. Transitions come from the tables; the descriptions
of states are here, and a state without a description stops the tool.
"""

import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from ottla.controller.partitions import partition_states, replica_states
from ottla.controller.partitions.partition_states import PartitionState
from ottla.controller.partitions.replica_states import ReplicaState
from ottla.controller.tiering_states import (
    BY_ACKNOWLEDGEMENT,
    BY_CONFIGURATION,
    Refusal,
    Standing,
)
from ottla.metadata.tiering_config import Target

S = TypeVar("S", bound=Enum)


class Description(NamedTuple):
    """A state in the metadata, and the requests that brokers are sent for it."""

    meaning: str
    requests: str


PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "state-machines.md"

INTRODUCTION: Final = """\
# The controller's state machines

Written by `tools/diagrams.py` from `partition_states.py`, `replica_states.py` and
`tiering_states.py` of `controller`; a test fails if it is not current. The names of the first two
are Kafka's, the ids those of its metrics.

In both modes one controller decides on the metadata. The state of a partition or a replica is
derived from the metadata at any time (`partition_state_of`, `replica_state_of`). Decisions do not
step through these tables: a decision is one change, even if it takes several steps here, as when a
topic is created with its leaders. In KRaft mode brokers receive a change with the metadata log and
act on it; in ZooKeeper mode the controller sends them requests
(`controller/zookeeper/broker_requests.py`).

Deletions do step through the replicas' table (`controller/deletion/deletion_policy.py`), and the
deletion ledger stores the state of each replica. A transition that is not drawn is refused for that
replica only, and logged; all others proceed. These states are visible in ZooKeeper mode, where a
topic stays until all its replicas are deleted. In KRaft mode the topic and its replicas leave the
metadata at once.
"""

PARTITION_WORK: Final = {
    PartitionState.NEW: Description(
        "It is assigned and never had a leader: in ZooKeeper mode it has no state yet. Never in"
        " KRaft mode, where partitions are created with their leaders.",
        "Nothing.",
    ),
    PartitionState.ONLINE: Description(
        "It has a leader.",
        "UpdateMetadata to all brokers for any change. LeaderAndIsr to its replicas if they have to"
        " act on it, as new to those that did not have it before.",
    ),
    PartitionState.OFFLINE: Description(
        "It had a leader and has none: no replica that may lead is online.",
        "The same, with the leader -1.",
    ),
    PartitionState.NON_EXISTENT: Description(
        "It does not exist. In ZooKeeper mode also: the deletion of its topic has started.",
        "UpdateMetadata with the leader -2 to all brokers when the deletion starts; nothing later.",
    ),
}

REPLICA_WORK: Final = {
    ReplicaState.NEW: Description(
        "A reassignment adds it, and it is not in sync yet.", "LeaderAndIsr as new."
    ),
    ReplicaState.ONLINE: Description(
        "Its broker is online and not shutting down, and its log directory is online.",
        "LeaderAndIsr for what changes; for all its replicas when its broker registers.",
    ),
    ReplicaState.OFFLINE: Description(
        "Its broker is offline, fenced or shutting down, or its log directory is offline.",
        "UpdateMetadata to all brokers says that it is offline. A broker that shuts down gets"
        " StopReplica without deletion for its follower replicas, if there are other replicas.",
    ),
    ReplicaState.DELETION_STARTED: Description(
        "In the ledger: its broker was requested to delete it.",
        "StopReplica with deletion, until there is a response.",
    ),
    ReplicaState.DELETION_SUCCESSFUL: Description(
        "In the ledger: its broker has confirmed.", "Nothing."
    ),
    ReplicaState.DELETION_INELIGIBLE: Description(
        "In the ledger: its broker is offline, its log directory has failed, or the broker returned"
        " an error. It continues from OfflineReplica when its broker is back, or confirms the"
        " deletion.",
        "StopReplica with deletion at intervals, while its broker is online.",
    ),
    ReplicaState.NON_EXISTENT: Description(
        "It is not assigned.",
        "StopReplica with deletion, if a reassignment removed it.",
    ),
}


TIERING_INTRODUCTION: Final = """\
## Remote storage

The state of a topic's remote storage is in the metadata (`TopicTiering`), and changes together with
the topic's configuration. Here state and policy are one name; NEVER_TIERED is the absence of a
state. What a configuration asks for: *tiered*: `remote.storage.enable=true`; *retain* and *delete*:
`remote.storage.enable=false` with that `remote.log.disable.policy`. Kafka's names mean the same:
`remote.log.delete.on.disable=true` is *delete*, and `remote.log.copy.disable=true` beside
`remote.storage.enable=true` is *retain*. *acknowledged*: all brokers that have to acknowledge did.
Each transition into ENABLED and into DISABLING raises the tiered epoch. Deleting the topic ends it
from any state.
"""

TIERING_WORK: Final = {
    Standing.NEVER_TIERED: "Nothing is copied. A policy is stored, without an effect.",
    Standing.ENABLED: "Segments are copied, read and expired. A policy is stored, without an"
    " effect.",
    Standing.DISABLING_RETAIN: "DisableRemoteTopic to all live brokers with replicas, until they"
    " have stopped copying.",
    Standing.DISABLING_DELETE: "The same; leaders also move the log start behind the remote"
    " segments, for which a partition without a live leader waits. The floor is the epoch before.",
    Standing.DISABLED_RETAIN: "What is remote is read and expires. Nothing is copied.",
    Standing.DISABLED_DELETE: "What was remote is not read any more. It is purged, which may go on"
    " after the topic is enabled again.",
}

REFUSALS: Final = {
    Refusal.IN_PROGRESS: "refused: TIERED_STORAGE_DISABLEMENT_IN_PROGRESS",
    Refusal.DELETED: "stays; a request that names `retain` during the purge: INVALID_REQUEST",
}


def page() -> str:
    """Return the whole page."""
    partitions = _machine("Partitions", partition_states.PREVIOUS, PARTITION_WORK)
    replicas = _machine("Replicas", replica_states.PREVIOUS, REPLICA_WORK)
    tiering = (TIERING_INTRODUCTION, *_tiering())
    return "\n".join([INTRODUCTION, *partitions, "", *replicas, "", *tiering, ""])


def _tiering() -> Iterator[str]:
    assert set(TIERING_WORK) == set(Standing), "a state of remote storage has no description"
    yield "```mermaid"
    yield "stateDiagram-v2"
    for source, row in BY_CONFIGURATION.items():
        for asked, target in row.items():
            if isinstance(target, Standing) and target is not source:
                yield f"    {source.value} --> {target.value}: {asked.value}"
        if source in BY_ACKNOWLEDGEMENT:
            yield f"    {source.value} --> {BY_ACKNOWLEDGEMENT[source].value}: acknowledged"
    yield "```"
    yield ""
    yield "| State | " + " | ".join(f"Asked for {each.value}" for each in Target) + " | Brokers |"
    yield "|---|" + "---|" * len(Target) + "---|"
    for source, row in BY_CONFIGURATION.items():
        cells = " | ".join(_result(source, row[each]) for each in Target)
        yield f"| {source.value} | {cells} | {TIERING_WORK[source]} |"
    yield ""
    yield (
        "While a topic is DISABLING, a request that changes what one of the names means is refused:"
        " TIERED_STORAGE_DISABLEMENT_IN_PROGRESS. One that repeats them succeeds."
    )


def _result(source: Standing, target: Standing | Refusal) -> str:
    if isinstance(target, Refusal):
        return REFUSALS[target]
    return "stays" if target is source else target.value


def _machine(
    title: str, previous: Mapping[S, frozenset[S]], work: Mapping[S, Description]
) -> Iterator[str]:
    assert set(work) == set(previous), f"a state of {title} has no description"
    yield f"## {title}"
    yield ""
    yield "```mermaid"
    yield "stateDiagram-v2"
    for target, source in _transitions(previous):
        yield f"    {_name(source)} --> {_name(target)}"
    yield "```"
    yield ""
    yield "| State | Id | Entered from | In the metadata | Requests in ZooKeeper mode |"
    yield "|---|---|---|---|---|"
    for state in previous:
        sources = ", ".join(_name(each) for each in _in_order(previous[state]))
        meaning, requests = work[state]
        yield f"| {_name(state)} | {state.value} | {sources} | {meaning} | {requests} |"


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
