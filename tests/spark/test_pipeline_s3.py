"""The jobs and the format over an S3 endpoint, of a cluster in ZooKeeper mode.

Method: moto's server; credentials are in the environment of the processes alone. The audit finds
nothing wrong, then an object that was deleted by hand; a retention report counts what the bucket
has; the rows are those that were produced; a purge is proven to be over. A topic that was large
before it was tiered is backfilled, audited and read.
"""

import json
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from confluent_kafka.admin import AdminClient

from ottla.cli.main import main
from ottla.spark.source import OttlaDataSource
from ottla.testing import Cluster
from tests.spark import test_pipeline
from tests.spark.conftest import S3_SECRET
from tests.unit.stores.moto_server import MotoServer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

BUCKET = "pipeline"
RECORDS = 160
TOPIC, OLDER = "orders", "older"


class Bucket:
    def __init__(self, endpoint: str) -> None:
        self.uri = f"s3://{BUCKET}/tier?endpoint={endpoint}&region=us-east-1"
        self.client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
        self.client.create_bucket(Bucket=BUCKET)

    def objects(self, kind: str = "", topic: str = TOPIC) -> dict[str, int]:
        """Return the sizes of a topic's objects of a kind."""
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=BUCKET, Prefix=f"tier/{topic}-"
        )
        found = [each for page in pages for each in page.get("Contents", ())]
        return {each["Key"]: each["Size"] for each in found if each["Key"].endswith(kind)}


@pytest.fixture(scope="module")
def bucket(spark: Any) -> Iterator[Bucket]:
    assert spark is not None, "its processes have the credentials"
    with MotoServer() as moto:
        yield Bucket(moto.url)


@pytest.fixture(scope="module")
def cluster(bucket: Bucket) -> Iterator[Cluster]:
    config = test_pipeline.CONFIG
    with Cluster(zookeeper=True, remote_storage=bucket.uri, config=config) as running:
        test_pipeline.create(running, TOPIC)
        test_pipeline.produce(running, TOPIC, RECORDS)
        test_pipeline.wait_copied(running, TOPIC, bucket.objects)
        yield running


@pytest.fixture
def job(
    cluster: Cluster, bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, Any]]:
    def run(name: str, *words: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = main(
            ["pipeline", name, "--bootstrap-server", cluster.bootstrap, "--json",
             "--remote-storage", bucket.uri, *words]
        )  # fmt: skip
        return code, json.loads(capsys.readouterr().out)

    return run


def test_rows_and_plans_without_credentials(spark: Any, cluster: Cluster, bucket: Bucket) -> None:
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "ottla.remote.storage.uri": bucket.uri,
        "subscribe": TOPIC,
    }
    frame = spark.read.format("ottla").options(**options).load()
    assert frame.select("partition", "offset").distinct().count() == RECORDS
    source = OttlaDataSource(options)
    reader = source.reader(source.schema())
    tasks = reader.partitions()
    assert any(split.remote for task in tasks for split in task.splits)
    assert S3_SECRET.encode() not in pickle.dumps((reader, tasks))
    assert S3_SECRET not in frame._jdf.queryExecution().toString()


def test_the_jobs(job: Callable[..., Any], cluster: Cluster, bucket: Bucket) -> None:
    code, found = job("audit", "--deep", "--grace", "600")
    assert (code, found["findings"]) == (0, [])
    logs = bucket.objects(".log")
    assert found["summary"]["segments"] == len(logs) >= 8
    code, found = job("retention-report", "--retention-ms", "0")
    assert code == 0
    present, nothing = found["topics"]
    assert (present["kept_bytes"], present["kept_segments"]) == (sum(logs.values()), len(logs))
    assert (nothing["kept_bytes"], nothing["deleted_segments"]) == (0, len(logs))

    name = min(logs)
    bucket.client.delete_object(Bucket=BUCKET, Key=name)
    code, found = job("audit")
    assert code == 1
    assert [(each["kind"], f"tier/{each['object']}") for each in found["findings"]] == [
        ("missing-object", name)
    ]

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics([TOPIC])[TOPIC].result(30)
    test_pipeline.eventually(lambda: not bucket.objects(".log"), "objects are deleted")
    code, found = job("purge-check")
    (only,) = found["topics"]
    assert (only["topic"], only["what"], only["objects_left"]) == (TOPIC, "deleted", 0)
    assert only["receipt"] == "pending, not finished"
    code, found = job("audit")
    assert (code, found["findings"]) == (0, [])


def test_a_backfill(spark: Any, job: Callable[..., Any], cluster: Cluster, bucket: Bucket) -> None:
    # The brokers' own copies are slow: most segments are left to the backfill.
    quota = "remote.log.manager.copy.max.bytes.per.second=50"
    configure(cluster, "--entity-type", "brokers", "--entity-default", "--add-config", quota)
    not_tiered = test_pipeline.TOPIC | {"remote.storage.enable": "false"}
    test_pipeline.create(cluster, OLDER, not_tiered)
    test_pipeline.produce(cluster, OLDER, RECORDS)
    tiered = "remote.storage.enable=true"
    configure(cluster, "--entity-type", "topics", "--entity-name", OLDER, "--add-config", tiered)

    code, found = job("backfill", "--topic", OLDER)
    assert (code, found["segments_left"]) == (0, 0)
    logs = bucket.objects(".log", OLDER)
    assert 3 < found["segments"] <= len(logs)
    code, found = job("audit", "--deep", "--grace", "600")
    assert (code, found["findings"]) == (0, [])
    assert found["summary"]["segments"] == len(logs)
    options = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": OLDER}
    frame = spark.read.format("ottla").options(**options).load()
    assert frame.select("partition", "offset").distinct().count() == RECORDS


def configure(cluster: Cluster, *words: str) -> None:
    assert main(["configs", "--bootstrap-server", cluster.bootstrap, "--alter", *words]) == 0
