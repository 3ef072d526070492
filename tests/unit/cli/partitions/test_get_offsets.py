"""`ottla get-offsets` prints what kafka-get-offsets.sh prints.

Method: the text is Kafka's, written out; a fake broker answers ListOffsets.
"""

from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.cli.errors import UsageError
from ottla.cli.partitions.get_offsets import TIMES, chooser, in_order, parse_time
from ottla.wire.messages import list_offsets as wire
from tests.unit.cli.conftest import Run
from tests.unit.client.fake_broker import FakeBroker, topic


def serve(broker: FakeBroker) -> None:
    """Three topics; partition 1 of `orders` has no such offset, partition 2 refuses."""
    broker.topics = [topic("orders", 12), topic("bills"), topic("__consumer_offsets")]

    def answer(request: wire.ListOffsetsRequest) -> Any:
        return wire.ListOffsetsResponse(
            topics=tuple(
                wire.ListOffsetsTopicResponse(
                    name=each.name,
                    partitions=tuple(
                        wire.ListOffsetsPartitionResponse(
                            partition_index=number.partition_index,
                            error_code=Error.NOT_LEADER_OR_FOLLOWER
                            if number.partition_index == 2
                            else 0,
                            offset=-1
                            if number.partition_index in (1, 2)
                            else 100 + number.partition_index,
                        )
                        for number in each.partitions
                    ),
                )
                for each in request.topics
            )
        )

    broker.answer(wire.ListOffsetsRequest, answer)


def test_offsets_in_kafkas_order(run: Run, broker: FakeBroker) -> None:
    serve(broker)
    words = ("get-offsets", "--bootstrap-server", broker.address)
    ran = run(*words, "--topic", "orders|bills", "--partitions", "0,1,3,10")
    assert ran == (0, "bills:0:100\norders:0:100\norders:10:110\norders:3:103\n", "")
    (request,) = broker.requests(wire.ListOffsetsRequest)
    assert {p.timestamp for each in request.topics for p in each.partitions} == {-1}
    assert request.replica_id == -1
    ran = run(*words, "--time", "-2", "--topic-partitions", "orders:4")
    assert ran.out == "orders:4:104\n"
    asked = broker.requests(wire.ListOffsetsRequest)[-1]
    assert [p.timestamp for p in asked.topics[0].partitions] == [-2]


def test_failed_partitions_are_skipped_and_reported(run: Run, broker: FakeBroker) -> None:
    serve(broker)
    ran = run("get-offsets", "--bootstrap-server", broker.address, "--topic-partitions", "orders:2")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith(
        "Skip getting offsets for topic-partition orders-2 due to error: "
    )  # fmt: skip
    assert "NOT_LEADER_OR_FOLLOWER" in ran.err


def test_internal_topics(run: Run, broker: FakeBroker) -> None:
    serve(broker)
    words = ("get-offsets", "--bootstrap-server", broker.address, "--partitions", "0")
    assert run(*words).out.splitlines()[0] == "__consumer_offsets:0:100"
    assert "__" not in run(*words, "--exclude-internal-topics").out


def test_nothing_matches(run: Run, broker: FakeBroker) -> None:
    serve(broker)
    ran = run("get-offsets", "--bootstrap-server", broker.address, "--topic", "none")
    assert ran == (
        1,
        "",
        "ottla get-offsets: Could not match any topic-partitions with the specified filters\n",
    )


@pytest.mark.parametrize(
    ("rules", "chosen"),
    [
        ("a", ["a-0", "a-1", "a-2"]),
        ("a:1", ["a-1"]),
        (":1", ["a-1", "b-1"]),
        ("a:", ["a-0", "a-1", "a-2"]),
        ("a:0-2", ["a-0", "a-1"]),
        ("b:1-", ["b-1", "b-2"]),
        (".:-1", ["a-0", "b-0"]),
        ("a:0,b:2", ["a-0", "b-2"]),
        ("a:-", ["a-0", "a-1", "a-2"]),
    ],
)
def test_rules(rules: str, chosen: list[str]) -> None:
    is_chosen = chooser(None, None, rules)
    every = [(name, number) for name in "ab" for number in range(3)]
    assert [f"{name}-{number}" for name, number in every if is_chosen(name, number)] == chosen


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((None, None, "a:x"), "Invalid rule specification: a:x"),
        ((None, None, "a:1:2"), "Invalid rule specification"),
        ((None, None, f"a:{'9' * 5_000}"), "Invalid rule specification"),
        (("a", None, "a:1"), "--topic-partitions cannot be used with --topic or --partitions"),
        ((None, "1,x", None), "--partitions expects a comma separated list"),
    ],
)
def test_wrong_filters(given: tuple[str | None, str | None, str | None], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        chooser(*given)


def test_times() -> None:
    assert [parse_time(name) for name in TIMES] == [-1, -2, -3, -4, -5, -6]
    assert [parse_time(text) for text in ("-1", "LATEST", "1700000000000")] == [
        -1,
        -1,
        1_700_000_000_000,
    ]
    for wrong in ("", "soon", "1.5", "9" * 30):
        with pytest.raises(UsageError, match="Malformed time argument"):
            parse_time(wrong)


def test_order_is_that_of_text() -> None:
    assert in_order([("x", 2), ("x", 10), ("w", 3)]) == [("w", 3), ("x", 10), ("x", 2)]
