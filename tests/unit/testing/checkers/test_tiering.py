"""Each anomaly of turning tiered storage off is found in a history that has it, and in no other.

Method: histories of a few lines, as in `test_tiers`.
"""

from typing import Any

import pytest

from ottla.base.ids import Uuid
from ottla.testing.checkers import records, tiering
from ottla.testing.history.history import History, Skipped
from ottla.testing.history.tiers import DisabledEarly, StartWentBack, TierHistory, TieringSeen

TOPIC = Uuid(bytes(15) + b"\x08")
PARTITION = (TOPIC, 0)


def state(
    name: str, policy: str, epoch: int, floor: int = 0, *, purge: bool = False
) -> TieringSeen:
    return TieringSeen(TOPIC, name, policy, epoch, floor, purge)


ENABLED = state("ENABLED", "NONE", 1)
RETAINING = state("DISABLING", "RETAIN", 2)
RETAINED = state("DISABLED", "RETAIN", 2)
DELETING = state("DISABLING", "DELETE", 3, 2, purge=True)
DELETED = state("DISABLED", "DELETE", 3, 2, purge=True)
PURGED = state("DISABLED", "DELETE", 3, 2)
AGAIN = state("ENABLED", "NONE", 4, 2)


def history(**fields: Any) -> History:
    return History(topics={TOPIC}, tiers=TierHistory(**fields))


def test_states_that_follow_each_other() -> None:
    whole = [ENABLED, RETAINING, RETAINED, DELETING, DELETED, PURGED, AGAIN]
    assert tiering.tiering_states_wrong(history(tiering=whole)) == []
    empty = RETAINED._replace(floor=2)
    assert tiering.tiering_states_wrong(history(tiering=[RETAINING, RETAINED, empty])) == []
    pending = AGAIN._replace(purge_pending=True)
    assert tiering.tiering_states_wrong(history(tiering=[DELETED, pending, AGAIN])) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (ENABLED, RETAINING._replace(epoch=1)),  # The epoch stays.
        (RETAINED, ENABLED),  # It falls.
        (DELETED, PURGED._replace(floor=1)),  # The floor falls.
        (RETAINING, RETAINED._replace(policy="DELETE")),  # Another policy than the stored one.
        (ENABLED, state("DISABLING", "DELETE", 2, 0, purge=True)),  # Delete without a floor.
        (DELETED, state("DISABLING", "RETAIN", 4, 2)),  # Nothing is left to be retained.
        (PURGED, DELETED),  # The purge begins again.
        (DELETING, AGAIN._replace(policy="DELETE")),
        (RETAINED, state("ENABLED", "NONE", 2)),
    ],
)
def test_states_that_may_not(before: TieringSeen, after: TieringSeen) -> None:
    [found] = tiering.tiering_states_wrong(history(tiering=[before, after]))
    assert "is followed by" in found.text


def test_events_of_a_disablement() -> None:
    early = history(events=[DisabledEarly(PARTITION, "no fence")])
    assert [each.text[-8:] for each in tiering.disabled_too_early(early)] == ["no fence"]
    back = history(events=[StartWentBack(PARTITION, 1, 30, 10)])
    assert len(tiering.log_starts_that_went_back(back)) == 1
    assert tiering.disabled_too_early(back) == tiering.log_starts_that_went_back(early) == []


def test_a_disablement_that_is_not_finished_after_the_faults() -> None:
    left = history(disablements_left=["t is DISABLING"])
    assert tiering.disablements_unfinished(left) == []
    left.healed_ms = 1
    assert [each.text for each in tiering.disablements_unfinished(left)] == ["t is DISABLING"]


@pytest.mark.parametrize(("given_up", "may"), [({}, False), ({PARTITION: 9}, False),
                                               ({PARTITION: 10}, True)])  # fmt: skip
def test_a_reader_may_skip_what_a_disablement_has_removed(
    given_up: dict[Any, int], may: bool
) -> None:
    seen = history(given_up=given_up)
    seen.skipped.append(Skipped("reader", PARTITION, 5, 10, 0, was_reset=True, end=20))
    assert (records.reads_lost(seen) == []) is may
