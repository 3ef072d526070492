"""`ottla consumer-groups` against a fake broker: what real brokers seldom say."""

from dataclasses import replace
from typing import Any

from ottla.base.errors import Error
from ottla.wire.messages import delete_groups as delete_wire
from ottla.wire.messages import describe_groups as describe_wire
from ottla.wire.messages import list_groups as list_wire
from ottla.wire.messages import list_offsets as offsets_wire
from ottla.wire.messages import offset_fetch as fetch_wire
from tests.unit.cli.conftest import Ran, Run
from tests.unit.client.fake_broker import FakeBroker, topic


def groups(run: Run, broker: FakeBroker, *arguments: str) -> Ran:
    return run("consumer-groups", "--bootstrap-server", broker.address, *arguments)


def describe_as(state: str, code: int = 0) -> Any:
    def answer(request: describe_wire.DescribeGroupsRequest) -> Any:
        return describe_wire.DescribeGroupsResponse(
            groups=tuple(
                describe_wire.DescribedGroup(
                    error_code=code,
                    group_id=name,
                    group_state=state,
                    protocol_type="consumer",
                    protocol_data="range",
                    members=(),
                )
                for name in request.groups
            )
        )

    return answer


def commit_as(*offsets: tuple[str, int, int]) -> Any:
    return lambda _: fetch_wire.OffsetFetchResponse(
        topics=tuple(
            fetch_wire.OffsetFetchResponseTopic(
                name=name,
                partitions=(
                    fetch_wire.OffsetFetchResponsePartition(
                        partition_index=partition,
                        committed_offset=offset,
                        metadata="",
                        error_code=0,
                    ),
                ),
            )
            for name, partition, offset in offsets
        )
    )


def end_at(offset: int) -> Any:
    return lambda request: offsets_wire.ListOffsetsResponse(
        topics=tuple(
            offsets_wire.ListOffsetsTopicResponse(
                name=each.name,
                partitions=tuple(
                    offsets_wire.ListOffsetsPartitionResponse(
                        partition_index=partition.partition_index, error_code=0, offset=offset
                    )
                    for partition in each.partitions
                ),
            )
            for each in request.topics
        )
    )


def test_offsets_of_a_deleted_topic_have_no_log_end(run: Run, broker: FakeBroker) -> None:
    broker.topics = [topic("here")]
    broker.answer(describe_wire.DescribeGroupsRequest, describe_as("Stable"))
    broker.answer(fetch_wire.OffsetFetchRequest, commit_as(("gone", 0, 3), ("here", 0, 4)))
    broker.answer(offsets_wire.ListOffsetsRequest, end_at(9))
    ran = groups(run, broker, "--describe", "--group", "g")
    assert [line.split()[1:6] for line in ran.out.splitlines()[2:]] == [
        ["gone", "0", "3", "-", "-"],
        ["here", "0", "4", "9", "5"],
    ]


def test_partitions_without_a_leader_have_no_log_end(run: Run, broker: FakeBroker) -> None:
    """One has no leader, one a leader that is down, and one is not in the topic any more."""
    found = topic("t", 3)
    leaders = (1, -1, 7)
    broker.topics = [
        replace(
            found,
            partitions=tuple(
                replace(each, leader_id=leader)
                for each, leader in zip(found.partitions, leaders, strict=True)
            ),
        )
    ]
    broker.answer(describe_wire.DescribeGroupsRequest, describe_as("Stable"))
    committed = commit_as(*(("t", partition, 4) for partition in range(4)))
    broker.answer(fetch_wire.OffsetFetchRequest, committed)
    broker.answer(offsets_wire.ListOffsetsRequest, end_at(9))
    ran = groups(run, broker, "--describe", "--group", "g")
    assert ran.code == 0
    assert [line.split()[1:6] for line in ran.out.splitlines()[2:]] == [
        ["t", "0", "4", "9", "5"],
        ["t", "1", "4", "-", "-"],
        ["t", "2", "4", "-", "-"],
        ["t", "3", "4", "-", "-"],
    ]


def test_a_rebalance_prints_a_warning(run: Run, broker: FakeBroker) -> None:
    broker.answer(describe_wire.DescribeGroupsRequest, describe_as("PreparingRebalance"))
    ran = groups(run, broker, "--describe", "--group", "g", "--state")
    assert ran.err == "\nWarning: Consumer group 'g' is rebalancing.\n"
    assert ran.out.splitlines()[2].split()[-3:] == ["range", "PreparingRebalance", "0"]


def test_a_group_that_is_not_there(run: Run, broker: FakeBroker) -> None:
    expected = (1, "", "ottla consumer-groups: Consumer group 'g' does not exist.\n")
    broker.answer(describe_wire.DescribeGroupsRequest, describe_as("Dead"))
    assert groups(run, broker, "--describe", "--group", "g") == expected
    broker.answer(
        describe_wire.DescribeGroupsRequest, describe_as("", int(Error.GROUP_ID_NOT_FOUND))
    )
    assert groups(run, broker, "--describe", "--group", "g") == expected


def test_groups_of_other_protocols_are_not_listed(run: Run, broker: FakeBroker) -> None:
    def listed(_: list_wire.ListGroupsRequest) -> Any:
        kinds = (("b", "consumer"), ("connect-cluster", "connect"), ("a", ""))
        return list_wire.ListGroupsResponse(
            error_code=0,
            groups=tuple(
                list_wire.ListedGroup(
                    group_id=name, protocol_type=kind, group_state="Empty", group_type="classic"
                )
                for name, kind in kinds
            ),
        )

    broker.answer(list_wire.ListGroupsRequest, listed)
    assert groups(run, broker, "--list").out == "a\nb\n"
    ran = groups(run, broker, "--list", "--type", "--state", "EMPTY")
    assert [line.split() for line in ran.out.splitlines()] == [
        ["GROUP", "TYPE", "STATE"],
        ["a", "Classic", "Empty"],
        ["b", "Classic", "Empty"],
    ]
    assert broker.requests(list_wire.ListGroupsRequest)[-1].states_filter == ("Empty",)


def test_some_groups_cannot_be_deleted(run: Run, broker: FakeBroker) -> None:
    def deleted(request: delete_wire.DeleteGroupsRequest) -> Any:
        return delete_wire.DeleteGroupsResponse(
            results=tuple(
                delete_wire.DeletableGroupResult(
                    group_id=name, error_code=Error.NON_EMPTY_GROUP if name == "busy" else 0
                )
                for name in request.groups_names
            )
        )

    broker.answer(delete_wire.DeleteGroupsRequest, deleted)
    ran = groups(run, broker, "--delete", "--group", "idle", "--group", "busy")
    assert ran == (
        1,
        "\nError: Deletion of some consumer groups failed:\n"
        "* Group 'busy' could not be deleted due to: The group has members. (NON_EMPTY_GROUP)\n"
        "\nThese consumer groups were deleted successfully: 'idle'\n",
        "ottla consumer-groups: 1 of 2 groups were not deleted\n",
    )


def test_nothing_to_shift_from(run: Run, broker: FakeBroker) -> None:
    broker.topics = [topic("t")]
    broker.answer(describe_wire.DescribeGroupsRequest, describe_as("Empty"))
    broker.answer(fetch_wire.OffsetFetchRequest, commit_as())
    ran = groups(run, broker, "--reset-offsets", "--group", "g", "--topic", "t", "--shift-by",
                 "-1", "--dry-run")  # fmt: skip
    assert (ran.code, ran.err) == (
        1,
        "ottla consumer-groups: partition t-0 has no committed offset to shift from\n",
    )


def test_no_record_as_young_falls_back_to_the_end(run: Run, broker: FakeBroker) -> None:
    def offset_at(request: offsets_wire.ListOffsetsRequest) -> Any:
        asked = request.topics[0].partitions[0].timestamp
        return end_at(9 if asked == -1 else -1)(request)

    broker.topics = [topic("t")]
    broker.answer(describe_wire.DescribeGroupsRequest, describe_as("Empty"))
    broker.answer(fetch_wire.OffsetFetchRequest, commit_as())
    broker.answer(offsets_wire.ListOffsetsRequest, offset_at)
    ran = groups(run, broker, "--reset-offsets", "--group", "g", "--topic", "t",
                 "--to-datetime", "2099-01-01T00:00:00.000", "--dry-run")  # fmt: skip
    assert ran.out.startswith("\nWarn: Partition 0 from topic t has no record of that time")
    assert ran.out.splitlines()[-1].split() == ["g", "t", "0", "9"]
