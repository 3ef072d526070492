"""Objects of topics that do not exist: a leftover, a purge under way, or of nobody knows what."""

import pytest

from ottla.metadata.deletions import Remote
from ottla.spark.jobs.rules.findings import Finding, Kind
from ottla.spark.jobs.rules.topic_status import (
    Existence,
    TopicStatus,
    check_absent,
    existence_of_deleted,
)
from tests.unit.tiered.support import TOPIC, TOPIC_ID

from ..support import GRACE_MS, LONG_AGO_MS, sound


def status(existence: Existence, **more: object) -> TopicStatus:
    return TopicStatus(topic=TOPIC, topic_id=TOPIC_ID, existence=existence, **more)  # type: ignore[arg-type]


def found(existence: Existence, **more: object) -> list[Finding]:
    store = sound()
    return check_absent(store.look(**more), status(existence, receipt="purged, finished"))


def test_each_object_of_a_purged_topic_is_a_leftover() -> None:
    every = found(Existence.PURGED)
    assert {each.kind for each in every} == {Kind.LEFTOVER}
    assert [each.object for each in every] == sorted(sound().objects)
    assert "purged, finished" in every[0].detail


def test_while_a_purge_runs_nothing_is_wrong() -> None:
    assert found(Existence.PURGING) == []


def test_a_topic_that_nobody_knows() -> None:
    (only,) = found(Existence.UNKNOWN)
    assert (only.kind, only.object) == (Kind.UNKNOWN_TOPIC, min(sound().objects))
    assert only.detail.startswith("16 objects of ")
    # The topic may have been created after the cluster was asked.
    assert found(Existence.UNKNOWN, now_ms=LONG_AGO_MS + GRACE_MS - 1) == []


@pytest.mark.parametrize(
    ("remote", "is_finished", "expected"),
    [
        (Remote.PENDING, False, Existence.PURGING),
        (Remote.PURGED, False, Existence.PURGED),
        (Remote.PURGED, True, Existence.PURGED),
        (Remote.NONE, True, Existence.PURGED),
        (Remote.NONE, False, Existence.PURGED),
    ],
)
def test_the_ledger(remote: Remote, is_finished: bool, expected: Existence) -> None:
    assert existence_of_deleted(remote, is_finished=is_finished) is expected


def test_a_floor_counts_as_purged_once_nothing_is_pending() -> None:
    assert status(Existence.EXISTS, floor=2).floor_is_purged == 2
    assert status(Existence.EXISTS, floor=2, purge_pending=True).floor_is_purged == 0
