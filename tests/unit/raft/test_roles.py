"""The table of roles says what KIP-595 and KIP-996 say, and no role is a dead end.

Method: the whole table, cell by cell, against the transitions that the KIPs list.
"""

import pytest

from ottla.raft.roles import OBSERVER_ROLES, TABLE, Cause, Role, next_role

LEGAL = {
    (Role.UNATTACHED, Cause.START_OVER): Role.CANDIDATE,
    (Role.UNATTACHED, Cause.TIMEOUT): Role.PROSPECTIVE,
    (Role.UNATTACHED, Cause.NEW_EPOCH): Role.UNATTACHED,
    (Role.UNATTACHED, Cause.LEADER_SEEN): Role.FOLLOWER,
    (Role.UNATTACHED, Cause.RESIGN): Role.RESIGNED,
    (Role.FOLLOWER, Cause.TIMEOUT): Role.PROSPECTIVE,
    (Role.FOLLOWER, Cause.NEW_EPOCH): Role.UNATTACHED,
    (Role.FOLLOWER, Cause.LEADER_SEEN): Role.FOLLOWER,
    (Role.PROSPECTIVE, Cause.PRE_VOTES_WON): Role.CANDIDATE,
    (Role.PROSPECTIVE, Cause.NO_MAJORITY): Role.UNATTACHED,
    (Role.PROSPECTIVE, Cause.NEW_EPOCH): Role.UNATTACHED,
    (Role.PROSPECTIVE, Cause.LEADER_SEEN): Role.FOLLOWER,
    (Role.CANDIDATE, Cause.TIMEOUT): Role.PROSPECTIVE,
    (Role.CANDIDATE, Cause.VOTES_WON): Role.LEADER,
    (Role.CANDIDATE, Cause.NEW_EPOCH): Role.UNATTACHED,
    (Role.CANDIDATE, Cause.LEADER_SEEN): Role.FOLLOWER,
    (Role.LEADER, Cause.NEW_EPOCH): Role.UNATTACHED,
    (Role.LEADER, Cause.LEADER_SEEN): Role.FOLLOWER,
    (Role.LEADER, Cause.RESIGN): Role.RESIGNED,
    (Role.RESIGNED, Cause.START_OVER): Role.CANDIDATE,
    (Role.RESIGNED, Cause.TIMEOUT): Role.UNATTACHED,
    (Role.RESIGNED, Cause.NEW_EPOCH): Role.UNATTACHED,
    (Role.RESIGNED, Cause.LEADER_SEEN): Role.FOLLOWER,
}


@pytest.mark.parametrize("role", list(Role), ids=lambda role: role.name)
@pytest.mark.parametrize("cause", list(Cause), ids=lambda cause: cause.name)
def test_every_transition_is_as_in_the_kips(role: Role, cause: Cause) -> None:
    assert next_role(role, cause) is LEGAL.get((role, cause))


def test_only_a_candidate_becomes_leader() -> None:
    ways = {role for role, row in TABLE.items() if Role.LEADER in row.values()}
    assert ways == {Role.CANDIDATE}


def test_a_higher_epoch_overrules_every_role() -> None:
    for row in TABLE.values():
        assert row[Cause.NEW_EPOCH] is Role.UNATTACHED
        assert row[Cause.LEADER_SEEN] is Role.FOLLOWER


def test_an_observer_stays_an_observer() -> None:
    for role in OBSERVER_ROLES:
        for cause in (Cause.NEW_EPOCH, Cause.LEADER_SEEN):
            assert next_role(role, cause) in OBSERVER_ROLES
