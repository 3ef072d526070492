"""The states of a remote segment: every pair; and the epochs that have records in it."""

import pytest

from ottla.tiered.segment_metadata import SegmentState, epoch_ranges, may_follow
from tests.unit.tiered.support import segment

LEGAL = {(None, 0), (0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2), (2, 3), (3, 3)}


@pytest.mark.parametrize("before", [None, *SegmentState])
@pytest.mark.parametrize("after", list(SegmentState))
def test_transitions(before: SegmentState | None, after: SegmentState) -> None:
    assert may_follow(before, after) == ((before, after) in LEGAL)


def test_wire_values() -> None:
    assert {each.name: each.value for each in SegmentState} == {
        "COPY_STARTED": 0,
        "COPY_FINISHED": 1,
        "DELETE_STARTED": 2,
        "DELETE_FINISHED": 3,
    }


def test_epochs_without_records() -> None:
    epochs = ((1, 5), (2, 10), (3, 10), (5, 15), (6, 21))
    assert epoch_ranges(segment(1, 8, 20, epochs)) == [(1, 8, 9), (3, 10, 14), (5, 15, 20)]
