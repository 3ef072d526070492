"""Watches which produced batches a node acknowledges, whichever path its Produce takes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from ottla.base.errors import ApiError
from ottla.base.pending import Pending
from ottla.broker.api.base import Context
from ottla.broker.api.plain_produce import NotPlain
from ottla.broker.partition import Partition
from ottla.broker.replica_manager import ReplicaManager
from ottla.host.node_core import NodeCore
from ottla.records.batch import CRC_AT
from ottla.wire.frames import decode_response
from ottla.wire.messages.produce import ProduceResponse
from ottla.wire.plain_produce import TOPIC_ID_FIRST, read
from ottla.wire.registry import PRODUCE


class ProducedBatch(NamedTuple):
    """A batch that was handed to a partition's leader, and the leader's epoch then."""

    partition: Partition
    leader_epoch: int
    crc: int
    acks: int


Acknowledge = Callable[[ProducedBatch, int], None]
"""Called with a batch and its base offset when its success is answered."""


def watch_produce(core: NodeCore, acknowledge: Acknowledge) -> None:
    """Wrap both paths of one incarnation of a node."""
    _watch_any(core, acknowledge)
    _watch_plain(core, acknowledge)


def _watch_any(core: NodeCore, acknowledge: Acknowledge) -> None:
    endpoints: Any = core._dispatcher.endpoints
    produce = endpoints[PRODUCE]
    handle = produce.handle

    def watched(ctx: Context, request: Any) -> Any:
        outcome = handle(ctx, request)
        taken = [
            _taken(
                ctx.broker.replicas,
                topic.topic_id if ctx.version >= TOPIC_ID_FIRST else topic.name,
                each.index,
                each.records,
                request.acks,
            )
            for topic in request.topic_data
            for each in topic.partition_data
        ]
        if isinstance(outcome, Pending):
            outcome.then(lambda answer: _answered(taken, answer, acknowledge))
        elif outcome is not None:
            _answered(taken, outcome, acknowledge)
        return outcome

    endpoints[PRODUCE] = replace(produce, handle=watched)


def _watch_plain(core: NodeCore, acknowledge: Acknowledge) -> None:
    plain: Any = core._plain_produces
    handle = plain.handle

    def watched(replicas: ReplicaManager, connection: Any, frame: memoryview) -> Any:
        outcome = handle(replicas, connection, frame)
        if isinstance(outcome, NotPlain):
            return outcome
        found = read(frame)
        assert found is not None
        request, records = found
        topic = request.topic_id if request.version >= TOPIC_ID_FIRST else request.topic
        taken = [_taken(replicas, topic, request.partition, records, request.acks)]

        def answered(chunks: list[Any] | None) -> None:
            if chunks is not None:
                sent = memoryview(b"".join(chunks))[4:]
                _, response = decode_response(ProduceResponse, sent, request.version)
                _answered(taken, response, acknowledge)

        if isinstance(outcome, Pending):
            outcome.then(answered)
        else:
            answered(outcome)
        return outcome

    plain.handle = watched


def _taken(
    replicas: ReplicaManager, topic: Any, index: int, records: Any, acks: int
) -> ProducedBatch | None:
    """Return what a request has handed to a partition; None = it is not hosted."""
    try:
        if isinstance(topic, str):
            hosted = replicas.partition(topic, index)
        else:
            hosted = replicas.partition_by_id(topic, index)
    except ApiError:
        return None
    crc = int.from_bytes(records[CRC_AT : CRC_AT + 4], "big")
    return ProducedBatch(hosted, hosted.leader_epoch, crc, acks)


def _answered(taken: list[ProducedBatch | None], answer: Any, acknowledge: Acknowledge) -> None:
    answers = [each for topic in answer.responses for each in topic.partition_responses]
    for batch, response in zip(taken, answers, strict=True):
        if batch is not None and not response.error_code:
            acknowledge(batch, response.base_offset)
