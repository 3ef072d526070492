"""The short path of a Produce with one batch for one partition: the same result in fewer steps.

Only decoding, encoding and what is between them differs from `k00_produce`: the partition, the
checks and the append are the same, and so is the response wherever it is not a plain success.
What this path does not take has changed nothing and goes the general way.
"""

from collections.abc import Callable
from typing import Any, Final

from ottla.base.errors import ApiError, Error
from ottla.base.ids import INTERNAL_TOPICS
from ottla.base.pending import Pending
from ottla.broker.api.base import Answer, Context
from ottla.broker.api.k00_produce import answer, check_batch
from ottla.broker.partition import ACKS_ALL
from ottla.broker.ports import Connection
from ottla.broker.produce.delayed_produce import AppendResult
from ottla.broker.replica_manager import ReplicaManager
from ottla.wire.frames import RequestHeader
from ottla.wire.plain_produce import TOPIC_ID_FIRST, PlainProduce, encode_success, read
from ottla.wire.registry import PRODUCE

Frames = list[Any] | None

Encode = Callable[[Context, Answer], Frames]


class NotPlain:
    """The request goes the general way."""


NOT_PLAIN: Final = NotPlain()

_NONE = Error.NONE


class PlainProduces:
    """Handles plain requests, where everything is allowed to every client.

    `context` and `encode` make the context of a request and encode a response that is no success.
    """

    def __init__(
        self, context: Callable[[Connection, RequestHeader], Context], encode: Encode
    ) -> None:
        self._context = context
        self._encode = encode

    def handle(
        self, replicas: ReplicaManager, connection: Connection, frame: memoryview
    ) -> Frames | Pending[Frames] | NotPlain:
        """Append the batch; respond at once, or when the replicas have it.

        Raises: CloseConnection.
        """
        found = read(frame)
        if found is None:
            return NOT_PLAIN
        request, records = found
        acks = request.acks
        if acks != 1 and acks != ACKS_ALL:
            return NOT_PLAIN
        try:
            if request.version < TOPIC_ID_FIRST:
                partition = replicas.partition(request.topic, request.partition)
            else:
                partition = replicas.partition_by_id(request.topic_id, request.partition)
            check_batch(records, request.version)
        except ApiError:
            return NOT_PLAIN
        if partition.topic in INTERNAL_TOPICS:
            return NOT_PLAIN
        appended = replicas.append_all(
            [(partition, records)],
            acks=acks,
            timeout_ms=request.timeout_ms,
            closed=connection.closed,
        )
        if not isinstance(appended, Pending):
            return self._answer(connection, request, appended)
        return appended.map(lambda late: self._answer(connection, request, late))

    def _answer(
        self, connection: Connection, request: PlainProduce, results: list[AppendResult]
    ) -> Frames:
        (result,) = results
        if result.error is _NONE:
            offsets = result.base_offset, result.log_append_time_ms, result.log_start_offset
            return [encode_success(request, *offsets)]
        # Its client id is of no use to a response.
        header = RequestHeader(PRODUCE, request.version, request.correlation_id, None)
        ctx = self._context(connection, header)
        shape = [(request.topic, request.topic_id, [request.partition])]
        return self._encode(ctx, answer(ctx, shape, results))
