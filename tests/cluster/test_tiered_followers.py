"""A replica whose leader has the older records in remote storage only copies the local ones alone.

Method: four brokers and a directory as the store. A replica comes back with an empty disk, or after
the others have deleted what it lacks, or is added by a reassignment. Once it is in sync its segment
files are listed, before anything is read; then it is elected, a client reads everything from
offset 0, and an idempotent producer repeats a batch whose records are in remote storage only.
"""

import json
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ottla.base.errors import Error
from ottla.client.cluster import ClientConfig, ClusterClient
from ottla.client.errors import check as raise_error
from ottla.records.builder import encode_batch
from ottla.testing import Cluster
from ottla.wire.messages.produce import PartitionProduceResponse, ProduceResponse

from . import stored
from .clients import Closing, Message, client_of, eventually
from .conftest import Kind, NewCluster, new_name
from .ottla_command import ottla
from .raw import PRODUCE_VERSION, produce_request
from .test_lost_disks import wipe
from .tiered import (
    EARLIEST,
    EARLIEST_LOCAL,
    LOCAL_SEGMENTS_MAX,
    REMOTE_SEGMENTS_MIN,
    TIERED,
    TOPIC,
    VALUE_BYTES,
    crc,
    earliest,
    read_all,
    remote_segments,
)

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.forms(1),
    pytest.mark.drawn(1),
]

SEGMENT_RECORDS = 16
PRODUCED_BY = 7_000_000
"""A producer id that no broker grants here."""


@pytest.fixture(scope="module", params=[Kind.SEPARATE, Kind.ZOOKEEPER], ids=["kraft", "zookeeper"])
def cluster(request: pytest.FixtureRequest, new_cluster: NewCluster) -> Iterator[Cluster]:
    with new_cluster(
        request.param, 4, controllers=1, config=TIERED, remote_storage=True, metrics=True
    ) as started:
        yield started


class Story:
    """A tiered topic of one partition, with what was produced so far."""

    def __init__(self, cluster: Cluster, name: str, replicas: Sequence[int]) -> None:
        self.cluster = cluster
        self.topic = new_name(name)
        self.replicas = tuple(replicas)
        self.values: list[bytes] = []
        settings = [f"--config={key}={value}" for key, value in TOPIC.items()]
        assignment = ":".join(map(str, replicas))
        self.command("topics", "--create", "--topic", self.topic, *settings,
                     "--replica-assignment", assignment)  # fmt: skip
        self.first = numbered(0)
        assert self.send(self.first).base_offset == 0
        self.values.append(b"0")

    def command(self, name: str, *arguments: str) -> str:
        ran = ottla(name, "--bootstrap-server", self.cluster.bootstrap, *arguments)
        assert (ran.code, ran.err) == (0, "")
        return ran.out

    def send(self, batch: bytes) -> PartitionProduceResponse:
        """Produce a batch as it is, with acks=all."""
        with ClusterClient(ClientConfig(bootstrap=self.cluster.bootstrap)) as client:

            def ask() -> PartitionProduceResponse:
                leader = client.leader((self.topic, 0))
                request = produce_request(self.topic, batch)
                answer = client.ask(
                    request, ProduceResponse, node=leader.node, at_most=PRODUCE_VERSION
                )
                found = answer.responses[0].partition_responses[0]
                if found.error_code != Error.OUT_OF_ORDER_SEQUENCE_NUMBER:
                    raise_error(self.topic, found.error_code)
                return found

            return client.with_retries(ask, repeatable=True)

    def produce(self, segments: int) -> None:
        """Produce the records of so many segments."""
        first = len(self.values)
        new = [
            b"%06d" % number + bytes([number % 251]) * VALUE_BYTES
            for number in range(first, first + segments * SEGMENT_RECORDS)
        ]
        with Closing(client_of("confluent").producer(self.cluster.bootstrap)) as producer:
            for begin in range(0, len(new), 4):
                some = new[begin : begin + 4]
                producer.send([Message(topic=self.topic, value=value) for value in some])
        self.values += new

    def wait_tiered(self, *, remote: int, nodes: Sequence[int]) -> None:
        """Wait until all closed segments are in the store, and local ones deleted."""

        def is_tiered() -> bool:
            return len(remote_segments(self.cluster, self.topic)) >= remote and all(
                0 < len(self.segments(node)) <= LOCAL_SEGMENTS_MAX for node in nodes
            )

        eventually(is_tiered, within=60, what="all closed segments in the remote tier")

    def segments(self, node: int) -> list[Path]:
        return stored.segments(self.cluster, self.topic, node=node)

    def leader(self) -> int:
        return self.cluster.partitions(self.topic)[0].leader

    def reassign(self, replicas: Sequence[int], tmp_path: Path) -> None:
        """Move the partition to these replicas, and wait for the end."""
        plan = tmp_path / f"{self.topic}.json"
        row = {"topic": self.topic, "partition": 0, "replicas": list(replicas)}
        plan.write_text(json.dumps({"version": 1, "partitions": [row]}))
        arguments = ("--reassignment-json-file", str(plan))
        self.command("reassign-partitions", *arguments, "--execute")
        eventually(
            lambda: set(self.cluster.partitions(self.topic)[0].replicas) == set(replicas),
            within=60,
            what="the end of the reassignment",
        )
        self.replicas = tuple(replicas)

    def elect(self, node: int, tmp_path: Path) -> None:
        """Make a replica in sync the leader."""
        others = [each for each in self.replicas if each != node]
        self.reassign([node, *others], tmp_path)
        self.command("leader-election", "--election-type", "preferred",
                     "--topic", self.topic, "--partition", "0")  # fmt: skip
        eventually(lambda: self.leader() == node, within=30, what="the election")

    def check_copied(self, node: int, local_start: int) -> None:
        """Check that a replica in sync has nothing of what was in remote storage only."""
        self.cluster.wait_in_sync()
        bases = [int(path.name[:20]) for path in self.segments(node)]
        assert bases
        assert min(bases) >= local_start > 0
        # Local retention may have deleted what it had copied, also in its leader's log before it
        # copied the rest: then it has begun once more, further on.
        begun = re.findall(
            rf"{self.topic}-0: log begins at offset (\d+), with the records from offset 0 on",
            self.cluster.logs(node),
        )
        offsets = [int(each) for each in begun]
        assert offsets
        assert offsets[0] >= local_start
        assert offsets == sorted(set(offsets))

    def check_served(self) -> None:
        """Check what clients see, and that the producer's batch is in the log once."""
        assert earliest(self.cluster, self.topic, EARLIEST) == 0
        assert earliest(self.cluster, self.topic, EARLIEST_LOCAL) > 0
        assert crc(read_all(self.cluster, self.topic)) == crc(self.values)
        again = self.send(self.first)
        assert (again.error_code, again.base_offset) == (Error.NONE, 0)
        gap = self.send(numbered(2))
        assert gap.error_code == Error.OUT_OF_ORDER_SEQUENCE_NUMBER
        following = self.send(numbered(1))
        assert (following.error_code, following.base_offset) == (Error.NONE, len(self.values))


def numbered(sequence: int) -> bytes:
    """Return an idempotent producer's batch of one record."""
    return encode_batch(
        [(None, b"%d" % sequence, (), int(time.time() * 1000))],
        producer_id=PRODUCED_BY,
        producer_epoch=0,
        base_sequence=sequence,
    )


def test_a_replica_comes_back_with_an_empty_disk(cluster: Cluster, tmp_path: Path) -> None:
    story = Story(cluster, "emptied", (1, 2, 3))
    story.produce(42)
    story.wait_tiered(remote=REMOTE_SEGMENTS_MIN, nodes=(1, 2, 3))
    cluster.kill(3)
    eventually(lambda: 3 not in cluster.partitions(story.topic)[0].isr, within=30)
    local_start = earliest(cluster, story.topic, EARLIEST_LOCAL)
    wipe(cluster, 3)
    cluster.start(3)
    cluster.wait_ready()
    story.check_copied(3, local_start)
    story.elect(3, tmp_path)
    story.check_served()


def test_a_replica_was_down_for_longer_than_local_retention(
    cluster: Cluster, tmp_path: Path
) -> None:
    story = Story(cluster, "away", (1, 2, 3))
    story.produce(8)
    story.wait_tiered(remote=6, nodes=(1, 2, 3))
    cluster.kill(2)
    eventually(lambda: 2 not in cluster.partitions(story.topic)[0].isr, within=30)
    end = len(story.values)
    story.produce(20)
    story.wait_tiered(remote=26, nodes=(1, 3))
    local_start = earliest(cluster, story.topic, EARLIEST_LOCAL)
    assert local_start > end
    cluster.start(2)
    cluster.wait_ready()
    story.check_copied(2, local_start)
    story.elect(2, tmp_path)
    story.check_served()


def test_a_reassignment_adds_a_replica_and_the_first_one_dies(
    cluster: Cluster, tmp_path: Path
) -> None:
    story = Story(cluster, "added", (4,))
    story.produce(20)
    story.wait_tiered(remote=18, nodes=(4,))
    local_start = earliest(cluster, story.topic, EARLIEST_LOCAL)
    story.reassign((4, 1), tmp_path)
    story.check_copied(1, local_start)
    cluster.kill(4)
    eventually(lambda: story.leader() == 1, within=30, what="the election")
    story.check_served()
    cluster.start(4)
    cluster.wait_ready()
