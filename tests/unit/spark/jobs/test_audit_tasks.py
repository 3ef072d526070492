"""What a task of an audit does with a store and, where there are brokers, with the metadata.

Method: a directory as the store; a fake broker that serves `__remote_log_metadata`, and whose topic
may be there, deleted, or unknown. Between the two looks a test may change anything.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.client.cluster import ClusterClient
from ottla.metadata.deletions import Remote
from ottla.spark.jobs.audit_tasks import (
    NO_METADATA,
    AuditOptions,
    Ports,
    Result,
    Summary,
    Unit,
    UnitAudit,
    Work,
    check_bytes,
)
from ottla.spark.jobs.rules.findings import Finding, Kind
from ottla.spark.jobs.store_access import StoreAccess
from ottla.tiered.object_names import ObjectKind
from tests.unit.tiered.support import DELETED, DELETING, update

from .fake_cluster import Cluster
from .support import GRACE_MS, KEY, NOW_MS, Store, sound
from .test_store_partitions import write

GRACE_S = GRACE_MS / 1_000


@pytest.fixture
def store() -> Store:
    return sound()


@pytest.fixture
def cluster(store: Store) -> Iterator[Cluster]:
    found = Cluster(store)
    yield found
    found.broker.close()


def audited(
    root: Path,
    cluster: Cluster | None,
    *,
    deep: bool = False,
    between: Callable[[], object] = lambda: None,
    stored: tuple[Any, ...] = (KEY,),
    topics: tuple[str, ...] = (),
    timeout_s: float = 30.0,
) -> list[Result]:
    config = None if cluster is None else cluster.config
    options = AuditOptions(
        remote_storage=root.as_uri(), cluster=config, deep=deep, grace_s=GRACE_S, topics=topics
    )
    unit = Unit(NO_METADATA if cluster is None else 0, stored)
    with StoreAccess(options.remote_storage, timeout_s) as access:
        client = None if config is None else ClusterClient(config)
        ports = Ports(access, client, lambda: NOW_MS + 10**13, lambda _: between())
        results = list(UnitAudit(unit, options, ports).run())
        if client is not None:
            client.close()
    return results


def kinds(results: list[Result]) -> list[Kind]:
    return [each.kind for each in results if isinstance(each, Finding)]


@pytest.mark.parametrize("with_brokers", [False, True])
def test_a_sound_partition(
    tmp_path: Path, store: Store, cluster: Cluster, with_brokers: bool
) -> None:
    write(tmp_path, store)
    (found,) = audited(tmp_path, cluster if with_brokers else None)
    assert isinstance(found, Summary)
    assert (found.objects, found.segments, found.manifests) == (16, 3, 1)
    assert found.object_bytes == sum(map(len, store.objects.values()))


@pytest.mark.parametrize("with_brokers", [False, True])
def test_damage_that_stays_is_found(
    tmp_path: Path, store: Store, cluster: Cluster, with_brokers: bool
) -> None:
    write(tmp_path, store)
    (tmp_path / store.name(1)).unlink()
    results = audited(tmp_path, cluster if with_brokers else None)
    assert kinds(results) == [Kind.MISSING_OBJECT]


def test_what_a_second_look_does_not_find_is_no_finding(
    tmp_path: Path, store: Store, cluster: Cluster
) -> None:
    write(tmp_path, store)
    (tmp_path / store.name(1)).unlink()
    assert kinds(audited(tmp_path, cluster, between=lambda: write(tmp_path, store))) == []
    (tmp_path / store.name(1)).unlink()

    def damage_another() -> None:
        write(tmp_path, store)
        (tmp_path / store.name(2)).unlink()

    assert kinds(audited(tmp_path, cluster, between=damage_another)) == []


def test_a_segment_that_expires_while_it_is_looked_at(
    tmp_path: Path, store: Store, cluster: Cluster
) -> None:
    """Its objects go between the first records and the listing, its last records come behind."""
    write(tmp_path, store)

    def expire() -> None:
        cluster.on_log_start = lambda: None
        for name in store.objects:
            if f"/{0:020}-" in name:
                (tmp_path / name).unlink()
        cluster.records += [update(1, DELETING), update(1, DELETED)]
        cluster.log_start = 20

    cluster.on_log_start = expire
    assert kinds(audited(tmp_path, cluster)) == []


def test_metadata_without_objects(tmp_path: Path, store: Store, cluster: Cluster) -> None:
    """A partition of which nothing is left in the store is found by its metadata."""
    results = audited(tmp_path, cluster, stored=())
    assert kinds(results).count(Kind.MISSING_OBJECT) == 3
    assert audited(tmp_path, cluster, stored=(), topics=("other",)) == []


def test_a_gap_between_the_tiers(tmp_path: Path, store: Store, cluster: Cluster) -> None:
    write(tmp_path, store)
    cluster.local_start = 61
    assert kinds(audited(tmp_path, cluster)) == [Kind.OFFSET_GAP]


@pytest.mark.parametrize(
    ("remote", "expected"),
    [
        (Remote.PENDING, set()),
        (Remote.PURGED, {Kind.LEFTOVER}),
        (Remote.NONE, {Kind.LEFTOVER}),
        (None, {Kind.UNKNOWN_TOPIC}),
    ],
)
def test_a_topic_that_does_not_exist(
    tmp_path: Path, store: Store, cluster: Cluster, remote: Remote | None, expected: set[Kind]
) -> None:
    write(tmp_path, store)
    cluster.delete_topic(remote)
    results = audited(tmp_path, cluster, deep=True)
    assert set(kinds(results)) == expected
    assert not any(isinstance(each, Work) for each in results)


def test_a_store_that_fails_is_no_silence(tmp_path: Path, store: Store, cluster: Cluster) -> None:
    (found,) = audited(tmp_path / "none", cluster, timeout_s=3.0)
    assert isinstance(found, Finding)
    assert found.kind is Kind.NOT_AUDITED
    assert "no such directory" in found.detail


def test_metadata_that_cannot_be_read_are_no_silence(
    tmp_path: Path, store: Store, cluster: Cluster
) -> None:
    write(tmp_path, store)
    del cluster.broker.topics[0]
    cluster.broker.close()
    cluster.broker.disconnect()
    options = AuditOptions(
        remote_storage=tmp_path.as_uri(), cluster=cluster.config.with_timeout(0.1)
    )
    with StoreAccess(options.remote_storage) as access, ClusterClient(options.cluster) as client:  # type: ignore[arg-type]
        results = list(UnitAudit(Unit(0, (KEY,)), options, Ports(access, client)).run())
    assert kinds(results) == [Kind.NOT_AUDITED]


# Bytes


def works(tmp_path: Path, cluster: Cluster | None) -> list[Work]:
    return [each for each in audited(tmp_path, cluster, deep=True) if isinstance(each, Work)]


def checked(tmp_path: Path, cluster: Cluster | None, work: Work) -> list[Result]:
    config = None if cluster is None else cluster.config
    options = AuditOptions(remote_storage=tmp_path.as_uri(), cluster=config)
    return list(check_bytes(work, options))


@pytest.mark.parametrize("with_brokers", [False, True])
def test_bytes_are_checked(
    tmp_path: Path, store: Store, cluster: Cluster, with_brokers: bool
) -> None:
    write(tmp_path, store)
    asked = cluster if with_brokers else None
    every = works(tmp_path, asked)
    assert [each.segment.start_offset for each in every] == [0, 20, 40]
    for each in every:
        (summary,) = checked(tmp_path, asked, each)
        assert isinstance(summary, Summary)
        assert summary.read_bytes > each.segment.size_bytes
    path = tmp_path / store.name(1)
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    assert kinds(checked(tmp_path, asked, every[1])) == [Kind.CRC_MISMATCH]
    path.unlink()
    assert Kind.MISSING_OBJECT in kinds(checked(tmp_path, asked, every[1]))


def test_what_the_listing_shows_is_not_found_again(tmp_path: Path, store: Store) -> None:
    write(tmp_path, store)
    name = store.name(1, ObjectKind.OFFSET_INDEX)
    (tmp_path / name).write_bytes(b"abc")
    (tmp_path / store.name(2, ObjectKind.PRODUCER_SNAPSHOT)).unlink()
    assert kinds(audited(tmp_path, None)) == [Kind.DAMAGED_AUXILIARY, Kind.MISSING_AUXILIARY]
    for work in works(tmp_path, None):
        assert kinds(checked(tmp_path, None, work)) == []


def test_a_segment_that_was_deleted_before_it_was_read(
    tmp_path: Path, store: Store, cluster: Cluster
) -> None:
    write(tmp_path, store)
    work = works(tmp_path, cluster)[0]
    (tmp_path / store.name(0)).unlink()
    cluster.records.append(update(2, DELETING))
    assert Kind.MISSING_OBJECT in kinds(checked(tmp_path, cluster, work))
    cluster.records.append(update(1, DELETING))
    assert kinds(checked(tmp_path, cluster, work)) == []


def test_a_log_of_another_size_is_not_read(tmp_path: Path, store: Store) -> None:
    write(tmp_path, store)
    (tmp_path / store.name(0)).write_bytes(b"")
    assert len(works(tmp_path, None)) == 2
