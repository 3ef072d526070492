"""A partition that is added while the leader delays the fetch does not wait for its end.

Method: as in `test_replica_fetcher`: the test is the leader, and answers by hand what comes over
the session's connection and over the second one.
"""

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.metadata.records import RemoveTopicRecord
from ottla.wire.messages import fetch as wire
from ottla.wire.messages.list_offsets import ListOffsetsRequest
from tests.unit.broker.harness import TOPIC_ID, batch
from tests.unit.broker.replication.test_follower_rules import stamped
from tests.unit.broker.replication.test_replica_fetcher import (
    Following,
    answer,
    data,
    open_request,
    sessionless,
)

OTHER_ID = Uuid(b"o" * 16)


def create_other(harness: Following) -> None:
    harness.add_topic("other", OTHER_ID, replicas=(1, 2), isr=(1, 2), leader=2)


def about_other(*records: bytes) -> wire.FetchResponse:
    topic = wire.FetchableTopicResponse(
        topic_id=OTHER_ID, partitions=(data(b"".join(records), high=1),)
    )
    return wire.FetchResponse(session_id=0, responses=(topic,))


def test_a_new_partition_does_not_wait_for_a_delayed_fetch() -> None:
    harness = Following()
    harness.clock.advance(100)
    create_other(harness)
    ((request, _, _),) = sessionless(harness).sent
    assert (request.session_id, request.session_epoch) == (0, -1)
    assert [each.topic_id for each in request.topics] == [OTHER_ID]
    # It is back soon: others may turn up, and the session's request take in all of them.
    assert request.max_wait_ms == 50
    sessionless(harness).answer(about_other(stamped(batch("a"), 0, 0)))
    assert len(sessionless(harness).sent) == 1  # Again, from offset 1.
    harness.clock.advance(390)
    sessionless(harness).answer(about_other())
    assert sessionless(harness).sent == []  # The session's request is about to be back.
    harness.leader.answer(answer(data()))
    assert [each.topic_id for each in open_request(harness).topics] == [OTHER_ID]


def test_many_newcomers_are_not_named_again_and_again() -> None:
    harness = Following()
    harness.clock.advance(100)
    harness.add_topic("other", OTHER_ID, replicas=(1, 2), isr=(1, 2), leader=2, partitions=101)
    ((request, _, _),) = sessionless(harness).sent
    assert len(request.topics[0].partitions) == 101
    assert request.max_wait_ms == 500 - 100 - 20


def test_a_newcomer_is_taken_into_the_session_when_its_request_is_back() -> None:
    harness = Following()
    harness.clock.advance(100)
    create_other(harness)
    sessionless(harness).answer(about_other(stamped(batch("a"), 0, 0)))
    harness.leader.answer(answer(data()))
    assert open_request(harness).topics == ()  # The newcomer's own question is not answered yet.
    sessionless(harness).answer(about_other())
    harness.leader.answer(answer())
    request = open_request(harness)
    assert [each.topic_id for each in request.topics] == [OTHER_ID]
    assert request.topics[0].partitions[0].fetch_offset == 1
    assert sessionless(harness).sent == []


def test_no_sessionless_fetch_is_sent_to_a_busy_leader() -> None:
    harness = Following()
    harness.clock.advance(100)
    harness.leader.answer(answer(data(stamped(batch("a"), 0, 0))))
    create_other(harness)
    assert sessionless(harness).sent == []
    harness.clock.advance(5)
    harness.leader.answer(answer(data(stamped(batch("b"), 1, 0))))
    assert [each.topic_id for each in open_request(harness).topics] == [OTHER_ID, TOPIC_ID]
    harness.clock.advance(10)
    assert sessionless(harness).sent == []


def test_a_failed_sessionless_fetch_is_left_to_the_session() -> None:
    harness = Following()
    harness.clock.advance(100)
    create_other(harness)
    sessionless(harness).answer(ApiError(Error.NETWORK_EXCEPTION, "gone"))
    assert sessionless(harness).sent == []
    harness.leader.answer(answer(data()))
    assert [each.topic_id for each in open_request(harness).topics] == [OTHER_ID]


def test_a_newcomer_whose_offset_the_leader_lacks_does_not_wait_either() -> None:
    harness = Following()
    harness.clock.advance(100)
    create_other(harness)
    refused = data(error=Error.OFFSET_OUT_OF_RANGE)
    topic = wire.FetchableTopicResponse(topic_id=OTHER_ID, partitions=(refused,))
    sessionless(harness).answer(wire.FetchResponse(session_id=0, responses=(topic,)))
    assert [type(request) for request, _, _ in sessionless(harness).sent] == [
        ListOffsetsRequest
    ] * 2
    assert len(harness.leader.sent) == 1


def test_a_deleted_newcomer_is_forgotten_before_its_answer() -> None:
    harness = Following()
    harness.clock.advance(100)
    create_other(harness)
    harness.commit(RemoveTopicRecord(topic_id=OTHER_ID))
    sessionless(harness).answer(about_other(stamped(batch("a"), 0, 0)))
    assert sessionless(harness).sent == []
    harness.leader.answer(answer(data()))
    assert open_request(harness).topics == ()
