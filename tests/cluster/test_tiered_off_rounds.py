"""Tiered storage is turned off and on again, round after round, under load, and brokers are killed.

Method: an idempotent producer writes numbers all the time, one a record, so that a number is its
offset. Each round turns remote storage off, with retain and delete in turn, and on again; in each
a broker is killed while the topic is DISABLING. After each change a client reads from the earliest
offset to the end: no number is missing, none comes twice. At the end the store, the brokers and the
manifests name the same segments. `make soak` plays ten rounds in both modes.
"""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ottla.base.ids import uuid_text
from ottla.client.cluster import ClientConfig, ClusterClient
from ottla.metadata.tiering import TieringState
from ottla.testing import Cluster
from ottla.tiered.manifest import follow
from ottla.tiered.manifest_codec import decode_manifest
from ottla.wire.messages import describe_remote_log as wire

from ..drawn import FAULT_ROUNDS
from . import stored
from .clients import Closing, client_of, eventually
from .conftest import BROKERS, Kind, NewCluster, new_name
from .fault_load import Load
from .test_tiered_off import DELETE, ENABLE, RETAIN, alter, wait_state
from .tiered import EARLIEST, EARLIEST_LOCAL, TIERED, TOPIC, earliest, read_from

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.forms(1),
    pytest.mark.drawn(2, of="long faults"),
]

ROUNDS = 10 if os.environ.get(FAULT_ROUNDS) == "all" else 2
VALUE_BYTES = 2_000
BATCH_BYTES = 8_000
"""A segment holds two of them, also after a time without a leader."""
LOCAL = {"local.retention.bytes": "200000"}
"""Two seconds of records. `delete` takes what is in remote storage only from readers, also from one
that reads along and is a moment behind."""
SEGMENTS_MIN = 5
"""How many segments are copied before remote storage is turned off."""


@pytest.fixture(params=[Kind.COMBINED, Kind.ZOOKEEPER], ids=["kraft", "zookeeper"])
def cluster(request: pytest.FixtureRequest, new_cluster: NewCluster) -> Iterator[Cluster]:
    with new_cluster(request.param, 3, config=TIERED, remote_storage=True) as cluster:
        yield cluster


def remote_segments(cluster: Cluster, topic: str) -> dict[str, int]:
    """Return what the leader knows of remote storage: segment ids with their tiered epochs."""
    with ClusterClient(ClientConfig(bootstrap=cluster.bootstrap)) as client:

        def ask() -> dict[str, int]:
            leader = client.leader((topic, 0))
            asked = wire.DescribeRemoteLogTopic(name=topic, partitions=(0,))
            request = wire.DescribeRemoteLogRequest(topics=(asked,), include_segments=True)
            answer = client.ask(request, wire.DescribeRemoteLogResponse, node=leader.node)
            [found] = answer.topics[0].partitions
            return {uuid_text(each.segment_id): each.tiered_epoch for each in found.segments}

        return client.with_retries(ask, repeatable=True)


def objects(cluster: Cluster, pattern: str) -> list[Path]:
    """Return the store's objects, without those that are being written."""
    return [each for each in cluster.remote_dir.glob(pattern) if "#" not in each.name]


def stored_segments(cluster: Cluster, topic: str) -> set[str]:
    """Return the ids of the segments that have any object in the store."""
    names = [each.name for each in objects(cluster, f"{topic}-*/0/*.*")]
    return {name.split(".")[0].split("-", 1)[1] for name in names}


def listed_segments(cluster: Cluster, topic: str) -> set[str]:
    """Return the ids of the segments that the manifests name."""
    paths = objects(cluster, f"{topic}-*/0/manifest/*")
    state = follow(decode_manifest(path.read_bytes()) for path in paths)
    return set() if state is None else set(map(uuid_text, state.segments))


def check_numbers(cluster: Cluster, topic: str) -> int:
    """Read all that is there; return the earliest offset."""
    start = earliest(cluster, topic, EARLIEST)
    numbers = [int(value) for value in read_from(cluster, topic, start)]
    assert numbers == list(range(start, start + len(numbers)))
    return start


def tiered_since(cluster: Cluster, topic: str, epoch: int, start: int) -> bool:
    """Return whether enough segments are copied, and no replica has the first records locally.

    Local retention comes some time after the copies. Before it, `delete` has nothing to take from
    readers: the log begins where it began.
    """
    epochs = list(remote_segments(cluster, topic).values())
    first = [stored.segments(cluster, topic, node=node)[:1] for node in BROKERS]
    return epochs.count(epoch) >= SEGMENTS_MIN and all(
        found and int(found[0].stem) > start for found in first
    )


def test_off_and_on_under_load_while_brokers_die(cluster: Cluster) -> None:
    topic, epoch, start = new_name("rounds"), 1, 0
    with Closing(client_of("confluent").admin(cluster.bootstrap)) as admin:
        admin.create_topic(topic, replication_factor=3, config=TOPIC | LOCAL)
    with Load(cluster, topic, 1, VALUE_BYTES, batch_bytes=BATCH_BYTES) as load:
        load.begun()
        for number in range(ROUNDS):
            policy = (RETAIN, DELETE)[number % 2]
            is_tiered = partial(tiered_since, cluster, topic, epoch, start)
            eventually(is_tiered, within=90, what="copied segments that are not local")
            assert alter(cluster, topic, policy) == (0, "")
            victim = BROKERS[number % len(BROKERS)]
            cluster.kill(victim)
            cluster.start(victim)
            cluster.wait_ready()
            epoch += 1
            wait_state(cluster, topic, TieringState.DISABLED, epoch)
            cluster.wait_in_sync()
            begun = check_numbers(cluster, topic)
            if policy is RETAIN:
                assert begun == start
            else:
                assert begun == earliest(cluster, topic, EARLIEST_LOCAL) > start
            start = begun
            assert alter(cluster, topic, ENABLE) == (0, "")
            epoch += 1
            wait_state(cluster, topic, TieringState.ENABLED, epoch)
            load.wait_progress()
            assert check_numbers(cluster, topic) == start
            load.check_errors()
    load.check_errors()

    def disagreement() -> list[str]:
        known = set(remote_segments(cluster, topic))
        stored, listed = stored_segments(cluster, topic), listed_segments(cluster, topic)
        if not known:
            return ["no segment is known"]
        return [
            *(f"{each}: not known, in the store" for each in stored - known),
            *(f"{each}: not known, in manifests" for each in listed - known),
            *(f"{each}: known, not in the store" for each in known - stored),
            *(f"{each}: known, not in manifests" for each in known - listed),
        ]

    what = "the same segments in the store, brokers and manifests"
    eventually(disagreement, lambda found: not found, within=90, what=what)
    assert check_numbers(cluster, topic) == start
