"""Watches the fetches of the metadata log, by voters and observers (KIP-595).

- A leader that answers a fetch as valid has the record before the fetch offset, in the epoch that
  the replica names. Else it would append to a log that diverges from its own (Raft, 5.3).
- A replica that is told that its log diverges truncates it: in that epoch of the leader it does not
  fetch from the same end again and again.
"""

from collections import Counter
from typing import NamedTuple

from ottla.base.ids import METADATA_TOPIC_ID
from ottla.host.kraft.quorum_storage import METADATA_DIR
from ottla.log import names
from ottla.records.batch import BatchHeader
from ottla.testing.history.history import History
from ottla.testing.history.nodes import REPLICATION, RuleBroken
from ottla.testing.scenarios.batch_reader import BatchReader
from ottla.testing.sim import Sim
from ottla.testing.sim.disk import SimDisk
from ottla.testing.sim.watch.observations import QuorumLed
from ottla.wire.codec import decode
from ottla.wire.frames import decode_request_header, decode_response
from ottla.wire.messages.fetch import FetchRequest, FetchResponse

FETCH = 1
METADATA = bytes(METADATA_TOPIC_ID)
REPEATS_MAX = 10
"""So often a replica may be told that its log diverges, and fetch from the same end again in one
epoch of the leader: it ignores a response if its role has changed since the request."""


class _Fetch(NamedTuple):
    """What a fetch says. Fields: `replica`: its node; `epoch`: that of the leader."""

    replica: int
    incarnation: int
    leader: int
    epoch: int
    offset: int
    last_epoch: int


class _Span(NamedTuple):
    """Records of one batch: [start, end)."""

    start: int
    end: int
    epoch: int


def _span(_data: bytes, _at: int, header: BatchHeader) -> _Span:
    return _Span(header.base_offset, header.last_offset + 1, header.partition_leader_epoch)


class QuorumFetchWatch:
    """Writes the rules that were broken into a history."""

    def __init__(self, sim: Sim, history: History) -> None:
        self._sim = sim
        self._history = history
        self._led: dict[tuple[int, int], list[_Span]] = {}
        """By leader and epoch, its log when it was elected: while it leads, it only appends."""
        self._awaited: dict[tuple[int, int], tuple[_Fetch, int]] = {}
        """By connection and correlation id, the fetches without a response, and their version."""
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
        spans = _read(node.disk, f"{node.config.metadata_log_dir}/{METADATA_DIR}")
        # Unless the record that begins the epoch is there, what is before it may be incomplete.
        if spans and spans[-1].epoch == observation.epoch:
            self._led[observation.node, observation.epoch] = spans

    def _frame(self, what: str, source: int, target: int, frame: bytes) -> None:
        connection = self._sim.net.arriving_on
        if what == "request":
            # Requests that are redelivered, on no connection, have no response that arrives.
            if int.from_bytes(frame[4:6], "big") == FETCH and METADATA in frame:
                self._requested(connection, source, target, frame)
        elif what == "response":
            known = self._awaited.pop((connection, int.from_bytes(frame[4:8], "big")), None)
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
        self._awaited[connection, header.correlation_id] = (fetch, header.api_version)

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
        spans = self._led.get((fetch.leader, fetch.epoch))
        last = fetch.offset - 1
        if spans is None or last < spans[0].start:
            return
        # What the leader has appended since is of its own epoch.
        epoch = next((each.epoch for each in spans if last < each.end), fetch.epoch)
        if epoch != fetch.last_epoch:
            self._broken(
                fetch.leader,
                f"takes the fetch of node {fetch.replica} for valid in epoch {fetch.epoch}: it "
                f"names epoch {fetch.last_epoch} for offset {last}, which is of epoch {epoch} here",
            )


def _read(disk: SimDisk, directory: str) -> list[_Span]:
    """Return the batches of a log: those at its end that follow one another."""
    segments = {
        parsed[0]: data
        for name, data in disk.files_in(directory).items()
        if (parsed := names.parse_segment_name(name)) is not None and parsed[1] == names.LOG
    }
    reader, spans = BatchReader(_span), list[_Span]()
    for base in sorted(segments):
        for _, span in reader.batches(names.segment_name(base, names.LOG), segments[base]):
            if spans and spans[-1].end != span.start:
                spans.clear()
            spans.append(span)
    return spans
