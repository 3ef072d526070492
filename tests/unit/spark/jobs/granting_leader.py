"""A fake broker that leads a topic's partitions, and grants copies of their segments.

Its store is a directory: a commit whose objects are not there in their sizes is refused. Faults are
attributes that a test sets.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.client.cluster import ClientConfig
from ottla.records.batch import iter_headers
from ottla.tiered.granted_copy import CopyTarget, object_of
from ottla.tiered.object_names import ObjectKind
from ottla.wire.messages import commit_segment_copies as commits
from ottla.wire.messages import describe_remote_log as remote_log
from ottla.wire.messages import fetch as fetched
from ottla.wire.messages import grant_segment_copies as grants
from tests.unit.client.fake_broker import FakeBroker, topic
from tests.unit.spark.jobs.support import log_bytes
from tests.unit.tiered.support import TOPIC, TOPIC_ID

LEADER_EPOCHS = b"0\n1\n0 0\n"
SNAPSHOT = b"a snapshot"
PER_SEGMENT = 40
LEASE_MS = 60_000


@dataclass
class Part:
    """One partition. `held`: start offset of a segment by its id, of those that are granted."""

    segments: dict[int, bytes]
    held: dict[Uuid, int] = field(default_factory=dict)
    holders: dict[Uuid, Uuid] = field(default_factory=dict)
    finished: list[int] = field(default_factory=list)
    copied: dict[int, Uuid] = field(default_factory=dict)


class GrantingLeader:
    """See the module. `partitions`: segments of each; `failures`: what tasks have given up."""

    def __init__(self, store: Path, *segments: int) -> None:
        self.store = store
        self.broker = FakeBroker()
        self.broker.topics = [topic(TOPIC, len(segments), topic_id=TOPIC_ID)]
        self.parts = [
            Part({
                number * PER_SEGMENT: log_bytes(
                    number * PER_SEGMENT, (number + 1) * PER_SEGMENT - 1, ((0, 0),),
                    value=bytes([number]) * 300,
                )
                for number in range(count)
            })
            for count in segments
        ]  # fmt: skip
        self.failures: list[str] = []
        self.grant_error: tuple[Error, str] | None = None
        self.commit_errors: list[Error] = []
        self.on_fetch: Callable[[], object] = lambda: None
        self.alter: Callable[[bytes], bytes] = lambda data: data
        self.lease_ms = LEASE_MS
        self.leader_epoch = 0
        self.elections = 0
        """How often it is elected again before it grants the next copy."""
        self._number = 0
        self.broker.answer(grants.GrantSegmentCopiesRequest, self._grant)
        self.broker.answer(commits.CommitSegmentCopiesRequest, self._commit)
        self.broker.answer(fetched.FetchRequest, self._fetch)
        self.broker.answer(remote_log.DescribeRemoteLogRequest, self._describe)

    @property
    def config(self) -> ClientConfig:
        return ClientConfig(bootstrap=self.broker.address, backoff_s=0.001).with_timeout(5)

    def name(self, partition: int, segment_id: Uuid, start: int, kind: ObjectKind) -> str:
        return object_of(CopyTarget(TOPIC, TOPIC_ID, partition), segment_id, start, kind)

    def object(self, partition: int, start: int, kind: ObjectKind) -> bytes:
        """Return an object of a finished copy."""
        segment_id = self.parts[partition].copied[start]
        return (self.store / self.name(partition, segment_id, start, kind)).read_bytes()

    def _grant(self, request: grants.GrantSegmentCopiesRequest) -> Any:
        (asked,) = request.topics
        (row,) = asked.partitions
        part = self.parts[row.partition]
        if self.grant_error is not None:
            error, text = self.grant_error
            answer = grants.GrantedPartition(
                partition=row.partition, error_code=error, error_message=text
            )
        else:
            answer = self._granted(request.holder, row, part)
        topics = (grants.GrantedTopic(topic_id=asked.topic_id, partitions=(answer,)),)
        return grants.GrantSegmentCopiesResponse(error_code=0, topics=topics)

    def _granted(
        self, holder: Uuid, row: grants.GrantSegmentCopiesPartition, part: Part
    ) -> grants.GrantedPartition:
        left = [start for start in part.segments if start not in part.finished]
        if row.until_offset >= 0:
            left = [start for start in left if start + PER_SEGMENT - 1 <= row.until_offset]
        mine = [each for each, owner in part.holders.items() if owner == holder]
        free = [start for start in left if start not in part.held.values()]
        if row.segments_max and not mine and free:
            self._elect()
            self._number += 1
            segment_id = Uuid(self._number.to_bytes(16, "big"))
            part.held[segment_id], part.holders[segment_id] = free[0], holder
            mine = [segment_id]
        return grants.GrantedPartition(
            partition=row.partition,
            error_code=0,
            leader_epoch=self.leader_epoch,
            tiered_epoch=1,
            end_offset=left[-1] + PER_SEGMENT - 1 if left else -1,
            segments_left=len(left),
            bytes_left=sum(len(part.segments[each]) for each in left),
            segments=tuple(self._segment(part, each) for each in mine),
        )

    def _elect(self) -> None:
        self.leader_epoch += self.elections
        self.elections = 0
        (known,) = self.broker.topics
        rows = tuple(replace(each, leader_epoch=self.leader_epoch) for each in known.partitions)
        self.broker.topics = [replace(known, partitions=rows)]

    def _segment(self, part: Part, segment_id: Uuid) -> grants.GrantedSegment:
        start = part.held[segment_id]
        return grants.GrantedSegment(
            segment_id=segment_id,
            start_offset=start,
            end_offset=start + PER_SEGMENT - 1,
            size_bytes=len(part.segments[start]),
            max_timestamp_ms=900,
            lease_ms=self.lease_ms,
            epochs=(grants.GrantedEpoch(epoch=0, start_offset=start),),
            leader_epochs=LEADER_EPOCHS,
            producer_snapshot=SNAPSHOT,
            transaction_index=b"t" * 34 if start == 0 else None,
        )

    def _fetch(self, request: fetched.FetchRequest) -> Any:
        self.on_fetch()
        (asked,) = request.topics
        (row,) = asked.partitions
        data = b"".join(self.parts[row.partition].segments.values())
        at = next(
            (at for at, header in iter_headers(data) if header.last_offset >= row.fetch_offset),
            len(data),
        )
        # Two batches and a part of the next one, across the ends of segments.
        found = memoryview(self.alter(data[at : at + 4_000]))
        part = fetched.PartitionData(
            partition_index=row.partition, error_code=0, high_watermark=10**6, records=found
        )
        answer = fetched.FetchableTopicResponse(
            topic=asked.topic, topic_id=asked.topic_id, partitions=(part,)
        )
        return fetched.FetchResponse(error_code=0, responses=(answer,))

    def _commit(self, request: commits.CommitSegmentCopiesRequest) -> Any:
        (asked,) = request.topics
        (row,) = asked.partitions
        error = self.commit_errors.pop(0) if self.commit_errors else Error.NONE
        (copy,) = row.copies
        results = () if error else (self._result(row.partition, copy),)
        answer = commits.SegmentCopiesPartitionResult(
            partition=row.partition, error_code=error, copies=results
        )
        topics = (commits.SegmentCopiesTopicResult(topic_id=asked.topic_id, partitions=(answer,)),)
        return commits.CommitSegmentCopiesResponse(error_code=0, topics=topics)

    def _result(self, number: int, copy: commits.CommittedSegmentCopy) -> commits.SegmentCopyResult:
        part = self.parts[number]
        start = part.held.pop(copy.segment_id, None)
        part.holders.pop(copy.segment_id, None)
        if copy.failure is not None:
            self.failures.append(copy.failure)
        if start is None or copy.failure is not None:
            error, text = Error.INVALID_REQUEST, "it is not granted"
        elif not self._has(number, start, copy):
            error, text = Error.RESOURCE_NOT_FOUND, "the brokers' store does not have the copy"
        else:
            error, text = Error.NONE, None
            part.finished.append(start)
            part.copied[start] = copy.segment_id
        return commits.SegmentCopyResult(
            segment_id=copy.segment_id,
            error_code=error,
            error_message=text,
            is_finished=not error,
        )

    def _has(self, number: int, start: int, copy: commits.CommittedSegmentCopy) -> bool:
        sizes = {
            ObjectKind.LOG: len(self.parts[number].segments[start]),
            ObjectKind.OFFSET_INDEX: copy.offset_index_bytes,
            ObjectKind.TIME_INDEX: copy.time_index_bytes,
            ObjectKind.PRODUCER_SNAPSHOT: len(SNAPSHOT),
            ObjectKind.LEADER_EPOCHS: len(LEADER_EPOCHS),
        }
        paths = {
            kind: self.store / self.name(number, copy.segment_id, start, kind) for kind in sizes
        }
        return all(
            path.exists() and path.stat().st_size == sizes[kind] for kind, path in paths.items()
        )

    def _describe(self, request: remote_log.DescribeRemoteLogRequest) -> Any:
        assert request.topics is not None
        (asked,) = request.topics
        (number,) = asked.partitions
        segments = tuple(
            remote_log.RemoteLogSegment(
                segment_id=segment_id,
                start_offset=start,
                end_offset=start + PER_SEGMENT - 1,
                leader_epoch=0,
                tiered_epoch=1,
                max_timestamp_ms=900,
                size_bytes=1,
                txn_index_empty=True,
            )
            for start, segment_id in self.parts[number].copied.items()
        )
        row = remote_log.RemoteLogPartition(partition=number, error_code=0, segments=segments)
        found = remote_log.RemoteLogTopic(name=asked.name, partitions=(row,))
        return remote_log.DescribeRemoteLogResponse(error_code=0, topics=(found,))
