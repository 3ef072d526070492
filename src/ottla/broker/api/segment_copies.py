"""What GrantSegmentCopies and CommitSegmentCopies share: partitions that answer in time."""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.base.pending import Pending, completed, gather
from ottla.broker.api.base import Context
from ottla.broker.remote.remote_log_manager import RemoteLogManager

T = TypeVar("T")

WAIT_MS: Final = 20_000
"""How long a request waits for a partition, below a client's request timeout. What comes later has
its effect all the same, and is found by repeating the request."""


def leading_manager(ctx: Context, topic_id: Uuid, partition_id: int) -> RemoteLogManager:
    """Return what has a partition's tasks. Raises: ApiError, where it is not led here, or its
    topic is not tiered."""
    broker = ctx.broker
    partition = broker.replicas.partition_by_id(topic_id, partition_id)
    partition.leader_log()
    if broker.remote is None:
        raise ApiError(Error.INVALID_REQUEST, "this broker has no remote storage")
    if topic_id not in broker.image.tiering:
        raise ApiError(Error.INVALID_REQUEST, "the topic is not tiered")
    return broker.remote.manager


def answered_in_time(
    ctx: Context, asked: Iterable[Callable[[], Pending[T | ApiError]]]
) -> Pending[list[T | ApiError]]:
    """Ask all; return the promise of their answers, REQUEST_TIMED_OUT for those that lack."""
    answers = [_asked(each) for each in asked]
    result: Pending[list[T | ApiError]] = Pending()
    late = ApiError(Error.REQUEST_TIMED_OUT)

    def respond(_none: object = None) -> None:
        result.complete([each.value if each.done else late for each in answers])

    timer = ctx.broker.timers.at(ctx.monotonic_ms + WAIT_MS, respond)
    result.then(lambda _: timer.cancel())
    gather(answers).then(respond)
    return result


def _asked(ask: Callable[[], Pending[T | ApiError]]) -> Pending[T | ApiError]:
    try:
        return ask()
    except ApiError as error:
        return completed(error)
