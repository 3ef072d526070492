"""Watches the fetches of the metadata log, by voters and observers (KIP-595).

- A leader that answers a fetch as valid has the record before the fetch offset, in the epoch that
  the replica names. Else it would append to a log that diverges from its own (Raft, 5.3).
- A replica whose log diverges, by the response, truncates it: in that epoch of the leader it does
  not fetch from the same end again and again.
"""

from collections import Counter
from typing import NamedTuple

from ottla.base.ids import METADATA_TOPIC_ID
from ottla.host.kraft.quorum_storage import METADATA_DIR
from ottla.log import names
from ottla.testing.history.history import History
from ottla.testing.history.nodes import REPLICATION, RuleBroken
from ottla.testing.scenarios.watches.awaited import Awaited
from ottla.testing.scenarios.watches.batch_reader import BatchReader, Extent, extent, segments_of
from ottla.testing.sim import Sim
from ottla.testing.sim.disk import SimDisk
from ottla.testing.sim.watch.observations import QuorumLed
from ottla.wire.codec import decode
from ottla.wire.frames import decode_request_header, decode_response
from ottla.wire.messages.fetch import FetchRequest, FetchResponse

FETCH = 1
METADATA = bytes(METADATA_TOPIC_ID)
REPEATS_MAX = 10
"""So often a replica may get a diverging epoch, and fetch from the same end again in one epoch of
the leader: it ignores a response if its role has changed since the request."""


class _Fetch(NamedTuple):
    """What a fetch says. Fields: `replica`: its node; `epoch`: that of the leader."""

    replica: int
    incarnation: int
    leader: int
    epoch: int
    offset: int
    last_epoch: int


class QuorumFetchWatch:
    """Writes the rules that were broken into a history."""

    def __init__(self, sim: Sim, history: History) -> None:
        self._sim = sim
        self._history = history
        self._led: dict[tuple[int, int], list[Extent]] = {}
        """By leader and epoch, its log when it was elected: while it leads, it only appends."""
        self._awaited = Awaited[tuple[_Fetch, int]]()
        """The fetches without a response, and their version."""
        self._diverging: Counter[_Fetch] = Counter()
        """How often a response has said that the log diverges."""
        if sim.zookeeper is None:
            sim.observe(self._observe)
            sim.net.observe(self._frame)

    def _broken(self, node: int, reason: str) -> None:
        self._history.rules_broken.append(
            RuleBroken(REPLICATION, None, node, reason, self._sim.now_ms)
        )

    def _observe(self, observation: object) -> None:
        if not isinstance(observation, QuorumLed):
            return
        node = self._sim.nodes[observation.node]
        batches = _read(node.disk, f"{node.config.metadata_log_dir}/{METADATA_DIR}")
        # Unless the record that begins the epoch is there, what is before it may be incomplete.
        if batches and batches[-1].epoch == observation.epoch:
            self._led[observation.node, observation.epoch] = batches

    def _frame(self, what: str, source: int, target: int, frame: bytes) -> None:
        connection = self._sim.net.arriving_on
        if what == "request":
            # Of a redelivered request no response arrives.
            if int.from_bytes(frame[4:6], "big") == FETCH and METADATA in frame:
                self._requested(connection, source, target, frame)
        elif what == "response":
            known = self._awaited.take(connection, frame)
            if known is not None:
                self._answered(*known, frame)

    def _requested(self, connection: int, source: int, leader: int, frame: bytes) -> None:
        replica = self._sim.nodes.get(source)
        header, body_at = decode_request_header(memoryview(frame)[4:])
        body = memoryview(frame)[4 + body_at :]
        request = decode(FetchRequest, body, header.api_version, lenient=True)
        asked = [each for each in request.topics if each.topic_id == METADATA_TOPIC_ID]
        if replica is None or len(asked) != 1 or len(asked[0].partitions) != 1:
            return
        (partition,) = asked[0].partitions
        fetch = _Fetch(
            source,
            replica.incarnation,
            leader,
            partition.current_leader_epoch,
            partition.fetch_offset,
            partition.last_fetched_epoch,
        )
        self._awaited.keep(connection, header.correlation_id, (fetch, header.api_version))

    def _answered(self, fetch: _Fetch, version: int, frame: bytes) -> None:
        _, response = decode_response(FetchResponse, memoryview(frame)[4:], version)
        partitions = [each for topic in response.responses for each in topic.partitions]
        if response.error_code or len(partitions) != 1 or partitions[0].error_code:
            return
        (partition,) = partitions
        if partition.diverging_epoch.epoch >= 0:
            self._response_diverges(fetch)
        elif partition.snapshot_id.epoch < 0:
            self._taken_for_valid(fetch)

    def _response_diverges(self, fetch: _Fetch) -> None:
        self._diverging[fetch] += 1
        if self._diverging[fetch] == REPEATS_MAX + 1:
            self._broken(
                fetch.replica,
                f"fetches metadata from offset {fetch.offset} of epoch {fetch.last_epoch} though "
                f"leader {fetch.leader} of epoch {fetch.epoch} has said {REPEATS_MAX} times that "
                "this diverges from its log",
            )

    def _taken_for_valid(self, fetch: _Fetch) -> None:
        batches = self._led.get((fetch.leader, fetch.epoch))
        last = fetch.offset - 1
        if batches is None or last < batches[0].base_offset:
            return
        # What the leader has appended since is of its own epoch.
        epoch = next((each.epoch for each in batches if last <= each.last_offset), fetch.epoch)
        if epoch != fetch.last_epoch:
            self._broken(
                fetch.leader,
                f"takes the fetch of node {fetch.replica} for valid in epoch {fetch.epoch}: it "
                f"names epoch {fetch.last_epoch} for offset {last}, which is of epoch {epoch} here",
            )


def _read(disk: SimDisk, directory: str) -> list[Extent]:
    """Return the batches of a log: those at its end that follow one another."""
    reader, batches = BatchReader(extent), list[Extent]()
    for base, data in sorted(segments_of(disk.files_in(directory)).items()):
        for _, batch in reader.batches(names.segment_name(base, names.LOG), data):
            if batches and batches[-1].last_offset + 1 != batch.base_offset:
                batches.clear()
            batches.append(batch)
    return batches
