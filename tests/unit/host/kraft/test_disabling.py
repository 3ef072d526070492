"""A KRaft controller has brokers acknowledge that tiered storage is disabled, in each of its terms.

Method: the controller role on a disk in memory, brokers that are records, and links whose other
ends are the test; manual time. Who has to acknowledge is tested with the manager.
"""

from dataclasses import dataclass
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.controller.disabling import disabling_manager
from ottla.controller.retry_queue import RETRY_FIRST_MS
from ottla.controller.topics.configs import Alteration, alter_configs
from ottla.host.controller.manager_runner import RETRY_AFTER_FAILURE_MS
from ottla.host.kraft.controller_node import ControllerNode
from ottla.metadata.brokers import BrokerImage, Endpoint, record_of
from ottla.metadata.features import ELR_VERSION, OTTLA_VERSION, SUPPORTED, TIERING
from ottla.metadata.records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from ottla.metadata.tiering import TieringState, TopicTiering, tiering_record
from ottla.wire.messages import disable_remote_topic as wire
from tests.unit.host.fake_brokers import PORT, Order
from tests.unit.host.kraft.controller_cluster import ControllerCluster
from tests.unit.host.kraft.test_controller_node import PROPERTIES, running

TOPIC = Uuid(b"topic-----------")
FEATURES = {ELR_VERSION: 0, OTTLA_VERSION: TIERING}
SYSTEM = {"remote.log.storage.system.enable": "true", "ottla.remote.storage.uri": "file:///r"}
POLICIES = ("retain", "delete")


@dataclass
class Cluster(ControllerCluster):
    """A controller in its first term, and two brokers that hold partition 0 of a tiered topic."""

    def __post_init__(self) -> None:
        self.controller = self.start()
        for broker_id in (11, 12):
            self.register(broker_id, broker_id)
        self.write(
            TopicRecord(name="t", topic_id=TOPIC),
            ConfigRecord(
                resource_type=2, resource_name="t", name="remote.storage.enable", value="true"
            ),
            tiering_record(TopicTiering(topic_id=TOPIC)),
            PartitionRecord(
                partition_id=0, topic_id=TOPIC, replicas=(11, 12), isr=(11, 12), leader=11,
                leader_epoch=0, partition_epoch=0,
            ),
        )  # fmt: skip

    def start(self) -> ControllerNode:
        """Let the next controller begin its term."""
        self.controller = running(
            self.harness,
            brokers=self.brokers,
            features=FEATURES,
            properties=PROPERTIES | SYSTEM,
        )
        self.harness.workers.run()
        return self.controller

    def register(self, broker_id: int, epoch: int) -> None:
        """Register an unfenced broker, which sends heartbeats."""
        there = BrokerImage(
            id=broker_id,
            epoch=epoch,
            incarnation_id=Uuid(bytes([epoch]) * 16),
            endpoints=(Endpoint("PLAINTEXT", "localhost", PORT + broker_id),),
            features=SUPPORTED,
            fenced=False,
        )
        self.write(record_of(there))

    def configure(self, *, commits: bool = True, **values: str) -> Error:
        """Alter the topic's configuration, as the API does."""
        changes = tuple((key.replace("_", "."), 0, value) for key, value in values.items())
        answer: Any = self.controller.run(
            lambda image: alter_configs(
                image,
                [Alteration((2, "t"), changes)],
                incremental=True,
                validate_only=False,
                context=self.controller.context,
            )
        )
        if not commits:
            return Error.NONE
        self.harness.workers.run()
        error: Error = answer.value[0].error
        return error

    def play(self, values: dict[str, str], *, commits: bool = True) -> None:
        """Alter the configuration, or have both brokers acknowledge; perhaps without a commit."""
        if not values:
            for broker_id in (11, 12):
                self.answer(broker_id, commits=commits or broker_id == 11)
        else:
            self.configure(commits=commits, **values)

    @property
    def facts(self) -> tuple[TieringState, int, int]:
        """Return what is committed: the state, the tiered epoch and the floor."""
        return self.state.state, self.state.tiered_epoch, self.state.remote_floor_epoch

    def disable(self, policy: str) -> None:
        values = {"remote_log_disable_policy": policy, "remote_storage_enable": "false"}
        assert self.configure(**values) is Error.NONE

    def answer(
        self,
        broker_id: int,
        error: Error = Error.NONE,
        *,
        whole: Error = Error.NONE,
        commits: bool = True,
    ) -> None:
        """Have a broker comply, or not, with all that it is asked now."""
        for order in self.brokers.out(broker_id):
            order.pending.complete(self._response(order, error, whole))
        if commits:
            self.harness.workers.run()

    def _response(self, order: Order, error: Error, whole: Error) -> object:
        request: Any = order.request
        assert isinstance(request, wire.DisableRemoteTopicRequest)
        partition = self.controller.image.topics.by_id(TOPIC).partitions[0]  # type: ignore[union-attr]
        is_leader = partition.leader == order.broker_id
        row = wire.DisableRemoteTopicPartitionResult(
            partition_index=0,
            error_code=error,
            role=wire.LEADER if is_leader else wire.FOLLOWER,
            leader_epoch=partition.leader_epoch if is_leader else -1,
        )
        topics = tuple(
            wire.DisableRemoteTopicTopicResult(
                topic_id=each.topic_id, tiered_epoch=each.tiered_epoch, partitions=(row,)
            )
            for each in request.topics
        )
        return wire.DisableRemoteTopicResponse(error_code=whole, topics=() if whole else topics)

    @property
    def state(self) -> TopicTiering:
        """Return what is committed."""
        return self.controller.runtime.committed_image.tiering[TOPIC]

    @property
    def is_disabled(self) -> bool:
        return self.state.state is TieringState.DISABLED


@pytest.mark.parametrize("policy", POLICIES)
def test_a_topic_is_disabled_once_every_broker_has_acknowledged(policy: str) -> None:
    cluster = Cluster()
    channels = cluster.controller.disabling.channels
    assert not channels.queue_sizes(), "without a disablement there is no channel"
    cluster.disable(policy)
    assert cluster.state.state is TieringState.DISABLING
    for broker_id in (11, 12):
        [order] = cluster.brokers.out(broker_id)
        request: Any = order.request
        assert request == wire.DisableRemoteTopicRequest(
            controller_id=1,
            controller_epoch=cluster.controller.runtime.epoch,
            broker_epoch=broker_id,
            topics=(
                wire.DisableRemoteTopicTopic(
                    topic_id=TOPIC,
                    tiered_epoch=2,
                    policy=wire.DELETE if policy == "delete" else wire.RETAIN,
                    remote_floor_epoch=1 if policy == "delete" else 0,
                    partitions=(0,),
                ),
            ),
        )
    cluster.answer(12)
    assert not cluster.is_disabled
    assert cluster.configure(remote_storage_enable="true") is (
        Error.TIERED_STORAGE_DISABLEMENT_IN_PROGRESS
    )
    cluster.answer(11)
    assert cluster.is_disabled
    assert len(cluster.brokers.orders) == 2
    assert cluster.configure(remote_storage_enable="true") is Error.NONE
    assert (cluster.state.state, cluster.state.tiered_epoch) == (TieringState.ENABLED, 3)


def test_nothing_is_ordered_before_it_is_committed() -> None:
    cluster = Cluster()
    change = Alteration((2, "t"), (("remote.storage.enable", 0, "false"),))
    cluster.controller.run(
        lambda image: alter_configs(
            image,
            [change],
            incremental=True,
            validate_only=False,
            context=cluster.controller.context,
        )
    )
    assert not cluster.brokers.orders
    cluster.harness.workers.run()
    assert len(cluster.brokers.orders) == 2


@pytest.mark.parametrize(
    "answer",
    [
        {"error": Error.OPERATION_NOT_ATTEMPTED},
        {"error": Error.UNKNOWN_SERVER_ERROR},
        {"whole": Error.STALE_CONTROLLER_EPOCH},
        {"whole": Error.STALE_BROKER_EPOCH},
        {"whole": Error.UNKNOWN_SERVER_ERROR},
    ],
)
def test_what_is_no_acknowledgement_is_retried_after_a_backoff(answer: dict[str, Error]) -> None:
    cluster = Cluster()
    cluster.disable("delete")
    cluster.answer(11)
    appended = cluster.controller.log.records_appended
    cluster.answer(12, **answer)
    assert not cluster.brokers.out(12)
    cluster.wait(RETRY_FIRST_MS)
    assert len(cluster.brokers.out(12)) == 1
    assert cluster.controller.log.records_appended == appended, "a retry costs no record"
    cluster.answer(12)
    assert cluster.is_disabled


def test_controller_failover_in_disabling() -> None:
    """KIP-950: the next controller begins with what is stored, and asks all brokers."""
    cluster = Cluster()
    cluster.disable("delete")
    cluster.answer(11)
    [late] = cluster.brokers.out(12)
    cluster.controller.stop()
    cluster.harness.workers.run()
    assert not late.is_out, "the response to an earlier term is ignored"
    cluster.start()
    assert [len(cluster.brokers.out(each)) for each in (11, 12)] == [1, 1]
    cluster.answer(11)
    assert not cluster.is_disabled
    cluster.answer(12)
    assert cluster.is_disabled
    cluster.controller.stop()
    cluster.start()
    cluster.harness.workers.run()
    assert not cluster.brokers.out(11)
    assert cluster.is_disabled


POLICY, ENABLE = "remote_log_disable_policy", "remote_storage_enable"
STORY: list[tuple[dict[str, str], tuple[TieringState, int, int]]] = [
    ({POLICY: "retain", ENABLE: "false"}, (TieringState.DISABLING, 2, 0)),
    ({}, (TieringState.DISABLED, 2, 0)),
    ({POLICY: "delete"}, (TieringState.DISABLING, 3, 2)),
    ({}, (TieringState.DISABLED, 3, 2)),
    ({ENABLE: "true"}, (TieringState.ENABLED, 4, 2)),
    ({ENABLE: "false"}, (TieringState.DISABLING, 5, 4)),
    ({}, (TieringState.DISABLED, 5, 4)),
]
"""What is altered, {} = brokers acknowledge; then state, tiered epoch and floor."""


@pytest.mark.parametrize("number", range(len(STORY)))
@pytest.mark.parametrize("is_committed", [False, True])
def test_the_controller_may_die_at_each_of_its_writes(number: int, is_committed: bool) -> None:
    """Before the write is committed, and after it; a request without an answer is repeated."""
    cluster = Cluster()
    for step, (values, expected) in enumerate(STORY):
        cluster.play(values, commits=step != number or is_committed)
        if step == number:
            cluster.controller.stop()
            cluster.start()
            if cluster.facts != expected:
                cluster.play(values)
        assert cluster.facts == expected
        config = cluster.controller.runtime.committed_image.configs.of(2, "t")
        assert (config["remote.storage.enable"] == "true") == (expected[0] is TieringState.ENABLED)


def test_broker_dies_in_disabling_and_comes_back() -> None:
    cluster = Cluster()
    cluster.disable("retain")
    [first] = cluster.brokers.out(12)
    cluster.fence(12)
    assert not first.is_out
    cluster.fence(12, fenced=False)
    [second] = cluster.brokers.out(12)
    assert second is not first
    cluster.register(12, 99)
    [third] = cluster.brokers.out(12)
    request: Any = third.request
    assert request.broker_epoch == 99
    cluster.answer(11)
    cluster.answer(12)
    assert cluster.is_disabled


def test_a_broker_that_stays_down_is_not_waited_for() -> None:
    cluster = Cluster()
    cluster.disable("delete")
    cluster.answer(11)
    cluster.fence(12)
    assert cluster.is_disabled


def test_a_new_leader_acknowledges_before_it_is_disabled() -> None:
    cluster = Cluster()
    cluster.disable("delete")
    cluster.answer(11)
    cluster.write(PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=12))
    assert len(cluster.brokers.out(11)) == 1
    cluster.answer(11)
    cluster.answer(12)  # The former order: an answer to that says nothing of this leader epoch.
    assert not cluster.is_disabled
    cluster.answer(12)
    assert cluster.is_disabled


def test_what_fails_in_the_controller_is_logged_and_begun_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster()
    cluster.disable("delete")
    cluster.answer(11)
    with monkeypatch.context() as patch:

        def fail(*_given: object, **_how: object) -> None:
            raise RuntimeError("broken")

        patch.setattr(disabling_manager.DisablingManager, "_judge", fail)
        cluster.answer(12)
    assert any("disabling tiered storage failed" in each.message for each in caplog.records)
    assert not cluster.is_disabled
    cluster.wait(RETRY_AFTER_FAILURE_MS)
    cluster.answer(11)
    cluster.answer(12)
    assert cluster.is_disabled
