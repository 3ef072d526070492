"""What a purge check plans and finds, by what the cluster says and the store has."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.base.ids import uuid_text
from ottla.metadata.deletions import Remote
from ottla.metadata.tiering import DisablePolicy, TieringState
from ottla.spark.jobs.purge_check import (
    PurgeOptions,
    check_unit,
    plan_purge_check,
)
from ottla.wire.messages.describe_topic_tiering import DescribedTopicTiering
from tests.unit.tiered.support import DELETED, PARTITION, TOPIC, TOPIC_ID, fence, update

from .fake_cluster import Cluster
from .support import Store, sound
from .test_store_partitions import write


@pytest.fixture
def store() -> Store:
    return sound()


@pytest.fixture
def cluster(store: Store) -> Iterator[Cluster]:
    found = Cluster(store)
    yield found
    found.broker.close()


def rows(root: Path, cluster: Cluster, **more: Any) -> list[dict[str, Any]]:
    root.mkdir(exist_ok=True)
    options = PurgeOptions(remote_storage=root.as_uri(), cluster=cluster.config, **more)
    return [check_unit(each, options) for each in plan_purge_check(options)]


@pytest.mark.parametrize(
    ("remote", "what", "receipt"),
    [
        (Remote.PURGED, "deleted", "purged, finished"),
        (Remote.PENDING, "deleted", "pending, not finished"),
        (None, "unknown", "not in the ledger"),
    ],
)
def test_a_deleted_topic_with_objects(
    tmp_path: Path, store: Store, cluster: Cluster, remote: Remote | None, what: str, receipt: str
) -> None:
    write(tmp_path, store)
    cluster.delete_topic(remote)
    (found,) = rows(tmp_path, cluster)
    assert (found["topic"], found["topic_id"]) == (TOPIC, uuid_text(TOPIC_ID))
    assert (found["what"], found["receipt"], found["proven"]) == (what, receipt, False)
    assert found["objects_left"] == len(store.objects)
    assert found["bytes_left"] == sum(map(len, store.objects.values()))
    assert found["example"] in store.objects


@pytest.mark.parametrize(
    ("remote", "expected"), [(Remote.PURGED, [True]), (Remote.PENDING, [False]), (None, [])]
)
def test_a_deleted_topic_without_objects(
    tmp_path: Path, cluster: Cluster, remote: Remote | None, expected: list[bool]
) -> None:
    cluster.delete_topic(remote)
    assert [each["proven"] for each in rows(tmp_path, cluster)] == expected


def test_topics_that_never_were_tiered_are_checked_by_name_only(
    tmp_path: Path, cluster: Cluster
) -> None:
    cluster.delete_topic(Remote.NONE)
    assert rows(tmp_path, cluster) == []
    for more in ({"topics": (TOPIC,)}, {"topic_ids": (TOPIC_ID,)}):
        assert [each["proven"] for each in rows(tmp_path, cluster, **more)] == [True]
    assert rows(tmp_path, cluster, topics=("other",)) == []


def disable(cluster: Cluster, *, pending: bool = False) -> None:
    cluster.tiering = DescribedTopicTiering(
        name=TOPIC,
        topic_id=TOPIC_ID,
        state=TieringState.DISABLED,
        tiered_epoch=2,
        policy=DisablePolicy.DELETE,
        remote_floor_epoch=1,
        purge_pending=pending,
    )
    cluster.records.append(fence(1, 2, floor=1))


def test_a_tier_that_was_given_up(tmp_path: Path, store: Store, cluster: Cluster) -> None:
    assert rows(tmp_path, cluster) == []  # ENABLED, and never given up.
    disable(cluster)
    store.records.append(fence(1, 2, floor=1))
    store.write_manifest()
    cluster.records += [update(number, DELETED) for number in (1, 2, 3)]
    store.objects = {name: data for name, data in store.objects.items() if "/manifest/" in name}
    write(tmp_path, store)
    found = rows(tmp_path, cluster)
    assert [each["what"] for each in found] == ["disabled"] * 4  # Its partitions.
    assert {each["receipt"] for each in found} == {"DISABLED (delete), floor 1: purged"}
    assert all(each["proven"] for each in found)
    disable(cluster, pending=True)
    assert not any(each["proven"] for each in rows(tmp_path, cluster))


def test_objects_of_a_floor_are_left(
    tmp_path: Path, store: Store, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.spark.jobs.purge_check.SECOND_LOOK_S", 0.0)
    write(tmp_path, store)
    disable(cluster)
    found = rows(tmp_path, cluster)[PARTITION]
    assert (found["objects_left"], found["proven"]) == (15, False)
    assert found["error"] == "the newest manifest does not name the floor 1"


def test_a_store_that_fails_proves_nothing(tmp_path: Path, cluster: Cluster) -> None:
    cluster.delete_topic(Remote.PURGED)
    options = PurgeOptions(remote_storage=tmp_path.as_uri(), cluster=cluster.config)
    (unit,) = plan_purge_check(options)
    gone = PurgeOptions(
        remote_storage=(tmp_path / "none").as_uri(), cluster=cluster.config, timeout_s=3.0
    )
    found = check_unit(unit, gone)
    assert (found["proven"], found["objects_left"]) == (False, 0)
    assert "no such directory" in found["error"]
