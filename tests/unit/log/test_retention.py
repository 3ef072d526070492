"""Which segments may go: a pure rule over facts.

Method: tables of segments and settings, with what must go and why.
"""

import pytest

from ottla.log.config import LogConfig
from ottla.log.retention import LocalExpiry, Reason, SegmentFacts, expired, expired_locally

START, SIZE, TIME = Reason.LOG_START, Reason.SIZE, Reason.TIME
LOCAL_START, LOCAL_SIZE, LOCAL_TIME = Reason.LOCAL_START, Reason.LOCAL_SIZE, Reason.LOCAL_TIME

LOG = (
    SegmentFacts(0, 10, 100, 1_000, False),
    SegmentFacts(10, 20, 100, 2_000, False),
    SegmentFacts(20, 30, 100, 3_000, False),
    SegmentFacts(30, 40, 50, 4_000, True),
)


def reasons(
    *,
    retention_ms: int = -1,
    retention_bytes: int = -1,
    deletes: bool = True,
    now_ms: int = 0,
    log_start_offset: int = 0,
    high_watermark: int = 40,
    segments: tuple[SegmentFacts, ...] = LOG,
) -> tuple[Reason, ...]:
    config = LogConfig(retention_ms=retention_ms, retention_bytes=retention_bytes, deletes=deletes)
    return expired(
        segments,
        config,
        now_ms=now_ms,
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
    )


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ()),
        ({"retention_ms": 500, "now_ms": 1_500}, ()),
        ({"retention_ms": 500, "now_ms": 1_501}, (TIME,)),
        ({"retention_ms": 500, "now_ms": 2_501}, (TIME, TIME)),
        ({"retention_ms": 0, "now_ms": 9_999}, (TIME,) * 4),
        ({"retention_ms": 0, "now_ms": 9_999, "deletes": False}, ()),
        ({"retention_ms": 0, "now_ms": 9_999, "high_watermark": 29}, (TIME, TIME)),
        ({"retention_ms": 0, "now_ms": 9_999, "high_watermark": 30}, (TIME,) * 3),
        ({"retention_bytes": 351}, ()),
        ({"retention_bytes": 251}, ()),
        ({"retention_bytes": 250}, (SIZE,)),
        ({"retention_bytes": 50}, (SIZE,) * 3),
        ({"retention_bytes": 0}, (SIZE,) * 4),
        ({"retention_bytes": 0, "deletes": False}, ()),
        ({"retention_bytes": 0, "high_watermark": 5}, ()),
        ({"log_start_offset": 9}, ()),
        ({"log_start_offset": 10}, (START,)),
        ({"log_start_offset": 25, "deletes": False}, (START, START)),
        ({"log_start_offset": 40}, (START,) * 3),
        ({"log_start_offset": 10, "retention_bytes": 150}, (START, SIZE)),
        ({"retention_bytes": 250, "retention_ms": 0, "now_ms": 2_001}, (SIZE, TIME)),
    ],
)
def test_rules(settings: dict[str, int], expected: tuple[Reason, ...]) -> None:
    assert reasons(**settings) == expected


def test_a_young_segment_shields_older_ones_behind_it() -> None:
    segments = (LOG[0]._replace(newest_ms=9_000), *LOG[1:])
    assert reasons(segments=segments, retention_ms=1_000, now_ms=9_999) == ()


def test_an_empty_active_segment_stays() -> None:
    segments = (*LOG[:3], LOG[3]._replace(end_offset=30, size=0))
    assert reasons(segments=segments, retention_ms=0, now_ms=9_999) == (TIME,) * 3


# --- local retention --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ()),
        ({"local_ms": 500, "now_ms": 1_501, "copied_to": 40}, (LOCAL_TIME,)),
        ({"local_ms": 500, "now_ms": 1_501, "copied_to": 9}, ()),
        ({"local_ms": 500, "now_ms": 3_501, "copied_to": 20}, (LOCAL_TIME,) * 2),
        ({"local_bytes": 250, "copied_to": 40}, (LOCAL_SIZE,)),
        ({"local_bytes": 0, "copied_to": 29}, (LOCAL_SIZE,) * 2),
        ({"local_bytes": 0, "copied_to": 40, "high_watermark": 19}, (LOCAL_SIZE,)),
        ({"local_bytes": 0, "copied_to": 40, "remote_storage": False}, ()),
        ({"log_start": 10, "local_start": 10}, (START,)),
        ({"log_start": 10, "local_start": 20}, (START, LOCAL_START)),
        ({"log_start": 10, "local_start": 20, "remote_storage": False}, (START, LOCAL_START)),
        ({"local_start": 20, "local_bytes": 50, "copied_to": 29}, (LOCAL_START,) * 2),
        (
            {"local_start": 20, "local_bytes": 50, "copied_to": 30},
            (LOCAL_START,) * 2 + (LOCAL_SIZE,),
        ),
    ],
)
def test_local_rules(settings: dict[str, int], expected: tuple[Reason, ...]) -> None:
    assert locally(**settings).reasons == expected


def locally(
    *,
    local_ms: int = -1,
    local_bytes: int = -1,
    remote_storage: bool = True,
    now_ms: int = 0,
    log_start: int = 0,
    local_start: int = 0,
    high_watermark: int = 40,
    copied_to: int = 0,
    segments: tuple[SegmentFacts, ...] = LOG,
) -> LocalExpiry:
    config = LogConfig(
        retention_ms=0,
        retention_bytes=0,
        remote_storage=remote_storage,
        local_retention_ms=local_ms,
        local_retention_bytes=local_bytes,
    )
    return expired_locally(
        segments,
        config,
        now_ms=now_ms,
        log_start_offset=log_start,
        local_log_start_offset=local_start,
        high_watermark=high_watermark,
        copied_to=copied_to,
    )


def test_the_active_segment_is_sealed_when_all_are_expired() -> None:
    assert locally(local_ms=0, now_ms=9_999) == ((), True)
    assert locally(local_ms=0, now_ms=9_999, copied_to=40) == ((LOCAL_TIME,) * 3, True)
    assert locally(local_ms=0, now_ms=4_000, copied_to=40) == ((LOCAL_TIME,) * 3, False)
    empty = (*LOG[:3], LOG[3]._replace(end_offset=30, size=0))
    assert locally(local_ms=0, now_ms=9_999, segments=empty) == ((), False)
