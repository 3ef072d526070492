"""Classic group lifecycle: the states, the events and every legal transition.

The table is total at import and has no side effects. An illegal event returns None, not an
exception, since the error code of the response differs by API.

Source: Kafka's ClassicGroupState.
"""

from enum import Enum

State = Enum("State", "EMPTY PREPARING COMPLETING STABLE DEAD")
Event = Enum("Event", "REBALANCE ALL_JOINED NONE_JOINED LEADER_SYNC EXPIRE UNLOAD")

E, S = Event, State
ANYWHERE = {E.UNLOAD: S.DEAD}  # The offsets partition moved to another coordinator.
TABLE: dict[State, dict[Event, State]] = {
    S.EMPTY:      {E.REBALANCE: S.PREPARING, E.EXPIRE: S.DEAD} | ANYWHERE,
    S.PREPARING:  {E.ALL_JOINED: S.COMPLETING, E.NONE_JOINED: S.EMPTY} | ANYWHERE,
    S.COMPLETING: {E.LEADER_SYNC: S.STABLE, E.REBALANCE: S.PREPARING} | ANYWHERE,
    S.STABLE:     {E.REBALANCE: S.PREPARING} | ANYWHERE,
    S.DEAD:       ANYWHERE,
}  # fmt: skip
assert set(TABLE) == set(State)  # A new state without a row must not import.

NAMES: dict[State, str] = {
    S.EMPTY: "Empty",
    S.PREPARING: "PreparingRebalance",
    S.COMPLETING: "CompletingRebalance",
    S.STABLE: "Stable",
    S.DEAD: "Dead",
}
"""What DescribeGroups and ListGroups call the states; tools match on these words."""
assert set(NAMES) == set(State)


def next_state(state: State, event: Event) -> State | None:
    """Return the state after `event`; None = illegal, the caller picks the error code."""
    return TABLE[state].get(event)
