"""A group shows where a stream is; a commit that fails costs nothing but a message.

Method: a fake broker that answers OffsetCommit.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.client.cluster import ClientConfig
from ottla.spark.streaming import group_commits
from ottla.spark.streaming.group_commits import GroupCommits
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tests.unit.client.fake_broker import FakeBroker


def answer_with(code: int) -> Any:
    def answer(request: OffsetCommitRequest) -> OffsetCommitResponse:
        return OffsetCommitResponse(
            topics=tuple(
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        OffsetCommitResponsePartition(
                            partition_index=each.partition_index, error_code=code
                        )
                        for each in topic.partitions
                    ),
                )
                for topic in request.topics
            )
        )

    return answer


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    found = FakeBroker()
    found.answer(OffsetCommitRequest, answer_with(0))
    yield found
    found.disconnect()
    found.close()


@pytest.fixture
def commits(broker: FakeBroker) -> Iterator[GroupCommits]:
    found = GroupCommits(ClientConfig(bootstrap=broker.address), "g")
    yield found
    found.close()


def committed(broker: FakeBroker) -> list[dict[tuple[str, int], int]]:
    return [
        {
            (topic.name, each.partition_index): each.committed_offset
            for topic in request.topics
            for each in topic.partitions
        }
        for request in broker.requests(OffsetCommitRequest)
    ]


def test_only_what_is_new_is_committed(broker: FakeBroker, commits: GroupCommits) -> None:
    commits.commit({("t", 0): 5, ("t", 1): 7})
    commits.commit({("t", 0): 5, ("t", 1): 7})
    commits.commit({("t", 0): 5, ("t", 1): 9})
    assert committed(broker) == [{("t", 0): 5, ("t", 1): 7}, {("t", 1): 9}]
    [first, _] = broker.requests(OffsetCommitRequest)
    # As one that is no member: a group with members refuses it.
    assert (first.group_id, first.generation_id_or_member_epoch, first.member_id) == ("g", -1, "")


def test_a_refusal_is_logged_and_tried_again_later(
    broker: FakeBroker,
    commits: GroupCommits,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker.answer(OffsetCommitRequest, answer_with(Error.UNKNOWN_MEMBER_ID))
    commits.commit({("t", 0): 5})
    assert "could not be committed to group g: " in caplog.text
    assert "UNKNOWN_MEMBER_ID" in caplog.text
    commits.commit({("t", 0): 6})
    assert len(committed(broker)) == 1
    monkeypatch.setattr(commits, "_paused_until", 0.0)
    broker.answer(OffsetCommitRequest, answer_with(0))
    commits.commit({("t", 0): 6})
    assert committed(broker)[-1] == {("t", 0): 6}


def test_a_cluster_that_is_not_there(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commits, "TIMEOUT_SECONDS", 0.1)
    commits = GroupCommits(ClientConfig(bootstrap="127.0.0.1:1"), "g")
    commits.commit({("t", 0): 5})
    assert "no broker answers at 127.0.0.1:1" in caplog.text
