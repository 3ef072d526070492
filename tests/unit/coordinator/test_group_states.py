"""The table of group states allows exactly what Kafka's does.

Method: every pair of state and event, against the previous states that ClassicGroupState.java
names as valid for each state, written down here independently of the table.
"""

from itertools import product

import pytest

from ottla.coordinator.group_states import NAMES, TABLE, Event, State, next_state

LEADS_TO = {
    Event.REBALANCE: State.PREPARING,
    Event.ALL_JOINED: State.COMPLETING,
    Event.NONE_JOINED: State.EMPTY,
    Event.LEADER_SYNC: State.STABLE,
    Event.EXPIRE: State.DEAD,
    Event.UNLOAD: State.DEAD,
}
VALID_PREVIOUS = {
    State.EMPTY: {State.PREPARING},
    State.PREPARING: {State.STABLE, State.COMPLETING, State.EMPTY},
    State.COMPLETING: {State.PREPARING},
    State.STABLE: {State.COMPLETING},
    State.DEAD: set(State),
}


@pytest.mark.parametrize(("state", "event"), list(product(State, Event)))
def test_every_state_and_event(state: State, event: Event) -> None:
    target = LEADS_TO[event]
    legal = state in VALID_PREVIOUS[target]
    if event is Event.EXPIRE:
        legal = state is State.EMPTY  # Only a group without members expires.
    assert next_state(state, event) == (target if legal else None)


def test_the_table_is_total_and_dead_is_final() -> None:
    assert set(TABLE) == set(NAMES) == set(State)
    assert set(TABLE[State.DEAD].values()) == {State.DEAD}


def test_every_state_can_be_reached_and_left() -> None:
    reached = {target for row in TABLE.values() for target in row.values()}
    assert reached == set(State)
    assert all(set(row.values()) - {state} for state, row in TABLE.items() if state != State.DEAD)
