"""A broker counts idle time, of topics with a limit only, and reports it to the controller.

Method: the broker of handlers' tests, with real requests; what it tells is looked at where it
leaves. The look comes every second.
"""

from typing import Any

from ottla.base.errors import ApiError, Error
from ottla.base.ids import OFFSETS_TOPIC, Uuid
from ottla.broker.idle import IdleTopics, SavedIdleTime
from ottla.metadata.delta import delta_between
from ottla.metadata.image import EMPTY
from ottla.metadata.records import PartitionChangeRecord, RemoveTopicRecord
from ottla.wire.messages import fetch, produce
from ottla.wire.messages.report_idle_topics import (
    ReportIdleTopicsRequest,
    ReportIdleTopicsResponse,
)

from .group_harness import GroupHarness, commit_request
from .harness import TOPIC_ID, BrokerHarness, batch, config_record

SECOND = 1_000
OTHER_ID = Uuid(b"u" * 16)
OFFSETS_ID = Uuid(b"o" * 16)
PROPERTIES = {"ottla.topic.idle.check.interval.ms": str(SECOND)}


def harness(**configs: str) -> BrokerHarness:
    """Return a serving broker with a topic of these configs, a limit of an hour among them."""
    made = BrokerHarness(PROPERTIES)
    made.add_broker()
    made.add_topic(**{"ottla_topic_ttl_ms": "3600000"} | configs)
    made.broker.start_serving()
    return made


def answered(of: BrokerHarness) -> ReportIdleTopicsRequest | None:
    """Answer the reports; return the last one."""
    report = None
    for request, pending in list(of.controller.calls):
        if isinstance(request, ReportIdleTopicsRequest):
            report = request
            of.controller.calls.remove((request, pending))
            pending.complete(ReportIdleTopicsResponse(error_code=0, token=1))
    return report


def reported(of: BrokerHarness) -> dict[Uuid, int]:
    """Let a second pass; return the reported idle times."""
    answered(of)
    of.clock.advance(SECOND)
    report = answered(of)
    return {} if report is None else {row.topic_id: row.idle_ms for row in report.topics}


def write(of: BrokerHarness, topic: str = "t", *, records: Any = None) -> None:
    request = produce.ProduceRequest(
        acks=1,
        timeout_ms=1_000,
        topic_data=(
            produce.TopicProduceData(
                name=topic,
                partition_data=(
                    produce.PartitionProduceData(
                        index=0, records=batch("x") if records is None else records
                    ),
                ),
            ),
        ),
    )
    of.ask(request, 9)


def read(of: BrokerHarness, *, replica: int = -1, topic: str = "t") -> None:
    request = fetch.FetchRequest(
        replica_id=replica,
        max_wait_ms=0,
        min_bytes=1,
        topics=(
            fetch.FetchTopic(
                topic=topic,
                partitions=(
                    fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000),
                ),
            ),
        ),
    )
    of.ask(request, 11)


def test_time_without_use_adds_up() -> None:
    at = harness()
    assert [reported(at) for _ in range(3)] == [{TOPIC_ID: n * SECOND} for n in (1, 2, 3)]


def test_a_produce_resets_the_idle_time() -> None:
    at = harness()
    reported(at)
    write(at)
    assert reported(at) == {TOPIC_ID: 0}
    assert reported(at) == {TOPIC_ID: SECOND}


def test_a_produce_that_fails_is_a_use() -> None:
    at = harness(cleanup_policy="compact")
    reported(at)
    write(at)  # Its record has no key.
    assert reported(at) == {TOPIC_ID: 0}


def test_a_fetch_that_finds_nothing_is_a_use() -> None:
    at = harness()
    reported(at)
    read(at)
    assert reported(at) == {TOPIC_ID: 0}


def test_what_a_follower_fetches_is_no_use() -> None:
    at = BrokerHarness(PROPERTIES)
    at.add_broker()
    at.add_broker(2)
    at.add_topic(replicas=(1, 2), isr=(1, 2), ottla_topic_ttl_ms="3600000")
    at.broker.start_serving()
    reported(at)
    read(at, replica=2)
    assert reported(at) == {TOPIC_ID: 2 * SECOND}


def test_a_commit_is_a_use_also_where_the_broker_holds_no_replica() -> None:
    at = BrokerHarness(PROPERTIES)
    at.add_broker()
    at.add_topic(OFFSETS_TOPIC, OFFSETS_ID)
    at.add_topic(replicas=(2,), isr=(2,), leader=2, ottla_topic_ttl_ms="3600000")
    at.broker.start_serving()
    assert reported(at) == {TOPIC_ID: SECOND}
    at.broker.idle.committed(TOPIC_ID)
    at.broker.idle.committed(OTHER_ID)
    assert reported(at) == {TOPIC_ID: 0}
    assert reported(at) == {TOPIC_ID: SECOND}


def test_a_request_to_commit_is_a_use_whatever_comes_of_it() -> None:
    interval_ms = 10_000
    unknown: dict[str, Any] = {"generation_id_or_member_epoch": 3, "member_id": "m"}
    for who, is_refused in (({}, False), (unknown, True)):
        at = GroupHarness()
        at.add_broker()
        at.add_offsets_topic()
        at.add_topic(ottla_topic_ttl_ms="3600000")
        at.broker.idle.start()
        at.clock.advance(interval_ms)
        assert at.broker.idle.saved()[TOPIC_ID].idle_ms == interval_ms
        answer = at.later(commit_request({("t", 0): 5}, **who), 9)
        assert bool(answer.topics[0].partitions[0].error_code) == is_refused
        at.clock.advance(interval_ms)
        assert at.broker.idle.saved()[TOPIC_ID].idle_ms == 0


def test_a_topic_that_the_broker_does_not_observe_is_not_reported() -> None:
    at = BrokerHarness(PROPERTIES)
    at.add_broker()
    at.add_topic(replicas=(2,), isr=(2,), leader=2, ottla_topic_ttl_ms="3600000")
    at.broker.start_serving()
    assert reported(at) == {}


def test_there_is_no_check_while_no_topic_has_a_limit() -> None:
    at = BrokerHarness(PROPERTIES)
    at.add_broker()
    at.add_topic()
    at.broker.idle.start()
    assert at.timers.next_ms() is None
    at.commit(config_record("t", "ottla_topic_ttl_ms", "5000"))
    assert reported(at) == {TOPIC_ID: SECOND}
    at.commit(config_record("t", "ottla_topic_ttl_ms", "-1"))
    assert reported(at) == {}
    assert at.timers.next_ms() is None


def test_what_was_used_before_it_had_a_limit_does_not_count_as_idle() -> None:
    at = BrokerHarness(PROPERTIES)
    at.add_broker()
    at.add_topic()
    at.broker.start_serving()
    at.clock.advance(60 * SECOND)
    at.commit(config_record("t", "ottla_topic_ttl_ms", "5000"))
    at.clock.advance(SECOND // 2)
    assert reported(at)[TOPIC_ID] <= SECOND


def test_internal_topics_are_never_counted() -> None:
    at = BrokerHarness(PROPERTIES)
    at.add_broker()
    at.add_topic(OFFSETS_TOPIC, OFFSETS_ID, ottla_topic_ttl_ms="5000")
    at.broker.start_serving()
    assert reported(at) == {}


def test_other_replicas_reset_the_idle_time() -> None:
    """The one that went took along what it saw. The time before the change is not counted."""
    for topic_id in (TOPIC_ID, OFFSETS_ID):
        at = BrokerHarness(PROPERTIES)
        for each in (1, 2, 3):
            at.add_broker(each)
        at.add_topic(OFFSETS_TOPIC, OFFSETS_ID, replicas=(1, 2), isr=(1,))
        at.add_topic(replicas=(1, 2), isr=(1,), ottla_topic_ttl_ms="3600000")
        at.broker.start_serving()
        assert [reported(at) for _ in range(2)][-1] == {TOPIC_ID: 2 * SECOND}
        at.clock.advance(SECOND - 300)
        at.commit(
            PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=(1, 2)),
        )
        at.clock.advance(300)
        assert reported(at) == {TOPIC_ID: 4 * SECOND}
        at.clock.advance(SECOND - 300)
        at.commit(
            PartitionChangeRecord(partition_id=0, topic_id=topic_id, replicas=(1, 3), isr=(1,)),
        )
        at.clock.advance(300)
        report = answered(at)
        assert report is not None
        assert [row.idle_ms for row in report.topics] == [300]
        assert report.coordinators == ((1, 3) if topic_id == OFFSETS_ID else (1, 2))
        assert report.topics[0].replicas == ((1, 3) if topic_id == TOPIC_ID else (1, 2))


def test_a_new_topic_of_the_name_starts_at_zero() -> None:
    at = harness()
    reported(at)
    at.commit(RemoveTopicRecord(topic_id=TOPIC_ID))
    at.add_topic("t", OTHER_ID, ottla_topic_ttl_ms="3600000")
    assert reported(at) == {OTHER_ID: SECOND}


def test_a_process_that_was_stopped_counts_one_interval_for_it() -> None:
    at = harness()
    reported(at)
    at.clock.elapsed_ms += 3_600 * SECOND  # Nobody ran what was due meanwhile.
    at.timers.run_due(at.clock.elapsed_ms)
    assert reported(at)[TOPIC_ID] == 3 * SECOND


def test_a_broker_that_is_fenced_does_not_count() -> None:
    at = BrokerHarness(PROPERTIES)
    at.add_broker(fenced=True)
    at.add_topic(ottla_topic_ttl_ms="3600000")
    at.broker.start_serving()
    assert reported(at) == {TOPIC_ID: 0}


def test_each_report_names_the_answer_that_came_before_its_look() -> None:
    at = harness()
    at.clock.advance(SECOND)
    first, pending = at.controller.calls.pop()
    at.clock.advance(SECOND)
    assert at.controller.calls == []  # One at a time.
    pending.complete(ReportIdleTopicsResponse(error_code=0, token=17))
    at.clock.advance(SECOND)
    second, pending = at.controller.calls.pop()
    pending.complete(ReportIdleTopicsResponse(error_code=Error.STALE_BROKER_EPOCH))
    at.clock.advance(SECOND)
    third, pending = at.controller.calls.pop()
    pending.complete(ApiError(Error.REQUEST_TIMED_OUT))
    at.clock.advance(SECOND)
    assert (first.token, second.token, third.token) == (-1, 17, 17)
    assert at.controller.calls.pop()[0].token == 17


def test_what_was_counted_outlives_a_clean_stop_and_the_time_between_does_not_count() -> None:
    at = harness()
    reported(at)
    at.clock.advance(SECOND // 2)
    at.broker.idle.stop()
    saved = at.broker.idle.saved()
    assert saved == {TOPIC_ID: SavedIdleTime((1,), (), 1_500)}
    after = restarted(at, saved)
    at.clock.advance(SECOND)
    assert after.saved()[TOPIC_ID].idle_ms == 2_500


def restarted(at: BrokerHarness, saved: dict[Uuid, SavedIdleTime]) -> IdleTopics:
    """Return the counting of the next process, ten seconds later."""
    at.broker.idle.stop()
    at.clock.advance(10 * SECOND)
    after = IdleTopics(
        node_id=1,
        broker_epoch=lambda: 2,
        metrics=lambda: at.broker.replicas.topic_metrics,
        forwarder=at.controller,
        clock=at.clock,
        timers=at.timers,
        interval_ms=SECOND,
        saved=saved,
    )
    after.apply(delta_between(EMPTY, at.broker.image))
    after.start()
    return after


def test_what_was_kept_for_other_witnesses_or_another_topic_is_dropped() -> None:
    at = harness()
    for saved in (
        {TOPIC_ID: SavedIdleTime((1, 2), (), 1_500)},
        {TOPIC_ID: SavedIdleTime((1,), (1,), 1_500)},
        {OTHER_ID: SavedIdleTime((1,), (), 1_500)},
    ):
        assert restarted(at, saved).saved() == {TOPIC_ID: SavedIdleTime((1,), (), 0)}


def test_what_was_kept_is_for_the_start_only() -> None:
    """A topic that gets its limit back later was used meanwhile, for all that is known."""
    at = harness()
    at.commit(config_record("t", "ottla_topic_ttl_ms", "-1"))
    after = restarted(at, {TOPIC_ID: SavedIdleTime((1,), (), 1_500)})
    before = at.broker.image
    at.clock.advance(SECOND)
    at.commit(config_record("t", "ottla_topic_ttl_ms", "5000"))
    after.apply(delta_between(before, at.broker.image))
    assert after.saved() == {TOPIC_ID: SavedIdleTime((1,), (), 0)}


def test_a_use_right_after_the_start_counts() -> None:
    at = harness()
    after = restarted(at, {TOPIC_ID: SavedIdleTime((1,), (), 1_500)})
    write(at)
    at.clock.advance(SECOND)
    assert after.saved()[TOPIC_ID].idle_ms == 0
