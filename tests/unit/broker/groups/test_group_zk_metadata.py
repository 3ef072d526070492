"""Over ZooKeeper a coordinator serves once it has the full metadata.

A group is looked for once it is known how many partitions keep groups, and served once the broker
has the metadata of all topics.

Method: a broker hears of the partitions that it leads first, by LeaderAndIsr, and then by
UpdateMetadata of all, as it does where the topic is made, where the broker starts and where a
controller does; clients ask in between.
"""

from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import OFFSETS_TOPIC, Uuid
from ottla.broker.groups.group_service import GroupService, positive_hash
from ottla.coordinator.records import OffsetCommitValue, OffsetFact, encode_fact
from ottla.records.builder import encode_batch
from ottla.wire.messages import find_coordinator as find
from ottla.wire.messages import offset_fetch
from ottla.wire.messages.update_metadata import FULL
from tests.unit.broker.api.zk_metadata_harness import (
    BROKER_EPOCH,
    CONTROLLER_EPOCH,
    ZkMetadataHarness,
    known,
    partition_state,
)
from tests.unit.broker.group_harness import commit_request, fetch_all
from tests.unit.broker.harness import TOPIC_ID

OFFSETS_ID = Uuid(b"the offsets' own")
COUNT = 4
LED = (0, 2)
"""What broker 1 leads; broker 2 leads the rest."""


def coordinator_and_offset(made: ZkMetadataHarness, group: str) -> tuple[int, int]:
    """Ask for the coordinator of a group; return the error and the broker."""
    answer = made.ask(find.FindCoordinatorRequest(key=group), 3)
    return answer.error_code, answer.node_id


def offsets_asked(made: ZkMetadataHarness, group: str) -> int:
    """Ask this broker for a group's offsets; return the error."""
    request = offset_fetch.OffsetFetchRequest(group_id=group, topics=())
    return int(made.ask(request, 7).error_code)


@pytest.mark.parametrize("number", range(COUNT))
def test_no_group_is_looked_for_among_the_partitions_that_are_hosted_here(number: int) -> None:
    names = map(str, range(1_000))
    group = next(name for name in names if positive_hash(name) % COUNT == number)
    made = ZkMetadataHarness()
    made.broker.groups = GroupService(made.broker)
    made.update_metadata()
    made.lead(*map(partition_state, LED), topic=OFFSETS_TOPIC, topic_id=OFFSETS_ID)
    assert coordinator_and_offset(made, group) == (Error.COORDINATOR_NOT_AVAILABLE, -1)
    assert offsets_asked(made, group) == Error.COORDINATOR_NOT_AVAILABLE
    states = [known(each, leader=1 if each in LED else 2) for each in range(COUNT)]
    made.update_metadata(*states, topic=OFFSETS_TOPIC, topic_id=OFFSETS_ID, type=FULL)
    assert coordinator_and_offset(made, group) == (Error.NONE, 1 if number in LED else 2)
    here = offsets_asked(made, group)
    assert here == (Error.NONE if number in LED else Error.NOT_COORDINATOR)


# --- the first full UpdateMetadata -------------------------------------------------------------

NEW_ID = Uuid(b"the next t......")
ELSEWHERE: dict[str, Any] = {"leader": 2, "isr": (2,), "replicas": (2,)}


@pytest.fixture
def behind() -> ZkMetadataHarness:
    """Broker 1 knows a former topic t, and has a copy of an offset of the one of now."""
    made = ZkMetadataHarness()
    made.broker.groups = GroupService(made.broker)
    made.update_metadata(known(**ELSEWHERE))
    send_offsets_topic(made, leader=2)
    log = made.broker.replicas.partition(OFFSETS_TOPIC, 0).log
    assert log is not None
    now_ms = made.clock.now_ms()
    value = OffsetCommitValue(offset=777, metadata="", commit_timestamp=now_ms, topic_id=NEW_ID)
    key, data = encode_fact(OffsetFact("g", "t", 0, value))
    log.append_as_follower(bytearray(encode_batch([(key, data, (), now_ms)])), now_ms=now_ms)
    return made


def send_offsets_topic(
    made: ZkMetadataHarness, *, leader: int, leader_epoch: int = 0, by: int = CONTROLLER_EPOCH
) -> None:
    """Let the offsets topic, of one partition, be led by a broker, with a log of its own."""
    how: dict[str, Any] = {"leader": leader, "leader_epoch": leader_epoch, "isr": (leader,)}
    topic: dict[str, Any] = {"topic": OFFSETS_TOPIC, "topic_id": OFFSETS_ID}
    made.lead(partition_state(**how), **topic, controller_epoch=by)
    made.update_metadata(known(**how), **topic, controller_epoch=by)


def send_full_update(
    made: ZkMetadataHarness, topic_id: Uuid = NEW_ID, by: int = CONTROLLER_EPOCH
) -> None:
    """Send a full UpdateMetadata with the topic t."""
    made.update_metadata(known(**ELSEWHERE), topic_id=topic_id, type=FULL, controller_epoch=by)


def shown(made: ZkMetadataHarness) -> tuple[int, list[int]]:
    """Ask for all offsets of group g; return the error and the offsets."""
    (group,) = made.ask(fetch_all(), 9).groups
    parts = [each for topic in group.topics for each in topic.partitions]
    return group.error_code, [each.committed_offset for each in parts]


def committed(made: ZkMetadataHarness, offset: int) -> int:
    """Commit an offset of group g in t-0; return the error."""
    (topic,) = made.ask(commit_request({("t", 0): offset}), 9).topics
    return int(topic.partitions[0].error_code)


def test_a_coordinator_that_may_not_know_a_topic_yet_lets_clients_wait(
    behind: ZkMetadataHarness,
) -> None:
    """They were shown no offset of it, and what they committed was the former topic's."""
    send_offsets_topic(behind, leader=1, leader_epoch=1)
    behind.clock.advance(10_000)
    assert shown(behind) == (Error.COORDINATOR_LOAD_IN_PROGRESS, [])
    assert committed(behind, 800) == Error.COORDINATOR_LOAD_IN_PROGRESS
    send_full_update(behind)
    assert shown(behind) == (Error.NONE, [777])
    assert committed(behind, 800) == Error.NONE
    assert shown(behind) == (Error.NONE, [800])


def test_a_coordinator_elected_by_a_new_controller_waits_for_the_full_metadata(
    behind: ZkMetadataHarness,
) -> None:
    """The former one's full update lacks all later changes."""
    send_full_update(behind, TOPIC_ID)
    send_offsets_topic(behind, leader=1, leader_epoch=1, by=CONTROLLER_EPOCH + 1)
    behind.clock.advance(10_000)
    assert shown(behind) == (Error.COORDINATOR_LOAD_IN_PROGRESS, [])
    send_full_update(behind, by=CONTROLLER_EPOCH + 1)
    assert shown(behind) == (Error.NONE, [777])


def test_a_coordinator_deposed_before_the_full_metadata_serves_no_group(
    behind: ZkMetadataHarness,
) -> None:
    send_offsets_topic(behind, leader=1, leader_epoch=1)
    send_offsets_topic(behind, leader=2, leader_epoch=2)
    send_full_update(behind)
    assert shown(behind) == (Error.NOT_COORDINATOR, [])


def test_a_coordinator_elected_again_before_the_full_metadata_serves_once(
    behind: ZkMetadataHarness,
) -> None:
    send_offsets_topic(behind, leader=1, leader_epoch=1)
    send_offsets_topic(behind, leader=1, leader_epoch=2)
    send_full_update(behind)
    assert shown(behind) == (Error.NONE, [777])


@pytest.mark.parametrize("how", ["a new controller", "a new registration"])
def test_one_that_serves_goes_on_while_it_may_have_missed_something(
    behind: ZkMetadataHarness, how: str
) -> None:
    """What it keeps is of topics that it knows."""
    send_offsets_topic(behind, leader=1, leader_epoch=1)
    send_full_update(behind)
    if how == "a new controller":
        behind.update_metadata(controller_epoch=CONTROLLER_EPOCH + 1)
    else:
        behind.update_metadata(broker_epoch=BROKER_EPOCH + 1)
    assert not behind.facts.has_full_metadata
    assert shown(behind) == (Error.NONE, [777])
    assert committed(behind, 800) == Error.NONE
