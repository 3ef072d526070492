"""A consumer with a fetch session gets every record once and in order, whatever happens to it.

Method: hypothesis draws what happens: appends, fetches with odd limits, waits, lost sessions,
elections, records deleted beneath the reader. The client does what KIP-227 asks of one: it names
a partition again only when its position moved. Safety is checked after each response; in the end
the client drains the log and must have everything.
"""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID
from ottla.metadata.records import PartitionChangeRecord
from ottla.records.batch import parse_header
from ottla.records.record import read_records
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.drawn import examples

from ..harness import TOPIC_ID, BrokerHarness, batch

PARTITIONS = 3
SIZE = len(batch("0"))

steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, PARTITIONS - 1), st.integers(1, 3)),
        st.tuples(st.just("fetch"), st.integers(0, 4 * SIZE), st.integers(0, 2 * SIZE)),
        st.tuples(st.just("wait"), st.integers(1, 3 * SIZE), st.integers(0, PARTITIONS - 1)),
        st.tuples(st.just("lose session"), st.just(0), st.just(0)),
        st.tuples(st.just("elect"), st.integers(0, PARTITIONS - 1), st.just(0)),
        st.tuples(st.just("delete"), st.integers(0, PARTITIONS - 1), st.integers(0, 3)),
    ),
    max_size=40,
)


class Client:
    """A consumer of all partitions. `got`: offset and value of each record, by partition."""

    def __init__(self, harness: BrokerHarness, version: int) -> None:
        self.harness = harness
        self.version = version
        self.session, self.epoch = 0, 0
        self.positions = [0] * PARTITIONS
        self.leader_epochs = [0] * PARTITIONS
        self.sent_offsets: dict[int, tuple[int, int]] = {}
        self.got: list[list[tuple[int, str]]] = [[] for _ in range(PARTITIONS)]

    def request(self, *, max_bytes: int, per_partition: int, **how: int) -> FetchRequest:
        wanted = []
        for index in range(PARTITIONS):
            state = (self.positions[index], self.leader_epochs[index])
            # A session remembers its partitions: only changes are sent.
            if self.epoch == 0 or self.sent_offsets.get(index) != state:
                wanted.append(
                    FetchPartition(
                        partition=index,
                        fetch_offset=state[0],
                        current_leader_epoch=state[1],
                        partition_max_bytes=per_partition,
                    )
                )
                self.sent_offsets[index] = state
        by_id = self.version >= 13
        topic = FetchTopic(
            topic="" if by_id else "t",
            topic_id=TOPIC_ID if by_id else NO_UUID,
            partitions=tuple(wanted),
        )
        return FetchRequest(
            **({"max_wait_ms": 0, "min_bytes": 1} | how),
            max_bytes=max_bytes,
            session_id=self.session,
            session_epoch=self.epoch,
            topics=(topic,) if wanted else (),
        )

    def take(self, answer: Any) -> None:
        if answer.error_code != Error.NONE:
            assert answer.error_code == Error.FETCH_SESSION_ID_NOT_FOUND
            self.session, self.epoch, self.sent_offsets = 0, 0, {}
            return
        self.session = answer.session_id
        self.epoch += 1
        for topic in answer.responses:
            for part in topic.partitions:
                self.take_partition(part)

    def take_partition(self, part: Any) -> None:
        index = part.partition_index
        if part.error_code == Error.FENCED_LEADER_EPOCH:
            state = self.harness.broker.image.topics.by_name("t")
            assert state is not None
            self.leader_epochs[index] = state.partitions[index].leader_epoch
            return
        if part.error_code == Error.OFFSET_OUT_OF_RANGE:
            log = self.harness.broker.replicas.partition("t", index).leader_log()
            assert self.positions[index] < log.log_start_offset
            self.positions[index] = log.log_start_offset
            return
        assert part.error_code == Error.NONE
        data, at = bytes(part.records), 0
        while len(data) - at >= 61:
            header = parse_header(data, at, whole=False)
            if at + header.size_in_bytes > len(data):
                break  # Cut by a limit: it comes whole the next time.
            for record in read_records(data, at, header):
                if record.offset >= self.positions[index]:
                    assert record.value is not None
                    self.got[index].append((record.offset, bytes(record.value).decode()))
            self.positions[index] = max(self.positions[index], header.next_offset)
            at += header.size_in_bytes


class Run:
    """One drawn history."""

    def __init__(self, version: int) -> None:
        self.harness = BrokerHarness()
        self.harness.add_broker()
        self.harness.add_topic(partitions=PARTITIONS)
        self.client = Client(self.harness, version)
        self.written: list[list[str]] = [[] for _ in range(PARTITIONS)]

    def append(self, index: int, count: int) -> None:
        values = [f"{index}.{len(self.written[index]) + number}" for number in range(count)]
        self.harness.broker.replicas.append("t", index, batch(*values))
        self.written[index] += values

    def fetch(self, max_bytes: int, per_partition: int) -> None:
        request = self.client.request(max_bytes=max_bytes, per_partition=per_partition)
        self.client.take(self.harness.ask(request, self.client.version))

    def wait(self, min_bytes: int, index: int) -> None:
        request = self.client.request(
            max_bytes=10_000, per_partition=10_000, min_bytes=min_bytes, max_wait_ms=50
        )
        waiting = self.harness.begin(request, self.client.version)
        self.append(index, 1)
        self.harness.clock.advance(50)
        self.client.take(waiting.value)

    def elect(self, index: int, _: int) -> None:
        self.harness.commit(PartitionChangeRecord(partition_id=index, topic_id=TOPIC_ID, leader=1))

    def delete(self, index: int, ahead: int) -> None:
        log = self.harness.broker.replicas.partition("t", index).leader_log()
        log.delete_records(min(log.log_start_offset + ahead, log.high_watermark))

    def lose_session(self, _: int, __: int) -> None:
        self.harness.broker.sessions._sessions.clear()

    def check(self) -> None:
        """No record twice, none out of order, each with the value written at its offset."""
        for index, got in enumerate(self.client.got):
            offsets = [offset for offset, _ in got]
            assert offsets == sorted(set(offsets))
            assert all(self.written[index][offset] == value for offset, value in got)

    def drain(self) -> None:
        for _ in range(20 * PARTITIONS):
            self.fetch(4 * SIZE, 2 * SIZE)
        for index in range(PARTITIONS):
            log = self.harness.broker.replicas.partition("t", index).leader_log()
            assert self.client.positions[index] == log.log_end_offset
            missed = set(range(log.log_start_offset, log.log_end_offset)) - {
                offset for offset, _ in self.client.got[index]
            }
            assert not missed


@given(history=steps, version=st.sampled_from([12, 17]))
@settings(max_examples=examples(80), deadline=None)
def test_every_record_arrives_once_and_in_order(
    history: list[tuple[str, int, int]], version: int
) -> None:
    run = Run(version)
    for what, first, second in history:
        getattr(run, what.replace(" ", "_"))(first, second)
        run.check()
    run.drain()
    run.check()
