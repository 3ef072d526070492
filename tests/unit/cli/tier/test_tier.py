"""`ottla tier describe` against a fake broker: requests, table and JSON.

Method: answers made by hand; whole lines are compared, since people and programs read them.
"""

import json

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid, uuid_text
from ottla.cli.tier.tier_text import bar, size_text
from ottla.wire.messages import describe_remote_log as wire
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
    ("state", "policy", "pending", "expected"),
    [
        (2, 1, False, "DISABLING (retain), tiered epoch 2"),
        (2, 2, True, "DISABLING (delete), tiered epoch 2, purge pending (5 remote segments left)"),
        (3, 2, False, "DISABLED (delete), tiered epoch 2"),
        (1, 0, True, "ENABLED, tiered epoch 2, purge pending (5 remote segments left)"),
    ],
)
def test_a_disabled_topic_has_its_policy_and_its_purge(
    run: Run, broker: FakeBroker, state: int, policy: int, pending: bool, expected: str
) -> None:
    rows = row(deleting_segments=5), row(partition=1), row(partition=2, deleting_segments=0)
    found = wire.RemoteLogTopic(
        name="t",
        topic_id=ID,
        state=state,
        tiered_epoch=2,
        policy=policy,
        remote_floor_epoch=policy // 2,
        purge_pending=pending,
        partitions=rows,
    )
    head = ask(run, broker, found=found).out.splitlines()[0]
    assert head == f"t ({uuid_text(ID)}): {expected}"
    (described,) = json.loads(ask(run, broker, "--json", found=found).out)["topics"]
    assert described["purge_pending"] is pending
    assert [each["deleting_segments"] for each in described["partitions"]] == [5, None, 0]


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
