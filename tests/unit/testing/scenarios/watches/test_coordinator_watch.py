"""What coordinators respond is compared with the partition of __consumer_offsets below them.

Method: requests and responses by hand, of a node that is its log and its leadership.
"""

from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import OFFSETS_TOPIC, Uuid
from ottla.coordinator.records import OffsetCommitValue, OffsetFact, encode_fact
from ottla.log import names
from ottla.metadata.delta import replay
from ottla.metadata.image import EMPTY
from ottla.metadata.records import PartitionRecord, TopicRecord
from ottla.records.builder import encode_batch
from ottla.testing.history.history import History
from ottla.testing.scenarios.watches.coordinator_watch import CoordinatorWatch
from ottla.testing.sim import Sim
from ottla.testing.sim.disk import SimDisk
from ottla.testing.sim.net import joined
from ottla.wire.frames import encode_request, encode_response
from ottla.wire.messages import offset_fetch as wire
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

BROKER = 1
DIRECTORY = f"/data/{OFFSETS_TOPIC}-0"
SEGMENT = f"{DIRECTORY}/{names.segment_name(0, names.LOG)}"
OFFSETS_ID, TOPIC, FORMER = (Uuid(bytes(15) + bytes([each])) for each in (1, 2, 3))
IMAGE = replay(
    EMPTY,
    [
        TopicRecord(name=OFFSETS_TOPIC, topic_id=OFFSETS_ID),
        PartitionRecord(
            partition_id=0, topic_id=OFFSETS_ID, replicas=(1,), isr=(1,), leader=1, leader_epoch=1
        ),
        TopicRecord(name="t", topic_id=TOPIC),
    ],
    offset=3,
    epoch=1,
).image
NONE = -1


class Bench:
    """A watch of a broker that serves nothing by itself. `leads`: whether it leads, for itself."""

    def __init__(self) -> None:
        self.history = History()
        self.sim = Sim(1, brokers=1)
        self.sim.image = IMAGE
        self.disk = SimDisk()
        self.disk.mkdir(DIRECTORY)
        self.segment = SimpleNamespace(log=SimpleNamespace(path=SEGMENT))
        self.log: Any = SimpleNamespace(segments=[self.segment], high_watermark=0)
        self.leads = True
        self.node: Any = SimpleNamespace(
            id=BROKER,
            disk=self.disk,
            broker=SimpleNamespace(
                image=IMAGE,
                replicas=SimpleNamespace(partition=self._partition),
            ),
        )
        self.sim.nodes = {BROKER: self.node}
        CoordinatorWatch(self.sim, self.history)
        self._end = 0

    def _partition(self, _topic: str, _number: int) -> Any:
        return SimpleNamespace(is_leader=self.leads, log=self.log)

    @property
    def reasons(self) -> list[str]:
        return [each.reason for each in self.history.rules_broken]

    def commit(
        self, offset: int | None, *, replicated: bool = True, topic_id: Uuid = TOPIC
    ) -> None:
        """Append a commit of the group g for t-0; None = it is deleted."""
        value = OffsetCommitValue(
            offset=offset or 0, leader_epoch=4, metadata="m", commit_timestamp=1, topic_id=topic_id
        )
        fact = OffsetFact("g", "t", 0, None if offset is None else value)
        with closing(self.disk.open(SEGMENT, create=True)) as file:
            file.append([encode_batch([(*encode_fact(fact), (), 1)], base_offset=self._end)])
        self._end += 1
        if replicated:
            self.log.high_watermark = self._end

    def send(self, request: object, version: int) -> None:
        frame = encode_request(request, version, 7, "test")
        self.sim.net.frame_arrived("request", -1, BROKER, frame, connection=5)

    def respond(self, response: object, version: int) -> None:
        frame = joined(encode_response(response, version, 7))
        self.sim.net.response_sent(5, frame)

    def fetch(self, version: int = 10) -> None:
        topic = wire.OffsetFetchRequestTopics(name="t", topic_id=TOPIC, partition_indexes=(0,))
        group = wire.OffsetFetchRequestGroup(group_id="g", topics=(topic,))
        self.send(wire.OffsetFetchRequest(groups=(group,)), version)

    def returns(self, offset: int, *, version: int = 10, error: Error = Error.NONE) -> None:
        none = offset == NONE
        partition = wire.OffsetFetchResponsePartitions(
            partition_index=0,
            committed_offset=offset,
            committed_leader_epoch=-1 if none else 4,
            metadata="" if none else "m",
            error_code=0,
        )
        topic = wire.OffsetFetchResponseTopics(name="t", topic_id=TOPIC, partitions=(partition,))
        group = wire.OffsetFetchResponseGroup(
            group_id="g", topics=() if error else (topic,), error_code=error
        )
        self.respond(wire.OffsetFetchResponse(groups=(group,)), version)


# -- who responds --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "is_wrong"),
    [
        (Error.NONE, True),
        (Error.UNKNOWN_MEMBER_ID, True),
        (Error.NOT_COORDINATOR, False),
        (Error.COORDINATOR_LOAD_IN_PROGRESS, False),
    ],
)
def test_only_the_leader_responds_for_a_group(error: Error, is_wrong: bool) -> None:
    bench = Bench()
    bench.leads = False
    bench.send(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4)
    bench.respond(HeartbeatResponse(error_code=error), 4)
    assert bool(bench.reasons) is is_wrong


@pytest.mark.parametrize("before", [True, False])
def test_who_leads_before_or_after_may_respond(before: bool) -> None:
    """The leadership may have come, or gone, while the request waited."""
    bench = Bench()
    bench.leads = before
    bench.send(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4)
    bench.leads = not before
    bench.respond(HeartbeatResponse(error_code=0), 4)
    assert bench.reasons == []


def test_a_leader_whose_log_is_offline_may_respond() -> None:
    bench = Bench()
    bench.commit(5)
    bench.log = None
    bench.fetch()
    bench.returns(NONE)
    assert bench.reasons == []


# -- OffsetFetch ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [8, 10])
@pytest.mark.parametrize(
    ("offset", "is_wrong"), [(NONE, True), (5, True), (6, False), (7, False), (8, True)]
)
def test_an_offset_is_one_of_those_since_the_request(
    version: int, offset: int, is_wrong: bool
) -> None:
    bench = Bench()
    bench.commit(5)
    bench.commit(6)
    bench.fetch(version)
    bench.commit(7)
    bench.commit(8, replicated=False)
    bench.returns(offset, version=version)
    assert bool(bench.reasons) is is_wrong


@pytest.mark.parametrize("meanwhile", [False, True])
def test_where_there_was_none_there_may_be_none(meanwhile: bool) -> None:
    bench = Bench()
    bench.fetch()
    if meanwhile:
        bench.commit(5)
    bench.returns(NONE)
    assert bench.reasons == []


@pytest.mark.parametrize("offset", [NONE, 5])
def test_a_deleted_offset_is_gone(offset: int) -> None:
    bench = Bench()
    bench.commit(5)
    bench.commit(None)
    bench.fetch()
    bench.returns(offset)
    assert bool(bench.reasons) is (offset == 5)


@pytest.mark.parametrize("offset", [NONE, 5])
def test_an_offset_of_a_former_topic_of_the_name_is_none(offset: int) -> None:
    bench = Bench()
    bench.commit(5, topic_id=FORMER)
    bench.fetch()
    bench.returns(offset)
    assert bool(bench.reasons) is (offset == 5)


def test_a_cut_and_other_commits_are_read_anew() -> None:
    bench = Bench()
    bench.commit(5)
    bench.commit(6, replicated=False)
    bench.fetch()
    with closing(bench.disk.open(SEGMENT)) as file:
        file.truncate(file.size() // 2)
    bench._end = 1
    bench.commit(7)
    bench.returns(7)
    assert bench.reasons == []


def test_a_cleaned_segment_is_read_before_it_has_its_name() -> None:
    bench = Bench()
    bench.commit(5)
    bench.disk.rename(SEGMENT, SEGMENT + names.SWAP)
    bench.segment.log.path = SEGMENT + names.SWAP
    bench.fetch()
    bench.returns(5)
    assert bench.reasons == []


def test_a_refusal_returns_nothing() -> None:
    bench = Bench()
    bench.commit(5)
    bench.fetch()
    bench.returns(NONE, error=Error.COORDINATOR_LOAD_IN_PROGRESS)
    assert bench.reasons == []
