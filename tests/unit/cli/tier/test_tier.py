"""`ottla tier describe` against a fake broker: requests, table and JSON.

Method: answers made by hand; whole lines are compared, since people and programs read them.
"""

import json
from dataclasses import replace

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid, uuid_text
from ottla.cli.tier.tier_text import bar, size_text
from ottla.controller.disabling.acknowledgements import Reason
from ottla.wire.messages import describe_remote_log as wire
from ottla.wire.messages import describe_topic_tiering as tiering_wire
from tests.unit.cli.conftest import Ran, Run
from tests.unit.client.fake_broker import FakeBroker, topic

ID = Uuid(bytes(range(16)))


def row(**changes: object) -> wire.RemoteLogPartition:
    values: dict[str, object] = {
        "partition": 0,
        "error_code": 0,
        "leader_epoch": 4,
        "log_start_offset": 0,
        "remote_end_offset": 599,
        "local_start_offset": 400,
        "log_end_offset": 1000,
        "high_watermark": 990,
        "last_stable_offset": 990,
        "remote_bytes": 2048,
        "remote_segments": 3,
        "local_bytes": 100,
        "lag_bytes": 50,
        "lag_segments": 2,
    }
    return wire.RemoteLogPartition(**(values | changes))  # type: ignore[arg-type]


def tiered(*rows: wire.RemoteLogPartition, state: int = 1) -> wire.RemoteLogTopic:
    return wire.RemoteLogTopic(
        name="t", topic_id=ID, state=state, tiered_epoch=1, remote_floor_epoch=0, partitions=rows
    )


def ask(run: Run, broker: FakeBroker, *words: str, found: wire.RemoteLogTopic) -> Ran:
    broker.topics = [topic("t", partitions=len(found.partitions))]
    answer = wire.DescribeRemoteLogResponse(error_code=0, topics=(found,))
    broker.answer(wire.DescribeRemoteLogRequest, lambda _: answer)
    return run("tier", "describe", "--bootstrap-server", broker.address, *words)


def test_each_partition_has_a_line(run: Run, broker: FakeBroker) -> None:
    ran = ask(run, broker, found=tiered(row(), row(partition=1, last_error="store down")))
    assert ran.code == 0, ran.err
    head, titles, first, second = ran.out.splitlines()
    assert head == f"t ({uuid_text(ID)}): ENABLED, tiered epoch 1"
    assert titles.split()[:3] == ["PARTITION", "LEADER", "TIERS"]
    assert "[========####--------]  0..599  400..999  990" in first
    assert first.endswith("2.0 KiB      100 B       2 (50 B)  -")
    assert second.endswith("store down")


def test_json_has_null_for_what_there_is_not(run: Run, broker: FakeBroker) -> None:
    found = tiered(row(remote_end_offset=-1, remote_segments=-1, remote_bytes=-1))
    ran = ask(run, broker, "--json", found=found)
    (described,) = json.loads(ran.out)["topics"]
    assert (described["state"], described["policy"], described["tiered_epoch"]) == (
        "ENABLED",
        None,
        1,
    )
    (partition,) = described["partitions"]
    assert partition["remote_end"] is partition["remote_segments"] is None
    assert (partition["local_start"], partition["lag_segments"]) == (400, 2)


@pytest.mark.parametrize(
    ("state", "policy", "expected"),
    [(2, 1, "DISABLING (retain)"), (3, 2, "DISABLED (delete)"), (1, 0, "ENABLED")],
)
def test_a_disabled_topic_has_its_policy(
    run: Run, broker: FakeBroker, state: int, policy: int, expected: str
) -> None:
    found = replace(tiered(row(), state=state), policy=policy)
    head = ask(run, broker, found=found).out.splitlines()[0]
    assert head == f"t ({uuid_text(ID)}): {expected}, tiered epoch 1"


UNKNOWN = (-1, -1, -1)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (UNKNOWN, UNKNOWN, ""),
        ((5, 0, 0), UNKNOWN, ": 5 remote segments left in the store"),
        (
            (1, 0, 0),
            (0, 15, 59_001),
            ": 1 remote segment left in the store, 15 remote segments deleted, waiting up to 60 s"
            " for late writes",
        ),
        (
            (0, 1, 900),
            (0, 0, 0),
            ": 1 remote segment deleted, waiting up to 1 s for late writes",
        ),
        ((0, 0, 0), (0, 0, 0), ": waiting for the last reports of brokers"),
    ],
)
def test_a_pending_purge_says_what_it_waits_for(
    run: Run,
    broker: FakeBroker,
    first: tuple[int, int, int],
    second: tuple[int, int, int],
    expected: str,
) -> None:
    names = "purge_segments_left", "purge_segments_deleted", "purge_late_writes_ms"
    rows = [
        row(partition=number, **dict(zip(names, each, strict=True)))
        for number, each in enumerate((first, second))
    ]
    found = replace(tiered(*rows, state=3), policy=2, purge_pending=True)
    head = ask(run, broker, found=found).out.splitlines()[0]
    assert head.endswith(f"DISABLED (delete), tiered epoch 1, purge pending{expected}")
    (described,) = json.loads(ask(run, broker, "--json", found=found).out)["topics"]
    assert described["purge_pending"] is True
    assert [each["purge_segments_left"] for each in described["partitions"]] == [
        None if each < 0 else each for each in (first[0], second[0])
    ]


def controller_says(
    broker: FakeBroker, *answers: tiering_wire.DescribedTopicTiering | Error
) -> None:
    """Answer DescribeTopicTiering with these, one after the other; the last one repeatedly."""
    left = list(answers)

    def respond(_: object) -> tiering_wire.DescribeTopicTieringResponse:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Error):
            return tiering_wire.DescribeTopicTieringResponse(error_code=answer)
        return tiering_wire.DescribeTopicTieringResponse(error_code=0, topics=(answer,))

    broker.answer(tiering_wire.DescribeTopicTieringRequest, respond)


def missing(
    broker_id: int, reason: int, error: int = 0, *partitions: int, is_leader: bool = False
) -> tiering_wire.MissingAcknowledgement:
    return tiering_wire.MissingAcknowledgement(
        broker_id=broker_id, is_leader=is_leader, reason=reason, error=error, partitions=partitions
    )


def state_of(
    state: int, *missing: tiering_wire.MissingAcknowledgement, pending: bool = False
) -> tiering_wire.DescribedTopicTiering:
    return tiering_wire.DescribedTopicTiering(
        name="t", topic_id=ID, state=state, tiered_epoch=2, policy=2, remote_floor_epoch=1,
        purge_pending=pending, missing=missing,
    )  # fmt: skip


IN_PROGRESS = Error.TIERED_STORAGE_DISABLEMENT_IN_PROGRESS
DISABLING, DISABLED = 2, 3


def test_who_has_not_acknowledged_and_why(run: Run, broker: FakeBroker) -> None:
    absent = [
        missing(-1, Reason.NO_LEADER, 0, 7),
        missing(1, Reason.FAILED, IN_PROGRESS, 0, is_leader=True),
        missing(2, Reason.FAILED, IN_PROGRESS, 0, 1),
        missing(2, Reason.FAILED, Error.KAFKA_STORAGE_ERROR, *range(2, 14)),
        missing(3, Reason.NOT_ANSWERED, 0, 0, 1),
        missing(4, Reason.OLDER_VERSION, 0, 0),
    ]
    controller_says(broker, state_of(DISABLING, *absent))
    ran = ask(run, broker, found=tiered(row()))
    head, *lines = ran.out.splitlines()
    # The leader has not got the state yet; the controller's counts.
    assert head == f"t ({uuid_text(ID)}): DISABLING (delete), tiered epoch 2"
    assert lines[:6] == [
        "  waiting for partition 7: no live leader",
        "  waiting for broker 1 as leader of partition 0: in progress: its fence in"
        " __remote_log_metadata is not replayed yet",
        "  waiting for broker 2 as follower of partitions 0, 1: in progress: it does not have its"
        " leader's local log yet",
        "  waiting for broker 2 as follower of partitions 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 2"
        " more: last answer KAFKA_STORAGE_ERROR; it is asked again",
        "  waiting for broker 3 as follower of partitions 0, 1: no answer yet",
        "  waiting for broker 4 as follower of partition 0: runs an older version; start it with a"
        " newer one, or stop it",
    ]
    (described,) = json.loads(ask(run, broker, "--json", found=tiered(row())).out)["topics"]
    assert described["state"] == "DISABLING"
    assert [each["broker"] for each in described["missing"]] == [None, 1, 2, 2, 3, 4]


def test_without_the_controller_the_leaders_tell_the_state(run: Run, broker: FakeBroker) -> None:
    controller_says(broker, Error.NOT_CONTROLLER)
    ran = ask(run, broker, found=tiered(row()))
    assert ran.code == 0
    assert ran.out.splitlines()[0].endswith("ENABLED, tiered epoch 1")
    assert "who has not acknowledged a state is not known" in ran.err


def test_wait_ends_when_the_topic_is_disabled(run: Run, broker: FakeBroker) -> None:
    waiting = state_of(DISABLING, missing(3, Reason.NOT_ANSWERED, 0, 0))
    controller_says(
        broker, Error.NOT_CONTROLLER, waiting, waiting, state_of(DISABLED, pending=True)
    )
    ran = ask(run, broker, "--topic", "t", "--wait", found=tiered(row()))
    assert ran.code == 0, ran.err
    assert "DISABLED (delete), tiered epoch 2, purge pending" in ran.out
    assert ran.err.count("waiting for t to be DISABLED: broker 3 as follower of partition 0") == 1


def test_wait_purged_waits_for_the_purge_too(run: Run, broker: FakeBroker) -> None:
    controller_says(
        broker, state_of(DISABLING), state_of(DISABLED, pending=True), state_of(DISABLED)
    )
    ran = ask(run, broker, "--wait-purged", found=tiered(row()))
    assert ran.code == 0, ran.err
    assert "purge pending" not in ran.out
    assert "waiting for the purge of t" in ran.err


def test_a_partition_without_a_leader_is_named_while_it_is_not_purged(
    run: Run, broker: FakeBroker
) -> None:
    pending = replace(
        state_of(DISABLED, pending=True),
        purge_partitions=3, purge_partitions_left=2, purge_leaderless=(1, 2),
    )  # fmt: skip
    controller_says(broker, pending)
    found = replace(tiered(row(), state=3), policy=2, purge_pending=True)
    lines = ask(run, broker, found=found).out.splitlines()
    assert lines[1] == "  waiting for partitions 1, 2: no live leader, who purges"
    (described,) = json.loads(ask(run, broker, "--json", found=found).out)["topics"]
    assert described["purge_leaderless"] == [1, 2]
    ran = ask(run, broker, "--wait-purged", "--timeout", "0.3", found=found)
    assert "2 of 3 partitions left; partitions 1, 2: no live leader, who purges" in ran.err


def test_a_topic_without_any_leader_is_shown_as_the_controller_knows_it(
    run: Run, broker: FakeBroker
) -> None:
    controller_says(broker, replace(state_of(DISABLED, pending=True), purge_leaderless=(0,)))
    broker.answer(wire.DescribeRemoteLogRequest, lambda _: None)
    led = topic("t")
    [partition] = led.partitions
    broker.topics = [replace(led, partitions=(replace(partition, leader_id=-1),))]
    ran = run("tier", "describe", "--bootstrap-server", broker.address)
    assert ran.code == 0, ran.err
    head, waiting, _, line = ran.out.splitlines()
    assert head == f"t ({uuid_text(ID)}): DISABLED (delete), tiered epoch 2, purge pending"
    assert waiting == "  waiting for partition 0: no live leader, who purges"
    assert line.split()[:2] == ["0", "-"]


def test_wait_ends_with_its_timeout(run: Run, broker: FakeBroker) -> None:
    controller_says(broker, state_of(DISABLING, missing(3, Reason.NOT_ANSWERED, 0, 0)))
    ran = ask(run, broker, "--wait", "--timeout", "0.3", found=tiered(row()))
    assert (ran.code, ran.out) == (1, "")
    assert "not finished after 0.3 s: waiting for t to be DISABLED: broker 3" in ran.err


def test_a_partition_that_fails_has_its_reason(run: Run, broker: FakeBroker) -> None:
    failed = wire.RemoteLogPartition(
        partition=0, error_code=Error.NOT_LEADER_OR_FOLLOWER, error_message="moved"
    )
    assert ask(run, broker, found=tiered(failed)).out.splitlines()[-1].endswith("moved")


def test_topics_without_tiers_are_listed_only_if_named(run: Run, broker: FakeBroker) -> None:
    found = tiered(row(), state=0)
    assert ask(run, broker, found=found).out == "No topic has remote.storage.enable=true.\n"
    named = ask(run, broker, "--topic", "t", found=found)
    assert named.out.splitlines()[0] == f"t ({uuid_text(ID)}): not tiered"


def test_an_unknown_topic_is_named(run: Run, broker: FakeBroker) -> None:
    ran = ask(run, broker, "--topic", "nope", found=tiered(row()))
    assert (ran.code, ran.out) == (1, "")
    assert "no topic matches 'nope'" in ran.err


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "[====##----]"),
        ({"remote_end_offset": -1, "local_start_offset": 0}, "[----------]"),
        ({"remote_end_offset": 999, "local_start_offset": 1000}, "[==========]"),
        ({"log_start_offset": 1000}, "[          ]"),
    ],
)
def test_the_bar_shows_which_tier_has_what(changes: dict[str, object], expected: str) -> None:
    assert bar(row(**changes), 10) == expected


def test_sizes_have_their_largest_unit() -> None:
    assert [size_text(each) for each in (0, 1023, 1024, 3 << 20, 5 << 40)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "3.0 MiB",
        "5.0 TiB",
    ]
