"""Which segments may go: a pure rule over facts.

Method: tables of segments and settings, with what must go and why.
"""

import pytest

from ottla.log.config import LogConfig
from ottla.log.retention import Reason, SegmentFacts, expired

START, SIZE, TIME = Reason.LOG_START, Reason.SIZE, Reason.TIME

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
