"""What `ottla metadata-quorum` prints, in the format of Kafka's tool.

Source: kafka-metadata-quorum.sh, Kafka 4.0; KIP-595, KIP-836, KIP-853.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from ottla.base.ids import NO_UUID, uuid_text
from ottla.cli.errors import CommandError
from ottla.wire.messages.describe_quorum import Listener, Node, ReplicaState, ResponsePartitionData

TITLES = (
    "NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp",
    "Status",
)  # fmt: skip

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Quorum:
    """The state of the quorum, from its leader."""

    cluster_id: str
    state: ResponsePartitionData
    nodes: tuple[Node, ...]

    @property
    def leader(self) -> ReplicaState:
        """Return the voter that leads; raise CommandError where there is none."""
        for voter in self.state.current_voters:
            if voter.replica_id == self.state.leader_id:
                return voter
        raise CommandError("the quorum has no leader now")


def status_lines(quorum: Quorum) -> list[str]:
    """Return the summary."""
    state, leader = quorum.state, quorum.leader
    # Of equal voters the first counts, as in Kafka's tool.
    slowest = min(state.current_voters, key=lambda voter: voter.log_end_offset)
    lag_ms = UNKNOWN
    if slowest is leader:
        lag_ms = 0
    elif leader.last_caught_up_timestamp >= 0 and slowest.last_caught_up_timestamp >= 0:
        lag_ms = leader.last_caught_up_timestamp - slowest.last_caught_up_timestamp
    facts = {
        "ClusterId": quorum.cluster_id,
        "LeaderId": state.leader_id,
        "LeaderEpoch": state.leader_epoch,
        "HighWatermark": state.high_watermark,
        "MaxFollowerLag": leader.log_end_offset - slowest.log_end_offset,
        "MaxFollowerLagTimeMs": lag_ms,
        "CurrentVoters": _members(state.current_voters, quorum.nodes),
        "CurrentObservers": _members(state.observers, quorum.nodes),
    }
    return [f"{name + ':':<24}{value}" for name, value in facts.items()]


def _members(members: Sequence[ReplicaState], nodes: Sequence[Node]) -> str:
    listeners = {node.node_id: node.listeners for node in nodes}
    return f"[{', '.join(_member(each, listeners.get(each.replica_id, ())) for each in members)}]"


def _member(member: ReplicaState, listeners: Sequence[Listener]) -> str:
    facts: dict[str, object] = {"id": member.replica_id}
    if member.replica_directory_id != NO_UUID:
        facts["directoryId"] = uuid_text(member.replica_directory_id)
    if listeners:
        facts["endpoints"] = [_endpoint(each) for each in listeners]
    return json.dumps(facts)


def _endpoint(listener: Listener) -> str:
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{listener.name}://{host}:{listener.port}"


def replication_lines(quorum: Quorum, now_ms: int | None) -> list[str]:
    """Return the table. `now_ms`: show times as ages before it; None = as timestamps."""
    leader = quorum.leader
    others = [each for each in quorum.state.current_voters if each is not leader]
    rows = [
        _row(each, leader, status, now_ms)
        for status, members in (
            ("Leader", [leader]),
            ("Follower", others),
            ("Observer", quorum.state.observers),
        )
        for each in members
    ]
    widths = [max(map(len, column)) for column in zip(TITLES, *rows, strict=True)]
    return [
        "".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True))
        for row in (TITLES, *rows)
    ]


def _row(
    member: ReplicaState, leader: ReplicaState, status: str, now_ms: int | None
) -> tuple[str, ...]:
    return (
        str(member.replica_id),
        uuid_text(member.replica_directory_id),
        str(member.log_end_offset),
        str(leader.log_end_offset - member.log_end_offset),
        _time(member.last_fetch_timestamp, "last fetch", now_ms),
        _time(member.last_caught_up_timestamp, "last caught up", now_ms),
        status,
    )


def _time(timestamp_ms: int, what: str, now_ms: int | None) -> str:
    if timestamp_ms < 0:
        return str(UNKNOWN)
    if now_ms is None:
        return str(timestamp_ms)
    if not 0 < timestamp_ms <= now_ms:
        raise CommandError(
            f"the {what} was at {timestamp_ms}, but it is {now_ms} here: do the clocks differ?"
        )
    return f"{now_ms - timestamp_ms} ms ago"
