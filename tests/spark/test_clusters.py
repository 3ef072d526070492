"""The format and the jobs run on a Spark cluster whose nodes have nothing of Ottla installed.

Method: a Spark standalone cluster of two workers, with a Python without packages; spark-submit
brings a packed environment, as docs/spark.md says. A topic is read whose records are for the most
part in a directory store only, and the rows are those that were produced.
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Cluster
from tests.drawn import FAULT_ROUNDS
from tests.spark import test_tiered
from tests.spark.standalone import WORKERS, Standalone

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(400)]

READ = Path(__file__).with_name("submitted_read.py")
REMOTE = Path(__file__).with_name("remote_read.py")
COMMAND = Path(__file__).with_name("submitted_ottla.py")
ROWS = [
    [number % test_tiered.PARTITIONS, number // test_tiered.PARTITIONS, f"k{number}"]
    for number in range(test_tiered.RECORDS * test_tiered.PARTITIONS)
]


@pytest.fixture(scope="module")
def tiered() -> Iterator[Cluster]:
    with Cluster(brokers=1, config=test_tiered.CONFIG, remote_storage=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def orders(tiered: Cluster) -> str:
    return test_tiered.filled(tiered, "orders")


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster


def last_json(ended: Any) -> Any:
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-6000:]
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.drawn(1, of="long tests of Spark")
def test_spark_submit(standalone: Standalone, tiered: Cluster, orders: str) -> None:
    ended = standalone.submit(READ, tiered.bootstrap, tiered.remote_dir.as_uri(), orders)
    found = last_json(ended)
    assert found["rows"] == sorted(ROWS)
    assert found["master"] == standalone.master
    # Each executor took Ottla and the native modules from what was submitted.
    workers = [f"{standalone.directory}/worker-{number}/" for number in range(WORKERS)]
    assert len(found["places"]) == 2 * WORKERS, found["places"]
    for each in workers:
        assert sum(place.startswith(each) for place in found["places"]) == 2, found["places"]


@pytest.mark.soak(FAULT_ROUNDS)
def test_a_command_under_spark_submit(standalone: Standalone, tiered: Cluster, orders: str) -> None:
    words = ["--bootstrap-server", tiered.bootstrap, "--remote-storage", tiered.remote_dir.as_uri()]
    ended = standalone.submit(COMMAND, "pipeline", "audit", "--deep", "--json", *words)
    found = last_json(ended)
    assert found["findings"] == []
    assert found["summary"]["segments"] >= 16


@pytest.mark.soak(FAULT_ROUNDS)
def test_executors_that_lack_ottla_are_named(
    standalone: Standalone, tiered: Cluster, orders: str
) -> None:
    ended = standalone.submit(
        COMMAND, "pipeline", "audit", "--remote-storage", tiered.remote_dir.as_uri(),
        options=["--conf", "spark.executorEnv.PYTHONPATH=nowhere"],
    )  # fmt: skip
    assert ended.returncode == 1
    # spark-submit prints what its programs print on stderr on stdout.
    reasons = [line for line in ended.stdout.splitlines() if line.startswith("ottla pipeline: ")]
    assert len(reasons) == 1, ended.stdout[-3000:] + ended.stderr[-3000:]
    assert "ModuleNotFoundError: No module named 'ottla'" in reasons[0]
    assert 'see "On a cluster" in docs/spark.md' in reasons[0]


@pytest.mark.soak(FAULT_ROUNDS)
@pytest.mark.skipif(
    importlib.util.find_spec("grpc") is None, reason="pyspark[connect] is not installed"
)
def test_spark_connect(standalone: Standalone, tiered: Cluster, orders: str) -> None:
    url = standalone.connect_server()
    admin = AdminClient({"bootstrap.servers": tiered.bootstrap})
    admin.create_topics([NewTopic("copies", 2, 1)])["copies"].result(30)
    store = tiered.remote_dir.as_uri()
    ended = subprocess.run(
        [sys.executable, REMOTE, tiered.bootstrap, store, orders, "copies"],
        env={**os.environ, "SPARK_REMOTE": url},
        cwd=standalone.directory,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    found = last_json(ended)
    assert found["before"] == []
    assert found["rows"] == sorted(ROWS)
    assert found["session"].startswith("pyspark.sql.connect.")
    assert found["copied"] == len(ROWS)
    assert found["findings"] == []
    present, nothing = found["report"]["topics"]
    assert present["kept_segments"] == nothing["deleted_segments"] >= 16
