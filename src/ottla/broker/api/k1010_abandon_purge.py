"""AbandonPurge (key 1010): give up the purge of a deleted topic's objects in remote storage.

Behaviour: the ledger's remote part becomes ABANDONED, with what the brokers last reported as left;
           the response comes when that is committed. A purge that was abandoned before is answered
           as abandoned. UNKNOWN_TOPIC_ID where the ledger has no such topic; INVALID_REQUEST where
           no purge of it is pending. UNSUPPORTED_VERSION where `ottla.version` is below 3.
Versions:  v0. Ottla's own; ApiVersions lists it to Ottla's clients only.
Not done:  the purge of an existing topic whose remote storage was turned off with delete.
"""

import logging

from ottla.base.authorizer import Operation
from ottla.base.errors import ApiError, Error
from ottla.base.ids import uuid_text
from ottla.broker.api.base import Answer, Api, Context, RunsOn
from ottla.broker.ports import Listener
from ottla.controller.deletion.abandon_purge import AbandonedPurge, abandon_purge
from ottla.wire.messages import abandon_purge as wire

logger = logging.getLogger(__name__)

API = Api(
    key=1010,
    versions=range(1),
    is_public=False,
    listeners=frozenset({Listener.CLIENT, Listener.CONTROLLER}),
    runs_on=RunsOn.CONTROLLER,
    cluster_operation=Operation.ALTER,
)


def handle(ctx: Context, request: wire.AbandonPurgeRequest) -> Answer:
    """Decide on the controller; translate."""
    context = ctx.controller.context
    decided = ctx.controller.run(
        lambda image: abandon_purge(
            image, request.topic_id, validate_only=request.validate_only, context=context
        )
    )
    return decided.map(lambda reply: _answer(request, reply))


def _answer(
    request: wire.AbandonPurgeRequest, reply: AbandonedPurge | ApiError
) -> wire.AbandonPurgeResponse:
    if isinstance(reply, ApiError):
        return wire.AbandonPurgeResponse(error_code=reply.error, error_message=reply.message)
    deletion = reply.deletion
    if not (request.validate_only or reply.was_abandoned):
        logger.warning(
            "the purge of the deleted topic %s (%s) was abandoned: segments left in the store: %s",
            deletion.name,
            uuid_text(deletion.topic_id),
            "unknown" if deletion.segments_left < 0 else deletion.segments_left,
        )
    return wire.AbandonPurgeResponse(
        error_code=Error.NONE,
        name=deletion.name,
        topic_id=deletion.topic_id,
        was_abandoned=reply.was_abandoned,
        segments_left=deletion.segments_left,
        bytes_left=deletion.bytes_left,
    )
