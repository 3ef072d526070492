"""What controllers and brokers make of requests is compared with what the requests say.

Method: requests, responses and observations by hand.
"""

from dataclasses import replace
from typing import Any

import pytest

from ottla.base.ids import Uuid
from ottla.metadata.delta import replay
from ottla.metadata.image import EMPTY, ClusterImage, PartitionImage
from ottla.metadata.records import (
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from ottla.metadata.topics import RECOVERING
from ottla.testing.history.history import History
from ottla.testing.scenarios.watches.request_watch import RequestWatch
from ottla.testing.sim import Sim
from ottla.testing.sim.net import joined
from ottla.testing.sim.watch.observations import ImagePublished, NodeChanged, PartitionSet
from ottla.wire.frames import encode_request, encode_response
from ottla.wire.messages import alter_partition as alter
from ottla.wire.messages import fetch, vote
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.wire.messages.broker_registration import BrokerRegistrationRequest
from ottla.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

CONTROLLER, BROKER = 9, 1
TOPIC = Uuid(bytes(15) + b"\x09")
PARTITION = PartitionImage(
    replicas=(1, 2, 3), directories=(), isr=(1, 2), leader=1, leader_epoch=4, partition_epoch=7
)


class Bench:
    """A watch of a cluster in which nothing happens by itself."""

    def __init__(self, *, zookeeper: bool = False) -> None:
        self.history = History()
        self.sim = Sim(1, brokers=1, zookeeper=zookeeper)
        RequestWatch(self.sim, self.history)

    @property
    def reasons(self) -> list[str]:
        return [each.reason for each in self.history.rules_broken]

    def send(
        self,
        request: object,
        version: int,
        *,
        number: int = 1,
        target: int = BROKER,
        what: str = "request",
    ) -> None:
        frame = encode_request(request, version, number, "test")
        self.sim.net.frame_arrived(what, CONTROLLER, target, frame, connection=5)

    def sent(self, response: object, version: int, *, number: int = 1) -> None:
        self.sim.net.response_sent(5, joined(encode_response(response, version, number)))

    def change(self, before: PartitionImage = PARTITION, **change: Any) -> None:
        """Change a partition."""
        after = replace(before, **change)
        self.sim.notify(PartitionSet(7, 70, "t", TOPIC, 0, before, after))

    def publish(self, image: ClusterImage) -> None:
        self.sim.notify(ImagePublished(7, CONTROLLER, 1, image))


# -- AlterPartition ------------------------------------------------------------------------------


def isr_request(
    leader_epoch: int, partition_epoch: int, *isr: int, epochs: dict[int, int] | None = None
) -> alter.AlterPartitionRequest:
    partition = alter.RequestPartitionData(
        partition_index=0,
        leader_epoch=leader_epoch,
        new_isr_with_epochs=tuple(
            alter.BrokerState(broker_id=each, broker_epoch=(epochs or {}).get(each, -1))
            for each in isr
        ),
        partition_epoch=partition_epoch,
    )
    topic = alter.RequestTopicData(topic_id=TOPIC, partitions=(partition,))
    return alter.AlterPartitionRequest(broker_id=BROKER, topics=(topic,))


@pytest.mark.parametrize(
    ("request_of", "is_stale"),
    [
        ((4, 7, 1, 2, 3), False),
        ((4, 6, 1, 2, 3), True),
        ((3, 7, 1, 2, 3), True),
        ((4, 7, 1, 2), True),
    ],
)
def test_a_replica_joins_by_a_request_of_the_present_epochs(
    request_of: tuple[int, ...], is_stale: bool
) -> None:
    bench = Bench()
    bench.send(isr_request(*request_of), 3)
    bench.change(isr=(1, 2, 3), partition_epoch=8)
    assert bool(bench.reasons) is is_stale


@pytest.mark.parametrize(
    ("named", "known", "broken"),
    [((20,), 20, False), ((20,), 10, False), ((10,), 20, True), ((10, 20), 20, False)],
    ids=["present", "not known yet", "former", "another request"],
)
def test_a_replica_joins_by_a_request_of_the_present_registrations(
    named: tuple[int, ...], known: int, broken: bool
) -> None:
    bench = Bench()
    bench.publish(registered(known, isr=(2,)))
    for number, epoch in enumerate(named):
        bench.send(isr_request(4, 7, 1, 2, 3, epochs={BROKER: epoch}), 3, number=number)
    bench.change(isr=(1, 2, 3), partition_epoch=8)
    assert bool(bench.reasons) is broken


@pytest.mark.parametrize(
    "change",
    [
        {"isr": (1,), "partition_epoch": 8},
        {"isr": (3,), "leader": 3, "leader_epoch": 5, "partition_epoch": 8},
        {"isr": (1, 2, 3), "partition_epoch": 9},
    ],
    ids=["fewer", "another leader", "more than one change"],
)
def test_other_changes_need_no_request(change: dict[str, Any]) -> None:
    bench = Bench()
    bench.change(**change)
    assert bench.reasons == []


MOVING = replace(PARTITION, replicas=(3, 2, 1), adding_replicas=(3,), removing_replicas=(1,))
MOVED: dict[str, Any] = {
    "replicas": (3, 2),
    "adding_replicas": (),
    "removing_replicas": (),
    "isr": (2, 3),
    "leader": 3,
    "leader_epoch": 5,
    "partition_epoch": 8,
}


@pytest.mark.parametrize(
    ("request_of", "is_missing"),
    [((4, 7, 1, 2, 3), False), ((4, 6, 1, 2, 3), True), ((4, 7, 1, 2), True), (None, True)],
)
def test_the_last_replica_of_a_reassignment_joins_by_a_request(
    request_of: tuple[int, ...] | None, is_missing: bool
) -> None:
    bench = Bench()
    if request_of is not None:
        bench.send(isr_request(*request_of), 3)
    bench.change(MOVING, **MOVED)
    assert bool(bench.reasons) is is_missing


@pytest.mark.parametrize(
    "change",
    [
        {"isr": (2,), "leader": 2},
        {"isr": (3,), "leader_recovery_state": RECOVERING},
        {"replicas": (2, 1), "isr": (1, 2), "leader": 1},
    ],
    ids=["none joins", "unclean election", "cancelled"],
)
def test_other_ends_of_a_reassignment_need_no_request(change: dict[str, Any]) -> None:
    bench = Bench()
    bench.change(MOVING, **(MOVED | change))
    assert bench.reasons == []


def test_a_reassignment_may_be_cancelled_uncleanly() -> None:
    bench = Bench()
    cancelled = {"replicas": (2, 1), "isr": (2,), "leader": 2}
    bench.change(replace(MOVING, isr=(3,), leader=-1), **(MOVED | cancelled))
    assert bench.reasons == []


def test_an_eligible_replica_that_is_elected_may_end_a_reassignment() -> None:
    bench = Bench()
    bench.change(replace(MOVING, isr=(1,), elr=(3,)), **(MOVED | {"replicas": (3,), "isr": (3,)}))
    assert bench.reasons == []


def test_a_leader_that_was_in_sync_nowhere_ends_no_reassignment() -> None:
    bench = Bench()
    bench.change(MOVING, **(MOVED | {"isr": (3,)}))
    assert len(bench.reasons) == 1


# -- registrations -------------------------------------------------------------------------------


def registered(epoch: int, *, isr: tuple[int, ...], fenced: bool = True) -> ClusterImage:
    records = [
        RegisterBrokerRecord(
            broker_id=BROKER,
            incarnation_id=incarnation(epoch),
            broker_epoch=epoch,
            end_points=(),
            features=(),
            rack=None,
            fenced=fenced,
        ),
        TopicRecord(name="t", topic_id=TOPIC),
        PartitionRecord(
            partition_id=0, topic_id=TOPIC, replicas=(1, 2), isr=isr, leader=2, leader_epoch=1
        ),
    ]
    return replay(EMPTY, records, offset=epoch + 2, epoch=1).image


def incarnation(epoch: int) -> Uuid:
    return Uuid(bytes(15) + bytes([epoch]))


def registration(epoch: int, previous_epoch: int) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=BROKER,
        cluster_id="c",
        incarnation_id=incarnation(epoch),
        listeners=(),
        features=(),
        rack=None,
        previous_broker_epoch=previous_epoch,
    )


@pytest.mark.parametrize(
    ("previous_epoch", "isr", "broken"),
    [(10, (1, 2), False), (-1, (1, 2), True), (9, (1, 2), True), (-1, (2,), False)],
)
def test_a_broker_that_may_have_lost_records_is_in_no_isr(
    previous_epoch: int, isr: tuple[int, ...], broken: bool
) -> None:
    bench = Bench()
    bench.send(registration(10, -1), 4)
    bench.publish(registered(10, isr=(2,)))
    bench.send(registration(20, previous_epoch), 4)
    bench.publish(registered(20, isr=isr))
    assert bool(bench.reasons) is broken


@pytest.mark.parametrize(
    ("offset", "want_fence", "requested"), [(10, False, True), (10, True, False), (9, False, False)]
)
def test_a_broker_is_unfenced_once_it_asks_for_it_and_knows_its_registration(
    offset: int, want_fence: bool, requested: bool
) -> None:
    bench = Bench()
    heartbeat = BrokerHeartbeatRequest(
        broker_id=BROKER,
        broker_epoch=10,
        current_metadata_offset=offset,
        want_fence=want_fence,
        want_shut_down=False,
    )
    bench.send(heartbeat, 1)
    bench.publish(registered(10, isr=(2,), fenced=False))
    (unfenced,) = bench.history.unfenced_brokers
    assert unfenced.requested is requested


@pytest.mark.parametrize(
    ("epoch", "error", "broken"),
    [(20, 0, False), (10, 77, False), (10, 0, True), (30, 0, False)],
    ids=["present", "refused", "former", "not known yet"],
)
def test_a_heartbeat_of_a_former_registration_is_refused(
    epoch: int, error: int, broken: bool
) -> None:
    bench = Bench()
    bench.publish(registered(20, isr=(2,)))
    heartbeat = BrokerHeartbeatRequest(
        broker_id=BROKER,
        broker_epoch=epoch,
        current_metadata_offset=epoch,
        want_fence=False,
        want_shut_down=False,
    )
    bench.send(heartbeat, 1, target=CONTROLLER)
    bench.sent(BrokerHeartbeatResponse(error_code=error, should_shut_down=False), 1)
    assert bool(bench.reasons) is broken


# -- fetches of followers ------------------------------------------------------------------------

LEADER = 3


def fetch_request(
    epoch: int, *, named: tuple[int, ...] = (0, 1), forgotten: tuple[int, ...] = ()
) -> fetch.FetchRequest:
    partitions = tuple(
        fetch.FetchPartition(partition=each, fetch_offset=5, partition_max_bytes=9)
        for each in named
    )
    left = fetch.ForgottenTopic(topic_id=TOPIC, partitions=forgotten)
    return fetch.FetchRequest(
        replica_state=fetch.ReplicaState(replica_id=BROKER, replica_epoch=epoch),
        max_wait_ms=500,
        min_bytes=1,
        session_id=4,
        session_epoch=2,
        topics=(fetch.FetchTopic(topic_id=TOPIC, partitions=partitions),) if named else (),
        forgotten_topics_data=(left,) if forgotten else (),
    )


def fetch_response(errors: dict[int, int], error: int) -> fetch.FetchResponse:
    partitions = tuple(
        fetch.PartitionData(partition_index=each, error_code=code, high_watermark=5, records=(b"",))
        for each, code in errors.items()
    )
    topic = fetch.FetchableTopicResponse(topic_id=TOPIC, partitions=partitions)
    return fetch.FetchResponse(error_code=error, responses=(topic,) if errors else ())


def fetch_under(
    epoch: int,
    errors: dict[int, int],
    *,
    error: int = 0,
    again: bool = False,
    restarted: bool = False,
    **named: tuple[int, ...],
) -> list[str]:
    """Return what is wrong with the response of a leader that knows the epoch 20."""
    bench = Bench()
    bench.sim.notify(ImagePublished(7, LEADER, 1, registered(20, isr=(2,))))
    if restarted:
        bench.sim.notify(NodeChanged(7, LEADER, 2, "started"))
    frame = encode_request(fetch_request(epoch, **named), 18, 6, "test")
    what, connection = ("again", 0) if again else ("request", 5)
    bench.sim.net.frame_arrived(what, BROKER, LEADER, frame, connection=connection)
    sent = joined(encode_response(fetch_response(errors, error), 18, 6))
    bench.sim.net.response_sent(connection, sent)
    return bench.reasons


@pytest.mark.parametrize(
    ("errors", "error"),
    [({0: 6, 1: 6}, 0), ({0: 74, 1: 3}, 0), ({}, 71)],
    ids=["refused", "for other reasons", "as a whole"],
)
def test_a_fetch_of_a_former_registration_is_refused(errors: dict[int, int], error: int) -> None:
    assert fetch_under(10, errors, error=error) == []


@pytest.mark.parametrize(
    "errors", [{0: 0, 1: 0}, {0: 6, 1: 0}, {0: 6}, {}], ids=["taken", "one", "idle", "all idle"]
)
def test_a_fetch_of_a_former_registration_that_is_taken_is_reported(
    errors: dict[int, int],
) -> None:
    (reason,) = fetch_under(10, errors)
    assert "broker 1 in epoch 10" in reason


def test_idle_partitions_of_a_session_may_be_left_out() -> None:
    assert fetch_under(10, {}, named=()) == []
    assert fetch_under(10, {}, named=(0,), forgotten=(0,)) == []
    assert fetch_under(10, {1: 0}, named=()) != []


@pytest.mark.parametrize("epoch", [20, 30, -1], ids=["present", "not known yet", "none"])
def test_other_fetches_may_be_taken(epoch: int) -> None:
    assert fetch_under(epoch, {0: 0, 1: 0}) == []


def test_a_leader_that_has_restarted_may_not_know_the_registration_yet() -> None:
    assert fetch_under(10, {0: 0, 1: 0}, restarted=True) == []


def test_the_response_to_a_redelivered_fetch_is_not_read() -> None:
    assert fetch_under(10, {0: 0, 1: 0}, again=True) == []


# -- votes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behind", "granted", "broken"),
    [(0, True, False), (1, False, False), (1, True, True)],
    ids=["not behind", "refused", "behind"],
)
def test_a_voter_votes_for_no_log_that_is_behind_its_own(
    behind: int, granted: bool, broken: bool
) -> None:
    bench = Bench()
    bench.sim.run(ms=5_000)
    voter = next(each for each in bench.sim.nodes.values() if each.is_controller)
    log_end = voter.metadata_log_end
    assert log_end is not None
    asked = vote.RequestPartitionData(
        partition_index=0,
        replica_epoch=log_end.epoch + 1,
        replica_id=CONTROLLER,
        last_offset_epoch=log_end.epoch,
        last_offset=log_end.offset - behind,
    )
    answered = vote.ResponsePartitionData(
        partition_index=0,
        error_code=0,
        leader_id=-1,
        leader_epoch=log_end.epoch + 1,
        vote_granted=granted,
    )
    request = vote.VoteRequest(topics=(vote.RequestTopicData(topic_name="m", partitions=(asked,)),))
    response = vote.VoteResponse(
        error_code=0,
        topics=(vote.ResponseTopicData(topic_name="m", partitions=(answered,)),),
    )
    bench.send(request, 2, target=voter.id)
    bench.sent(response, 2)
    assert bool(bench.reasons) is broken


# -- requests of controllers over ZooKeeper ------------------------------------------------------


@pytest.mark.parametrize(
    ("controller_epoch", "broker_epochs_older", "error", "broken"),
    [
        (3, 0, 0, False),
        (2, 0, 11, False),
        (2, 0, 0, True),
        (3, 1, 77, False),
        (3, 1, 0, True),
    ],
)
@pytest.mark.parametrize("what", ["request", "again"])
def test_a_broker_refuses_what_is_of_former_epochs(
    controller_epoch: int, broker_epochs_older: int, error: int, broken: bool, what: str
) -> None:
    bench = Bench(zookeeper=True)
    bench.sim.run(ms=5_000)
    broker = bench.sim.nodes[BROKER].broker
    assert broker is not None

    def order(epoch: int, broker_epoch: int) -> UpdateMetadataRequest:
        return UpdateMetadataRequest(
            controller_id=CONTROLLER,
            controller_epoch=epoch,
            broker_epoch=broker_epoch,
            live_brokers=(),
        )

    bench.send(order(3, broker.epoch), 7, number=1)
    bench.sent(UpdateMetadataResponse(error_code=0), 7, number=1)
    late = order(controller_epoch, broker.epoch - broker_epochs_older)
    bench.send(late, 7, number=2, what=what)
    bench.sent(UpdateMetadataResponse(error_code=error), 7, number=2)
    assert bool(bench.reasons) is broken


@pytest.mark.parametrize("error", [None, 11], ids=["waits", "refused"])
def test_a_broker_knows_a_controller_once_it_has_taken_a_request_of_it(error: int | None) -> None:
    bench = Bench(zookeeper=True)
    bench.sim.run(ms=5_000)
    for number, epoch in ((1, 3), (2, 2)):
        order = UpdateMetadataRequest(
            controller_id=CONTROLLER, controller_epoch=epoch, broker_epoch=-1, live_brokers=()
        )
        bench.send(order, 7, number=number)
        if number == 1 and error is not None:
            bench.sent(UpdateMetadataResponse(error_code=error), 7, number=number)
    bench.sent(UpdateMetadataResponse(error_code=0), 7, number=2)
    assert bench.reasons == []
