"""A broker that dies and comes back must cost a write time, not rows.

Method: SIGKILL while a write is under way, seen to have begun; then every row is counted.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Cluster

pytestmark = pytest.mark.spark

ROWS = 150_000


def kill_once_written_to(cluster: Cluster, topic: str) -> int:
    """Kill and start the broker when the topic has some rows; return how many it had."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "watch"})
    deadline = time.monotonic() + 60
    while True:
        partition = TopicPartition(topic, 0)
        written = int(consumer.get_watermark_offsets(partition, 10, cached=False)[1])
        if written:
            break
        assert time.monotonic() < deadline, "the write did not begin"
        time.sleep(0.05)
    (node,) = cluster.nodes
    cluster.kill(node.id)
    cluster.start(node.id)
    consumer.close()
    return written


def test_a_write_survives_its_broker(spark: Any) -> None:
    with Cluster(brokers=1) as cluster, ThreadPoolExecutor(1) as pool:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
        frame = spark.range(ROWS).selectExpr("cast(id as string) as key", "repeat('v', 100) value")
        writer = frame.write.format("ottla").mode("append").option("topic", "t")
        # Small requests, so that the broker dies between two of them.
        writer = writer.option("kafka.batch.size", "20000")
        writer = writer.option("kafka.bootstrap.servers", cluster.bootstrap)
        killing = pool.submit(kill_once_written_to, cluster, "t")
        writer.save()
        assert 0 < killing.result(60) < ROWS, "the write was over before the broker died"
        cluster.wait_ready()
        reader = spark.read.format("ottla").option("subscribe", "t")
        rows = reader.option("kafka.bootstrap.servers", cluster.bootstrap).load()
        assert rows.count() == ROWS
        assert rows.select("key").distinct().count() == ROWS
