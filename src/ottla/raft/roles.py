"""The roles of a quorum member and the transitions between them.

Source: KIP-595, KIP-996 and the opening comment of Kafka's QuorumState. Kafka 4 no longer has a
role Voted: whom an unattached member voted for is a field. Observers are members that may not
vote: they know the roles UNATTACHED and FOLLOWER only, which `OBSERVER_ROLES` says.

START_OVER    the only voter of a quorum begins an election without a pre-vote
TIMEOUT       an election or fetch timeout ran out
PRE_VOTES_WON a majority would grant its vote
VOTES_WON     a majority granted its vote
NO_MAJORITY   a majority would not, or the timeout ran out, and no leader is known
NEW_EPOCH     a peer has a later epoch, without a leader
LEADER_SEEN   a peer named the leader of this or a later epoch, or the old one may still lead
RESIGN        a leader resigns, or restarts in an epoch that it led before
"""

from enum import Enum

Role = Enum("Role", "UNATTACHED FOLLOWER PROSPECTIVE CANDIDATE LEADER RESIGNED")
Cause = Enum(
    "Cause",
    "START_OVER TIMEOUT PRE_VOTES_WON VOTES_WON NO_MAJORITY NEW_EPOCH LEADER_SEEN RESIGN",
)

C, R = Cause, Role
OVERRULED = {C.NEW_EPOCH: R.UNATTACHED, C.LEADER_SEEN: R.FOLLOWER}
ALONE = {C.START_OVER: R.CANDIDATE}
TABLE: dict[Role, dict[Cause, Role]] = {
    R.UNATTACHED:  OVERRULED | ALONE | {C.TIMEOUT: R.PROSPECTIVE, C.RESIGN: R.RESIGNED},
    R.FOLLOWER:    OVERRULED | {C.TIMEOUT: R.PROSPECTIVE},
    R.PROSPECTIVE: OVERRULED | {C.PRE_VOTES_WON: R.CANDIDATE, C.NO_MAJORITY: R.UNATTACHED},
    R.CANDIDATE:   OVERRULED | {C.TIMEOUT: R.PROSPECTIVE, C.VOTES_WON: R.LEADER},
    R.LEADER:      OVERRULED | {C.RESIGN: R.RESIGNED},
    R.RESIGNED:    OVERRULED | ALONE | {C.TIMEOUT: R.UNATTACHED},
}  # fmt: skip
assert set(TABLE) == set(Role)

OBSERVER_ROLES = frozenset({R.UNATTACHED, R.FOLLOWER})


def next_role(role: Role, cause: Cause) -> Role | None:
    """Return the role after `cause`; None = it cannot happen in this role."""
    return TABLE[role].get(cause)
