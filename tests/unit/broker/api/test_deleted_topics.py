"""A client of a deleted and recreated topic gets an error, and no record of the new topic.

Method: a broker with logs on a disk in memory, which is told as over ZooKeeper, where it may hear
of the new topic before it has been told to delete the old one, or by the metadata log.
"""

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.metadata.records import RemoveTopicRecord

from ..harness import TOPIC_ID, BrokerHarness, batch
from .test_k01_fetch import append, errors, fetch, parts, values, want
from .zk_metadata_harness import ZkMetadataHarness, known, partition_state

NEW_ID = Uuid(b"n" * 16)


def test_a_recreated_topic_is_rejected_while_replicas_of_the_old_one_are_here() -> None:
    """Or the records of the old topic would be served as those of the new one."""
    made = ZkMetadataHarness()
    alone = {"isr": (1,), "replicas": (1,)}
    assert made.lead(partition_state(**alone)) == {0: Error.NONE}
    append(made, batch("old"))
    assert made.lead(partition_state(**alone), topic_id=NEW_ID) == {0: Error.INCONSISTENT_TOPIC_ID}
    assert errors(made.ask(fetch(want(0, topic_id=NEW_ID)), 13)) == [Error.UNKNOWN_TOPIC_ID]
    assert made.update_metadata(known(leader=-2)) is Error.NONE
    assert made.stop(0, topic_id=TOPIC_ID) == {0: Error.NONE}
    assert errors(made.ask(fetch(want(0, topic_id=TOPIC_ID)), 13)) == [Error.UNKNOWN_TOPIC_ID]
    assert errors(made.ask(fetch(want(0)), 12)) == [Error.UNKNOWN_TOPIC_OR_PARTITION]
    assert made.lead(partition_state(**alone), topic_id=NEW_ID) == {0: Error.NONE}
    for topic, version in ((want(0, topic_id=NEW_ID), 13), (want(0), 12)):
        assert [values(each) for each in parts(made.ask(fetch(topic), version))] == [[]]
    assert errors(made.ask(fetch(want(0, topic_id=TOPIC_ID)), 13)) == [Error.UNKNOWN_TOPIC_ID]


def test_a_deletion_makes_room_for_the_recreated_topic() -> None:
    """It comes with UpdateMetadata alone, before any request to delete replicas."""
    made = ZkMetadataHarness()
    made.lead(partition_state())
    assert made.update_metadata(known(leader=-2)) is Error.NONE
    assert made.partition_dirs() == []
    assert errors(made.ask(fetch(want(0, topic_id=TOPIC_ID)), 13)) == [Error.UNKNOWN_TOPIC_ID]
    assert made.lead(partition_state(), topic_id=NEW_ID) == {0: Error.NONE}


def test_a_fetch_session_by_names_does_not_switch_to_ids_when_its_topic_is_recreated() -> None:
    """A client that gets ids with the new topic must open a new session, with which it
    gets that topic's records from the first one on."""
    harness = BrokerHarness()
    harness.add_topic("t", TOPIC_ID)
    append(harness, batch("old"))
    opened = harness.ask(fetch(want(1), session_epoch=0), 12)
    session = {"session_id": opened.session_id, "session_epoch": 1}
    harness.commit(RemoveTopicRecord(topic_id=TOPIC_ID))
    harness.add_topic("t", NEW_ID)
    append(harness, batch("new"))
    answer = harness.ask(fetch(want(1, topic_id=NEW_ID), **session), 13)
    assert answer.error_code == Error.FETCH_SESSION_TOPIC_ID_ERROR
    assert parts(answer) == []
    answer = harness.ask(fetch(want(0, topic_id=NEW_ID), session_epoch=0), 13)
    assert [values(each) for each in parts(answer)] == [["new"]]


def test_a_fetch_session_by_ids_gets_no_records_of_the_recreated_topic() -> None:
    harness = BrokerHarness()
    harness.add_topic("t", TOPIC_ID)
    opened = harness.ask(fetch(want(0, topic_id=TOPIC_ID), session_epoch=0), 13)
    assert opened.session_id > 0
    harness.commit(RemoveTopicRecord(topic_id=TOPIC_ID))
    harness.add_topic("t", NEW_ID)
    append(harness, batch("new"))
    answer = harness.ask(fetch(session_id=opened.session_id, session_epoch=1), 13)
    assert errors(answer) == [Error.UNKNOWN_TOPIC_ID]
