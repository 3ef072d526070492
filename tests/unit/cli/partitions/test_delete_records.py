"""`ottla delete-records`: its JSON, its requests to leaders and its output."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.cli.errors import CommandError
from ottla.cli.partitions.delete_records import parse_offsets
from ottla.wire.messages import delete_records as wire
from tests.unit.cli.conftest import Ran, Run
from tests.unit.client.fake_broker import FakeBroker, topic

GOOD = '{"partitions": [{"topic": "t", "partition": 1, "offset": 5}, '
GOOD += '{"topic": "t", "partition": 0, "offset": -1}], "version": 1}'


def test_offsets() -> None:
    assert parse_offsets(GOOD) == {("t", 1): 5, ("t", 0): -1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", 'expected an object with the field "partitions", a list'),
        ('{"version": 1}', 'expected an object with the field "partitions", a list'),
        ('{"partitions": [], "version": 2}', "version 2: expected 1"),
        ('{"partitions": [{"topic": "t"}]}', "expected {"),
        ('{"partitions": [7]}', '7: expected {"topic": text'),
        ('{"partitions": [{"topic": "t", "partition": 0, "offset": -2}]}', "number from -1"),
        ('{"partitions": [{"topic": "t", "partition": 0, "offset": 1e99}]}', "expected {"),
        (
            f'{{"partitions": [{{"topic": "t", "partition": 0, "offset": {2**63}}}]}}',
            "expected {",
        ),
        (
            f'{{"partitions": [{{"topic": "t", "partition": {2**31}, "offset": 1}}]}}',
            "expected {",
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "offset": 1}, '
            '{"topic": "t", "partition": 0, "offset": 2}]}',
            "partition t-0 is listed twice: expected it once",
        ),
    ],
)
def test_bad_json(text: str, message: str) -> None:
    with pytest.raises(CommandError) as caught:
        parse_offsets(text)
    assert message in str(caught.value)


def delete_good(run: Run, broker: FakeBroker, directory: Path, *options: str) -> Ran:
    """Run the command with GOOD as its file."""
    file = directory / "cut.json"
    file.write_text(GOOD)
    server = ("--bootstrap-server", broker.address)
    return run("delete-records", *server, "--offset-json-file", str(file), *options)


def test_watermarks_and_errors(run: Run, broker: FakeBroker, tmp_path: Path) -> None:
    def delete(request: wire.DeleteRecordsRequest) -> Any:
        return wire.DeleteRecordsResponse(
            topics=tuple(
                wire.DeleteRecordsTopicResult(
                    name=each.name,
                    partitions=tuple(
                        wire.DeleteRecordsPartitionResult(
                            partition_index=partition.partition_index,
                            low_watermark=5 if partition.partition_index else -1,
                            error_code=0 if partition.partition_index else 1,
                        )
                        for partition in each.partitions
                    ),
                )
                for each in request.topics
            )
        )

    broker.topics = [topic("t", 2)]
    broker.answer(wire.DeleteRecordsRequest, delete)
    ran = delete_good(run, broker, tmp_path)
    assert ran == (
        1,
        "Executing records delete operation\n"
        "Records delete operation completed:\n"
        "partition: t-0\terror: The offset lies outside of the partition's log. "
        "(OFFSET_OUT_OF_RANGE)\n"
        "partition: t-1\tlow_watermark: 5\n",
        "ottla delete-records: 1 of 2 partitions failed: see above\n",
    )


def test_what_was_deleted_is_shown_where_another_leader_fails(
    run: Run, broker: FakeBroker, tmp_path: Path
) -> None:
    """Broker 2, which leads partition 1, ends the connection."""

    def delete(request: wire.DeleteRecordsRequest) -> Any:
        ((name, partition),) = [(t.name, p.partition_index) for t in request.topics
                                for p in t.partitions]  # fmt: skip
        if partition == 1:
            return None
        result = wire.DeleteRecordsPartitionResult(
            partition_index=partition, low_watermark=7, error_code=0
        )
        return wire.DeleteRecordsResponse(
            topics=(wire.DeleteRecordsTopicResult(name=name, partitions=(result,)),)
        )

    found = topic("t", 2)
    first, second = found.partitions
    broker.topics = [replace(found, partitions=(first, replace(second, leader_id=2)))]
    broker.others = {2: None}
    broker.answer(wire.DeleteRecordsRequest, delete)
    ran = delete_good(run, broker, tmp_path)
    assert ran == (
        1,
        "Executing records delete operation\n"
        "Records delete operation completed:\n"
        "partition: t-0\tlow_watermark: 7\n"
        f"partition: t-1\terror: {broker.address}: the peer closed the connection "
        "(waiting for the response to DeleteRecords)\n",
        "ottla delete-records: 1 of 2 partitions failed: see above\n",
    )


class Leaders:
    """What leaders answer: in turn the `codes` of a partition, then low watermark 7."""

    def __init__(self, **codes: list[Error]) -> None:
        self.codes = codes
        self.asked: list[tuple[str, int]] = []

    def __call__(self, request: wire.DeleteRecordsRequest) -> wire.DeleteRecordsResponse:
        return wire.DeleteRecordsResponse(
            topics=tuple(
                wire.DeleteRecordsTopicResult(
                    name=each.name,
                    partitions=tuple(
                        self._result(each.name, partition.partition_index)
                        for partition in each.partitions
                    ),
                )
                for each in request.topics
            )
        )

    def _result(self, topic: str, partition: int) -> wire.DeleteRecordsPartitionResult:
        self.asked.append((topic, partition))
        codes = self.codes.get(f"{topic}_{partition}")
        code = codes.pop(0) if codes else Error.NONE
        return wire.DeleteRecordsPartitionResult(
            partition_index=partition, low_watermark=-1 if code else 7, error_code=code
        )


def test_a_partition_without_a_leader_does_not_hold_up_the_others(
    run: Run, broker: FakeBroker, tmp_path: Path
) -> None:
    found = topic("t", 2)
    first, second = found.partitions
    broker.topics = [replace(found, partitions=(first, replace(second, leader_id=-1)))]
    leaders = Leaders()
    broker.answer(wire.DeleteRecordsRequest, leaders)
    ran = delete_good(run, broker, tmp_path, "--timeout", "0.5")
    assert ran == (
        1,
        "Executing records delete operation\n"
        "Records delete operation completed:\n"
        "partition: t-0\tlow_watermark: 7\n"
        "partition: t-1\terror: No leader is known for this partition at the moment. "
        "(LEADER_NOT_AVAILABLE)\n",
        "ottla delete-records: 1 of 2 partitions failed: see above\n",
    )
    assert leaders.asked == [("t", 0)]


def test_what_a_former_leader_refuses_is_asked_for_again(
    run: Run, broker: FakeBroker, tmp_path: Path
) -> None:
    leaders = Leaders(t_1=[Error.NOT_LEADER_OR_FOLLOWER] * 2)
    broker.topics = [topic("t", 2)]
    broker.answer(wire.DeleteRecordsRequest, leaders)
    ran = delete_good(run, broker, tmp_path)
    assert (ran.code, ran.out.splitlines()[-2:]) == (
        0,
        ["partition: t-0\tlow_watermark: 7", "partition: t-1\tlow_watermark: 7"],
    )
    assert leaders.asked == [("t", 0), ("t", 1), ("t", 1), ("t", 1)]


def test_a_partition_that_the_response_does_not_contain_failed(
    run: Run, broker: FakeBroker, tmp_path: Path
) -> None:
    broker.topics = [topic("t", 2)]
    broker.answer(wire.DeleteRecordsRequest, lambda _: wire.DeleteRecordsResponse(topics=()))
    ran = delete_good(run, broker, tmp_path)
    assert ran.err == "ottla delete-records: 2 of 2 partitions failed: see above\n"


def test_an_unknown_partition_is_named(run: Run, broker: FakeBroker, tmp_path: Path) -> None:
    leaders = Leaders()
    broker.topics = [topic("t", 1)]
    broker.answer(wire.DeleteRecordsRequest, leaders)
    ran = delete_good(run, broker, tmp_path)
    assert ran.out.splitlines()[-2:] == [
        "partition: t-0\tlow_watermark: 7",
        "partition: t-1\terror: This server does not host this topic-partition. "
        "(UNKNOWN_TOPIC_OR_PARTITION)",
    ]
    assert leaders.asked == [("t", 0)]


def test_a_missing_file(run: Run) -> None:
    ran = run("delete-records", "--bootstrap-server", "x:1", "--offset-json-file", "/no/file")
    assert ran == (1, "", "ottla delete-records: /no/file: no such file or directory\n")
