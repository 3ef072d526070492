"""What an audit plans: units of work, from a listing and the metadata topic's partitions."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.base.ids import Uuid
from ottla.spark.jobs.audit import AuditOptions, _units, measure_audit, plan_audit, result_of
from ottla.spark.jobs.audit_tasks import NO_METADATA, Unit
from ottla.tiered.metadata_partition import metadata_partition
from tests.unit.tiered.support import TOPIC, TOPIC_ID

from .fake_cluster import Cluster
from .rules.test_findings import finding
from .support import KEY, sound
from .test_store_partitions import write


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    found = Cluster(sound())
    yield found
    found.broker.close()


def test_units() -> None:
    other = ("other", Uuid(bytes(range(16))), 1)
    count = 50
    at, beside = (metadata_partition(key[1], key[2], count) for key in (KEY, other))
    assert at != beside
    empty = dict.fromkeys(range(count), 0)
    assert _units({KEY}, None, empty) == [Unit(at, (KEY,))]
    # A partition with records may have segments without any object.
    assert _units({KEY}, None, empty | {beside: 7}) == sorted(
        [Unit(at, (KEY,)), Unit(beside, ())], key=lambda unit: unit.metadata_partition
    )
    # Only what selected topics need.
    assert _units({KEY}, [KEY], empty | {beside: 7}) == [Unit(at, (KEY,))]
    assert _units(set(), [other], empty | {at: 7}) == [Unit(beside, ())]
    assert _units({KEY}, None, {}) == [Unit(NO_METADATA, (KEY,))]


def test_plans(tmp_path: Path, cluster: Cluster) -> None:
    write(tmp_path, sound())
    (tmp_path / "notes").touch()
    alone = plan_audit(AuditOptions(remote_storage=tmp_path.as_uri()))
    assert (alone.units, alone.metadata_records) == ((Unit(NO_METADATA, (KEY,)),), 0)
    assert [each.object for each in alone.foreign] == ["notes"]
    options = AuditOptions(remote_storage=tmp_path.as_uri(), cluster=cluster.config)
    plan = plan_audit(options)
    assert (plan.units, plan.metadata_records) == ((Unit(0, (KEY,)),), len(sound().records))
    assert TOPIC in plan.topics
    named = plan_audit(
        AuditOptions(remote_storage=tmp_path.as_uri(), cluster=cluster.config, topics=("no",))
    )
    assert (named.units, named.topics, named.foreign) == ((), frozenset(), ())
    # They travel to the tasks.
    assert pickle.loads(pickle.dumps((plan, options))) == (plan, options)


def test_measures(tmp_path: Path) -> None:
    made = sound()
    write(tmp_path, made)
    reports: list[int] = []
    (only,) = measure_audit(AuditOptions(remote_storage=tmp_path.as_uri()), reports.append)
    assert (only.topic, only.topic_id, only.partitions, only.objects) == (TOPIC, TOPIC_ID, 1, 16)
    manifests = sum(len(data) for name, data in made.objects.items() if "/manifest/" in name)
    assert only.bytes_to_read(deep=False) == manifests
    assert only.bytes_to_read(deep=True) == sum(map(len, made.objects.values()))


def test_results_travel_as_rows() -> None:
    assert result_of({"payload": pickle.dumps(finding())}) == finding()
