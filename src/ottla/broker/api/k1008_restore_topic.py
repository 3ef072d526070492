"""RestoreTopic (key 1008): create a topic from what remote storage has of it.

Behaviour: all partitions in one step. The response comes when it is committed; the leaders then
           take over the remote segments, and serve no offset below the local log before that is
           done. TOPIC_ALREADY_EXISTS where a topic has the name or the id, or the deletion ledger
           has the id. REQUEST_TIMED_OUT where the controller's response was lost: the topic may
           have been created.
Versions:  v0. Ottla's own; ApiVersions lists it to Ottla's clients only.
"""

import logging

from ottla.base.authorizer import Operation
from ottla.base.errors import ApiError, Error
from ottla.base.ids import uuid_text
from ottla.broker.api.base import Answer, Api, Context, RunsOn
from ottla.broker.ports import Listener
from ottla.controller.topics.restore import RestoredTopic, restore_topic
from ottla.metadata.tiering import RestoredPartition
from ottla.wire.messages import restore_topic as wire

logger = logging.getLogger(__name__)

API = Api(
    key=1008,
    versions=range(1),
    is_public=False,
    listeners=frozenset({Listener.CLIENT, Listener.CONTROLLER}),
    runs_on=RunsOn.CONTROLLER,
    at_most_once=True,
    cluster_operation=Operation.ALTER,
)


def handle(ctx: Context, request: wire.RestoreTopicRequest) -> Answer:
    """Decide on the controller; translate."""
    context = ctx.controller.context
    wanted = _wanted(request)
    decided = ctx.controller.run(
        lambda image: restore_topic(
            image, wanted, validate_only=request.validate_only, context=context
        )
    )
    return decided.map(lambda reply: _answer(request, reply))


def _wanted(request: wire.RestoreTopicRequest) -> RestoredTopic:
    return RestoredTopic(
        name=request.name,
        topic_id=request.topic_id,
        tiered_epoch=request.tiered_epoch,
        floor=request.remote_floor_epoch,
        configs={each.name: each.value for each in request.configs},
        partitions=tuple(
            RestoredPartition(
                partition=each.partition_index,
                leader_epoch=each.leader_epoch,
                log_start_offset=each.log_start_offset,
                end_offset=each.end_offset,
                epochs=tuple((epoch.epoch, epoch.start_offset) for epoch in each.epochs),
            )
            for each in request.partitions
        ),
        replication_factor=request.replication_factor,
    )


def _answer(request: wire.RestoreTopicRequest, reply: ApiError | None) -> wire.RestoreTopicResponse:
    if isinstance(reply, ApiError):
        return wire.RestoreTopicResponse(error_code=reply.error, error_message=reply.message)
    if not request.validate_only:
        logger.info(
            "topic %s restored with the topic id %s: %d partitions",
            request.name,
            uuid_text(request.topic_id),
            len(request.partitions),
        )
    return wire.RestoreTopicResponse(error_code=Error.NONE)
