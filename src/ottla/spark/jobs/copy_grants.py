"""Asks leaders for grants to copy segments, and commits copies: the requests of a backfill."""

from functools import partial
from typing import Final

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClientError, NoSuchVersionError, Refusal, check
from ottla.spark.errors import ClusterError
from ottla.tiered.granted_copy import ENDED, CopyEnded, CopyTarget, commit_request, grant_request
from ottla.wire.messages import commit_segment_copies as commits
from ottla.wire.messages import grant_segment_copies as grants

NO_HOLDER: Final = Uuid(b"\xff" * 16)
"""Of requests that ask for no grant."""


def ask_grants(
    client: ClusterClient, target: CopyTarget, holder: Uuid, *, segments: int, lease_ms: int
) -> grants.GrantedPartition:
    """Ask a partition's leader for grants, or with 0 segments what is left.

    The same holder may repeat it: it gets what it has. Raises: ClusterError.
    """
    request = grant_request(target, holder, segments=segments, lease_ms=lease_ms)

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


def commit_copy(
    client: ClusterClient,
    target: CopyTarget,
    granted: grants.GrantedPartition,
    copy: commits.CommittedSegmentCopy,
) -> commits.SegmentCopyResult:
    """Commit a copy; return the leader's result.

    A commit may be repeated: what it did is found. Raises: CopyEnded, ClusterError.
    """
    request = commit_request(target, granted, copy)
    try:
        return client.with_retries(partial(_commit, client, target, request), repeatable=True)
    except ClientError as error:
        raise ClusterError(str(error), error.code) from error


def _commit(
    client: ClusterClient, target: CopyTarget, request: commits.CommitSegmentCopiesRequest
) -> commits.SegmentCopyResult:
    leader = client.leader((target.topic, target.partition), topic_id=target.topic_id)
    answer = client.ask(request, commits.CommitSegmentCopiesResponse, node=leader.node)
    check(target.name, answer.error_code, answer.error_message)
    row = answer.topics[0].partitions[0]
    if row.error_code in ENDED:
        raise CopyEnded(str(Refusal(target.name, row.error_code, row.error_message)))
    check(target.name, row.error_code, row.error_message)
    (result,) = row.copies
    if result.error_code == Error.REQUEST_TIMED_OUT:  # The store did not answer the leader.
        check(target.name, result.error_code, result.error_message)
    return result
