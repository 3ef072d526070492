"""Whoever copies segments by grants of a leader, in the bench of `copy_bench`."""

from typing import Any

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.broker.remote.tasks.grant_values import (
    CommitRequest,
    CommitResult,
    CommittedCopy,
    GrantedSegment,
    GrantRequest,
    Grants,
)
from ottla.tiered.object_names import ObjectKind, object_name
from tests.unit.broker.remote.copy_bench import TOPIC_ID, Bench, BenchBroker

LEASE_MS = 30_000
ANSWER_S = 5


class Copier:
    """One holder of grants. `grants`: the last answer; `held`: what it was granted."""

    def __init__(self, bench: Bench, broker: BenchBroker, number: int = 1) -> None:
        self.bench = bench
        self.broker = broker
        self.holder = Uuid(bytes([number]) * 16)
        self.grants: Grants | None = None
        self.held: dict[int, GrantedSegment] = {}

    # -- requests ------------------------------------------------------------------------------

    def ask(
        self, segments: int = 1, *, lease_ms: int = LEASE_MS, until_offset: int = -1
    ) -> Pending[Grants | ApiError]:
        """Begin to ask for grants."""
        request = GrantRequest(
            holder=self.holder,
            lease_ms=lease_ms,
            segments_max=segments,
            until_offset=until_offset,
        )
        return self.broker.life.manager.grant_copies(TOPIC_ID, 0, request)

    def grant(self, segments: int = 1, **options: Any) -> list[int]:
        """Ask for grants; return the start offsets of those that are held."""
        answer = self.ask(segments, **options)
        self.bench.run(ANSWER_S)
        assert isinstance(answer.value, Grants), answer.value
        self.grants = answer.value
        self.held |= {each.segment.start_offset: each for each in answer.value.granted}
        return [each.segment.start_offset for each in answer.value.granted]

    def refused(self, segments: int = 1, **options: Any) -> Error:
        """Ask for grants; return why there are none."""
        answer = self.ask(segments, **options)
        self.bench.run(ANSWER_S)
        assert isinstance(answer.value, ApiError), answer.value
        return answer.value.error

    def copy(self, start: int, *, without: ObjectKind | None = None) -> None:
        """Put a granted segment's objects, from the local files."""
        granted = self.held[start]
        disk, directory = self.broker.disk, self.broker.log.directory
        contents = {
            ObjectKind.LEADER_EPOCHS: granted.leader_epochs,
            ObjectKind.PRODUCER_SNAPSHOT: granted.producer_snapshot,
        }
        for kind in (ObjectKind.OFFSET_INDEX, ObjectKind.TIME_INDEX, ObjectKind.LOG):
            contents[kind] = disk.read_bytes(f"{directory}/{start:020d}.{kind.value}")
        if granted.transaction_index is not None:
            contents[ObjectKind.TXN_INDEX] = granted.transaction_index
        for kind, data in contents.items():
            if kind is not without:
                self.bench.model.put(object_name(granted.segment, kind), data, replace=True)

    def commits(self, *starts: int, failure: str | None = None) -> CommitRequest:
        disk, directory = self.broker.disk, self.broker.log.directory

        def size(start: int, suffix: str) -> int:
            return len(disk.read_bytes(f"{directory}/{start:020d}.{suffix}"))

        first = self.held[starts[0]].segment
        return CommitRequest(
            leader_epoch=first.leader_epoch,
            tiered_epoch=first.tiered_epoch,
            copies=tuple(
                CommittedCopy(
                    segment_id=self.held[each].segment.segment_id,
                    offset_index_bytes=size(each, "index"),
                    time_index_bytes=size(each, "timeindex"),
                    failure=failure,
                )
                for each in starts
            ),
        )

    def send(
        self, request: CommitRequest, to: BenchBroker | None = None
    ) -> tuple[CommitResult, ...] | Error:
        """Commit; return the results, or why all is refused."""
        answer = (to or self.broker).life.manager.commit_copies(TOPIC_ID, 0, request)
        self.bench.run(ANSWER_S)
        found = answer.value
        return found.error if isinstance(found, ApiError) else found

    def commit(self, *starts: int, **options: Any) -> list[bool | Error]:
        """Commit; return for each whether it is finished, or why it is refused."""
        found = self.send(self.commits(*starts, **options))
        assert not isinstance(found, Error), found
        return [each.is_finished if each.error is None else each.error.error for each in found]

    def copy_and_commit(self, *starts: int) -> list[bool | Error]:
        for each in starts:
            self.copy(each)
        return self.commit(*starts)
