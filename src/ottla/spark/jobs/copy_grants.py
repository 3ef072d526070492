"""Asks leaders for grants to copy segments, and commits copies: the requests of a backfill."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClientError, NoSuchVersionError, Refusal, check
from ottla.spark.errors import ClusterError
from ottla.tiered.object_names import ObjectKind, object_name
from ottla.wire.messages import commit_segment_copies as commits
from ottla.wire.messages import grant_segment_copies as grants

NO_HOLDER: Final = Uuid(b"\xff" * 16)
"""Of requests that ask for no grant."""


class CopyEnded(Exception):
    """A granted copy cannot be finished any more: the leader will have it copied again."""


@dataclass(frozen=True, slots=True, order=True)
class CopyTarget:
    """A partition whose segments are to be copied, up to an offset, inclusive; -1 = all."""

    topic: str
    topic_id: Uuid
    partition: int
    until_offset: int = -1

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class NamedSegment:
    """What the names of a segment's objects are made of."""

    topic: str
    topic_id: Uuid
    partition: int
    segment_id: Uuid
    start_offset: int


def object_of(target: CopyTarget, segment_id: Uuid, start_offset: int, kind: ObjectKind) -> str:
    """Return the name of one of a segment's objects."""
    named = NamedSegment(target.topic, target.topic_id, target.partition, segment_id, start_offset)
    return object_name(named, kind)


def ask_grants(
    client: ClusterClient, target: CopyTarget, holder: Uuid, *, segments: int, lease_ms: int
) -> grants.GrantedPartition:
    """Ask a partition's leader for grants, or with 0 segments what is left.

    The same holder may repeat it: it gets what it has. Raises: ClusterError.
    """
    request = grants.GrantSegmentCopiesRequest(
        holder=holder,
        lease_ms=lease_ms,
        topics=(
            grants.GrantSegmentCopiesTopic(
                topic_id=target.topic_id,
                partitions=(
                    grants.GrantSegmentCopiesPartition(
                        partition=target.partition,
                        segments_max=segments,
                        until_offset=target.until_offset,
                    ),
                ),
            ),
        ),
    )

    def ask() -> grants.GrantedPartition:
        leader = client.leader((target.topic, target.partition), topic_id=target.topic_id)
        answer = client.ask(request, grants.GrantSegmentCopiesResponse, node=leader.node)
        check(target.name, answer.error_code, answer.error_message)
        row = answer.topics[0].partitions[0]
        check(target.name, row.error_code, row.error_message)
        return row

    try:
        return client.with_retries(ask, repeatable=True)
    except NoSuchVersionError as error:
        raise ClusterError(
            f"the leader of {target.name} does not serve GrantSegmentCopies: it runs Kafka or an "
            f"older version of Ottla ({error})"
        ) from error
    except ClientError as error:
        raise ClusterError(str(error), error.code) from error


def commit_copies(
    client: ClusterClient,
    target: CopyTarget,
    granted: grants.GrantedPartition,
    copies: Sequence[commits.CommittedSegmentCopy],
) -> tuple[commits.SegmentCopyResult, ...]:
    """Commit copies; return the leader's results.

    A commit may be repeated: what it did is found. Raises: CopyEnded, ClusterError.
    """
    request = commits.CommitSegmentCopiesRequest(
        topics=(
            commits.CommitSegmentCopiesTopic(
                topic_id=target.topic_id,
                partitions=(
                    commits.CommitSegmentCopiesPartition(
                        partition=target.partition,
                        leader_epoch=granted.leader_epoch,
                        tiered_epoch=granted.tiered_epoch,
                        copies=tuple(copies),
                    ),
                ),
            ),
        ),
    )
    try:
        return client.with_retries(partial(_commit, client, target, request), repeatable=True)
    except ClientError as error:
        raise ClusterError(str(error), error.code) from error


_ENDED: Final = frozenset(
    {
        Error.FENCED_LEADER_EPOCH,
        Error.FENCED_STATE_EPOCH,
        Error.TIERED_STORAGE_DISABLEMENT_IN_PROGRESS,
        Error.UNKNOWN_TOPIC_ID,
        Error.INVALID_REQUEST,
    }
)
"""Errors of a partition after which no commit of these grants succeeds."""


def _commit(
    client: ClusterClient, target: CopyTarget, request: commits.CommitSegmentCopiesRequest
) -> tuple[commits.SegmentCopyResult, ...]:
    leader = client.leader((target.topic, target.partition), topic_id=target.topic_id)
    answer = client.ask(request, commits.CommitSegmentCopiesResponse, node=leader.node)
    check(target.name, answer.error_code, answer.error_message)
    row = answer.topics[0].partitions[0]
    if row.error_code in _ENDED:
        raise CopyEnded(str(Refusal(target.name, row.error_code, row.error_message)))
    check(target.name, row.error_code, row.error_message)
    for each in row.copies:
        if each.error_code == Error.REQUEST_TIMED_OUT:  # The store did not answer the leader.
            check(target.name, each.error_code, each.error_message)
    return row.copies
