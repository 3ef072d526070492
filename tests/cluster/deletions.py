"""A cluster whose topics are deleted: what its ledger, its brokers and their disks say of them.

Four brokers, so that one may be away and the controller die beside it: in KRaft the first three
are controllers, too. Requests go over Ottla's own blocking client, which asks another broker where
one does not answer; directories are known by the topic id in them, bytes by a word that no other
topic of the test has.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kazoo.client import KazooClient

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, Uuid, uuid_text
from ottla.cli.topics.deletions_client import deletion_image
from ottla.client.cluster import ClientConfig, ClusterClient
from ottla.client.connection import Connection
from ottla.metadata.deletions import (
    DeletionImage,
    DeletionState,
    ReplicaStatus,
)
from ottla.metadata.properties import read_properties
from ottla.records.batch import iter_headers
from ottla.records.builder import encode_batch
from ottla.records.record import iter_records
from ottla.testing import Cluster
from ottla.testing.cluster_facts import UNREACHABLE
from ottla.testing.readiness import known_brokers
from ottla.wire.messages import create_topics as create_wire
from ottla.wire.messages import delete_topics as delete_wire
from ottla.wire.messages import describe_deletions as ledger_wire
from ottla.wire.messages import produce as produce_wire
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

from .clients import eventually
from .conftest import QUICK_FENCING, Kind, NewCluster
from .stored import segments_in

PATIENCE_SECONDS = 90.0
ASK_SECONDS = 40.0
BROKERS = 4
MODES = (Kind.COMBINED, Kind.ZOOKEEPER)
CONFIG = QUICK_FENCING | {"auto.leader.rebalance.enable": "false"}

R = TypeVar("R")
T = TypeVar("T")
Ids = Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A topic that a test has made. `word`: what all its records say."""

    name: str
    id: Uuid
    word: bytes
    replicas: tuple[tuple[int, ...], ...]

    @property
    def replica_count(self) -> int:
        """Return how many replicas there are of all partitions."""
        return sum(map(len, self.replicas))


class Site:
    """See the module. `is_classic`: the policy of ZooKeeper clusters holds, not KRaft's."""

    def __init__(self, cluster: Cluster, client: KazooClient | None) -> None:
        self.cluster = cluster
        self.is_classic = client is not None
        self._client = client

    @property
    def zookeeper(self) -> KazooClient:
        """A session with the cluster's ZooKeeper."""
        assert self._client is not None, "asked of a KRaft cluster"
        return self._client

    # -- who -----------------------------------------------------------------------------------

    def ids(self) -> list[int]:
        """Return the brokers' ids."""
        return [plan.id for plan in self.cluster.brokers]

    def trio(self) -> tuple[int, int, int]:
        """Return three brokers: one with no office, the active controller, one to be away.

        The last one is no controller in KRaft, so that the controller may die beside it.
        """
        controller = self.cluster.wait_controller()
        first, *_, last = (each for each in self.ids() if each != controller)
        return first, controller, last

    # -- lives of brokers ----------------------------------------------------------------------

    def kill(self, node: int) -> None:
        """Kill a broker (SIGKILL), and wait until all others know it to be gone."""
        self.cluster.kill(node)
        self.wait_gone(node)

    def wait_gone(self, node: int) -> None:
        """Wait until all brokers that run know another one to be gone."""
        for plan in self.cluster.brokers:
            if self.cluster.state(plan.id) == "running":
                eventually(
                    lambda port=plan.port: known_brokers(port),  # type: ignore[misc]
                    lambda known: known is not None and node not in known,
                    within=PATIENCE_SECONDS,
                    what=f"{node} to be known to be gone by {plan.id}",
                )

    def start(self, *nodes: int) -> None:
        """Start brokers again, and wait until all serve."""
        for node in nodes:
            self.cluster.start(node)
        self.cluster.wait_ready()

    # -- asking --------------------------------------------------------------------------------

    def ask(
        self, request: object, response: type[R], *, node: int | None = None, version: int = -1
    ) -> R:
        """Ask a broker that answers, or this one; in the newest version where none is named."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            for plan in self.cluster.brokers:
                if node in (None, plan.id) and self.cluster.state(plan.id) == "running":
                    with (
                        suppress(*UNREACHABLE),
                        Connection("127.0.0.1", plan.port, client_id="test", timeout=5) as broker,
                    ):
                        wanted = version if version >= 0 else None
                        return broker.ask(request, response, timeout=ASK_SECONDS, version=wanted)
            assert time.monotonic() < deadline, f"nobody answers {request}"
            time.sleep(0.05)

    def serves(self, request: object) -> bool:
        """Tell whether brokers serve a request at all."""
        with ClusterClient(ClientConfig(bootstrap=self.cluster.bootstrap)) as client:
            return client.serves(type(request))

    def described(
        self, name: str = "", topic_id: Uuid = NO_UUID, **at: int
    ) -> MetadataResponseTopic:
        """Return what a broker says of a topic, by name or by id."""
        topic = MetadataRequestTopic(name=name or None, topic_id=topic_id)
        request = MetadataRequest(topics=(topic,), allow_auto_topic_creation=False)
        return self.ask(request, MetadataResponse, **at).topics[0]

    # -- topics --------------------------------------------------------------------------------

    def create(self, name: str, *replicas: Ids, word: bytes = b"") -> Made:
        """Create a topic with these replicas of its partitions; each holds a record of `word`."""
        error, topic_id = self.try_create(name, *replicas)
        assert error is Error.NONE, error
        made = Made(
            name=name,
            id=topic_id,
            word=word or b"the word of " + topic_id,
            replicas=tuple(map(tuple, replicas)),
        )
        for number in range(len(replicas)):
            self.write(made, number)
        return made

    def try_create(self, name: str, *replicas: Ids) -> tuple[Error, Uuid]:
        """Ask for a topic; a controller that is on its way is waited for."""
        topic = create_wire.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=tuple(
                create_wire.CreatableReplicaAssignment(partition_index=number, broker_ids=each)
                for number, each in enumerate(map(tuple, replicas))
            ),
            configs=(),
        )
        request = create_wire.CreateTopicsRequest(topics=(topic,), timeout_ms=30_000)

        def attempt() -> create_wire.CreatableTopicResult:
            return self.ask(request, create_wire.CreateTopicsResponse).topics[0]

        found = eventually(attempt, lambda found: found.error_code != Error.NOT_CONTROLLER)
        return Error(found.error_code), found.topic_id

    def write(self, made: Made, partition: int) -> None:
        """Append a record with the topic's word to a partition, and wait until all have it."""
        eventually(
            lambda: self.try_write(made, partition),
            Error.NONE.__eq__,
            within=PATIENCE_SECONDS,
            what=f"a record in {made.name}-{partition}",
        )

    def try_write(self, made: Made, partition: int, node: int | None = None) -> Error:
        """Ask the leader, or this broker, to append a record with the topic's word."""
        if node is None:
            described = {
                each.partition_index: each for each in self.described(made.name).partitions
            }
            if partition not in described or described[partition].leader_id < 0:
                return Error.LEADER_NOT_AVAILABLE
            node = described[partition].leader_id
        batch = encode_batch([(None, made.word, (), int(time.time() * 1000))])
        data = produce_wire.PartitionProduceData(index=partition, records=batch)
        topic = produce_wire.TopicProduceData(name=made.name, partition_data=(data,))
        request = produce_wire.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(topic,))
        answer = self.ask(request, produce_wire.ProduceResponse, node=node, version=9)
        return Error(answer.responses[0].partition_responses[0].error_code)

    def delete(
        self, name: str | None = None, topic_id: Uuid = NO_UUID, *, timeout_ms: int = 30_000
    ) -> Error:
        """Ask for a deletion; a controller that is on its way is waited for."""
        topic = delete_wire.DeleteTopicState(name=name, topic_id=topic_id)
        request = delete_wire.DeleteTopicsRequest(topics=(topic,), timeout_ms=timeout_ms)

        def attempt() -> Error:
            answer = self.ask(request, delete_wire.DeleteTopicsResponse)
            return Error(answer.responses[0].error_code)

        return eventually(attempt, lambda error: error is not Error.NOT_CONTROLLER)

    # -- the ledger ----------------------------------------------------------------------------

    def entry(self, made: Made) -> DeletionImage | None:
        """Return a topic's entry in the ledger; None = there is none, or no controller to ask."""
        named = ledger_wire.DescribeDeletionsTopic(topic_id=made.id)
        request = ledger_wire.DescribeDeletionsRequest(topics=(named,))
        answer = self.ask(request, ledger_wire.DescribeDeletionsResponse)
        assert answer.error_code in (Error.NONE, Error.NOT_CONTROLLER), answer.error_message
        return deletion_image(answer.deletions[0]) if answer.deletions else None

    def entry_with(
        self, made: Made, holds: Callable[[DeletionImage], bool], what: str
    ) -> DeletionImage:
        """Return the entry of a topic once something holds of it."""
        found = eventually(
            lambda: self.entry(made),
            lambda entry: entry is not None and holds(entry),
            within=PATIENCE_SECONDS,
            what=f"{made.name}: {what}",
        )
        assert found is not None
        return found

    def wait_successful(self, made: Made, count: int) -> DeletionImage:
        """Wait until so many replicas are proven to be gone."""
        return self.entry_with(
            made, lambda entry: entry.count(DeletionState.SUCCESSFUL) == count, f"{count} gone"
        )

    def wait_receipt(self, made: Made, replicas: int | None = None) -> DeletionImage:
        """Wait for the receipt, which says that all replicas are gone; and that is true."""
        receipt = self.entry_with(made, lambda entry: entry.is_finished, "a receipt")
        wanted = made.replica_count if replicas is None else replicas
        assert receipt.count(DeletionState.SUCCESSFUL) == wanted, list(receipt.rows())
        assert receipt.count(*DeletionState) == wanted, list(receipt.rows())
        self.check_gone(made)
        return receipt

    # -- disks ---------------------------------------------------------------------------------

    def log_dirs(self, node: int) -> list[Path]:
        """Return the directories in which a broker keeps partitions."""
        properties = self.cluster.data_dir(node).parent / "node.properties"
        listed = read_properties(properties.read_text())["log.dirs"]
        return [Path(each) for each in listed.split(",")]

    def directories(self, topic_id: Uuid) -> list[Path]:
        """Return a topic's partition directories that a start would load, or has set aside."""
        mark = f"topic_id: {uuid_text(topic_id)}"
        return [
            each
            for node in self.ids()
            for each in self._partition_directories(node)
            if not each.name.endswith("-delete") and mark in _text(each / "partition.metadata")
        ]

    def segments_left(self, made: Made, node: int) -> int:
        """Return of how many partitions of a topic a broker has bytes, on their way out or not."""
        ours = re.compile(re.escape(made.name) + r"-\d+(\.[0-9a-f]{32}-delete)?")
        return sum(
            any(path.exists() for path in segments_in(each))
            for each in self._partition_directories(node)
            if ours.fullmatch(each.name)
        )

    def strays(self, node: int) -> list[Path]:
        """Return the directories that a broker has set aside."""
        return [each for each in self._partition_directories(node) if each.name.endswith("-stray")]

    def broker_of(self, path: Path) -> int:
        """Return whose disk a path is on."""
        [found] = [each for each in self.ids() if self._is_of(path, each)]
        return found

    def _is_of(self, path: Path, node: int) -> bool:
        return any(path.is_relative_to(each) for each in self.log_dirs(node))

    def _partition_directories(self, node: int) -> Iterator[Path]:
        for log_dir in self.log_dirs(node):
            if log_dir.is_dir():
                yield from (each for each in log_dir.iterdir() if each.is_dir())

    def keepers(self, word: bytes) -> list[Path]:
        """Return the files of partitions in which a word is, those on their way out too.

        Brokers that do not run are left out: they remove those first when they are back.
        """
        return [
            path
            for node in self.ids()
            if self.cluster.state(node) == "running"
            for directory in self._partition_directories(node)
            if directory.name != "__cluster_metadata-0"
            for path in segments_in(directory)
            if word in _bytes(path)
        ]

    def check_gone(self, made: Made) -> None:
        """Nobody has a directory of a topic that is proven to be gone; its bytes follow soon."""
        assert self.directories(made.id) == []
        eventually(
            lambda: self.keepers(made.word), [].__eq__, within=PATIENCE_SECONDS, what="no byte"
        )

    def words(self, name: str, partition: int, node: int) -> list[bytes | None]:
        """Return the values that a broker's log of a partition holds."""
        found: list[bytes | None] = []
        for log_dir in self.log_dirs(node):
            for path in sorted((log_dir / f"{name}-{partition}").glob("*.log")):
                data = path.read_bytes()
                assert list(iter_headers(data))
                found += [record.value for record in iter_records(data)]
        return found


def _text(path: Path) -> str:
    return _bytes(path).decode(errors="replace")


def _bytes(path: Path) -> bytes:
    """Return what a file holds; nothing, where it goes in this moment."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def ineligible(entry: DeletionImage) -> list[tuple[int, ReplicaStatus, tuple[int, ...]]]:
    """Return the rows of replicas that cannot go at the moment."""
    return [row for row in entry.rows() if row[1].state is DeletionState.INELIGIBLE]


def at_once(*acts: Callable[[], T]) -> list[T]:
    """Do things at the same time; return what came of each."""
    with ThreadPoolExecutor(len(acts)) as pool:
        return [each.result(PATIENCE_SECONDS) for each in [pool.submit(act) for act in acts]]


@contextmanager
def repeated(act: Callable[[], T]) -> Iterator[list[T]]:
    """Do something again and again during the block, and once more after it; yield what came."""
    found: list[T] = []
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            found.append(act())
        found.append(act())

    with ThreadPoolExecutor(1) as pool:
        worker = pool.submit(work)
        try:
            eventually(lambda: len(found) > 2 or worker.done(), what="first answers")
            yield found
        finally:
            stop.set()
        worker.result(PATIENCE_SECONDS)


@contextmanager
def site_of(
    kind: Kind, new_cluster: NewCluster, brokers: int = BROKERS, **config: str
) -> Iterator[Site]:
    """Start a cluster; underscores in the names of `config` stand for dots."""
    given = CONFIG | {key.replace("_", "."): value for key, value in config.items()}
    with new_cluster(kind, brokers, config=given) as cluster:
        if cluster.zookeeper_connect is None:
            yield Site(cluster, None)
            return
        client = KazooClient(cluster.zookeeper_connect)
        client.start()
        try:
            yield Site(cluster, client)
        finally:
            client.stop()
            client.close()
