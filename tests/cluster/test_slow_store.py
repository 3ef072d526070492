"""A store that accepts connections and answers nothing holds up nobody who does not need it.

Method: three brokers; a gate before the store is shut while twelve partitions have segments to copy
and twenty consumers read records that are in the store alone. Meanwhile producers with acks=all,
groups, and topics that are created and deleted go on; how long that takes is printed, before and
during. When the store answers again each segment is copied exactly once, and no object is left that
no segment names.
"""

import time

import pytest

from ottla.base.ids import uuid_text
from ottla.testing import Cluster

from .clients import eventually
from .conftest import BROKERS, Reports, new_replicated_topic
from .paced import scrape, stalls
from .slow_store import (
    ALLOWED,
    FETCHERS,
    KINDS,
    PARTITIONS,
    Clients,
    Fetchers,
    Scene,
    Sizes,
    metric,
    scene,
)

pytestmark = [pytest.mark.timeout(600), pytest.mark.drawn(2, of="long faults")]

BEFORE_SECONDS = 5.0
SILENT_SECONDS = 45.0
"""Longer than the deadline of a call to the store, and of all attempts of a read."""

PAUSE_SECONDS = 0.4
"""Between two operations of a client: that each is done matters, not how many there are."""

THREADS_GROWTH_MAX = 16
GROWTH_BYTES_MAX = 150 << 20


def test_a_silent_store_holds_up_nobody_who_does_not_need_it(reports: Reports) -> None:
    with scene() as made:
        cluster = made.cluster
        topic = new_replicated_topic(cluster, "bystander", 3)
        with clients(cluster, topic) as before, Sizes(cluster) as sizes_before:
            time.sleep(BEFORE_SECONDS)
        stalls_before = sum(stalls(scrape(cluster, node), 0.1) for node in BROKERS)
        made.gate.shut()
        made.produce()
        with Fetchers(made) as fetchers:
            eventually(lambda: made.gate.held >= 3, within=30, what="calls that hang")
            with clients(cluster, topic) as during, Sizes(cluster) as sizes:
                time.sleep(SILENT_SECONDS)
                copying = metric(
                    cluster, "kafka_server_broker_topic_metrics_remote_copy_lag_segments"
                )
                answers = list(fetchers.answers)
            stalls_after = sum(stalls(scrape(cluster, node), 0.1) for node in BROKERS)
            # Each consumer was answered, with nothing or with an error that it retries.
            assert len([each for each in answers if each]) == FETCHERS
            assert fetchers.errors_seen <= ALLOWED
            assert sum(fetchers.bytes) == 0
            assert copying >= PARTITIONS, "nothing was to be copied meanwhile"
            fetchers.errors_seen.clear()
            made.gate.open()
            eventually(lambda: all(fetchers.bytes), within=60, what="old records for all consumers")
        assert fetchers.errors_seen <= ALLOWED
        reports.append(
            "a silent store: seconds", table(before, during, stalls_after - stalls_before)
        )
        for node in BROKERS:
            growth = sizes.most[node].threads - sizes_before.most[node].threads
            assert growth <= THREADS_GROWTH_MAX, f"broker {node} has {growth} more threads"
            more = sizes.most[node].resident_bytes - sizes_before.most[node].resident_bytes
            assert more < GROWTH_BYTES_MAX, f"broker {node} grew by {more >> 20} MB"
            assert "Traceback" not in cluster.logs(node)
        check_copied_once(made)


def clients(cluster: Cluster, topic: str) -> Clients:
    return Clients(cluster, topic, pause_seconds=PAUSE_SECONDS)


def table(before: Clients, during: Clients, stalled: float) -> list[str]:
    """Return the operations' times as lines."""
    lines = [f"{'':10}{'p50 before':>12}{'p50 during':>12}{'p99 before':>12}{'p99 during':>12}"]
    for kind in Clients.KINDS:
        cells = [
            f"{each.percentile(kind, part):12.4f}"
            for part in (0.5, 0.99)
            for each in (before, during)
        ]
        count = f"  {len(before.seconds[kind])}, {len(during.seconds[kind])} times"
        lines.append(f"{kind:10}{''.join(cells)}{count}")
    return [*lines, f"loops later than 100 ms meanwhile: {stalled:g} times"]


def check_copied_once(made: Scene) -> None:
    """Wait until all is copied; check that the store has the segments' objects and no others."""
    partitions = made.wait_copied(180)
    for each in partitions:
        ends = [segment.end_offset + 1 for segment in each.segments]
        assert [segment.start_offset for segment in each.segments] == [0, *ends[:-1]]
    known = {
        (each.partition, f"{segment.start_offset:020}-{uuid_text(segment.segment_id)}")
        for each in partitions
        for segment in each.segments
    }

    def left() -> set[tuple[int, str]]:
        found = made.objects()
        assert {name.rpartition(".")[2] for _, name in found} <= KINDS
        present = {(partition, name.rpartition(".")[0]) for partition, name in found}
        assert known <= present
        return present - known

    # A copy that was given up is deleted once more when a late write can come no longer.
    eventually(left, lambda found: not found, within=120, what="no orphaned object")
