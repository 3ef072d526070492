"""`ottla leader-election` against a fake broker: requests, output, exit codes."""

from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.wire.messages import elect_leaders as wire
from tests.unit.cli.conftest import Ran, Run
from tests.unit.client.fake_broker import FakeBroker

CODES = {0: Error.NONE, 1: Error.ELECTION_NOT_NEEDED, 2: Error.PREFERRED_LEADER_NOT_AVAILABLE}


def elect(run: Run, broker: FakeBroker, *arguments: str, kind: str = "preferred") -> Ran:
    return run(
        "leader-election", "--bootstrap-server", broker.address, "--election-type", kind, *arguments
    )


def answer(request: wire.ElectLeadersRequest) -> wire.ElectLeadersResponse:
    """Elect partition 0, find 1 well led, and fail for 2."""
    asked = request.topic_partitions
    if asked is None:
        asked = (wire.TopicPartitions(topic="every", partitions=(0,)),)
    return wire.ElectLeadersResponse(
        replica_election_results=tuple(
            wire.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=tuple(
                    wire.PartitionResult(
                        partition_id=number,
                        error_code=CODES[number],
                        error_message="it is not in sync" if number == 2 else None,
                    )
                    for number in topic.partitions
                ),
            )
            for topic in asked
        )
    )


@pytest.fixture(autouse=True)
def _serve(broker: FakeBroker) -> None:
    broker.answer(wire.ElectLeadersRequest, answer)


def asked(broker: FakeBroker) -> Any:
    return broker.requests(wire.ElectLeadersRequest)[-1]


@pytest.mark.parametrize(("kind", "number"), [("preferred", 0), ("UNCLEAN", 1)])
def test_one_partition(run: Run, broker: FakeBroker, kind: str, number: int) -> None:
    ran = elect(run, broker, "--topic", "orders", "--partition", "0", kind=kind)
    assert ran == (
        0,
        f"Successfully completed leader election ({kind.upper()}) for partitions orders-0\n",
        "",
    )
    assert asked(broker).election_type == number
    assert asked(broker).topic_partitions == (
        wire.TopicPartitions(topic="orders", partitions=(0,)),
    )


def test_all_partitions(run: Run, broker: FakeBroker) -> None:
    ran = elect(run, broker, "--all-topic-partitions")
    assert ran.out.endswith("for partitions every-0\n")
    assert asked(broker).topic_partitions is None


def test_a_file_with_every_outcome(run: Run, broker: FakeBroker, tmp_path: Path) -> None:
    path = tmp_path / "elect.json"
    path.write_text(
        '{"partitions": [{"topic": "b", "partition": 0}, {"topic": "a", "partition": 2},'
        ' {"topic": "a", "partition": 1}, {"topic": "a", "partition": 0}]}'
    )
    ran = elect(run, broker, "--path-to-json-file", str(path))
    assert ran == (
        1,
        "Successfully completed leader election (PREFERRED) for partitions a-0, b-0\n"
        "Valid replica already elected for partitions a-1\n"
        "Error completing leader election (PREFERRED) for partition: a-2: "
        "it is not in sync (PREFERRED_LEADER_NOT_AVAILABLE)\n",
        "ottla leader-election: 1 replica(s) could not be elected\n",
    )
    assert [(each.topic, each.partitions) for each in asked(broker).topic_partitions] == [
        ("a", (0, 1, 2)),
        ("b", (0,)),
    ]


def test_a_controller_on_the_move_is_awaited(run: Run, broker: FakeBroker) -> None:
    refusals = [Error.NOT_CONTROLLER]

    def later(request: wire.ElectLeadersRequest) -> wire.ElectLeadersResponse:
        if refusals:
            return wire.ElectLeadersResponse(error_code=refusals.pop(), replica_election_results=())
        return answer(request)

    broker.answer(wire.ElectLeadersRequest, later)
    assert elect(run, broker, "--topic", "orders", "--partition", "0").code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "One and only one of the following options is required: --topic, --all-"),
        (("--topic", "a", "--partition", "0", "--all-topic-partitions"), "One and only one of"),
        (("--topic", "a"), "--partition is required with --topic"),
        (("--all-topic-partitions", "--partition", "0"), "--partition is only allowed if --topic"),
        (("--topic", "a", "--partition", "-5"), "--partition -5: expected 0 to 2147483647"),
        (("--topic", "a", "--partition", "99999999999"), "--partition 99999999999: expected 0 to"),
    ],
)
def test_wrong_usage(
    run: Run, broker: FakeBroker, arguments: tuple[str, ...], message: str
) -> None:
    ran = elect(run, broker, *arguments)
    assert ran.code == 2
    assert ran.err.startswith(f"ottla leader-election: {message}")


def test_unknown_kinds(run: Run, broker: FakeBroker) -> None:
    ran = elect(run, broker, "--all-topic-partitions", kind="fair")
    assert ran.code == 2
    assert "--election-type fair: expected preferred or unclean" in ran.err
    assert run("leader-election", "--all-topic-partitions").code == 2


def test_the_clients_properties_and_their_former_option(
    run: Run, broker: FakeBroker, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL")
    for option in ("--command-config", "--admin.config"):
        ran = elect(run, broker, "--all-topic-partitions", option, str(file))
        assert ran.code == 1
        assert f"{file}: security.protocol=SSL: expected PLAINTEXT" in ran.err
        assert ("Use --command-config instead" in ran.err) == (option == "--admin.config")
    both = ("--command-config", str(file), "--admin.config", str(file))
    ran = elect(run, broker, "--all-topic-partitions", *both)
    assert ran.code == 2
    assert "Options --command-config and --admin.config cannot be specified together" in ran.err
