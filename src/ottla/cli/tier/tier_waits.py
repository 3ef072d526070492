"""What a topic waits for while tiered storage is turned off: acknowledgements, and its purge.

The controller says who has not acknowledged (DescribeTopicTiering); leaders say how much of a
purge is left. `--wait` asks until nothing is waited for.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ottla.base.errors import Error, error_of
from ottla.cli.errors import CommandError
from ottla.cli.progress import Progress
from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClientError, Refusal, check
from ottla.controller.disabling.acknowledgements import Reason
from ottla.metadata.tiering import TieringState
from ottla.wire.messages import describe_topic_tiering as wire
from ottla.wire.messages.describe_remote_log import RemoteLogPartition

PAUSE_SECONDS: Final = 0.5
REQUEST_SECONDS: Final = 10.0
"""Timeout of one request within a longer wait: the broker may hang."""
PARTITIONS_NAMED_MAX: Final = 10


def states(
    client: ClusterClient, names: Iterable[str] | None
) -> dict[str, wire.DescribedTopicTiering]:
    """Return what the controller says of topics, None = all that have a tiering state."""
    asked = None if names is None else tuple(names)
    response = client.ask(
        wire.DescribeTopicTieringRequest(topics=asked), wire.DescribeTopicTieringResponse
    )
    check("the controller", response.error_code, response.error_message)
    return {each.name: each for each in response.topics}


def wait(
    client: ClusterClient, names: Sequence[str] | None, timeout: float, *, purged: bool
) -> None:
    """Wait until none of the topics is DISABLING; `purged`: and until no purge is pending.

    Raises: CommandError after `timeout` seconds, with what is waited for.
    """
    progress, began, last = Progress(), time.monotonic(), ""
    try:
        while True:
            left = timeout - (time.monotonic() - began)
            client.config = client.config.with_timeout(max(0.05, min(REQUEST_SECONDS, left)))
            try:
                what = _open_text(states(client, names).values(), purged=purged)
            except Refusal as error:
                if not error.is_retriable:
                    raise
                what = f"a response: {error}"
            except ClientError as error:
                what = f"a response: {error}"
            if not what:
                return
            if left <= 0:
                raise CommandError(f"not finished after {timeout:g} s: waiting for {what}")
            if what != last:
                progress.wait(f"waiting for {what}")
                last = what
            time.sleep(min(PAUSE_SECONDS, max(0.0, left)))
    finally:
        progress.done()


def _open_text(topics: Iterable[wire.DescribedTopicTiering], *, purged: bool) -> str:
    """Return what topics wait for; empty = nothing."""
    found = []
    for each in topics:
        if each.state == TieringState.DISABLING:
            causes = "; ".join(missing_lines(each)) or "the controller to note it"
            found.append(f"{each.name} to be DISABLED: {causes}")
        elif purged and each.purge_pending:
            found.append(f"the purge of {each.name}{_purge_text(each)}")
    more = f". And {len(found) - 3} more topics" if len(found) > 3 else ""
    return ". ".join(found[:3]) + more


def _purge_text(topic: wire.DescribedTopicTiering) -> str:
    error = "" if topic.purge_error is None else f"; last error: {topic.purge_error}"
    error += "".join(f"; {line}" for line in purge_lines(topic))
    if topic.purge_partitions_left < 0:
        return error
    return f": {topic.purge_partitions_left} of {topic.purge_partitions} partitions left{error}"


def missing_lines(topic: wire.DescribedTopicTiering) -> Iterator[str]:
    """Yield a line for each broker, or leader, whose acknowledgement is missing."""
    for each in topic.missing:
        partitions = _partitions_text(each.partitions)
        if each.reason == Reason.NO_LEADER:
            yield f"{partitions}: no live leader"
            continue
        role = "leader" if each.is_leader else "follower"
        yield f"broker {each.broker_id} as {role} of {partitions}: {_why(each)}"


def purge_lines(topic: wire.DescribedTopicTiering) -> Iterator[str]:
    """Yield what a pending purge waits for besides its purgers."""
    if topic.purge_leaderless:
        yield f"{_partitions_text(topic.purge_leaderless)}: no live leader, who purges"


def _why(missing: wire.MissingAcknowledgement) -> str:
    if missing.reason == Reason.OLDER_VERSION:
        return "runs an older version; start it with a newer one, or stop it"
    if missing.reason == Reason.NOT_ANSWERED:
        return "no answer yet"
    if missing.error != Error.TIERED_STORAGE_DISABLEMENT_IN_PROGRESS:
        return f"last answer {error_of(missing.error).name}; it is asked again"
    if missing.is_leader:
        return "in progress: its fence in __remote_log_metadata is not replayed yet"
    return "in progress: it does not have its leader's local log yet"


def _partitions_text(partitions: Sequence[int]) -> str:
    noun = "partition" if len(partitions) == 1 else "partitions"
    some = ", ".join(map(str, partitions[:PARTITIONS_NAMED_MAX]))
    more = len(partitions) - PARTITIONS_NAMED_MAX
    return f"{noun} {some}" + (f" and {more} more" if more > 0 else "")


def purge_text(rows: Iterable[RemoteLogPartition]) -> str:
    """Return what a pending purge waits for, as far as leaders know it.

    The objects of a segment are deleted at once. A write that a broker has given up may still be
    executed by the store, so they are deleted once more when that is not possible any more.
    """
    known = [row for row in rows if row.purge_segments_left >= 0]
    if not known:
        return ""
    left = sum(row.purge_segments_left for row in known)
    deleted = sum(row.purge_segments_deleted for row in known)
    seconds = -(-max(row.purge_late_writes_ms for row in known) // 1000)
    parts = []
    if left:
        parts.append(f"{_segments_text(left)} left in the store")
    if deleted:
        parts.append(
            f"{_segments_text(deleted)} deleted, waiting up to {seconds} s for late writes"
        )
    return f": {', '.join(parts or ['waiting for the last reports of brokers'])}"


def _segments_text(count: int) -> str:
    return f"{count} remote segment{'' if count == 1 else 's'}"
