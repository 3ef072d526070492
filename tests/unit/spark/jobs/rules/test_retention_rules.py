"""What settings keep must be what brokers would keep.

Method: short logs, counted by hand; then any log, of which the retention of a log without remote
storage (`log.retention`), which is other code, must keep the same segments; and brokers that delete
what was foreseen, after which nothing more is to be deleted.
"""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ottla.log.config import LogConfig
from ottla.log.retention import SegmentFacts, expired
from ottla.spark.jobs.rules.retention_rules import (
    Outcome,
    RetainedLog,
    Setting,
    log_of_manifests,
    outcomes,
    settings,
)
from ottla.tiered.lineage import Lineage
from ottla.tiered.manifest import ManifestState
from ottla.tiered.segment_metadata import SegmentMetadata, SegmentState
from tests.unit.tiered.support import FINISHED, PARTITION, TOPIC, TOPIC_ID, copied, segment

NOW_MS = 10_000
EVERYTHING = Setting(name="", retention_ms=-1, retention_bytes=-1)


def log(*segments: SegmentMetadata, log_start: int = 0, local_only: int = 0) -> RetainedLog:
    end = max((each.end_offset + 1 for each in segments), default=0)
    return RetainedLog(copied(*segments), Lineage([(1, 0)], end), log_start, local_only)


THREE = (
    segment(1, 0, 9, max_timestamp_ms=1_000, size_bytes=100),
    segment(2, 10, 19, max_timestamp_ms=5_000, size_bytes=200),
    segment(3, 20, 29, max_timestamp_ms=2_000, size_bytes=300),
)


def by_ms(found: RetainedLog, ms: int) -> Outcome:
    (only,) = outcomes(found, [replace(EVERYTHING, retention_ms=ms)], NOW_MS)
    return only


def by_bytes(found: RetainedLog, size: int) -> Outcome:
    (only,) = outcomes(found, [replace(EVERYTHING, retention_bytes=size)], NOW_MS)
    return only


def test_time_ends_at_the_first_segment_that_is_kept() -> None:
    # The third one is old enough, but behind one that is not.
    found = by_ms(log(*THREE), 7_000)
    assert found == Outcome(
        kept_segments=2,
        kept_bytes=500,
        kept_records=20,
        deleted_segments=1,
        deleted_bytes=100,
        deleted_records=10,
        log_start_offset=10,
        oldest_kept_ms=5_000,
    )
    assert by_ms(log(*THREE), 5_000).kept_segments == 0
    assert by_ms(log(*THREE), 5_000).oldest_kept_ms is None
    assert by_ms(log(*THREE), -1).deleted_segments == 0


def test_size_deletes_whole_segments_only() -> None:
    assert by_bytes(log(*THREE), 501).deleted_segments == 0
    assert by_bytes(log(*THREE), 500).deleted_segments == 1
    assert by_bytes(log(*THREE), 0).deleted_bytes == 600


def test_the_local_log_counts_for_the_size_and_is_kept() -> None:
    assert by_bytes(log(*THREE, local_only=100), 600).deleted_bytes == 100
    assert by_bytes(log(*THREE, local_only=10_000), 600).deleted_bytes == 600


def test_what_is_below_the_log_start_is_deleted_in_any_case() -> None:
    found = by_ms(log(*THREE, log_start=15), -1)
    assert (found.deleted_segments, found.deleted_records) == (1, 0)
    assert (found.kept_records, found.log_start_offset) == (15, 15)


def test_offsets_that_two_segments_have_count_once() -> None:
    found = by_ms(log(segment(1, 0, 9), segment(2, 5, 14)), -1)
    assert (found.kept_segments, found.kept_bytes, found.kept_records) == (2, 200, 15)


def test_each_candidate_changes_one_property() -> None:
    found = settings((7, -1), [1, 2], [3])
    assert [(each.name, each.retention_ms, each.retention_bytes) for each in found] == [
        ("", 7, -1),
        ("retention.ms", 1, -1),
        ("retention.ms", 2, -1),
        ("retention.bytes", 7, 3),
    ]


def state(*segments: SegmentMetadata, floor: int = 0) -> ManifestState:
    return ManifestState(
        topic=TOPIC,
        topic_id=TOPIC_ID,
        partition=PARTITION,
        sequence=0,
        leader_epoch=1,
        tiered_epoch=1,
        floor=floor,
        log_start_offset=5,
        epochs=((1, 0),),
        segments={each.segment_id: replace(each, state=FINISHED) for each in segments},
        partition_count=None,
        configs=None,
    )


def test_a_partition_of_manifests() -> None:
    found = log_of_manifests(state(*THREE))
    assert (found.log_start, found.local_only_bytes) == (5, 0)
    assert {each.state for each in found.remote.segments()} == {SegmentState.COPY_FINISHED}
    # The last segment is local, too; 50 bytes are not copied yet.
    found = log_of_manifests(state(*THREE), log_start=7, local=(20, 350))
    assert (found.log_start, found.local_only_bytes) == (7, 50)
    assert log_of_manifests(state(*THREE), local=(20, 10)).local_only_bytes == 0


def test_segments_of_a_floor_are_gone() -> None:
    alive = replace(THREE[2], tiered_epoch=2)
    found = log_of_manifests(state(THREE[0], alive, floor=1))
    assert [each.segment_id for each in found.remote.segments()] == [alive.segment_id]


# Odd timestamps and even limits: the two codes differ where an age is exactly the limit.
parts = st.tuples(
    st.integers(1, 20), st.integers(1, 300), st.integers(0, 5_000).map(lambda each: 2 * each + 1)
)
limits_ms = st.just(-1) | st.integers(0, 5_000).map(lambda each: 2 * each)
limits_bytes = st.just(-1) | st.integers(0, 2_000)


def contiguous(found: list[tuple[int, int, int]]) -> list[SegmentMetadata]:
    segments, start = [], 0
    for number, (count, size, newest_ms) in enumerate(found):
        end = start + count - 1
        segments.append(segment(number, start, end, max_timestamp_ms=newest_ms, size_bytes=size))
        start = end + 1
    return segments


@given(st.lists(parts, max_size=12), limits_ms, limits_bytes, st.integers(0, 300), st.data())
def test_a_log_without_remote_storage_would_keep_the_same(
    found: list[tuple[int, int, int]], ms: int, size: int, active_bytes: int, data: st.DataObject
) -> None:
    segments = contiguous(found)
    end = segments[-1].end_offset + 1 if segments else 0
    log_start = data.draw(st.integers(0, end))
    facts = [
        SegmentFacts(
            each.start_offset, each.end_offset + 1, each.size_bytes, each.max_timestamp_ms, False
        )
        for each in segments
    ]
    reasons = expired(
        [*facts, SegmentFacts(end, end + 1, active_bytes, NOW_MS, True)],
        LogConfig(retention_ms=ms, retention_bytes=size),
        now_ms=NOW_MS,
        log_start_offset=log_start,
        high_watermark=end + 1,
    )
    count = min(len(reasons), len(segments))
    retained = log(*segments, log_start=log_start, local_only=active_bytes)
    setting = Setting(name="", retention_ms=ms, retention_bytes=size)
    (outcome,) = outcomes(retained, [setting], NOW_MS)
    kept = segments[count:]
    assert outcome.deleted_segments == count
    assert outcome.deleted_bytes == sum(each.size_bytes for each in segments[:count])
    assert outcome.kept_bytes == sum(each.size_bytes for each in kept)
    assert outcome.kept_records + outcome.deleted_records == end - log_start
    assert outcome.oldest_kept_ms == (kept[0].max_timestamp_ms if kept else None)
    # Once the brokers have deleted this, nothing more goes.
    after = log(*kept, log_start=outcome.log_start_offset, local_only=active_bytes)
    (again,) = outcomes(after, [setting], NOW_MS)
    assert (again.deleted_segments, again.kept_bytes) == (0, outcome.kept_bytes)
