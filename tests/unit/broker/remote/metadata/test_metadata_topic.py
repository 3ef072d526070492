"""Every broker's remote logs are what replaying the metadata topic yields.

Method: brokers over a model of the topic (`metadata_cluster`): first each rule by itself, then
histories of appends, leader moves, lost and slow messages, restarts and assignments, after which
every log of every broker must equal a replay of the topic.
"""

import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import ApiError, Error
from ottla.base.ids import REMOTE_LOG_METADATA_TOPIC, Uuid
from ottla.base.pending import Pending
from ottla.broker.remote.metadata.metadata_chunks import decode_chunk
from ottla.broker.remote.metadata.reader_checkpoint import DIR_NAME, decode_checkpoint
from ottla.tiered.segment_metadata import SegmentState
from ottla.wire.messages import fetch, produce
from ottla.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from tests.unit.broker.remote.metadata.metadata_cluster import (
    LOG_DIR,
    MetadataCluster,
    Node,
    User,
    fence,
    segment_id,
    started,
    state_of,
    update,
    user,
)

READ_MS = 100
"""Enough for some round trips."""


def error_of(answer: Pending[ApiError | None]) -> Error:
    assert isinstance(answer.value, ApiError)
    return answer.value.error


def check(cluster: MetadataCluster, node: Node, users: list[User]) -> None:
    for each in users:
        assert state_of(node.log(each)) == state_of(cluster.expected(each)), each


# -- Reading --


def test_what_was_written_before_is_there_once_it_is_ready() -> None:
    cluster = MetadataCluster()
    for segment in range(5):
        cluster.write(started(user(0), segment))
    node = cluster.nodes[1]
    node.metadata.assign([user(0)])
    assert not node.metadata.is_ready(*user(0))
    cluster.run(READ_MS)
    assert node.ready == [user(0)]
    assert len(node.log(user(0)).segments()) == 5
    check(cluster, node, [user(0)])


def test_what_is_written_later_arrives() -> None:
    cluster = MetadataCluster()
    node = cluster.nodes[1]
    node.metadata.assign([user(0), user(1)])
    cluster.run(READ_MS)
    cluster.write(started(user(0), 1))
    cluster.write(started(user(1), 2))
    cluster.write(fence(user(1), 5))
    cluster.run(READ_MS)
    check(cluster, node, [user(0), user(1)])
    assert node.log(user(1)).fence is not None


def test_what_is_not_assigned_is_not_kept() -> None:
    cluster = MetadataCluster(partitions=1)
    cluster.write(started(user(7), 1))
    node = cluster.nodes[1]
    node.metadata.assign([user(0)])
    cluster.run(READ_MS)
    assert node.metadata.remote_log(*user(7)) is None
    assert node.metadata.counters.replayed == 0


def test_only_the_needed_metadata_partitions_are_read() -> None:
    cluster = MetadataCluster(partitions=8)
    cluster.nodes[1].metadata.assign([user(0)])
    cluster.run(2_000)
    asked = {
        each.partition
        for _, request in cluster.requests
        if isinstance(request, fetch.FetchRequest)
        for topic in request.topics
        for each in topic.partitions
    }
    assert asked == {cluster.index_of(user(0))}


def test_one_assigned_later_reads_from_the_start_while_the_tail_goes_on() -> None:
    cluster = MetadataCluster(partitions=1)
    node = cluster.nodes[1]
    for segment in range(20):
        cluster.write(started(user(segment % 2), segment))
    node.metadata.assign([user(0)])
    cluster.run(READ_MS)
    replayed = node.metadata.counters.replayed
    node.metadata.assign([user(1)])
    assert node.metadata.is_ready(*user(0))
    cluster.write(started(user(0), 100))
    cluster.write(started(user(1), 101))
    cluster.run(READ_MS)
    check(cluster, node, [user(0), user(1)])
    assert node.metadata.counters.replayed == replayed + 12  # Nothing was replayed twice.
    cluster.write(started(user(1), 102))
    cluster.run(READ_MS)
    check(cluster, node, [user(0), user(1)])


def test_one_that_comes_back_reads_again() -> None:
    cluster = MetadataCluster(partitions=1)
    node = cluster.nodes[1]
    node.metadata.assign([user(0), user(1)])
    cluster.run(READ_MS)
    node.metadata.unassign([user(1)])
    assert node.metadata.remote_log(*user(1)) is None
    cluster.write(started(user(1), 1))
    cluster.run(READ_MS)
    node.metadata.assign([user(1)])
    cluster.run(READ_MS)
    check(cluster, node, [user(0), user(1)])


def test_with_the_last_one_the_reading_ends() -> None:
    cluster = MetadataCluster()
    node = cluster.nodes[1]
    node.metadata.assign([user(0)])
    cluster.run(READ_MS)
    node.metadata.unassign([user(0)])
    cluster.run(5_000)
    cluster.requests.clear()
    cluster.run(5_000)
    assert not cluster.requests
    assert node.disk.exists(LOG_DIR)
    node.metadata.assign([user(0)])
    cluster.run(READ_MS)
    check(cluster, node, [user(0)])


def test_a_reader_follows_the_leader() -> None:
    cluster = MetadataCluster()
    node, index = cluster.nodes[1], cluster.index_of(user(0))
    node.metadata.assign([user(0)])
    cluster.run(READ_MS)
    cluster.move(index, 105)
    cluster.write(started(user(0), 1))
    cluster.run(READ_MS)
    check(cluster, node, [user(0)])


def test_garbage_is_skipped_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    cluster = MetadataCluster(partitions=1)
    node = cluster.nodes[1]
    cluster.write(started(user(0), 1))
    offset = cluster.write(b"\x00\x00garbage")
    cluster.write(started(user(0), 2))
    with caplog.at_level(logging.WARNING):
        node.metadata.assign([user(0)])
        cluster.run(READ_MS)
    assert f"{REMOTE_LOG_METADATA_TOPIC}-0: record at offset {offset} cannot be" in caplog.text
    assert node.metadata.counters.skipped == 1
    assert len(node.log(user(0)).segments()) == 2


def test_after_a_truncation_everything_is_read_again() -> None:
    cluster = MetadataCluster(partitions=1)
    node = cluster.nodes[1]
    for segment in range(6):
        cluster.write(started(user(0), segment))
    node.metadata.assign([user(0)])
    cluster.run(READ_MS)
    cluster.partitions[0].truncate(3)
    cluster.move(0, 102)
    cluster.run(10)
    assert not node.metadata.is_ready(*user(0))
    cluster.run(5_000)
    check(cluster, node, [user(0)])
    assert len(node.log(user(0)).segments()) == 3
    assert node.ready == [user(0), user(0)]


def test_a_truncation_shows_also_where_the_log_has_grown_again() -> None:
    cluster = MetadataCluster(partitions=1)
    node = cluster.nodes[1]
    for segment in range(4):
        cluster.write(started(user(0), segment))
    node.metadata.assign([user(0)])
    cluster.run(READ_MS)
    cluster.partitions[0].truncate(2)
    cluster.move(0, 102, publish=False)
    for segment in range(10, 16):
        cluster.write(started(user(0), segment))
    cluster.publish()
    cluster.run(5_000)
    check(cluster, node, [user(0)])


def test_deleted_records_are_passed_over() -> None:
    cluster = MetadataCluster(partitions=1)
    for segment in range(4):
        cluster.write(started(user(0), segment))
    cluster.partitions[0].batches = cluster.partitions[0].batches[2:]
    cluster.partitions[0].start = 2
    node = cluster.nodes[1]
    node.metadata.assign([user(0)])
    cluster.run(READ_MS)
    check(cluster, node, [user(0)])
    assert node.metadata.lag == 0


# -- Writing --


def test_an_append_completes_when_it_is_replayed_here() -> None:
    cluster = MetadataCluster()
    node = cluster.nodes[1]
    node.metadata.assign([user(0)])
    cluster.run(READ_MS)
    seen: list[bool] = []
    answer = node.metadata.append(started(user(0), 1))
    answer.then(lambda _: seen.append(node.log(user(0)).get(segment_id(1)) is not None))
    cluster.run(READ_MS)
    assert answer.value is None
    assert seen == [True]
    assert node.metadata.waiting == 0


def test_an_append_waits_for_the_reader() -> None:
    cluster = MetadataCluster()
    node = cluster.nodes[1]
    answer = node.metadata.append(started(user(0), 1))
    node.metadata.assign([user(0)])
    node.workers.inline = False  # The checkpoint is not read yet, and nothing else.
    other = node.metadata.append(started(user(0), 2))
    cluster.run(READ_MS)
    assert len(list(cluster.records(user(0)))) == 2
    assert not answer.done
    assert not other.done
    node.workers.inline = True
    node.workers.run()
    cluster.run(READ_MS)
    assert (answer.value, other.value) == (None, None)


def test_an_append_for_what_is_not_assigned_waits_for_the_commit_alone() -> None:
    cluster = MetadataCluster()
    answer = cluster.nodes[1].metadata.append(started(user(0), 1))
    cluster.run(READ_MS)
    assert answer.value is None
    assert len(list(cluster.records(user(0)))) == 1


def test_appends_of_one_partition_land_in_order() -> None:
    cluster = MetadataCluster(partitions=1)
    metadata = cluster.nodes[1].metadata
    cluster.network.lose_answer = cluster.network.lose_request = 0.4
    cluster.network.slow = 0.3
    answers: list[Pending[ApiError | None]] = []
    for segment in range(30):
        answers.append(metadata.append(started(user(0), segment)))
        cluster.run(20)
    cluster.network.heal()
    cluster.run(60_000)
    assert all(answer.value is None for answer in answers)
    found: list[Any] = list(cluster.records(user(0)))
    assert [each.segment_id for each in found] == [segment_id(each) for each in range(30)]


def test_a_lost_answer_is_retried_with_the_same_sequence() -> None:
    cluster = MetadataCluster(partitions=1)
    metadata = cluster.nodes[1].metadata
    cluster.network.lose_answer = 1.0
    answer = metadata.append(started(user(0), 1))
    cluster.run(5_000)
    assert not answer.done
    sent = [
        request for _, request in cluster.requests if isinstance(request, produce.ProduceRequest)
    ]
    assert len(sent) > 2
    cluster.network.heal()
    cluster.move(0, 102)
    cluster.run(5_000)
    assert answer.value is None
    assert len(list(cluster.records(user(0)))) == 1


@pytest.mark.parametrize("loss", ["unknown id", "other sequence"])
def test_a_leader_that_lost_the_sequence_gets_a_new_producer_id(loss: str) -> None:
    cluster = MetadataCluster(partitions=1)
    metadata = cluster.nodes[1].metadata
    metadata.append(started(user(0), 1))
    cluster.run(READ_MS)
    producers = cluster.partitions[0].producers
    if loss == "unknown id":
        producers.clear()
    else:
        producers.update(dict.fromkeys(producers, (40, 1, 0)))
    answer = metadata.append(started(user(0), 2))
    cluster.run(5_000)
    assert answer.value is None
    assert len(list(cluster.records(user(0)))) == 2
    assert cluster.producer_ids.next == 2


def test_what_waits_shares_a_batch() -> None:
    cluster = MetadataCluster(partitions=1)
    metadata = cluster.nodes[1].metadata
    answers = [metadata.append(started(user(0), segment)) for segment in range(50)]
    cluster.run(READ_MS)
    assert all(answer.value is None for answer in answers)
    assert [each.count for each in cluster.partitions[0].batches] == [1, 49]


def test_an_append_fails_when_its_time_is_over() -> None:
    cluster = MetadataCluster(consume_wait_ms=5_000)
    metadata = cluster.nodes[1].metadata
    cluster.network.lose_request = 1.0
    in_flight, waiting = (metadata.append(started(user(0), each)) for each in (1, 2))
    cluster.run(4_999)
    assert not in_flight.done
    cluster.run(1)
    assert error_of(in_flight) is error_of(waiting) is Error.REQUEST_TIMED_OUT
    cluster.network.heal()
    later = metadata.append(started(user(0), 3))
    cluster.run(10_000)
    assert later.value is None
    found: list[Any] = list(cluster.records(user(0)))
    # What was in flight is written all the same; what was not sent yet is not.
    assert [each.segment_id for each in found] == [segment_id(1), segment_id(3)]
    assert metadata.waiting == 0


def test_close_answers_what_waits() -> None:
    cluster = MetadataCluster(topic_exists=False)
    metadata = cluster.nodes[1].metadata
    early = metadata.append(started(user(0), 1))
    metadata.close()
    assert error_of(early) is Error.BROKER_NOT_AVAILABLE
    assert error_of(metadata.append(started(user(0), 2))) is Error.BROKER_NOT_AVAILABLE
    cluster.run(200_000)
    assert not cluster.requests


# -- The topic --


def created(error: Error, message: str | None = None) -> CreateTopicsResponse:
    result = CreatableTopicResult(
        name=REMOTE_LOG_METADATA_TOPIC, error_code=error, error_message=message
    )
    return CreateTopicsResponse(topics=(result,))


def test_the_topic_is_created_with_the_first_tiered_topic() -> None:
    cluster = MetadataCluster(brokers=2, topic_exists=False, is_tiered=False)
    node = cluster.nodes[1]
    cluster.publish()
    assert not node.forwarder.calls
    cluster.is_tiered = True
    cluster.publish()
    request = node.forwarder.answer(created(Error.NONE))
    (topic,) = request.topics
    assert (topic.name, topic.num_partitions) == (REMOTE_LOG_METADATA_TOPIC, 50)
    assert topic.replication_factor == 3  # Also while there are two brokers.
    assert {each.name: each.value for each in topic.configs} == {
        "cleanup.policy": "delete",
        "flush.messages": "1",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "remote.storage.enable": "false",
        "min.insync.replicas": "2",
    }
    cluster.topic_exists = True
    cluster.publish()
    cluster.run(60_000)
    assert not node.forwarder.calls


def test_the_creation_is_retried(caplog: pytest.LogCaptureFixture) -> None:
    cluster = MetadataCluster(brokers=2, topic_exists=False)
    node = cluster.nodes[1]
    cluster.publish()
    node.forwarder.answer(ApiError(Error.REQUEST_TIMED_OUT))
    assert not node.forwarder.calls
    cluster.run(200)
    node.forwarder.answer(created(Error.INVALID_REPLICATION_FACTOR, "Two brokers are too few."))
    assert "Two brokers are too few (see rlmm.config.remote.log.metadata.topic.rep" in caplog.text
    cluster.run(400)
    caplog.clear()
    node.forwarder.answer(created(Error.TOPIC_ALREADY_EXISTS))
    assert not caplog.records
    cluster.topic_exists = True
    cluster.publish()
    cluster.run(60_000)
    assert not node.forwarder.calls


def test_appends_and_assignments_wait_for_the_topic() -> None:
    cluster = MetadataCluster(topic_exists=False)
    node = cluster.nodes[1]
    node.metadata.assign([user(0)])
    answer = node.metadata.append(started(user(0), 1))
    cluster.run(1_000)
    assert node.metadata.unready == 1
    cluster.topic_exists = True
    cluster.publish()
    cluster.run(READ_MS)
    assert answer.value is None
    check(cluster, node, [user(0)])


def test_another_topic_of_the_name_is_read_instead() -> None:
    cluster = MetadataCluster(partitions=1)
    node = cluster.nodes[1]
    cluster.write(started(user(0), 1))
    node.metadata.assign([user(0)])
    cluster.run(READ_MS)
    cluster.topic_id = Uuid(b"n" * 16)
    cluster.partitions[0].batches.clear()
    cluster.publish()
    assert not node.metadata.is_ready(*user(0))
    cluster.write(started(user(0), 2))
    cluster.run(READ_MS)
    check(cluster, node, [user(0)])


# -- Restarts --


def restart(cluster: MetadataCluster, node: Node, users: list[User]) -> None:
    node.start()
    cluster.requests.clear()
    node.metadata.assign(users)
    cluster.run(5_000)
    check(cluster, node, users)


def test_a_restart_reads_only_what_came_since() -> None:
    cluster = MetadataCluster(partitions=1)
    node = cluster.nodes[1]
    for segment in range(10):
        cluster.write(started(user(segment % 2), segment))
    node.metadata.assign([user(0), user(1)])
    cluster.run(READ_MS)
    node.stop()
    cluster.write(started(user(1), 20))
    restart(cluster, node, [user(0), user(1)])
    assert node.metadata.counters.replayed == 1
    assert node.disk.exists(f"{LOG_DIR}/{DIR_NAME}/0")


def test_a_checkpoint_is_written_every_interval() -> None:
    cluster = MetadataCluster(partitions=1, checkpoint_interval_ms=10_000)
    node = cluster.nodes[1]
    cluster.write(started(user(0), 1))
    node.metadata.assign([user(0)])
    cluster.run(10_000)
    cluster.write(started(user(0), 2))
    cluster.run(READ_MS)
    node.kill()
    restart(cluster, node, [user(0)])
    assert node.metadata.counters.replayed == 1


def test_one_that_the_checkpoint_lacks_is_read_from_the_start() -> None:
    cluster = MetadataCluster(partitions=1)
    node = cluster.nodes[1]
    for segment in range(10):
        cluster.write(started(user(segment % 2), segment))
    node.metadata.assign([user(0)])
    cluster.run(READ_MS)
    node.stop()
    restart(cluster, node, [user(1), user(0)])
    assert node.metadata.counters.replayed == 5


@pytest.mark.parametrize("at", [0, 5, 8, 30, -1])
def test_a_damaged_checkpoint_is_ignored(at: int, caplog: pytest.LogCaptureFixture) -> None:
    cluster = MetadataCluster(partitions=1)
    node = cluster.nodes[1]
    cluster.write(started(user(0), 1))
    node.metadata.assign([user(0)])
    cluster.run(READ_MS)
    node.stop()
    path = f"{LOG_DIR}/{DIR_NAME}/0"
    data = bytearray(node.disk.read_bytes(path))
    data[at] ^= 0xFF
    node.disk.write_atomic(path, bytes(data))
    with caplog.at_level(logging.WARNING):
        restart(cluster, node, [user(0)])
    assert f"reading {path} failed" in caplog.text


def test_a_checkpoint_of_a_log_that_was_truncated_is_not_used() -> None:
    cluster = MetadataCluster(partitions=1)
    node = cluster.nodes[1]
    for segment in range(4):
        cluster.write(started(user(0), segment))
    node.metadata.assign([user(0)])
    cluster.run(READ_MS)
    node.stop()
    cluster.partitions[0].truncate(2)
    cluster.move(0, 102, publish=False)
    for segment in range(10, 16):
        cluster.write(started(user(0), segment))
    restart(cluster, node, [user(0)])


def test_a_checkpoint_of_a_former_topic_is_not_used() -> None:
    cluster = MetadataCluster(partitions=1)
    node = cluster.nodes[1]
    cluster.write(started(user(0), 1))
    node.metadata.assign([user(0)])
    cluster.run(READ_MS)
    node.stop()
    cluster.topic_id = Uuid(b"n" * 16)
    cluster.partitions[0].batches.clear()
    restart(cluster, node, [user(0)])


def interleaved(cluster: MetadataCluster, users: list[User]) -> None:
    """Let broker 1 take a checkpoint whose states are of different offsets, and die."""
    node = cluster.nodes[1]
    for segment in range(9):
        cluster.write(started(users[segment % 3], segment))
    node.metadata.assign(users)
    cluster.run(10_000 - 1)
    # Between the states of two user partitions, one in each turn, more is read.
    reader = node.metadata._reader._readers[0]
    tail = reader._tail
    assert tail is not None
    reader.checkpoint()
    for segment in range(20, 26):
        cluster.write(started(users[segment % 3], segment))
        data = cluster.partitions[0].batches[-1].data
        reader._apply(tail, decode_chunk(data, *tail.position))
        cluster.timers.run_due(cluster.clock.monotonic_ms())
    checkpoint = decode_checkpoint(node.disk.read_bytes(f"{LOG_DIR}/{DIR_NAME}/0"))
    assert [state.offset for state in checkpoint.states.values()] == [9, 10, 11]
    assert (checkpoint.offset, checkpoint.end_offset) == (9, 11)
    node.kill()


def test_a_checkpoint_is_taken_while_reading_goes_on() -> None:
    cluster = MetadataCluster(partitions=1, checkpoint_interval_ms=10_000)
    users = [user(each) for each in range(3)]
    interleaved(cluster, users)
    restart(cluster, cluster.nodes[1], users)
    # Six came after its first state, of which two were in the states already: one of its own.
    assert cluster.nodes[1].metadata.counters.replayed == 6 - 1


def test_a_checkpoint_is_not_used_where_its_newest_state_was_truncated() -> None:
    cluster = MetadataCluster(partitions=1, checkpoint_interval_ms=10_000)
    users = [user(each) for each in range(3)]
    interleaved(cluster, users)
    cluster.partitions[0].truncate(10)
    cluster.move(0, 102, publish=False)
    for segment in range(40, 46):
        cluster.write(started(users[segment % 3], segment))
    restart(cluster, cluster.nodes[1], users)


def test_a_later_one_joins_the_tail_while_others_write_all_the_time() -> None:
    cluster = MetadataCluster(partitions=1)
    node = cluster.nodes[1]
    node.metadata.assign([user(0)])
    cluster.run(READ_MS)
    for segment in range(1_000):
        cluster.write(started(user(segment % 2), segment))
        if segment == 500:
            node.metadata.assign([user(1)])
        cluster.run(1)
    assert node.ready == [user(0), user(1)]
    assert node.metadata._reader._readers[0]._catch_up is None
    cluster.run(READ_MS)
    check(cluster, node, [user(0), user(1)])


# -- Histories --

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.sampled_from([1, 2]), st.integers(0, 3)),
        st.tuples(st.just("finish"), st.sampled_from([1, 2]), st.integers(0, 8)),
        st.tuples(st.just("delete"), st.sampled_from([1, 2]), st.integers(0, 8)),
        st.tuples(st.just("fence"), st.sampled_from([1, 2]), st.integers(0, 3)),
        st.tuples(st.just("move"), st.integers(0, 1), st.sampled_from([101, 102, -1])),
        st.tuples(st.just("network"), st.sampled_from([0, 20, 60]), st.sampled_from([0, 30])),
        st.tuples(st.just("assign"), st.sampled_from([1, 2]), st.integers(0, 3)),
        st.tuples(st.just("unassign"), st.sampled_from([1, 2]), st.integers(0, 3)),
        st.tuples(st.just("restart"), st.sampled_from([1, 2]), st.booleans()),
        st.tuples(st.just("forget"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("truncate"), st.integers(0, 1), st.integers(1, 4)),
        st.tuples(st.just("wait"), st.sampled_from([1, 30, 400, 5_000]), st.just(0)),
    ),
    min_size=5,
    max_size=50,
)


class History:
    """Plays steps, and knows what must hold in the end."""

    def __init__(self, seed: int) -> None:
        self.cluster = MetadataCluster(partitions=2, brokers=2, checkpoint_interval_ms=3_000)
        self.cluster.network.random.seed(seed)
        self.assigned: dict[int, set[User]] = {1: set(), 2: set()}
        self.segments: list[tuple[User, int]] = []
        self.answers: list[tuple[Any, Pending[ApiError | None]]] = []
        self.epochs: dict[User, int] = {}
        self.truncated = self.forgot = False

    def play(self, what: str, first: int, second: int) -> None:
        cluster = self.cluster
        if what == "start":
            self.segments.append((user(second), len(self.segments)))
            self.append(first, started(*self.segments[-1], leader_epoch=99))
        elif what in ("finish", "delete") and second < len(self.segments):
            of, segment = self.segments[second]
            finishes = what == "finish"
            state = SegmentState.COPY_FINISHED if finishes else SegmentState.DELETE_STARTED
            self.append(first, update(of, segment, state))
        elif what == "fence":
            self.epochs[user(second)] = self.epochs.get(user(second), 0) + 1
            self.append(first, fence(user(second), self.epochs[user(second)]))
        elif what == "move":
            cluster.move(first, second)
        elif what == "network":
            cluster.network.lose_answer = cluster.network.lose_request = first / 100
            cluster.network.slow = second / 100
        elif what == "assign":
            self.assigned[first].add(user(second))
            cluster.nodes[first].metadata.assign([user(second)])
        elif what == "unassign":
            self.assigned[first].discard(user(second))
            cluster.nodes[first].metadata.unassign([user(second)])
        elif what == "restart":
            node = cluster.nodes[first]
            node.stop() if second else node.kill()
            node.start()
            node.metadata.assign(sorted(self.assigned[first]))
        elif what == "forget":
            cluster.partitions[first].producers.clear()
            self.forgot = True
        elif what == "truncate":
            partition = cluster.partitions[first]
            partition.truncate(max(partition.end - second, 0))
            self.truncated = True
            cluster.move(first, 102)
        elif what == "wait":
            cluster.run(first)

    def append(self, node_id: int, record: Any) -> None:
        node = self.cluster.nodes[node_id]
        life = node.life
        answer = node.metadata.append(record)
        self.answers.append((record, answer))
        of = record.topic_id, record.partition

        def check_read_your_write(error: ApiError | None) -> None:
            log = node.metadata.remote_log(*of) if node.life == life else None
            if self.truncated or error is not None or log is None:
                return  # What an unclean election has lost cannot be read.
            if hasattr(record, "start_offset"):
                assert log.get(record.segment_id) is not None, "not replayed yet"

        answer.then(check_read_your_write)

    def settle(self) -> None:
        cluster = self.cluster
        cluster.network.heal()
        for index, partition in enumerate(cluster.partitions):
            if partition.leader < 0:
                cluster.move(index, 101)
        cluster.run(150_000)

    def check(self) -> None:
        for node_id, users in self.assigned.items():
            node = self.cluster.nodes[node_id]
            check(self.cluster, node, sorted(users))
            assert (node.metadata.unready, node.metadata.lag, node.metadata.waiting) == (0, 0, 0)
        assert all(answer.done for _, answer in self.answers)
        for record, answer in self.answers:
            found = list(self.cluster.records((record.topic_id, record.partition))).count(record)
            if not self.truncated and answer.value is None:
                assert found >= 1, "acknowledged, and not there"
            if not self.forgot and not self.truncated and hasattr(record, "start_offset"):
                assert found <= 1, "written twice"


@settings(deadline=None)
@given(STEPS, st.integers(0, 1_000))
def test_after_any_history_every_log_is_a_replay_of_the_topic(
    steps: list[tuple[str, int, int]], seed: int
) -> None:
    history = History(seed)
    for what, first, second in steps:
        history.play(what, first, second)
    history.settle()
    history.check()
    # A restart, from the checkpoint or without, must come to the same.
    for node in history.cluster.nodes.values():
        node.stop()
        node.start()
        node.metadata.assign(sorted(history.assigned[node.id]))
    history.cluster.run(10_000)
    history.check()
