"""Logs are looked after by the clock: retention, flushes, checkpoints, silent producers.

Method: a broker whose time is moved by hand; real logs on a disk in memory.
"""

import pytest

from ottla.base.ids import Uuid
from ottla.base.limits import LOGS_PER_STEP_MAX
from ottla.log.partition_log import PartitionLog
from tests.unit.broker.harness import LOG_DIR, BrokerHarness, batch

MINUTE_MS = 60_000
CHECK_MS = 5 * MINUTE_MS
FIRST_AFTER_MS = 30_000
"""log.initial.task.delay.ms where it is not set."""


def start(
    properties: dict[str, str] | None = None, **configs: str
) -> tuple[BrokerHarness, PartitionLog]:
    harness = BrokerHarness(properties)
    harness.add_broker()
    harness.add_topic(**configs)
    harness.broker.start_serving()
    return harness, harness.broker.replicas.partition("t", 0).leader_log()


def append(harness: BrokerHarness, *values: str) -> None:
    harness.broker.replicas.append("t", 0, batch(*values, timestamp=harness.clock.now_ms()))


def test_old_segments_go() -> None:
    harness, log = start(retention_ms=str(MINUTE_MS), segment_ms="1000")
    append(harness, "a")
    harness.clock.advance(2_000)
    append(harness, "b")
    harness.clock.advance(CHECK_MS + FIRST_AFTER_MS)
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)
    # What the clients see follows.
    append(harness, "c")
    assert log.high_watermark == 3


def test_the_first_pass_comes_soon_and_the_next_at_their_interval() -> None:
    harness, log = start({"log.retention.check.interval.ms": str(CHECK_MS)}, retention_ms="1000")
    append(harness, "a")
    harness.clock.advance(FIRST_AFTER_MS)
    assert log.log_start_offset == 1
    append(harness, "b")
    harness.clock.advance(CHECK_MS - 1)
    assert log.log_start_offset == 1
    harness.clock.advance(1)
    assert log.log_start_offset == 2


def test_the_delay_of_the_first_pass_can_be_set() -> None:
    harness, log = start({"log.initial.task.delay.ms": "10"}, retention_ms="1")
    append(harness, "a")
    harness.clock.advance(10)
    assert log.log_start_offset == 1


@pytest.mark.parametrize("never", ["0", str(2**31 - 1)])
def test_an_interval_of_zero_repeats_nothing(never: str) -> None:
    harness = BrokerHarness({"log.flush.offset.checkpoint.interval.ms": never})
    harness.add_broker()
    before = len(harness.timers)
    harness.broker.maintenance.start()
    armed = len(harness.timers) - before
    assert armed == (5 if never == "0" else 6) - 1  # flush.ms is never looked at by default.


def test_a_run_over_many_logs_is_divided_into_steps() -> None:
    harness = BrokerHarness({"log.retention.check.interval.ms": "1000"})
    harness.add_broker()
    count = LOGS_PER_STEP_MAX + 1
    harness.add_topic(partitions=count, retention_ms="10")
    for index in range(count):
        harness.broker.replicas.append("t", index, batch("a", timestamp=harness.clock.now_ms()))
    harness.broker.start_serving()
    harness.clock.advance(1000)
    starts = [one.leader_log().log_start_offset for one in harness.broker.replicas.hosted()]
    assert starts == [1] * LOGS_PER_STEP_MAX + [0]
    harness.clock.advance(1)
    assert harness.broker.replicas.partition("t", count - 1).leader_log().log_start_offset == 1


def test_a_disk_failure_during_a_run_takes_only_that_log_dir_offline() -> None:
    harness = BrokerHarness({"log.dirs": "/one,/two", "log.retention.check.interval.ms": "1000"})
    harness.add_broker()
    harness.add_topic("a", Uuid(b"a" * 16), retention_ms="10")
    harness.add_topic("b", Uuid(b"b" * 16), retention_ms="10")
    for topic in "ab":
        harness.broker.replicas.append(topic, 0, batch("x", timestamp=harness.clock.now_ms()))
    harness.broker.start_serving()
    harness.fail_disk("rename", "/one")
    harness.clock.advance(1000)
    assert harness.broker.replicas.partition("a", 0).log is None
    assert harness.broker.replicas.partition("b", 0).leader_log().log_start_offset == 1


@pytest.mark.parametrize(("interval", "flushed"), [("1000", 1), (None, 0)])
def test_logs_are_flushed_where_an_interval_is_set(interval: str | None, flushed: int) -> None:
    properties = {"log.flush.scheduler.interval.ms": interval} if interval else {}
    harness, log = start(properties, flush_ms="500")
    append(harness, "a")
    harness.clock.advance(1000)
    assert log.recovery_point == flushed


@pytest.mark.parametrize(
    ("name", "after_ms", "offset"),
    [
        ("replication-offset-checkpoint", 5_000, 3),
        ("log-start-offset-checkpoint", MINUTE_MS, 1),
        ("recovery-point-offset-checkpoint", MINUTE_MS, 2),
    ],
)
def test_checkpoints_are_written(name: str, after_ms: int, offset: int) -> None:
    harness, log = start()
    append(harness, "a", "b", "c")
    log.delete_records(1)
    log.flush()
    harness.clock.advance(after_ms)
    lines = harness.disk.read_bytes(f"{LOG_DIR}/{name}").decode().split("\n")
    assert lines[:3] == ["0", "1", f"t 0 {offset}"]


def test_silent_producers_are_forgotten() -> None:
    harness, log = start({"producer.id.expiration.ms": "1000"})
    harness.broker.replicas.append(
        "t", 0, batch("a", producer_id=9, producer_epoch=0, base_sequence=0)
    )
    assert len(log.producer_states()) == 1
    harness.clock.advance(10 * MINUTE_MS)
    assert log.producer_states() == []
