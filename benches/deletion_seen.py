"""A cluster whose topics are deleted, as a client and its operator see it: for `deletion`.

Everything is read from outside: answers, the nodes' metrics, files, four letter words.
"""

import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from rich.table import Table

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID
from ottla.client.connection import Connection
from ottla.host.kraft.quorum_replay import records_of
from ottla.metadata.delta import replay
from ottla.metadata.image import EMPTY
from ottla.metadata.records import encode_record
from ottla.raft.batches import read_batches
from ottla.raft.snapshots import encode_snapshot
from ottla.records.batch import iter_headers
from ottla.testing import Cluster, zookeeper_process
from ottla.testing.layout import NodePlan
from ottla.testing.ports import HOST
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.wire.messages.describe_deletions import (
    DescribeDeletionsRequest,
    DescribeDeletionsResponse,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from waiting import until

BATCH = 100
"""Topics of one request, and of one turn of the storm."""

WAIT_S = 600.0
LEDGER_POLL_S = 2.0

TO_DELETE = "kafka_controller_kafka_controller_topics_to_delete_count"
REQUESTS = "kafka_network_request_metrics_requests_total"


@dataclass(frozen=True, slots=True)
class Scraped:
    """Metrics of all living nodes: the largest by name, and requests summed by name."""

    values: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Held:
    """What is there at one moment.

    Fields: `written`: bytes of metadata on the fullest disk; they only grow until a snapshot
            stands for them, so they are what changes cost, not what is kept.
            `state`: bytes of what is kept: a snapshot of it, or all znodes and their names.
            `open`, `kept`: deletions in the ledger that are not finished, and receipts.
            `resident_kb`: at the controller.
    """

    written: int
    state: int
    open: int
    kept: int
    resident_kb: float

    def growth_since(self, before: "Held", topics: int) -> str:
        """Tell what each of so many topics has added."""
        return (
            f"{(self.written - before.written) / topics:.0f} B of metadata written, "
            f"{(self.state - before.state) / topics:+.0f} B kept, "
            f"{(self.resident_kb - before.resident_kb) / topics:+.1f} kB resident a topic"
        )

    def __str__(self) -> str:
        return (
            f"{self.open} open, {self.kept} receipts, "
            f"{self.state / 1e3:.0f} kB kept, {self.resident_kb / 1e3:.0f} MB resident"
        )


class QuorumFiles:
    """What the metadata of a quorum are, by the log of one member."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._image = EMPTY
        self._read: Counter[Path] = Counter()

    def snapshot_bytes(self) -> int:
        """Return how long a snapshot would be now.

        Having the nodes take one now and then would slow down what is measured beside it.
        """
        for file in sorted(self._folder.glob("*.log")):
            data = file.read_bytes()[self._read[file] :]
            end = 0
            for position, header in iter_headers(data, allow_partial=True):
                end = position + header.size_in_bytes
            self._read[file] += end
            for batch in read_batches(data[:end]):
                self._image = replay(
                    self._image, records_of(batch), offset=batch.next_offset - 1, epoch=batch.epoch
                ).image
        values = (encode_record(each) for each in self._image.to_records())
        chunks = encode_snapshot(values, epoch=1, timestamp=0, last_contained_ms=0)
        return sum(len(each) for each in chunks)


class Seen:
    """A running cluster, and the rows of what was measured."""

    def __init__(self, cluster: Cluster, table: Table) -> None:
        self.cluster = cluster
        self.is_kraft = cluster.zookeeper_connect is None
        self._table = table
        self._folder = cluster.data_dir(cluster.brokers[0].id).parent.parent
        self._quorums: dict[int, QuorumFiles] = {}

    def row(self, what: str, value: str) -> None:
        """Show a result."""
        self._table.add_row(what, value)
        print(f"{what}: {value}", file=sys.stderr, flush=True)

    def ask(self) -> Connection:
        """Connect to whom clients take for the controller: in KRaft mode to any broker."""
        wanted = self.cluster.wait_controller()
        alive = self._alive()
        plan = next((each for each in alive if each.id == wanted), alive[0])
        return Connection(HOST, plan.port, client_id="bench", timeout=WAIT_S)

    def _alive(self) -> list[NodePlan]:
        return [plan for plan in self.cluster.nodes if self.cluster.pid(plan.id) is not None]

    def scrape(self) -> Scraped:
        """Read the metrics of the nodes that live."""
        found = Scraped()
        for plan in self._alive():
            address = f"http://{self.cluster.metrics_address(plan.id)}/metrics"
            with urllib.request.urlopen(address, timeout=WAIT_S) as answer:
                lines = answer.read().decode().splitlines()
            for line in lines:
                name, _, value = line.rpartition(" ")
                if name.startswith(f"{REQUESTS}{{"):
                    found.requests[name.split('"')[1]] += int(float(value))
                elif name == TO_DELETE:
                    # In KRaft mode every controller tells it, over ZooKeeper the elected one.
                    found.values[name] = max(found.values[name], int(float(value)))
        return found

    # -- what is held --------------------------------------------------------------------------

    def held(self) -> Held:
        """Return what there is now."""
        controller = self.cluster.wait_controller()
        open_count, kept = self.ledger()
        return Held(
            written=self.written(),
            state=self._state(controller),
            open=open_count,
            kept=kept,
            resident_kb=psutil.Process(self.cluster.pid(controller)).memory_info().rss / 1e3,
        )

    def written(self) -> int:
        """Return the bytes of metadata on the fullest disk."""
        if self.is_kraft:
            sizes = [
                sum(each.stat().st_size for each in node.glob("*/__cluster_metadata-0/*.log"))
                for node in self._folder.glob("node-*")
            ]
        else:
            sizes = [
                sum(each.stat().st_blocks * 512 for each in server.rglob("log.*"))
                for server in self._folder.glob("zookeeper*")
            ]
        return max(sizes)

    def _state(self, controller: int) -> int:
        if self.is_kraft:
            if controller not in self._quorums:
                folder = self.cluster.data_dir(controller) / "__cluster_metadata-0"
                self._quorums[controller] = QuorumFiles(folder)
            return self._quorums[controller].snapshot_bytes()
        server = self.cluster.zookeeper
        assert server is not None
        said = zookeeper_process.ask(server.members[0].client_port, "mntr") or ""
        values = dict(line.split("\t", 1) for line in said.splitlines())
        return int(values["zk_approximate_data_size"])

    def ledger(self) -> tuple[int, int]:
        """Return how many deletions are not finished, and how many receipts there are."""
        counts: Counter[bool] = Counter()
        after = NO_UUID
        with self.ask() as connection:
            while True:
                request = DescribeDeletionsRequest(after=after)
                answer = connection.ask(request, DescribeDeletionsResponse, timeout=WAIT_S)
                _check([(answer.error_code, answer.error_message)])
                counts.update(each.finished_ms == -1 for each in answer.deletions)
                after = answer.next_after
                if after == NO_UUID:
                    return counts[True], counts[False]

    def folders(self, prefix: str) -> Iterator[Path]:
        """Yield the folders of some topics at brokers that live, but for those that wait under
        another name to be emptied."""
        for plan in self._alive():
            for each in self.cluster.data_dir(plan.id).glob(f"{prefix}*"):
                if not each.name.endswith("-delete"):
                    yield each

    def wait_gone(self, prefix: str) -> float:
        """Wait until no deletion is open and no folder left; return when that was."""
        until(lambda: not self.scrape().values[TO_DELETE] and not any(self.folders(prefix)))
        return time.perf_counter()

    def wait_open(self, count: int) -> None:
        """Wait until so many deletions are open, and all others are receipts."""
        until(lambda: self.ledger()[0] == count)

    def wait_forgotten(self) -> None:
        """Wait until nothing at all is in the ledger: the receipts have had their time."""
        until(lambda: self.ledger() == (0, 0), every_s=LEDGER_POLL_S)


# -- what clients ask ------------------------------------------------------------------------------


def create(connection: Connection, names: list[str], partitions: int, factor: int) -> float:
    """Create topics by requests of BATCH; return how many seconds that took."""
    begun = time.perf_counter()
    for begin in range(0, len(names), BATCH):
        request = CreateTopicsRequest(
            topics=tuple(
                CreatableTopic(
                    name=each,
                    num_partitions=partitions,
                    replication_factor=factor,
                    assignments=(),
                    configs=(),
                )
                for each in names[begin : begin + BATCH]
            ),
            timeout_ms=int(WAIT_S * 1000),
        )
        answer = connection.ask(request, CreateTopicsResponse, timeout=WAIT_S)
        _check((each.error_code, each.error_message) for each in answer.topics)
    return time.perf_counter() - begun


def delete(connection: Connection, names: list[str]) -> float:
    """Delete topics by requests of BATCH; return how many seconds it took to have all
    acknowledged, so that REQUEST_TIMED_OUT, which is none, is an error."""
    begun = time.perf_counter()
    for begin in range(0, len(names), BATCH):
        states = tuple(
            DeleteTopicState(name=each, topic_id=NO_UUID) for each in names[begin : begin + BATCH]
        )
        request = DeleteTopicsRequest(topics=states, timeout_ms=int(WAIT_S * 1000))
        answer = connection.ask(request, DeleteTopicsResponse, timeout=WAIT_S)
        _check((each.error_code, each.error_message) for each in answer.responses)
    return time.perf_counter() - begun


def unregister(connection: Connection, broker_id: int) -> None:
    """Take a broker out of the cluster for good."""
    request = UnregisterBrokerRequest(broker_id=broker_id)
    answer = connection.ask(request, UnregisterBrokerResponse, timeout=WAIT_S)
    _check([(answer.error_code, answer.error_message)])


def alive_to(connection: Connection) -> set[int]:
    """Return the brokers that a broker knows as alive."""
    answer = connection.ask(MetadataRequest(topics=()), MetadataResponse, timeout=WAIT_S)
    return {each.node_id for each in answer.brokers}


def _check(answers: Iterable[tuple[int, str | None]]) -> None:
    wrong = [each for each in answers if each[0] != Error.NONE]
    assert not wrong, wrong[0]
