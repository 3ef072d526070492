"""`ottla log-dirs` prints kafka-log-dirs.sh's JSON."""

import json
from typing import Any

from ottla.wire.messages import describe_log_dirs as wire
from tests.unit.cli.conftest import Run
from tests.unit.client.fake_broker import FakeBroker


def described(_: wire.DescribeLogDirsRequest) -> Any:
    def topic(name: str) -> wire.DescribeLogDirsTopic:
        return wire.DescribeLogDirsTopic(
            name=name,
            partitions=(
                wire.DescribeLogDirsPartition(
                    partition_index=0, partition_size=70, offset_lag=0, is_future_key=False
                ),
            ),
        )

    return wire.DescribeLogDirsResponse(
        results=(
            wire.DescribeLogDirsResult(
                error_code=0, log_dir="/data", topics=(topic("b"), topic("a"))
            ),
            wire.DescribeLogDirsResult(error_code=56, log_dir="/broken", topics=()),
        )
    )


def test_json(run: Run, broker: FakeBroker) -> None:
    broker.answer(wire.DescribeLogDirsRequest, described)
    ran = run("log-dirs", "--bootstrap-server", broker.address, "--describe", "--topic-list", "b")
    lines = ran.out.splitlines()
    assert lines[:2] == [
        "Querying brokers for log directories information",
        "Received log directory information from brokers 1",
    ]
    shown = {"partition": "b-0", "size": 70, "offsetLag": 0, "isFuture": False}
    content = json.loads(lines[2])
    broken = content["brokers"][0]["logDirs"][1]
    assert broken.pop("error").endswith("(KAFKA_STORAGE_ERROR)")
    assert content == {
        "version": 1,
        "brokers": [
            {
                "broker": 1,
                "logDirs": [
                    {"partitions": [shown], "error": None, "logDir": "/data"},
                    {"partitions": [], "logDir": "/broken"},
                ],
            }
        ],
    }


def test_unknown_brokers(run: Run, broker: FakeBroker) -> None:
    ran = run(
        "log-dirs", "--bootstrap-server", broker.address, "--describe", "--broker-list", "1,7,9"
    )
    assert (ran.code, ran.err) == (
        1,
        "ottla log-dirs: no live broker has the id 7,9: expected some of 1\n",
    )


def test_describe_is_required(run: Run) -> None:
    ran = run("log-dirs", "--bootstrap-server", "x:1")
    assert (ran.code, ran.err.splitlines()[0]) == (2, "ottla log-dirs: --describe is required")
