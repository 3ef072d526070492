"""A shutting-down broker leads nothing, is in no ISR, and stops once the others have replayed that.

Method: three brokers with one partition of all of them and one of the first alone; heartbeats by
hand, as the brokers would send them.
"""

import pytest

from ottla.base.errors import Error
from ottla.base.ids import NO_LEADER
from ottla.controller.partitions.isr import IsrChange, alter_partition
from ottla.controller.topics.create_topics import NewTopic, create_topics
from ottla.metadata.features import ELR_VERSION
from ottla.metadata.image import PartitionImage
from ottla.metadata.records import ConfigRecord, FeatureLevelRecord
from ottla.metadata.topics import RECOVERED
from tests.unit.controller.history import History


class Three(History):
    """Brokers 1, 2 and 3 with the topics t, of all, and u, of the first."""

    def __init__(self, *, elr: bool = True, min_isr: int = 2) -> None:
        super().__init__()
        self.append(
            FeatureLevelRecord(name=ELR_VERSION, feature_level=int(elr)),
            ConfigRecord(
                resource_type=4, resource_name="", name="min.insync.replicas", value=str(min_isr)
            ),
        )
        for broker_id in (1, 2, 3):
            self.register_process(broker_id)
            self.beat_once(broker_id)
        wanted = [
            NewTopic(name="t", assignments=((0, (1, 2, 3)),)),
            NewTopic(name="u", assignments=((0, (1,)),)),
        ]
        self.take(create_topics(self.image, wanted, validate_only=False, context=self.context))
        for broker_id in (1, 2, 3):
            self.beat_once(broker_id)

    def partition(self, name: str = "t") -> PartitionImage:
        """Return the topic's partition."""
        topic = self.image.topics.by_name(name)
        assert topic is not None
        return topic.partitions[0]

    def may_go(self, broker_id: int) -> bool:
        """Let a broker ask for a controlled shutdown; return whether it may stop."""
        reply = self.beat_once(broker_id, stop=True)
        assert reply is not None
        return reply.should_shut_down

    def join(self, *isr: int) -> Error:
        """Let the leader of t ask for an ISR."""
        topic, partition = self.image.topics.by_name("t"), self.partition()
        assert topic is not None
        change = IsrChange(
            topic_id=topic.id,
            partition_id=0,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            isr=tuple((each, self.image.brokers[each].epoch) for each in isr),
        )
        [result] = self.take(
            alter_partition(
                self.image,
                [change],
                broker_id=partition.leader,
                broker_epoch=self.image.brokers[partition.leader].epoch,
                context=self.context,
            )
        )
        error: Error = result.error
        return error


def test_a_leader_shuts_down_once_all_live_brokers_have_replayed_the_new_leaders() -> None:
    three = Three()
    assert not three.may_go(1)
    assert (three.partition().leader, three.partition().isr) == (2, (2, 3))
    assert not three.may_go(1)
    three.beat_once(2)
    assert not three.may_go(1), "broker 3 may still send its clients to broker 1"
    three.beat_once(3)
    assert three.may_go(1)
    assert three.image.brokers[1].fenced


def test_who_is_fenced_or_leaves_too_is_not_waited_for() -> None:
    three = Three()
    three.beat_once(3, fence=True)
    assert not three.may_go(1)
    three.beat_once(2)
    assert three.may_go(1)
    both = Three()
    assert [both.may_go(1), both.may_go(2)] == [False, False]
    both.beat_once(3)
    assert [both.may_go(1), both.may_go(2)] == [True, True]
    assert (both.partition().leader, both.partition().isr, both.partition().elr) == (3, (3,), (2,))


def test_a_follower_goes_at_once_and_leaves_the_isr() -> None:
    three = Three()
    assert three.may_go(3)
    assert three.image.brokers[3].fenced
    assert (three.partition().leader, three.partition().isr) == (1, (1, 2))
    assert three.partition().leader_epoch == 0


def test_who_is_on_its_way_out_joins_no_isr() -> None:
    three = Three()
    three.may_go(1)
    assert three.join(1, 2, 3) is Error.INELIGIBLE_REPLICA
    assert three.join(2) is Error.NONE


@pytest.mark.parametrize("elr", [True, False])
def test_a_lone_replica_leads_again_when_it_is_back_and_nothing_is_in_doubt(elr: bool) -> None:
    three = Three(elr=elr)
    epoch = three.image.brokers[1].epoch
    three.may_go(1)
    lone = three.partition("u")
    assert (lone.leader, lone.isr, lone.elr) == (NO_LEADER, *(((), (1,)) if elr else ((1,), ())))
    for broker_id in (2, 3):
        three.beat_once(broker_id)
    assert three.may_go(1)
    assert three.register_process(1, previous_epoch=epoch)
    three.beat_once(1)
    lone = three.partition("u")
    assert (lone.leader, lone.isr, lone.elr) == (1, (1,), ())
    assert lone.leader_recovery_state == RECOVERED


def test_brokers_restart_one_after_the_other_and_somebody_always_leads() -> None:
    three = Three()
    for broker_id in (1, 2, 3, 1):
        epoch = three.image.brokers[broker_id].epoch
        others = {1, 2, 3} - {broker_id}
        while not three.may_go(broker_id):
            assert three.partition().leader in others
            for other in sorted(others):
                three.beat_once(other)
        assert set(three.partition().isr) == others
        assert three.register_process(broker_id, previous_epoch=epoch)
        three.beat_once(broker_id)
        assert three.partition().leader in others
        assert three.join(1, 2, 3) is Error.NONE
    three.check_log()
