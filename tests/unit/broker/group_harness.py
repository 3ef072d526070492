"""A broker for tests of groups: real logs in memory, the real group service, any client's words.

Broker 1 leads the partitions of the offsets topic, unless a test says otherwise. `LateWorkers`
hold work back, so that a test can look at a shard that is still loading.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ottla.base.ids import OFFSETS_TOPIC, Uuid
from ottla.base.pending import Pending
from ottla.broker.groups.group_service import GroupService
from ottla.metadata.records import PartitionChangeRecord, RemoveTopicRecord
from ottla.testing.disk import MemoryDisk
from ottla.wire.messages import (
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    offset_fetch,
    sync_group,
)

from .harness import HANDLERS, BrokerHarness

T = TypeVar("T")

OFFSETS_ID = Uuid(b"o" * 16)
DELAY_MS = 3_000

HANDLERS.update(
    {
        8: "k08_offset_commit",
        9: "k09_offset_fetch",
        10: "k10_find_coordinator",
        11: "k11_join_group",
        12: "k12_heartbeat",
        13: "k13_leave_group",
        14: "k14_sync_group",
        15: "k15_describe_groups",
        16: "k16_list_groups",
        42: "k42_delete_groups",
        47: "k47_offset_delete",
    }
)


class LateWorkers:
    """Does the work when the test calls `run`."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def submit(
        self, work: Callable[[], T], done: Callable[[T | BaseException], None] | None = None
    ) -> None:
        def run() -> None:
            try:
                result: T | BaseException = work()
            except Exception as error:
                result = error
            if done is not None:
                done(result)

        self.waiting.append(run)

    def run(self) -> None:
        """Do what waits, and what that causes."""
        while self.waiting:
            self.waiting.pop(0)()


class GroupHarness(BrokerHarness):
    """Broker 1 with its group coordinator."""

    def __init__(
        self, properties: Mapping[str, str] | None = None, *, disk: MemoryDisk | None = None
    ) -> None:
        super().__init__({"offsets.topic.num.partitions": "3", **(properties or {})}, disk=disk)
        self.service = GroupService(self.broker)
        self.broker.groups = self.service
        self.add_broker(1)

    def add_offsets_topic(self, partitions: int = 3, **how: Any) -> None:
        """Create the offsets topic."""
        how.setdefault("cleanup_policy", "compact")
        self.add_topic(OFFSETS_TOPIC, OFFSETS_ID, partitions=partitions, **how)

    def elect(self, partition: int, leader: int, *, isr: tuple[int, ...] | None = None) -> None:
        """Give a partition of the offsets topic to a broker."""
        change = PartitionChangeRecord(
            partition_id=partition, topic_id=OFFSETS_ID, leader=leader, isr=isr
        )
        self.commit(change)

    def remove_topic(self, topic_id: Uuid) -> None:
        """Delete a topic."""
        self.commit(RemoveTopicRecord(topic_id=topic_id))

    def later(self, request: Any, version: int, ms: int = 2 * DELAY_MS) -> Any:
        """Ask what is answered within `ms`."""
        pending = self.begin(request, version)
        self.settle(pending, ms)
        return pending.value

    def settle(self, pending: Pending[Any], ms: int = 0) -> None:
        """Let what is due happen, then time pass until there is an answer."""
        self.timers.run_due(self.clock.elapsed_ms)
        while not pending.done and ms > 0:
            self.clock.advance(100)
            ms -= 100
        assert pending.done

    # -- One consumer's requests, in any version --

    def join(self, group_id: str = "g", version: int = 9, **how: Any) -> Any:
        """Join a group of one member; return the answer."""
        answer = self.later(join_request(group_id, version, **how), version)
        if answer.error_code == 79:
            again = join_request(group_id, version, **{**how, "member_id": answer.member_id})
            answer = self.later(again, version)
        return answer

    def stable(self, group_id: str = "g", version: int = 9, **how: Any) -> Any:
        """Bring a group of one member to STABLE; return the join's answer."""
        joined = self.join(group_id, version, **how)
        assert joined.error_code == 0
        synced = self.later(
            sync_group.SyncGroupRequest(
                group_id=group_id,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                protocol_type="consumer",
                protocol_name=joined.protocol_name,
                assignments=(
                    sync_group.SyncGroupRequestAssignment(
                        member_id=joined.member_id, assignment=b"mine"
                    ),
                ),
            ),
            5,
        )
        assert (synced.error_code, synced.assignment) == (0, b"mine")
        return joined


def join_request(group_id: str = "g", version: int = 9, **how: Any) -> join_group.JoinGroupRequest:
    """Return a JoinGroup of a consumer."""
    values: dict[str, Any] = {
        "group_id": group_id,
        "session_timeout_ms": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": (join_group.JoinGroupRequestProtocol(name="range", metadata=b"meta"),),
        **how,
    }
    if version >= 1:
        values.setdefault("rebalance_timeout_ms", 60_000)
    return join_group.JoinGroupRequest(**values)


def commit_request(
    offsets: Mapping[tuple[str, int], int], *, group_id: str = "g", **how: Any
) -> offset_commit.OffsetCommitRequest:
    """Return an OffsetCommit by name."""
    return offset_commit.OffsetCommitRequest(
        group_id=group_id,
        topics=tuple(
            offset_commit.OffsetCommitRequestTopic(
                name=topic,
                partitions=(
                    offset_commit.OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata="m"
                    ),
                ),
            )
            for (topic, partition), offset in offsets.items()
        ),
        **how,
    )


def fetch_all(group_id: str = "g") -> offset_fetch.OffsetFetchRequest:
    """Return a request (v8 and v9) for all offsets of a group."""
    group = offset_fetch.OffsetFetchRequestGroup(group_id=group_id, topics=None)
    return offset_fetch.OffsetFetchRequest(groups=(group,))


def beat_request(joined: Any, group_id: str = "g") -> heartbeat.HeartbeatRequest:
    """Return the heartbeat of a member."""
    return heartbeat.HeartbeatRequest(
        group_id=group_id, generation_id=joined.generation_id, member_id=joined.member_id
    )


def leave_request(*member_ids: str, group_id: str = "g") -> leave_group.LeaveGroupRequest:
    """Return a LeaveGroup (v3 and later)."""
    return leave_group.LeaveGroupRequest(
        group_id=group_id,
        members=tuple(leave_group.MemberIdentity(member_id=each) for each in member_ids),
    )


def find_request(*keys: str, key_type: int = 0) -> find_coordinator.FindCoordinatorRequest:
    """Return a FindCoordinator (v4 and later)."""
    return find_coordinator.FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)
