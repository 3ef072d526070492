"""The judge of remote segments and the product's own replay agree, record by record.

Method: hypothesis makes up records of some leaders and tiered epochs, legal or not, and of purges
and restores.
"""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata.tiering import WHOLE_TOPIC
from ottla.testing.sim.watch.segment_ledger import SegmentLedger, first_uncovered
from ottla.tiered.remote_log import RemoteLog
from ottla.tiered.segment_metadata import MetadataRecord, SegmentState
from tests.unit.tiered.support import FINISHED, fence, restore_started, segment, update

EPOCHS = list(product((1, 2, 3), repeat=2))
"""Of leaders and of tiering."""

SEGMENTS = [
    segment(number, 10 * number, 10 * number + 9, leader_epoch=leader, tiered_epoch=tiered)
    for number in (1, 2, 3)
    for leader, tiered in EPOCHS
]
UPDATES = [
    update(number, state, leader_epoch=leader, tiered_epoch=tiered)
    for number in (1, 2, 3)
    for state in SegmentState
    for leader, tiered in EPOCHS
]
FENCES = [fence(leader, tiered, floor=floor) for leader, tiered in EPOCHS for floor in (0, 1, 2)]
FENCES += 6 * [fence(WHOLE_TOPIC, WHOLE_TOPIC, floor=WHOLE_TOPIC)]
RESTORES = 4 * [restore_started(leader) for leader in (1, 2, 3)]
RECORDS: list[MetadataRecord] = [*SEGMENTS, *UPDATES, *FENCES, *RESTORES]


@given(st.lists(st.sampled_from(RECORDS), max_size=30))
def test_both_replays_agree(records: list[MetadataRecord]) -> None:
    ledger, remote = SegmentLedger(), RemoteLog()
    for record in records:
        ledger.apply(record)
        remote.replay(record)
        theirs = sorted((each.segment_id, each.state.name) for each in remote.segments())
        assert list(ledger.states()) == theirs


def test_a_segment_that_becomes_unreadable_is_returned() -> None:
    ledger = SegmentLedger()
    assert ledger.apply(segment(1, 0, 9)) is None
    assert ledger.apply(update(1, SegmentState.COPY_FINISHED)) is None
    assert len(ledger.readable()) == 1
    gone = ledger.apply(update(1, SegmentState.DELETE_STARTED))
    assert gone is not None
    assert ledger.readable() == []
    assert ledger.apply(update(1, SegmentState.DELETE_FINISHED)) is None
    assert ledger.states() == ()


def test_offsets_are_covered_in_their_own_epoch_only() -> None:
    segments = [
        segment(1, 0, 9, epochs=((1, 0), (2, 5)), state=FINISHED),
        segment(2, 8, 19, epochs=((2, 8),), state=FINISHED),
    ]
    lineage = [(1, 0), (2, 5)]
    assert first_uncovered(segments, lineage, (0, 20)) is None
    assert first_uncovered(segments, lineage, (3, 25)) == (20, 25)
    assert first_uncovered(segments[1:], lineage, (0, 20)) == (0, 8)
    assert first_uncovered(segments, [(1, 0), (2, 7)], (0, 20)) == (5, 7)
    assert first_uncovered(segments, [(3, 0)], (4, 6)) == (4, 6)
    assert first_uncovered(segments, lineage, (5, 5)) is None
