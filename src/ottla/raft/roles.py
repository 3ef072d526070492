"""The roles of a quorum member and what leads from one to another.

Source: KIP-595 and the opening comment of Kafka's QuorumState. Observers are members that may
not vote: they know the roles UNATTACHED and FOLLOWER only, which `OBSERVER_ROLES` says.

START_OVER  the only voter of a quorum needs nobody's leave to begin an election
TIMEOUT     an election or fetch timeout ran out
VOTES_WON   a majority granted its vote
NEW_EPOCH   a peer spoke of a later epoch, without a leader
LEADER_SEEN a peer named the leader of this or a later epoch
RESIGN      a leader gives up, or wakes up in an epoch that it led before its restart
"""

from enum import Enum

Role = Enum("Role", "UNATTACHED FOLLOWER CANDIDATE LEADER RESIGNED")
Cause = Enum("Cause", "START_OVER TIMEOUT VOTES_WON NEW_EPOCH LEADER_SEEN RESIGN")

C, R = Cause, Role
OVERRULED = {C.NEW_EPOCH: R.UNATTACHED, C.LEADER_SEEN: R.FOLLOWER}
STANDS = {C.START_OVER: R.CANDIDATE, C.TIMEOUT: R.CANDIDATE}
TABLE: dict[Role, dict[Cause, Role]] = {
    R.UNATTACHED: OVERRULED | STANDS | {C.RESIGN: R.RESIGNED},
    R.FOLLOWER:   OVERRULED | STANDS,
    R.CANDIDATE:  OVERRULED | STANDS | {C.VOTES_WON: R.LEADER},
    R.LEADER:     OVERRULED | {C.RESIGN: R.RESIGNED},
    R.RESIGNED:   OVERRULED | STANDS,
}  # fmt: skip
assert set(TABLE) == set(Role)

OBSERVER_ROLES = frozenset({R.UNATTACHED, R.FOLLOWER})


def next_role(role: Role, cause: Cause) -> Role | None:
    """Return the role after `cause`; None = it cannot happen in this role."""
    return TABLE[role].get(cause)
