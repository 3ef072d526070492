"""`ottla metadata-quorum` prints what kafka-metadata-quorum.sh prints.

Method: the text is Kafka's, written out; a fake broker answers in the real protocol.
"""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.ids import NO_UUID, Uuid
from ottla.cli.cluster.quorum_text import Quorum, replication_lines, status_lines
from ottla.cli.errors import CommandError
from ottla.wire.messages import describe_cluster as cluster_wire
from ottla.wire.messages import describe_quorum as wire
from tests.unit.cli.conftest import Run
from tests.unit.client.fake_broker import FakeBroker

DIRECTORY = Uuid(bytes(range(16)))


def member(node_id: int, end: int, time_ms: int = -1, directory: Uuid = NO_UUID) -> Any:
    return wire.ReplicaState(
        replica_id=node_id,
        replica_directory_id=directory,
        log_end_offset=end,
        last_fetch_timestamp=time_ms,
        last_caught_up_timestamp=time_ms,
    )


def quorum(leader_id: int = 2, **more: Any) -> Quorum:
    values: dict[str, Any] = {
        "current_voters": (member(1, 90, 400), member(2, 100, 1_000, DIRECTORY), member(3, 95)),
        "observers": (member(7, 80, 300),),
        **more,
    }
    state = wire.ResponsePartitionData(
        partition_index=0,
        error_code=0,
        leader_id=leader_id,
        leader_epoch=5,
        high_watermark=95,
        **values,
    )
    listeners = (
        wire.Listener(name="CONTROLLER", host="c2", port=9093),
        wire.Listener(name="OTHER", host="::1", port=9094),
    )
    return Quorum("some-cluster", state, (wire.Node(node_id=2, listeners=listeners),))


def test_status() -> None:
    assert status_lines(quorum()) == [
        "ClusterId:              some-cluster",
        "LeaderId:               2",
        "LeaderEpoch:            5",
        "HighWatermark:          95",
        "MaxFollowerLag:         10",
        "MaxFollowerLagTimeMs:   600",
        'CurrentVoters:          [{"id": 1}, {"id": 2, "directoryId": "AAECAwQFBgcICQoLDA0ODw", '
        '"endpoints": ["CONTROLLER://c2:9093", "OTHER://[::1]:9094"]}, {"id": 3}]',
        'CurrentObservers:       [{"id": 7}]',
    ]


@pytest.mark.parametrize(
    ("voters", "lag", "lag_ms"),
    [
        ((member(2, 100, 1_000),), 0, 0),
        ((member(2, 100, 1_000), member(3, 100, 900)), 0, 0),
        ((member(2, 100, 1_000), member(3, 40)), 60, -1),
    ],
)
def test_lag(voters: Any, lag: int, lag_ms: int) -> None:
    lines = status_lines(quorum(current_voters=voters, observers=()))
    assert f"MaxFollowerLag:         {lag}" in lines
    assert f"MaxFollowerLagTimeMs:   {lag_ms}" in lines
    assert lines[-1] == "CurrentObservers:       []"


def test_replication() -> None:
    none = "AAAAAAAAAAAAAAAAAAAAAA"
    assert replication_lines(quorum(), None) == [
        "NodeId\tDirectoryId           \tLogEndOffset\tLag\tLastFetchTimestamp\t"
        "LastCaughtUpTimestamp\tStatus  \t",
        "2     \tAAECAwQFBgcICQoLDA0ODw\t100         \t0  \t1000              \t"
        "1000                 \tLeader  \t",
        f"1     \t{none}\t90          \t10 \t400               \t400                  \tFollower\t",
        f"3     \t{none}\t95          \t5  \t-1                \t-1                   \tFollower\t",
        f"7     \t{none}\t80          \t20 \t300               \t300                  \tObserver\t",
    ]


def test_times_as_ages() -> None:
    lines = replication_lines(quorum(), 1_500)
    assert [line.split("\t")[4].strip() for line in lines[1:]] == [
        "500 ms ago",
        "1100 ms ago",
        "-1",
        "1200 ms ago",
    ]
    with pytest.raises(CommandError, match="the last fetch was at 1000, but it is 999 here"):
        replication_lines(quorum(), 999)


def test_without_a_leader_the_status_is_an_error() -> None:
    for lines in (status_lines, lambda each: replication_lines(each, None)):
        describe: Callable[[Quorum], list[str]] = lines
        with pytest.raises(CommandError, match="the quorum has no leader now"):
            describe(quorum(leader_id=-1))


# -- The command --


def serve(broker: FakeBroker, quorum: Quorum, error_code: int = 0) -> None:
    def describe_quorum(request: wire.DescribeQuorumRequest) -> Any:
        (topic,) = request.topics
        assert topic.topic_name == "__cluster_metadata"
        state = quorum.state
        if error_code:
            state = wire.ResponsePartitionData(
                partition_index=0,
                error_code=error_code,
                leader_id=-1,
                leader_epoch=-1,
                high_watermark=-1,
                current_voters=(),
                observers=(),
            )
        topic_data = wire.ResponseTopicData(topic_name=topic.topic_name, partitions=(state,))
        return wire.DescribeQuorumResponse(error_code=0, topics=(topic_data,), nodes=quorum.nodes)

    broker.be_controller()
    broker.answer(wire.DescribeQuorumRequest, describe_quorum)


def test_over_zookeeper_there_is_none(run: Run, broker: FakeBroker) -> None:
    ran = run("metadata-quorum", "--bootstrap-server", broker.address, "describe", "--status")
    assert ran == (
        1,
        "",
        f"ottla metadata-quorum: the cluster at {broker.address} does not serve DescribeQuorum: "
        "expected a KRaft cluster, not ZooKeeper mode\n",
    )


@pytest.mark.parametrize(
    ("option", "kind"), [("--bootstrap-server", 1), ("--bootstrap-controller", 2)]
)
def test_both_ways_to_ask(run: Run, broker: FakeBroker, option: str, kind: int) -> None:
    serve(broker, quorum())
    ran = run("metadata-quorum", option, broker.address, "describe", "--status")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "\n".join(status_lines(quorum())) + "\n"
    asked = broker.requests(cluster_wire.DescribeClusterRequest)
    assert {each.endpoint_type for each in asked} == {kind}
    ran = run("metadata-quorum", option, broker.address, "describe", "--replication")
    assert ran.out == "\n".join(replication_lines(quorum(), None)) + "\n"
    ran = run("metadata-quorum", option, broker.address, "describe", "--replication",
              "--human-readable")  # fmt: skip
    assert " ms ago" in ran.out


def test_the_active_controller_is_queried_whichever_is_named(run: Run, broker: FakeBroker) -> None:
    other = FakeBroker()
    serve(other, quorum(), error_code=6)
    serve(broker, quorum())
    words = ("metadata-quorum", "--bootstrap-controller", other.address, "--timeout", "0.5")
    ran = run(*words, "describe", "--status")
    assert ran.code == 1, "it says that it is active itself, and that it is not the leader"
    assert "(NOT_LEADER_OR_FOLLOWER)" in ran.err
    other.be_controller(active=broker)
    assert run(*words, "describe", "--status").code == 0
    other.close()


def test_while_no_controller_is_active_it_is_waited_for(run: Run, broker: FakeBroker) -> None:
    serve(broker, quorum())
    answers = [-1, -1, 1]

    def elected(request: cluster_wire.DescribeClusterRequest) -> Any:
        brokers = (
            cluster_wire.DescribeClusterBroker(broker_id=1, host="127.0.0.1", port=broker.port),
        )
        return cluster_wire.DescribeClusterResponse(
            error_code=0,
            endpoint_type=2,
            cluster_id="c",
            controller_id=answers.pop(0) if answers else 1,
            brokers=brokers,
        )

    broker.answer(cluster_wire.DescribeClusterRequest, elected)
    words = ("metadata-quorum", "--bootstrap-controller", broker.address)
    assert run(*words, "describe", "--status").code == 0
    assert not answers
    answers[:] = [-1] * 100
    ran = run(*words, "--timeout", "0.3", "describe", "--status")
    assert ran.code == 1
    assert "no controller is active now (NOT_CONTROLLER)" in ran.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("describe",), 2, "one of --status and --replication must be given with describe"),
        (("describe", "--status", "--replication"), 2, "only one of --status and --replication"),
        (("describe", "--status", "--human-readable"), 2, "--human-readable goes with"),
        (("--bootstrap-controller", "x:2", "describe", "--status"), 2, "only one of --bootstrap"),
        (("add-controller",), 1, "add-controller is not supported: the voters are those of"),
        (("remove-controller", "--controller-id", "1", "--dry-run"), 1,
         "remove-controller is not supported: the voters are those of"),
    ],
)  # fmt: skip
def test_refusals(run: Run, arguments: tuple[str, ...], code: int, message: str) -> None:
    ran = run("metadata-quorum", "--bootstrap-server", "x:1", *arguments)
    assert ran.code == code
    assert ran.err.startswith(f"ottla metadata-quorum: {message}")
