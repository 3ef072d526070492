"""What a retention report plans and reads, by what the cluster says and the store has."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.client.errors import ClientError
from ottla.spark.jobs.retention_report import (
    DEFAULT_MS,
    RetentionOptions,
    RetentionPlan,
    plan_retention,
    report_unit,
)
from ottla.spark.jobs.store_access import StoreAccess
from ottla.wire.messages import describe_configs as configs
from ottla.wire.messages import describe_remote_log as wire
from tests.unit.tiered.support import PARTITION, TOPIC, TOPIC_ID

from .fake_cluster import Cluster
from .support import Store, sound
from .test_store_partitions import write

NOW_MS = 10_000_000_000
PRESENT = {"retention.ms": "86400000", "retention.bytes": "-1"}


@pytest.fixture
def store() -> Store:
    return sound()


class Brokers(Cluster):
    """Also with settings and tiers. `error`: of both; `local`: see `BrokerFacts`."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.config_error = self.tier_error = 0
        self.local = (0, 60, 500)
        self.broker.answer(configs.DescribeConfigsRequest, self._configs)
        self.broker.answer(wire.DescribeRemoteLogRequest, self._tiers)

    def _configs(self, request: Any) -> Any:
        results = tuple(
            configs.DescribeConfigsResult(
                error_code=self.config_error,
                resource_type=2,
                resource_name=each.resource_name,
                configs=tuple(
                    configs.DescribeConfigsResourceResult(
                        name=name, value=value, read_only=False, is_sensitive=False
                    )
                    for name, value in PRESENT.items()
                ),
            )
            for each in request.resources
        )
        return configs.DescribeConfigsResponse(results=results)

    def _tiers(self, request: Any) -> Any:
        assert not request.include_segments, "that would be a use of the topic"
        log_start, local_start, local_bytes = self.local
        rows = tuple(
            wire.RemoteLogPartition(
                partition=number,
                error_code=self.tier_error,
                log_start_offset=log_start,
                local_start_offset=local_start,
                local_bytes=local_bytes,
            )
            for number in request.topics[0].partitions
        )
        found = wire.RemoteLogTopic(name=TOPIC, topic_id=TOPIC_ID, partitions=rows)
        return wire.DescribeRemoteLogResponse(error_code=0, topics=(found,))


@pytest.fixture
def cluster(store: Store) -> Iterator[Brokers]:
    found = Brokers(store)
    yield found
    found.broker.close()


def options(root: Path, **more: Any) -> RetentionOptions:
    return RetentionOptions(
        **{"remote_storage": root.as_uri(), "now_ms": NOW_MS, "retention_ms": (0,)} | more
    )


def rows_of(asked: RetentionOptions, plan: RetentionPlan) -> list[dict[str, Any]]:
    with StoreAccess(asked.remote_storage, 2) as access:
        return [row for unit in plan.units for row in report_unit(access, unit, asked, plan.now_ms)]


def test_without_brokers(tmp_path: Path, store: Store) -> None:
    old = {"retention.ms": str(NOW_MS), "retention.bytes": "7"}
    last = max(store.manifests)
    store.put_manifest(replace(store.manifests[last], configs=old))  # type: ignore[type-var]
    write(tmp_path, store)
    asked = options(tmp_path, retention_bytes=(-1,), price_per_gb_month=2.0)
    present, by_time, by_size = rows_of(asked, plan_retention(asked))
    size = sum(len(data) for name, data in store.objects.items() if name.endswith(".log"))
    assert (present["topic"], present["partition"], present["is_deleted"]) == (
        TOPIC,
        PARTITION,
        False,
    )
    assert [each["setting"] for each in (present, by_time, by_size)] == [
        "current",
        "retention.ms=0",
        "retention.bytes=-1",
    ]
    assert (present["retention_ms"], present["retention_bytes"]) == (NOW_MS, 7)
    assert present["kept_segments"] <= 1
    assert (by_time["kept_bytes"], by_time["deleted_bytes"]) == (0, size)
    assert by_time["oldest_kept"] is None
    assert (by_size["kept_bytes"], by_size["local_only_bytes"]) == (size, None)
    assert by_size["oldest_kept"] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert by_size["gb_months"] == size / 1e9
    assert by_size["cost"] == pytest.approx(2 * size / 1e9)


def test_defaults_of_kafka_where_manifests_have_none(tmp_path: Path, store: Store) -> None:
    write(tmp_path, store)
    asked = options(tmp_path)
    present, _ = rows_of(asked, plan_retention(asked))
    assert (present["retention_ms"], present["retention_bytes"]) == (DEFAULT_MS, -1)
    assert present["cost"] is None


def test_with_brokers(tmp_path: Path, store: Store, cluster: Brokers) -> None:
    write(tmp_path, store)
    cluster.local = (7, 1_000_000, 500)
    asked = options(tmp_path, cluster=cluster.config, retention_ms=(-1,))
    plan = plan_retention(asked)
    present, unlimited = rows_of(asked, plan)
    assert (present["retention_ms"], present["retention_bytes"]) == (86_400_000, -1)
    assert present["local_only_bytes"] == 500
    assert unlimited["log_start_offset"] >= 7
    assert plan.topics == {TOPIC}


def test_a_deleted_topic(tmp_path: Path, store: Store, cluster: Brokers) -> None:
    store.write_manifest(floor=9, added=())
    write(tmp_path, store)
    asked = options(tmp_path)
    assert {each["is_deleted"] for each in rows_of(asked, plan_retention(asked))} == {True}
    cluster.delete_topic(None)
    plan = plan_retention(options(tmp_path, cluster=cluster.config))
    assert (plan.units, plan.deleted) == ((), ((TOPIC, TOPIC_ID),))


@pytest.mark.parametrize("field", ["config_error", "tier_error"])
def test_a_right_that_is_missing(
    tmp_path: Path, store: Store, cluster: Brokers, field: str
) -> None:
    write(tmp_path, store)
    setattr(cluster, field, int(Error.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(ClientError, match=f"{TOPIC}.*TOPIC_AUTHORIZATION_FAILED"):
        plan_retention(options(tmp_path, cluster=cluster.config))


def test_damaged_manifests_are_an_error_of_their_partition(tmp_path: Path, store: Store) -> None:
    write(tmp_path, store)
    for path in tmp_path.glob("*/*/manifest/*"):
        path.write_bytes(b"x")
    asked = options(tmp_path)
    (only,) = rows_of(asked, plan_retention(asked))
    assert "cannot be read" in only["error"]
    assert only["is_deleted"] is False


def test_a_partition_of_which_nothing_is_copied(
    tmp_path: Path, store: Store, cluster: Brokers
) -> None:
    write(tmp_path, store)
    for path in tmp_path.glob("*/*/manifest/*"):
        path.unlink()
    asked = options(tmp_path, cluster=cluster.config)
    present, _ = rows_of(asked, plan_retention(asked))
    assert (present["kept_segments"], present["local_only_bytes"]) == (0, 500)
