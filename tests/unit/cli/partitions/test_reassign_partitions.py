"""`ottla reassign-partitions` against a fake broker: requests, output and errors."""

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.wire.messages import alter_partition_reassignments as alter_wire
from ottla.wire.messages import incremental_alter_configs as config_wire
from ottla.wire.messages import list_partition_reassignments as list_wire
from tests.unit.cli.conftest import Ran, Run
from tests.unit.client.fake_broker import FakeBroker, topic

Partition = tuple[str, int]


class Moves:
    """The controller's part, as far as the tool sees it."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.under_way: dict[Partition, tuple[tuple[int, ...], ...]] = {}
        self.refusals: dict[Partition, Error] = {}
        self.config_errors: dict[str, Error] = {}
        broker.topics = [topic("a", 2), topic("b")]
        broker.others = {2: None, 3: None}
        broker.answer(list_wire.ListPartitionReassignmentsRequest, self._list)
        broker.answer(alter_wire.AlterPartitionReassignmentsRequest, self._alter)
        broker.answer(config_wire.IncrementalAlterConfigsRequest, self._configure)

    def altered(self) -> dict[Partition, tuple[int, ...] | None]:
        """Return the contents of the last request."""
        request = self.broker.requests(alter_wire.AlterPartitionReassignmentsRequest)[-1]
        return {
            (topic.name, each.partition_index): each.replicas
            for topic in request.topics
            for each in topic.partitions
        }

    def cleared(self) -> list[str]:
        """Return the resources whose throttles were deleted."""
        requests = self.broker.requests(config_wire.IncrementalAlterConfigsRequest)
        assert all(
            (config.config_operation, config.value) == (1, None) and "replica" in config.name
            for request in requests
            for resource in request.resources
            for config in resource.configs
        )
        return [each.resource_name for request in requests for each in request.resources]

    def _list(self, request: list_wire.ListPartitionReassignmentsRequest) -> Any:
        assert not request.topics  # All, or none for the check of the active controller.
        return list_wire.ListPartitionReassignmentsResponse(
            error_code=0,
            topics=tuple(
                list_wire.OngoingTopicReassignment(
                    name=name,
                    partitions=(
                        list_wire.OngoingPartitionReassignment(
                            partition_index=number,
                            replicas=replicas,
                            adding_replicas=adding,
                            removing_replicas=removing,
                        ),
                    ),
                )
                for (name, number), (replicas, adding, removing) in self.under_way.items()
                if request.topics is None
            ),
        )

    def _alter(self, request: alter_wire.AlterPartitionReassignmentsRequest) -> Any:
        return alter_wire.AlterPartitionReassignmentsResponse(
            error_code=0,
            responses=tuple(
                alter_wire.ReassignableTopicResponse(
                    name=topic.name,
                    partitions=tuple(
                        alter_wire.ReassignablePartitionResponse(
                            partition_index=each.partition_index,
                            error_code=self.refusals.get(
                                (topic.name, each.partition_index), Error.NONE
                            ),
                        )
                        for each in topic.partitions
                    ),
                )
                for topic in request.topics
            ),
        )

    def _configure(self, request: config_wire.IncrementalAlterConfigsRequest) -> Any:
        return config_wire.IncrementalAlterConfigsResponse(
            responses=tuple(
                config_wire.AlterConfigsResourceResponse(
                    error_code=self.config_errors.get(each.resource_name, Error.NONE),
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                )
                for each in request.resources
            )
        )


@pytest.fixture
def moves(broker: FakeBroker) -> Moves:
    return Moves(broker)


@pytest.fixture
def file(tmp_path: Path) -> Any:
    """Write a reassignment file; return its path."""

    def write(*partitions: tuple[str, int, list[int]]) -> str:
        content = {
            "version": 1,
            "partitions": [
                {"topic": name, "partition": number, "replicas": replicas}
                for name, number, replicas in partitions
            ],
        }
        path = tmp_path / "moves.json"
        path.write_text(json.dumps(content))
        return str(path)

    return write


def reassign(run: Run, moves: Moves, *arguments: str) -> Ran:
    return run("reassign-partitions", "--bootstrap-server", moves.broker.address, *arguments)


def test_execute(run: Run, moves: Moves, file: Any) -> None:
    path = file(("b", 0, [2, 3]), ("a", 1, [3]))
    ran = reassign(run, moves, "--execute", "--reassignment-json-file", path)
    assert ran == (
        0,
        "Current partition replica assignment\n\n"
        '{"version":1,"partitions":['
        '{"topic":"a","partition":1,"replicas":[1],"log_dirs":["any"]},'
        '{"topic":"b","partition":0,"replicas":[1],"log_dirs":["any"]}]}\n\n'
        "Save this to use as the --reassignment-json-file option during rollback\n"
        "Successfully started partition reassignments for a-1,b-0\n",
        "",
    )
    assert moves.altered() == {("a", 1): (3,), ("b", 0): (2, 3)}


def test_execute_beside_others(run: Run, moves: Moves, file: Any) -> None:
    moves.under_way = {("a", 0): ((2, 1), (2,), (1,))}
    arguments = ("--execute", "--reassignment-json-file", file(("b", 0, [2])))
    ran = reassign(run, moves, *arguments)
    assert (ran.code, ran.out) == (1, "")
    assert "Cannot execute because there is an existing partition assignment." in ran.err
    ran = reassign(run, moves, *arguments, "--additional")
    assert ran.out.endswith("Successfully started partition reassignment for b-0\n")


def test_errors_of_the_controller_are_printed(run: Run, moves: Moves, file: Any) -> None:
    moves.refusals = {("b", 0): Error.INVALID_REPLICA_ASSIGNMENT}
    path = file(("b", 0, [2]), ("a", 0, [2]))
    ran = reassign(run, moves, "--execute", "--reassignment-json-file", path)
    assert ran.code == 1
    assert ran.out.endswith(
        "Error reassigning partition(s):\n"
        "b-0: The replica assignment is not valid. (INVALID_REPLICA_ASSIGNMENT)\n"
    )
    assert ran.err == "ottla reassign-partitions: 1 of 2 partitions were refused: see above\n"


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        (("a", 0, [4]), "Unknown broker id 4: expected live ones, some of 1,2,3"),
        (("nobody", 0, [1]), "Topic nobody not found."),
        (("a", 2, [1]), "Unable to find partition: a-2"),
        (("a", 0, []), "{path}: Partition replica list cannot be empty: that of a-0 is"),
    ],
)
def test_execute_rejects(run: Run, moves: Moves, file: Any, partition: Any, message: str) -> None:
    path = file(partition)
    ran = reassign(run, moves, "--execute", "--reassignment-json-file", path)
    assert ran == (1, "", f"ottla reassign-partitions: {message.format(path=path)}\n")


def test_verify(run: Run, moves: Moves, file: Any) -> None:
    path = file(("b", 0, [1]), ("a", 0, [2]), ("a", 1, [2, 3]), ("gone", 0, [3]))
    arguments = ("--verify", "--reassignment-json-file", path)
    moves.under_way = {("a", 0): ((2, 1), (2,), (1,))}
    status = (
        "Status of partition reassignment:\n"
        "Reassignment of partition a-0 is still in progress.\n"
        "There is no active reassignment of partition a-1, but replica set is 1 rather than 2,3.\n"
        "Reassignment of partition b-0 is completed.\n"
        "There is no active reassignment of partition gone-0, but replica set is  rather than 3.\n"
        "\n"
    )
    assert reassign(run, moves, *arguments) == (0, status, "")
    assert moves.cleared() == []


def test_topics_deleted_meanwhile_have_no_throttles(run: Run, moves: Moves, file: Any) -> None:
    """A deletion over ZooKeeper waits for the end of its topic's move and starts just then."""
    path = file(("b", 0, [1]), ("a", 0, [1]))
    moves.config_errors["a"] = Error.UNKNOWN_TOPIC_OR_PARTITION
    ran = reassign(run, moves, "--verify", "--reassignment-json-file", path)
    assert (ran.code, ran.err) == (0, "")
    assert moves.cleared() == ["1", "2", "3", "a", "b"]
    moves.config_errors["a"] = Error.INVALID_CONFIG
    assert reassign(run, moves, "--verify", "--reassignment-json-file", path).code == 1


def test_verify_clears_throttles_when_all_is_done(run: Run, moves: Moves, file: Any) -> None:
    arguments = ("--verify", "--reassignment-json-file", file(("b", 0, [1]), ("a", 0, [1])))
    kept = reassign(run, moves, *arguments, "--preserve-throttles")
    assert moves.cleared() == []
    ran = reassign(run, moves, *arguments)
    assert ran.out == kept.out + (
        "Clearing broker-level throttles on brokers 1,2,3\n"
        "Clearing topic-level throttles on topics a,b\n"
    )
    assert moves.cleared() == ["1", "2", "3", "a", "b"]


def test_cancel_selects_moves_under_way(run: Run, moves: Moves, file: Any) -> None:
    moves.under_way = {
        ("a", 0): ((1, 2), (2,), ()),  # growth alone, which Kafka 4.0's tool passes over
        ("a", 1): ((2, 1), (2,), (1,)),
        ("z", 0): ((2, 1), (2,), (1,)),
    }
    path = file(("a", 0, [1, 2]), ("a", 1, [2]), ("b", 0, [2]))
    arguments = ("--cancel", "--reassignment-json-file", path, "--preserve-throttles")
    ran = reassign(run, moves, *arguments)
    assert ran == (
        0,
        "Successfully cancelled partition reassignments for: a-0,a-1\n"
        "None of the specified partition moves are active.\n",
        "",
    )
    assert moves.altered() == {("a", 0): None, ("a", 1): None}

    moves.refusals = {("a", 0): Error.NO_REASSIGNMENT_IN_PROGRESS}
    ran = reassign(run, moves, *arguments)
    assert ran.code == 1
    assert ran.out == (
        "Error cancelling partition reassignment for:\n"
        "a-0: No reassignment of the partition is going on. (NO_REASSIGNMENT_IN_PROGRESS)\n"
    )


def test_cancel_of_nothing(run: Run, moves: Moves, file: Any) -> None:
    ran = reassign(run, moves, "--cancel", "--reassignment-json-file", file(("b", 0, [1])))
    assert ran == (
        0,
        "None of the specified partition reassignments are active.\n"
        "None of the specified partition moves are active.\n"
        "Clearing broker-level throttles on brokers 1,2,3\n"
        "Clearing topic-level throttles on topic b\n",
        "",
    )


def test_list(run: Run, moves: Moves) -> None:
    assert reassign(run, moves, "--list") == (0, "No partition reassignments found.\n", "")
    moves.under_way = {
        ("b", 0): ((1, 2, 3), (2, 3), ()),
        ("a", 10): ((2, 1), (2,), (1,)),
        ("a", 9): ((2, 1), (), (1,)),
    }
    assert reassign(run, moves, "--list").out == (
        "Current partition reassignments:\n"
        "a-9: replicas: 2,1. removing: 1.\n"
        "a-10: replicas: 2,1. adding: 2. removing: 1.\n"
        "b-0: replicas: 1,2,3. adding: 2,3.\n"
    )


def test_the_active_one_of_the_controllers_is_found(run: Run, moves: Moves, file: Any) -> None:
    standby = FakeBroker()
    standby.answer(
        list_wire.ListPartitionReassignmentsRequest,
        lambda request: list_wire.ListPartitionReassignmentsResponse(
            error_code=Error.NOT_CONTROLLER, topics=()
        ),
    )
    moves.under_way = {("a", 0): ((2, 1), (2,), (1,))}
    controllers = ("--bootstrap-controller", f"{standby.address},{moves.broker.address}")
    ran = run("reassign-partitions", *controllers, "--list")
    assert (ran.code, ran.err) == (0, "")
    assert "a-0: replicas: 2,1." in ran.out

    path = file(("a", 0, [2]))
    ran = run("reassign-partitions", *controllers, "--cancel", "--reassignment-json-file", path)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        "Successfully cancelled partition reassignment for: a-0\n"
        "None of the specified partition moves are active.\n"
        "Clearing broker-level throttles on broker 2\n"
        "Clearing topic-level throttles on topic a\n"
    )
    assert moves.cleared() == ["2", "a"]

    lonely = ("--bootstrap-controller", standby.address, "--timeout", "300", "--list")
    ran = run("reassign-partitions", *lonely)
    assert ran.code == 1
    assert "no controller is active within 0.3 s" in ran.err
    standby.close()


def generate(run: Run, moves: Moves, tmp_path: Path, brokers: str, *more: str) -> Ran:
    path = tmp_path / "topics.json"
    path.write_text('{"topics": [{"topic": "a"}]}')
    arguments = ("--topics-to-move-json-file", str(path), "--broker-list", brokers, *more)
    return reassign(run, moves, "--generate", *arguments)


def test_generate_spreads_over_the_given_brokers(run: Run, moves: Moves, tmp_path: Path) -> None:
    ran = generate(run, moves, tmp_path, "2,3")
    title, current, blank, second, proposed = ran.out.splitlines()
    assert (ran.code, blank) == (0, "")
    assert title == "Current partition replica assignment"
    assert second == "Proposed partition reassignment configuration"
    assert [each["replicas"] for each in json.loads(current)["partitions"]] == [[1], [1]]
    parts = json.loads(proposed)["partitions"]
    assert [(each["topic"], each["partition"]) for each in parts] == [("a", 0), ("a", 1)]
    assert sorted(each["replicas"] for each in parts) == [[2], [3]]
    assert not moves.broker.requests(alter_wire.AlterPartitionReassignmentsRequest)


def test_generate_wants_all_racks_or_none(run: Run, moves: Moves, tmp_path: Path) -> None:
    moves.broker.others = {2: "north", 3: None}
    ran = generate(run, moves, tmp_path, "2,3")
    assert ran.code == 1
    assert "Not all brokers have rack information. Add --disable-rack-aware" in ran.err
    assert generate(run, moves, tmp_path, "2,3", "--disable-rack-aware").code == 0
    assert generate(run, moves, tmp_path, "1,3").code == 0


@pytest.mark.parametrize(
    ("brokers", "code", "message"),
    [
        ("1,x", 2, "--broker-list 1,x: expected broker ids, as 1,2,3"),
        ("1,2,1", 1, "Broker list contains duplicate entries: 1"),
        ("1,4", 1, "Unknown broker id 4: expected live ones, some of 1,2,3"),
    ],
)
def test_broker_lists(
    run: Run, moves: Moves, tmp_path: Path, brokers: str, code: int, message: str
) -> None:
    ran = generate(run, moves, tmp_path, brokers)
    assert ran.code == code
    assert ran.err.startswith(f"ottla reassign-partitions: {message}")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "expected exactly one of --generate, --execute, --verify, --cancel, --list"),
        (("--list", "--verify"), 2, "expected exactly one of"),
        (("--execute",), 2, "--reassignment-json-file is required with --execute"),
        (("--generate", "--broker-list", "1"), 2, "--topics-to-move-json-file is required"),
        (("--list", "--bootstrap-controller", "x:1"), 2, "only one of --bootstrap-server and"),
        (("--list", "--additional"), 2, "--additional cannot be used with --list"),
        (("--verify", "--throttle", "5"), 2, "--throttle cannot be used with --verify"),
        (
            ("--execute", "--reassignment-json-file", "f", "--throttle", "5"),
            1,
            "--throttle is not supported: brokers enforce no quotas so far",
        ),
        (
            ("--execute", "--reassignment-json-file", "f", "--replica-alter-log-dirs-throttle=0"),
            1,
            "--replica-alter-log-dirs-throttle is not supported",
        ),
        (
            ("--execute", "--reassignment-json-file", "missing.json", "--throttle", "-1"),
            1,
            "missing.json: no such file or directory",
        ),
    ],
)
def test_usage(run: Run, moves: Moves, arguments: tuple[str, ...], code: int, message: str) -> None:
    ran = reassign(run, moves, *arguments)
    assert ran.code == code
    assert ran.err.startswith(f"ottla reassign-partitions: {message}")
