"""`ottla consumer-groups` against a fake broker: what real brokers seldom say."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from ottla.base.errors import Error
from ottla.wire.messages import delete_groups as delete_wire
from ottla.wire.messages import describe_groups as describe_wire
from ottla.wire.messages import list_groups as list_wire
from ottla.wire.messages import list_offsets as offsets_wire
from ottla.wire.messages import offset_commit as commit_wire
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


def test_each_group_that_is_not_there_is_named(run: Run, broker: FakeBroker) -> None:
    broker.answer(describe_wire.DescribeGroupsRequest, describe_as("Dead"))
    ran = groups(run, broker, "--describe", "--group", "g", "--group", "h")
    assert (ran.code, ran.err) == (
        1,
        "ottla consumer-groups: Consumer group 'g' does not exist.\n"
        "Consumer group 'h' does not exist.\n",
    )


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


def test_groups_behind_one_that_gets_no_answer_are_deleted_too(
    run: Run, broker: FakeBroker
) -> None:
    def deleted(request: delete_wire.DeleteGroupsRequest) -> Any:
        (name,) = request.groups_names
        if name == "b":
            return None
        result = delete_wire.DeletableGroupResult(group_id=name, error_code=0)
        return delete_wire.DeleteGroupsResponse(results=(result,))

    broker.answer(delete_wire.DeleteGroupsRequest, deleted)
    ran = groups(run, broker, "--delete", "--group", "a", "--group", "b", "--group", "c")
    assert ran == (
        1,
        "\nError: Deletion of some consumer groups failed:\n"
        f"* Group 'b' could not be deleted due to: {broker.address}: the peer closed the "
        "connection (waiting for the response to DeleteGroups)\n"
        "\nThese consumer groups were deleted successfully: 'a', 'c'\n",
        "ottla consumer-groups: 1 of 3 groups were not deleted\n",
    )


def commit_except(*refused: str) -> Any:
    def answer(request: commit_wire.OffsetCommitRequest) -> Any:
        code = int(Error.UNKNOWN_MEMBER_ID) if request.group_id in refused else 0
        return commit_wire.OffsetCommitResponse(
            topics=tuple(
                commit_wire.OffsetCommitResponseTopic(
                    name=each.name,
                    partitions=tuple(
                        commit_wire.OffsetCommitResponsePartition(
                            partition_index=partition.partition_index, error_code=code
                        )
                        for partition in each.partitions
                    ),
                )
                for each in request.topics
            )
        )

    return answer


def test_groups_that_were_reset_are_shown_where_another_was_not(
    run: Run, broker: FakeBroker
) -> None:
    """Group b has a member again by the time of its commit."""
    broker.topics = [topic("t")]
    broker.answer(describe_wire.DescribeGroupsRequest, describe_as("Empty"))
    broker.answer(fetch_wire.OffsetFetchRequest, commit_as(("t", 0, 4)))
    broker.answer(offsets_wire.ListOffsetsRequest, end_at(9))
    broker.answer(commit_wire.OffsetCommitRequest, commit_except("b"))
    ran = groups(run, broker, "--reset-offsets", "--group", "a", "--group", "b", "--group", "c",
                 "--all-topics", "--to-latest", "--execute")  # fmt: skip
    assert [line.split() for line in ran.out.splitlines()[2:]] == [
        ["a", "t", "0", "9"],
        ["c", "t", "0", "9"],
    ]
    assert ran.code == 1
    assert ran.err.startswith("ottla consumer-groups: group b was not reset, or only in part: ")
    assert ran.err.endswith("(UNKNOWN_MEMBER_ID)\n")


def test_nothing_is_reset_where_a_group_has_no_plan(
    run: Run, broker: FakeBroker, tmp_path: Path
) -> None:
    file = tmp_path / "plan.csv"
    file.write_text("a,t,0,5\n")
    broker.topics = [topic("t")]
    broker.answer(describe_wire.DescribeGroupsRequest, describe_as("Empty"))
    broker.answer(offsets_wire.ListOffsetsRequest, end_at(9))
    broker.answer(commit_wire.OffsetCommitRequest, commit_except())
    ran = groups(run, broker, "--reset-offsets", "--group", "a", "--group", "b",
                 "--from-file", str(file), "--execute")  # fmt: skip
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.endswith(f"{file}: no offset for group b: expected some\n")
    assert broker.requests(commit_wire.OffsetCommitRequest) == []


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
